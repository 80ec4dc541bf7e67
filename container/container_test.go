package container_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"nanoclaw/container"
	"nanoclaw/internal/provider/claude"
	"nanoclaw/internal/provider/codex"
	"nanoclaw/internal/provider/opencode"
)

// Drivers were tested with the pinned versions, and nothing else names one.
func TestPins(t *testing.T) {
	t.Parallel()
	tested := map[string]string{"claude": claude.NewestTested, "codex": codex.Tested, "opencode": opencode.Tested}
	files := container.Files(nil)
	for _, p := range container.Pins() {
		if p.Version != tested[p.Program] {
			t.Errorf("%s %s is pinned at %s, its driver was tested with %s", p.Program, p.Platform, p.Version, tested[p.Program])
		}
		for _, name := range []string{"Dockerfile", "fetch"} {
			if strings.Contains(string(files[name]), p.Version) {
				t.Errorf("%s names version %s of %s again", name, p.Version, p.Program)
			}
		}
	}
	sum := regexp.MustCompile(` [0-9a-f]{128}$`)
	for line := range strings.Lines(string(files["pins"])) {
		if line = strings.TrimSpace(line); !strings.HasPrefix(line, "#") && !sum.MatchString(line) {
			t.Errorf("no SHA-512: %q", line)
		}
	}
}

func TestPrograms(t *testing.T) {
	t.Parallel()
	for arch, want := range map[string][]string{"amd64": {"claude", "codex", "opencode"}, "arm64": {"claude", "codex"}, "riscv64": nil} {
		if got := container.Programs(arch); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", arch, got, want)
		}
	}
	if file := string(container.Files(nil)["Dockerfile"]); !strings.Contains(file, "LABEL "+container.ProgramsLabel+`="${PROGRAMS}"`) ||
		!strings.Contains(file, `ARG PROGRAMS="`+strings.Join(container.Programs("amd64"), " ")+`"`) {
		t.Error("the Dockerfile and the pins do not fit")
	}
}
