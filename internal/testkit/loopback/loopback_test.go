package loopback_test

import (
	"net"
	"os"
	"testing"

	"nanoclaw/internal/testkit/loopback"
)

func TestMain(m *testing.M) {
	loopback.Main()
	os.Exit(m.Run())
}

func TestOnlyLoopback(t *testing.T) {
	t.Parallel()
	if os.Getenv("NANOCLAW_TEST_LOOPBACK") == "" {
		t.Skip("network namespaces are not allowed here")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	// An address for documentation, RFC 5737: without a route the kernel refuses at once.
	if c, err := net.Dial("tcp", "192.0.2.1:80"); err == nil {
		_ = c.Close()
		t.Error("another network was reached")
	}
}
