package docker

import (
	"fmt"
	"os"
	"path/filepath"

	"nanoclaw/internal/sandbox"
)

// writeAccounts writes the passwd and group files of a sandbox to its state folder: the image knows no name for the uid, and
// programs that look themselves up fail without one.
func writeAccounts(spec sandbox.Spec) ([]sandbox.Mount, error) {
	home := spec.Env["HOME"]
	if home == "" {
		home = "/home/agent"
	}
	files := []struct{ name, target, content string }{
		{"passwd", "/etc/passwd", fmt.Sprintf("root:x:0:0:root:/:/bin/false\nagent:x:%d:%d:agent:%s:/bin/bash\nnobody:x:65534:65534:nobody:/:/bin/false\n", spec.UID, spec.GID, home)},
		{"group", "/etc/group", fmt.Sprintf("root:x:0:\nagent:x:%d:\nnogroup:x:65534:\n", spec.GID)},
	}
	var mounts []sandbox.Mount
	for _, f := range files {
		path := filepath.Join(spec.StateDir, f.name)
		if err := writeFile(path, f.content); err != nil {
			return nil, &sandbox.Failure{Class: sandbox.Denied, Op: "write " + f.name + " of a sandbox", Hint: "the state folder must be the host's own", Err: err}
		}
		mounts = append(mounts, sandbox.Mount{Class: sandbox.ClassConfig, Source: path, Target: f.target})
	}
	return mounts, nil
}

// writeFile leaves a file alone that is right already: one may be mounted.
func writeFile(path, content string) error {
	if b, err := os.ReadFile(path); err == nil && string(b) == content {
		return nil
	}
	fresh := path + ".new"
	if err := os.WriteFile(fresh, []byte(content), 0o644); err != nil {
		return err
	}
	if err := os.Chmod(fresh, 0o644); err != nil { // whatever the umask
		return err
	}
	return os.Rename(fresh, path)
}
