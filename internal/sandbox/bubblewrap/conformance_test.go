package bubblewrap

import (
	"os"
	"os/exec"
	"testing"

	"nanoclaw/internal/sandbox"
	"nanoclaw/internal/sandbox/limit"
	"nanoclaw/internal/sandbox/sandboxtest"
)

func open(records string) (sandbox.Runtime, error) {
	return New(Options{RecordsDir: records, Limits: limit.Detect(nil)})
}

func TestMain(m *testing.M) { os.Exit(sandboxtest.Main(m, open)) }

// need skips where bubblewrap is not installed, and fails there in CI.
func need(t testing.TB) {
	t.Helper()
	if _, err := exec.LookPath("bwrap"); err == nil {
		return
	}
	if os.Getenv("CI") == "true" {
		t.Fatal("bwrap is not installed (apt-get install bubblewrap)")
	}
	t.Skip("bwrap is not installed (apt-get install bubblewrap)")
}

func TestConformance(t *testing.T) {
	t.Parallel()
	need(t)
	sandboxtest.Run(t, sandboxtest.Subject{Open: open, Isolated: true, Limited: os.Geteuid() == 0})
}

func TestUnprivileged(t *testing.T) {
	t.Parallel()
	need(t)
	if os.Geteuid() != 0 {
		t.Skip("the conformance test has run unprivileged")
	}
	sandboxtest.RunAs(t, 62020, "^TestConformance$")
}
