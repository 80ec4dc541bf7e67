package claude_test

import (
	"flag"
	"os"
	"testing"

	"go.uber.org/goleak"

	"nanoclaw/internal/testkit/loopback"
)

const fakeMode = "FAKE_CLAUDE"

// TestMain is also the fake CLI (FAKE_CLAUDE says how it behaves).
func TestMain(m *testing.M) {
	if os.Getenv(fakeMode) == "tools" {
		toolServer()
		os.Exit(0)
	}
	if mode := os.Getenv(fakeMode); mode != "" {
		os.Exit(fakeCLI(mode))
	}
	loopback.Main()
	// the tests wait for other processes most of the time
	flag.Parse()
	if parallel := flag.Lookup("test.parallel"); parallel.Value.String() == parallel.DefValue {
		_ = flag.Set("test.parallel", "6")
	}
	goleak.VerifyTestMain(m)
}
