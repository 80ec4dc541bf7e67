package codex_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"nanoclaw/internal/testkit/loopback"
)

// TestMain is also the fake CLI (FAKE_CODEX names its recording).
func TestMain(m *testing.M) {
	if path := os.Getenv(recording); path != "" {
		os.Exit(replay(path))
	}
	loopback.Main()
	goleak.VerifyTestMain(m)
}
