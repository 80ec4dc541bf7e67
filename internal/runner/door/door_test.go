package door

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"nanoclaw/internal/control"
	"nanoclaw/internal/socket"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 20 * time.Second

// echo answers with its name and what follows the hello.
func echo(hello string) Handler {
	return Handler{Hello: hello, Serve: func(_ context.Context, c *Conn) error {
		b, err := io.ReadAll(c)
		if err != nil {
			return err
		}
		_, err = io.WriteString(c, hello+" got "+string(b))
		return err
	}}
}

// open listens in a fresh folder and checks at the end that nothing is left.
func open(t *testing.T, handlers ...Handler) (dir string, end func()) {
	t.Helper()
	dir = t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	d, err := Listen(ctx, dir, nil, handlers...)
	if err != nil {
		t.Fatal(err)
	}
	end = func() {
		cancel()
		d.Wait()
		if _, err := os.Stat(filepath.Join(dir, control.RunnerSocket)); !os.IsNotExist(err) {
			t.Errorf("the socket is left: %v", err)
		}
	}
	t.Cleanup(end)
	return dir, end
}

type half interface{ CloseWrite() error }

// ask sends text, closes its side and returns the answer.
func ask(t *testing.T, dir, text string) string {
	t.Helper()
	c, err := socket.Dial(t.Context(), dir, control.RunnerSocket)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(patience))
	_, _ = io.WriteString(c, text)
	_ = c.(half).CloseWrite()
	b, _ := io.ReadAll(c) // a refusal may come as a reset
	return string(b)
}

// A connection goes to the part whose hello it says, and to no other.
func TestDispatchByHello(t *testing.T) {
	t.Parallel()
	dir, _ := open(t, echo("mcp 1"), echo("ncl 1"))
	info, err := os.Stat(filepath.Join(dir, control.RunnerSocket))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v", info, err)
	}
	for _, c := range []struct{ say, want string }{
		{"mcp 1\nhello\n", "mcp 1 got hello\n"},
		{"ncl 1\n{}", "ncl 1 got {}"},
		{"ncl 1\n", "ncl 1 got "},
		{"ncl 2\n{}", ""},
		{"ncl\n{}", ""},
		{" ncl 1\n{}", ""},
		{"ncl 1\r\n{}", ""},
		{"GET / HTTP/1.1\n", ""},
		{"ncl 1", ""}, // no end of the line
		{"", ""},
		{strings.Repeat("x", readBuffer+1) + "\n", ""},
	} {
		if got := ask(t, dir, c.say); got != c.want {
			t.Errorf("%.20q: answered %q, want %q", c.say, got, c.want)
		}
	}
}

// At most 16 connections are open; the next one is closed at once, and a place that becomes free is taken again.
func TestConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	begun, release := make(chan struct{}, maxConnections+1), make(chan struct{})
	dir, end := open(t, Handler{Hello: "x", Serve: func(ctx context.Context, c *Conn) error {
		begun <- struct{}{}
		select {
		case <-release:
		case <-ctx.Done():
		}
		_, err := io.WriteString(c, "served")
		return err
	}})
	var open []io.ReadCloser
	for range maxConnections {
		c, err := socket.Dial(t.Context(), dir, control.RunnerSocket)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		_, _ = io.WriteString(c, "x\n")
		open = append(open, c)
	}
	for range maxConnections {
		<-begun
	}
	if got := ask(t, dir, "x\n"); got != "" {
		t.Errorf("connection %d was served: %q", maxConnections+1, got)
	}
	close(release)
	for _, c := range open {
		if b, err := io.ReadAll(c); err != nil || string(b) != "served" {
			t.Errorf("%q, %v", b, err)
		}
	}
	if got := ask(t, dir, "x\n"); got != "served" {
		t.Errorf("after the others had ended: %q", got)
	}
	end()
}

// The end of the runner ends what is open.
func TestEndClosesConnections(t *testing.T) {
	t.Parallel()
	begun := make(chan struct{})
	dir, end := open(t, Handler{Hello: "x", Serve: func(_ context.Context, c *Conn) error {
		close(begun)
		_, err := c.Read(make([]byte, 1))
		return err
	}})
	c, err := socket.Dial(t.Context(), dir, control.RunnerSocket)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_, _ = io.WriteString(c, "x\n")
	<-begun
	end()
	_ = c.SetReadDeadline(time.Now().Add(patience))
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) && err == nil {
		t.Errorf("still open: %v", err)
	}
}

func TestListenSaysWhatWasTried(t *testing.T) {
	t.Parallel()
	if _, err := Listen(t.Context(), filepath.Join(t.TempDir(), "missing"), nil); err == nil || !strings.Contains(err.Error(), "runner's socket") {
		t.Errorf("error %v", err)
	}
}
