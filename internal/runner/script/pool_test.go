package script

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestW30PoolIsBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := NewPool(r.Options, 2)
	defer p.Close()
	// Each script says that it runs and waits for leave; a third may not run while two do.
	for _, name := range []string{"here", "leave"} {
		if err := syscall.Mkfifo(filepath.Join(r.Dir, name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	here := open(t, filepath.Join(r.Dir, "here"))
	leave := open(t, filepath.Join(r.Dir, "leave"))
	const n = 5
	for i := range n {
		if !p.Start(t.Context(), fmt.Sprint("row-", i), "echo x > here; read -r -n 1 x < leave; echo '{\"wakeAgent\":true}'") {
			t.Fatal("not started")
		}
	}
	buf := make([]byte, 2)
	running, done := 0, 0
	for done < n {
		for running < min(2, n-done) {
			if _, err := here.Read(buf); err != nil {
				t.Fatal(err)
			}
			running++
		}
		if left, err := os.ReadDir(r.Temp); err != nil || len(left) > 2 {
			t.Errorf("%d scripts at the same time, %v", len(left), err)
		}
		if _, err := leave.WriteString("x"); err != nil {
			t.Fatal(err)
		}
		got := <-p.Results()
		if got.Err != nil || !got.Wake {
			t.Errorf("%+v", got)
		}
		running--
		done++
	}
}

// open opens both ends of a pipe, so that nobody waits for the other side.
func open(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// RUN-5: one row's script never runs twice at the same time, whoever asks.
func TestRUN5OneRunPerRow(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := NewPool(r.Options, 0)
	defer p.Close()
	const script = "echo x >> count; echo '{\"wakeAgent\":false}'"
	if !p.Start(t.Context(), "a", script) || p.Start(t.Context(), "a", script) || p.Len() != 1 {
		t.Error("a row must be taken once")
	}
	if got := <-p.Results(); got.RowID != "a" || got.Wake || got.Err != nil {
		t.Errorf("%+v", got)
	}
	if b, err := os.ReadFile(filepath.Join(r.Dir, "count")); err != nil || string(b) != "x\n" {
		t.Errorf("%q, %v", b, err)
	}
}

// Close stops what runs, drops what waits, and leaves nothing behind; goleak watches.
func TestW30PoolClose(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := NewPool(r.Options, 1)
	pid := fifo(t, r.Dir)
	p.Start(t.Context(), "a", "echo $$ > fifo; sleep 60")
	child := <-pid
	p.Start(t.Context(), "b", "sleep 60") // waits for room
	p.Close()
	p.Close()
	gone(t, child)
	if p.Start(t.Context(), "c", "true") || p.Len() != 0 {
		t.Error("a closed pool takes nothing")
	}
	if _, open := <-p.Results(); open {
		t.Error("results after Close")
	}
}

func TestW30PoolContext(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := NewPool(r.Options, 1)
	defer p.Close()
	ctx, cancel := context.WithCancel(t.Context())
	pid := fifo(t, r.Dir)
	p.Start(ctx, "a", "echo $$ > fifo; sleep 60")
	child := <-pid
	p.Start(ctx, "b", "true") // waits for room
	cancel()
	for range 2 {
		if got := <-p.Results(); !errors.Is(got.Err, context.Canceled) {
			t.Errorf("%+v", got)
		}
	}
	gone(t, child)
}
