package extra

import (
	"os"
	"path"
	"path/filepath"
	"strings"

	"nanoclaw/internal/sandbox"
)

// builtIn are the names that no agent is shown: parts of a path, as patterns, in any case of letters. One with a slash stands for
// parts that follow each other.
func builtIn() []string {
	return []string{
		".ssh", ".gnupg", ".gpg", ".aws", ".azure", ".gcloud", ".kube", ".docker", ".config/gcloud", ".config/gh", ".config/nanoclaw", ".nanoclaw",
		".password-store", ".mozilla", ".local/bin", ".local/share/keyrings", "credentials", "credentials.json", ".git-credentials", ".vault-token",
		".env", ".env.local", ".env.*.local", ".env.prod*", ".netrc", ".npmrc", ".pypirc", ".pgpass", ".secret", ".secrets",
		"id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", "private_key*", "docker.sock", "podman.sock",
	}
}

// system are folders of the machine: nothing of them is shown, and nothing that holds one of them.
func system() []string {
	return []string{"/proc", "/sys", "/dev", "/run", "/boot", "/etc", "/var/lib/docker", "/var/lib/containers", "/var/lib/containerd"}
}

// reserved says why a path can never be a mount, whatever the list allows.
func (l List) reserved(source string) string {
	for _, s := range system() {
		if sandbox.Within(s, source) || sandbox.Within(source, s) {
			return "belongs to the system (" + s + ")"
		}
	}
	switch {
	case l.home != "" && (sandbox.Within(l.home, source) || sandbox.Within(source, l.home)):
		return "shares files with the home folder of NanoClaw itself"
	case l.user != "" && sandbox.Within(source, l.user):
		return "holds the whole home folder of the operator"
	}
	return ""
}

// blocked is the pattern that hits one of the parts of a path; empty: none.
func (l List) blocked(parts []string) string {
	for _, p := range append(builtIn(), l.Blocked...) {
		want := strings.Split(strings.Trim(p, "/"), "/")
		for i := 0; i+len(want) <= len(parts); i++ {
			if matches(want, parts[i:]) {
				return p
			}
		}
	}
	return ""
}

func matches(want, parts []string) bool {
	for i, w := range want {
		if ok, err := path.Match(strings.ToLower(w), strings.ToLower(parts[i])); err != nil || !ok {
			return false
		}
	}
	return true
}

// Bounds of the search for what is never shown.
const (
	searchDepth   = 5
	searchEntries = 20_000
	maxMasks      = 200 // each is a mount of its own
)

// hidden finds what is never shown below a folder, level by level; whole is false if it did not look everywhere. No link is
// followed: inside a sandbox a link leads to what the sandbox has there.
func (l List) hidden(source string) (masks []Mask, whole bool) {
	whole = true
	level, seen := []string{"."}, 0
	for depth := 0; len(level) > 0; depth++ {
		if depth == searchDepth {
			return masks, false
		}
		var next []string
		for _, dir := range level {
			entries, err := os.ReadDir(filepath.Join(source, dir))
			if err != nil {
				continue // what the host cannot read, a sandbox cannot
			}
			for _, e := range entries {
				if seen++; seen > searchEntries {
					return masks, false
				}
				rel := filepath.Join(dir, e.Name())
				parts := strings.Split(rel, "/")
				switch {
				case !e.IsDir() && !e.Type().IsRegular():
				case l.blocked(parts) != "":
					masks = append(masks, Mask{rel, e.IsDir()})
				case e.IsDir():
					next = append(next, rel)
				}
			}
		}
		level = next
	}
	return masks, whole
}
