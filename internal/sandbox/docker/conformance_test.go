package docker

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"nanoclaw/internal/sandbox"
	"nanoclaw/internal/sandbox/sandboxtest"
)

// onPodman are the parts of the suite that Podman does not pass: it puts variables of its own inside, and on cgroup v1 does not
// report that a container was ended for lack of memory.
const onPodman = "TestConformance/(Environment|MemoryHog)$"

func TestMain(m *testing.M) {
	flag.Parse()
	if isPodman() && flag.Lookup("test.skip").Value.String() == "" {
		fmt.Fprintln(os.Stderr, "the daemon is Podman: leaving out "+onPodman)
		if err := flag.Set("test.skip", onPodman); err != nil {
			panic(err)
		}
	}
	code := sandboxtest.Main(m, open)
	if code == 0 {
		if err := goleak.Find(); err != nil {
			println(err.Error())
			code = 1
		}
	}
	os.Exit(code)
}

// open needs no folder of records: the daemon keeps them.
func open(string) (sandbox.Runtime, error) { return New(Options{Image: testImage}) }

func isPodman() bool {
	r, err := New(Options{})
	if err != nil {
		return false
	}
	defer func() { _ = r.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), probeTimeout)
	defer cancel()
	f, err := r.facts(ctx)
	return err == nil && f.podman
}

func TestConformance(t *testing.T) {
	r, _ := daemon(t)
	closing := func(records string) (sandbox.Runtime, error) {
		own, err := New(Options{Image: testImage})
		if err == nil {
			t.Cleanup(func() { _ = own.Close() })
		}
		return own, err
	}
	sandboxtest.Run(t, sandboxtest.Subject{Open: closing, Isolated: true, Limited: r.Limits() != "none", Image: testImage})
}
