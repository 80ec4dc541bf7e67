package process

import (
	"os"
	"testing"

	"nanoclaw/internal/sandbox"
	"nanoclaw/internal/sandbox/limit"
	"nanoclaw/internal/sandbox/sandboxtest"
)

func open(records string) (sandbox.Runtime, error) {
	return New(Options{RecordsDir: records, Limits: limit.Detect(nil)}), nil
}

func TestMain(m *testing.M) { os.Exit(sandboxtest.Main(m, open)) }

func TestConformance(t *testing.T) {
	t.Parallel()
	sandboxtest.Run(t, sandboxtest.Subject{Open: open, Limited: os.Geteuid() == 0})
}

func TestUnprivileged(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("the conformance test has run unprivileged")
	}
	sandboxtest.RunAs(t, 62021, "^TestConformance$")
}
