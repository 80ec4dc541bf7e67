package socket

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func deep(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), strings.Repeat("a-long-folder-name/", 12))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

func echo(t *testing.T, l net.Listener) {
	t.Helper()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.Copy(c, c)
			_ = c.Close()
		}
	}()
}

func roundTrip(t *testing.T, c net.Conn) {
	t.Helper()
	defer func() { _ = c.Close() }()
	if _, err := c.Write([]byte("hi")); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 2)
	if _, err := io.ReadFull(c, b); err != nil || string(b) != "hi" {
		t.Fatalf("got %q, %v", b, err)
	}
}

func TestListenAndDialInADeepFolder(t *testing.T) {
	t.Parallel()
	dir := deep(t)
	l, err := Listen(dir, "x.sock", 0o600)
	if err != nil {
		t.Fatal(err)
	}
	echo(t, l)
	c, err := Dial(t.Context(), dir, "x.sock")
	if err != nil {
		t.Fatal(err)
	}
	if uid, err := PeerUID(c); err != nil || uid != os.Getuid() {
		t.Errorf("peer uid %d, %v", uid, err)
	}
	roundTrip(t, c)
	st, err := os.Lstat(filepath.Join(dir, "x.sock"))
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestCloseLeavesAnothersSocket(t *testing.T) {
	t.Parallel()
	dir := deep(t)
	first, err := Listen(dir, "x.sock", 0o600)
	if err != nil {
		t.Fatal(err)
	}
	second, err := Listen(dir, "x.sock", 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = second.Close() }()
	_ = first.Close()
	echo(t, second)
	c, err := Dial(t.Context(), dir, "x.sock")
	if err != nil {
		t.Fatal(err)
	}
	roundTrip(t, c)
}

func TestDialRefusesLinksAndFiles(t *testing.T) {
	t.Parallel()
	dir := deep(t)
	l, err := Listen(dir, "x.sock", 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if err := os.Symlink("x.sock", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"link", "file", "missing"} {
		if _, err := Dial(t.Context(), dir, name); err == nil {
			t.Errorf("%s was dialled", name)
		}
	}
}

func TestRetryWaitsForTheListener(t *testing.T) {
	t.Parallel()
	dir := deep(t)
	got := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	go func() {
		c, err := Retry(ctx, dir, "x.sock", 20*time.Second)
		if err == nil {
			_ = c.Close()
		}
		got <- err
	}()
	l, err := Listen(dir, "x.sock", 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	echo(t, l)
	if err := <-got; err != nil {
		t.Error(err)
	}
	if _, err := Retry(ctx, dir, "never.sock", 20*time.Millisecond); err == nil {
		t.Error("a missing socket was dialled")
	}
}
