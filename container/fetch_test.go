package container_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// fetch runs the script with a PATH that has this npm first.
func fetch(t *testing.T, npm, cache string, env []string, args ...string) (out string, err error) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "npm"), []byte("#!/bin/sh\n"+npm+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "sh", append([]string{"./fetch"}, args...)...)
	cmd.Env = append([]string{"PATH=" + dir + ":" + os.Getenv("PATH"), "NANOCLAW_CACHE=" + cache}, env...)
	b, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(b)), err
}

// A package is taken only with the pinned checksum, and a version of somebody's own without one; what is there is not fetched again;
// what fails leaves nothing.
func TestFetch(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"flock", "sha512sum", "awk", "timeout"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is missing", tool)
		}
	}
	// an npm that packs a program which says its version, as `npm pack --pack-destination DIR PACKAGE` does
	const npm = `while [ $# -gt 1 ]; do [ "$1" != --pack-destination ] || to=$2; shift; done
mkdir -p "$to/made/package" && version=${1##*@} && printf '#!/bin/sh\necho "%s (Claude Code)"\n' "$version" >"$to/made/package/claude" && tar -czf "$to/x.tgz" -C "$to/made" package && echo x.tgz`
	cache := t.TempDir()
	left := func() []string {
		found, err := filepath.Glob(filepath.Join(cache, "*", "claude"))
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	if out, err := fetch(t, npm, cache, nil, "claude"); err == nil || !strings.Contains(out, "pinned SHA-512") || len(left()) != 0 {
		t.Errorf("another archive than the pinned one: %v, %s, left %q", err, out, left())
	}
	if out, err := fetch(t, "exit 1", cache, nil, "claude"); err == nil || !strings.Contains(out, "npm pack failed") {
		t.Errorf("no registry: %v, %s", err, out)
	}
	for _, npm := range []string{npm, "exit 1"} { // fetched, then found
		out, err := fetch(t, npm, cache, []string{"CLAUDE_VERSION=9.9.9"}, "claude")
		if lines := strings.Split(out, "\n"); err != nil || len(left()) != 1 || lines[len(lines)-1] != left()[0] {
			t.Errorf("a version of our own: %v, %s, left %q", err, out, left())
		}
	}
	if out, err := fetch(t, npm, cache, nil, "gemini"); err == nil || !strings.Contains(out, "usage: fetch claude|codex|opencode") {
		t.Errorf("a program that nobody pinned: %v, %s", err, out)
	}
}
