package host

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nanoclaw/internal/config"
	"nanoclaw/internal/config/container"
	"nanoclaw/internal/sandbox"
)

// The codex CLI starts a file that lies beside it: that comes into the sandbox with it, whatever link led to the program. Where
// there is none, the program comes alone.
func TestHelperOfProgram(t *testing.T) {
	t.Parallel()
	write := func(path string) string {
		t.Helper()
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	real, alone, links := t.TempDir(), t.TempDir(), t.TempDir()
	program, helper := write(filepath.Join(real, "codex")), write(filepath.Join(real, "codex-code-mode-host"))
	link := filepath.Join(links, "codex")
	if err := os.Symlink(program, link); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{program: helper, link: helper, write(filepath.Join(alone, "codex")): ""} {
		l := &launcher{runtime: named{name: sandbox.Bubblewrap}, supply: supply{settings: config.Settings{CodexProgram: path}}}
		fit, err := l.outfit(t.Context(), []container.Choice{{Provider: "codex"}}, "")
		if err != nil || fit.programs["codex-code-mode-host"].file != want || fit.programs["codex"].file == "" {
			t.Errorf("%s: %v, %v", path, fit.programs, err)
		}
	}
}

// spec/bugs.md PRV-4: a fallback whose program is not on this machine does not keep the first provider from working.
func TestPRV4MissingProgramOfFallback(t *testing.T) {
	t.Parallel()
	l := &launcher{runtime: named{name: sandbox.Bubblewrap}, supply: supply{settings: config.Settings{CodexProgram: filepath.Join(t.TempDir(), "none")}}}
	fit, err := l.outfit(t.Context(), []container.Choice{{Provider: "anthropic"}, {Provider: "codex"}, {Provider: "ollama"}}, "")
	if err != nil || len(fit.kinds) != 3 || len(fit.programs) != 0 {
		t.Errorf("%+v, %v", fit, err)
	}
	// nor does the first one's, where another can answer
	if fit, err = l.outfit(t.Context(), []container.Choice{{Provider: "codex"}, {Provider: "anthropic"}}, ""); err != nil || strings.Join(fit.missing, " ") != "codex" {
		t.Errorf("%+v, %v", fit, err)
	}
	_, err = l.outfit(t.Context(), []container.Choice{{Provider: "codex"}, {Provider: "acp"}}, "")
	var f *sandbox.Failure
	if !errors.As(err, &f) || f.Class.Retryable() || f.Hint != "the codex program; `nanoclaw doctor` says how to get it" || !strings.Contains(err.Error(), "codex.program") {
		t.Errorf("nobody can answer, and that is told as %v", err)
	}
}
