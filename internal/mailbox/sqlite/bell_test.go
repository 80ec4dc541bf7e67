package sqlite

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"nanoclaw/internal/socket"
)

func TestMain(m *testing.M) {
	if child() {
		return
	}
	goleak.VerifyTestMain(m)
}

func heard(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(10 * time.Second):
		t.Fatalf("%s: nothing was heard", what)
	}
}

// eventually looks until ok; state that changes in another goroutine.
func eventually(t *testing.T, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for !ok() {
		select {
		case <-ctx.Done():
			t.Fatal("it did not come about in time")
		case <-time.After(time.Millisecond):
		}
	}
}

func TestBellRingsBothWays(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	h, err := ListenBell(dir, 3, 0o600, nil)
	must(t, err)
	h.Ring() // nobody there: dropped
	r := DialBell(t.Context(), dir, 3, nil)
	heard(t, "connected, host", h.Rung())
	heard(t, "connected, runner", r.Rung())
	heard(t, "change, host", h.Changed())
	heard(t, "change, runner", r.Changed())
	for range 100 {
		h.Ring()
		r.Ring()
	}
	heard(t, "hundred rings, runner", r.Rung())
	heard(t, "hundred rings, host", h.Rung())

	// A runner that does not read never blocks its host.
	for range 2_000_000 / 10 {
		h.Ring()
	}
	must(t, h.Close())
	must(t, h.Close())
	eventually(t, func() bool { return !r.Connected() })
	h, err = ListenBell(dir, 3, 0o600, nil)
	must(t, err)
	eventually(t, func() bool { return r.Connected() && h.Connected() })
	must(t, r.Close())
	must(t, r.Close())
	eventually(t, func() bool { return !h.Connected() })
	must(t, h.Close())
	if left, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, error %v", left, err)
	}
}

func TestBellLetsOnlyItsIncarnationIn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	h, err := ListenBell(dir, 3, 0o600, nil)
	must(t, err)
	defer func() { must(t, h.Close()) }()
	refused := func(what, hello string) {
		t.Helper()
		c, err := socket.Dial(t.Context(), dir, bellFile)
		must(t, err)
		defer func() { _ = c.Close() }()
		_, err = fmt.Fprint(c, hello)
		must(t, err)
		must(t, c.SetDeadline(time.Now().Add(10*time.Second)))
		if n, err := c.Read(make([]byte, 1)); err == nil {
			t.Errorf("%s: got %d bytes", what, n)
		} else if timeout, ok := err.(net.Error); ok && timeout.Timeout() {
			t.Errorf("%s: was not closed", what)
		}
	}
	refused("an older incarnation", "hello 2\n")
	refused("nonsense", "GET / HTTP/1.1\n")
	refused("an endless line", string(make([]byte, 1000)))
	refused("silence", "")
	if h.Connected() {
		t.Error("a refused caller is connected")
	}
	ctx, cancel := context.WithCancel(t.Context())
	r := DialBell(ctx, dir, 3, nil)
	eventually(t, func() bool { return h.Connected() && r.Connected() })
	refused("a second connection", "hello 3\n")
	r.Ring()
	heard(t, "after a refused second", h.Rung())
	cancel()
	eventually(t, func() bool { return !h.Connected() })
	must(t, r.Close())
}

// The fallback of a runner whose host is away: it finds the bell again by itself.
func TestBellIsFoundAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := DialBell(t.Context(), dir, 1, nil)
	if r.Connected() {
		t.Error("connected to nobody")
	}
	h, err := ListenBell(dir, 1, 0o600, nil)
	must(t, err)
	eventually(t, r.Connected)
	must(t, h.Close())
	must(t, r.Close())
}
