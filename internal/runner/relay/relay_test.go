package relay

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"nanoclaw/internal/socket"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// host stands for the egress proxy: it serves each connection with serve until it is closed, which cuts all of them.
type host struct {
	l    *socket.Listener
	mu   sync.Mutex
	open map[net.Conn]bool
	wg   sync.WaitGroup
}

func listen(t testing.TB, dir string, serve func(*net.UnixConn)) *host {
	t.Helper()
	l, err := socket.Listen(dir, socketName, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	h := &host{l: l, open: map[net.Conn]bool{}}
	h.wg.Go(func() {
		for {
			c, err := l.AcceptUnix()
			if err != nil {
				return
			}
			h.mu.Lock()
			h.open[c] = true
			h.mu.Unlock()
			h.wg.Go(func() {
				defer func() {
					_ = c.Close()
					h.mu.Lock()
					delete(h.open, c)
					h.mu.Unlock()
				}()
				serve(c)
			})
		}
	})
	t.Cleanup(h.kill)
	return h
}

func (h *host) kill() {
	_ = h.l.Close()
	h.mu.Lock()
	for c := range h.open {
		_ = c.Close()
	}
	h.mu.Unlock()
	h.wg.Wait()
}

func lines(c *net.UnixConn) {
	in := bufio.NewScanner(c)
	for in.Scan() {
		if _, err := fmt.Fprintf(c, "<%s>\n", in.Text()); err != nil {
			return
		}
	}
	_, _ = io.WriteString(c, "end\n")
}

func start(t testing.TB, opt Options) *Relay {
	t.Helper()
	if opt.Listen == "" {
		opt.Listen = "127.0.0.1:0"
	}
	r, err := Listen(t.Context(), opt)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return r
}

func connect(t testing.TB, r *Relay) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", r.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	return c.(*net.TCPConn)
}

func TestCopiesBothWaysAndHalfCloses(t *testing.T) {
	t.Parallel()
	// The folder's path is longer than a socket address.
	dir := filepath.Join(t.TempDir(), strings.Repeat("deep/", 30))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	listen(t, dir, lines)
	c := connect(t, start(t, Options{RunDir: dir}))
	_, _ = io.WriteString(c, "a\nb\n")
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(c)
	if err != nil || string(got) != "<a>\n<b>\nend\n" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestLargeBodiesPassUnchanged(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	listen(t, dir, func(c *net.UnixConn) { _, _ = io.Copy(c, c); _ = c.CloseWrite() })
	c := connect(t, start(t, Options{RunDir: dir}))
	block := []byte(strings.Repeat("0123456789abcdef", 4096))
	const n = 128 // 8 MiB
	var wg sync.WaitGroup
	wg.Go(func() {
		for range n {
			if _, err := c.Write(block); err != nil {
				t.Error(err)
				return
			}
		}
		_ = c.CloseWrite()
	})
	back := make([]byte, len(block))
	for i := range n {
		if _, err := io.ReadFull(c, back); err != nil || string(back) != string(block) {
			t.Fatalf("block %d: %v", i, err)
		}
	}
	if rest, err := io.ReadAll(c); len(rest) > 0 || err != nil {
		t.Errorf("after the end: %q %v", rest, err)
	}
	wg.Wait()
}

func TestHostThatIsAwayCostsOnlyWhatWasOpen(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	h := listen(t, dir, lines)
	r := start(t, Options{RunDir: dir})
	open := connect(t, r)
	_, _ = io.WriteString(open, "a\n")
	in := bufio.NewReader(open)
	if s, err := in.ReadString('\n'); s != "<a>\n" {
		t.Fatalf("%q %v", s, err)
	}
	h.kill()
	if rest, err := io.ReadAll(in); len(rest) > 0 {
		t.Errorf("a cut connection went on: %q %v", rest, err)
	}
	// New ones wait, with what they have said so far.
	var waiting []*net.TCPConn
	for i := range 20 {
		c := connect(t, r)
		_, _ = fmt.Fprintf(c, "%d\n", i)
		waiting = append(waiting, c)
	}
	listen(t, dir, lines)
	for i, c := range waiting {
		if got, err := bufio.NewReader(c).ReadString('\n'); err != nil || got != fmt.Sprintf("<%d>\n", i) {
			t.Errorf("connection %d: %q %v", i, got, err)
		}
	}
}

func TestHoldEnds(t *testing.T) {
	t.Parallel()
	r := start(t, Options{RunDir: t.TempDir(), Hold: 30 * time.Millisecond})
	c := connect(t, r)
	_, sent := io.WriteString(c, "a\n") // on a slow machine the reset is here already
	if got, err := io.ReadAll(c); !errors.Is(errors.Join(sent, err), syscall.ECONNRESET) || len(got) > 0 {
		t.Errorf("want a reset, got %q %v", got, err)
	}
}

func TestClientThatLeftIsNotServed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := start(t, Options{RunDir: dir})
	gone := connect(t, r)
	_, _ = io.WriteString(gone, "gone\n")
	_ = gone.CloseWrite()
	if got, err := io.ReadAll(gone); err == nil && len(got) > 0 {
		t.Errorf("got %q", got)
	} // its end was seen, before the host is back
	asked := make(chan string, 10)
	listen(t, dir, func(c *net.UnixConn) {
		s, _ := bufio.NewReader(c).ReadString('\n')
		asked <- s
	})
	stays := connect(t, r)
	_, _ = io.WriteString(stays, "stays\n")
	_, _ = io.ReadAll(stays)
	if s := <-asked; s != "stays\n" || len(asked) > 0 {
		t.Errorf("the host was asked for %q", s)
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	listen(t, dir, lines)
	r, err := Listen(t.Context(), Options{Listen: "127.0.0.1:0", RunDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	c := connect(t, r)
	_, _ = io.WriteString(c, "a\n")
	if _, err := bufio.NewReader(c).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if _, err := io.ReadAll(c); err != nil && !errors.Is(err, syscall.ECONNRESET) {
		t.Error(err)
	}
	if _, err := net.Dial("tcp", r.Addr()); err == nil {
		t.Error("the port is still open")
	}
}

func TestListenRefuses(t *testing.T) {
	t.Parallel()
	for _, o := range []Options{{Listen: "0.0.0.0:0"}, {Listen: ""}, {Listen: "localhost:0"}, {Listen: "10.0.0.1:80"}, {Listen: "127.0.0.1:0", Token: "a b"}, {Listen: "127.0.0.1:0", Token: "a/b"}} {
		if r, err := Listen(t.Context(), o); err == nil {
			_ = r.Close()
			t.Errorf("%+v was taken", o)
		}
	}
	r, err := Listen(t.Context(), Options{Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	if _, err := Listen(t.Context(), Options{Listen: r.Addr()}); err == nil || !strings.Contains(err.Error(), "another runner") {
		t.Errorf("a taken port: %v", err)
	}
}

func TestToken(t *testing.T) {
	t.Parallel()
	const token = "tok-123_ABC"
	dir := t.TempDir()
	listen(t, dir, func(c *net.UnixConn) {
		in := bufio.NewReader(c)
		for {
			r, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			body, _ := io.ReadAll(r.Body)
			text := r.Method + " " + r.RequestURI + " " + string(body)
			_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(text), text)
		}
	})
	r := start(t, Options{RunDir: dir, Token: token})
	proxy, err := url.Parse(r.ProxyURL())
	if err != nil {
		t.Fatal(err)
	}
	viaBase, viaProxy := &http.Transport{}, &http.Transport{Proxy: http.ProxyURL(proxy)}
	defer viaBase.CloseIdleConnections()
	defer viaProxy.CloseIdleConnections()
	for range 2 { // the second time on a connection that is known
		resp, err := (&http.Client{Transport: viaBase}).Post(r.BaseURL("anthropic")+"/v1/messages?beta=true", "", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if want := "POST /~" + token + "/anthropic/v1/messages?beta=true {}"; string(b) != want {
			t.Errorf("%q, want %q", b, want)
		}
		if resp, err = (&http.Client{Transport: viaProxy}).Get("http://plain.test/x"); err != nil {
			t.Fatal(err)
		}
		b, _ = io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if string(b) != "GET http://plain.test/x " {
			t.Errorf("%q", b)
		}
	}
	for _, send := range []string{
		"GET /anthropic/v1 HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET /~wrong/anthropic/v1 HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET /~/anthropic/v1 HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET /~" + token + "x/anthropic HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET /x/~" + token + "/anthropic HTTP/1.1\r\nHost: x\r\n\r\n",
		"CONNECT a:443 HTTP/1.1\r\nHost: x\r\n\r\n",
		"CONNECT a:443 HTTP/1.1\r\nHost: x\r\nProxy-Authorization: Basic bmFub2NsYXc6d3Jvbmc=\r\n\r\n",
		"CONNECT a:443 HTTP/1.1\r\nHost: x\r\nProxy-Authorization: Basic %%%\r\n\r\n",
		"CONNECT a:443 HTTP/1.1\r\nHost: x\r\nProxy-Authorization: Bearer " + token + "\r\n\r\n",
		"\r\n\r\n",
	} {
		c := connect(t, r)
		_, _ = io.WriteString(c, send)
		if got, _ := io.ReadAll(c); !strings.HasPrefix(string(got), "HTTP/1.1 407 ") || !strings.HasSuffix(string(got), "session") {
			t.Errorf("%q: %q", send, got)
		}
	}
	c := connect(t, r)
	_, _ = io.WriteString(c, "GET /"+strings.Repeat("x", maxFirst+8192))
	if got, _ := io.ReadAll(c); len(got) > 0 {
		t.Errorf("a head without end got %q", got)
	}
}

func TestEnviron(t *testing.T) {
	t.Parallel()
	r, err := Listen(t.Context(), Options{Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	env := strings.Join(r.Environ(), "\n")
	for _, want := range []string{"HTTPS_PROXY=http://" + r.Addr(), "https_proxy=http://" + r.Addr(), "NO_PROXY=127.0.0.1,localhost"} {
		if !strings.Contains(env, want) {
			t.Errorf("%s is not in\n%s", want, env)
		}
	}
	if want := "http://" + r.Addr() + "/anthropic"; r.BaseURL("anthropic") != want {
		t.Errorf("base URL %s", r.BaseURL("anthropic"))
	}
}

func FuzzAuthentic(f *testing.F) {
	for _, s := range []string{"GET /~tok/x HTTP/1.1\r\nHost: x", "CONNECT a:1 HTTP/1.1\r\nProxy-Authorization: Basic eDp0b2s=", "\r\n", "GET /~"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if authentic([]byte(s), "secret-token") && !strings.Contains(s, "secret-token") && !strings.Contains(strings.ToLower(s), "basic") {
			t.Errorf("%q was taken for one that knows the token", s)
		}
	})
}

func BenchmarkLatency(b *testing.B) {
	echo := func(c *net.UnixConn) { _, _ = io.Copy(c, c) }
	ping := func(b *testing.B, c net.Conn, buffer []byte) {
		if _, err := c.Write(buffer); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(c, buffer); err != nil {
			b.Fatal(err)
		}
	}
	dir := b.TempDir()
	listen(b, dir, echo)
	r := start(b, Options{RunDir: dir})
	dials := map[string]func() (net.Conn, error){
		"relay":  func() (net.Conn, error) { return net.Dial("tcp", r.Addr()) },
		"direct": func() (net.Conn, error) { return socket.Dial(b.Context(), dir, socketName) },
	}
	for name, dial := range dials {
		b.Run("kept/"+name, func(b *testing.B) {
			c, err := dial()
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = c.Close() }()
			buffer := make([]byte, 512)
			for b.Loop() {
				ping(b, c, buffer)
			}
		})
		b.Run("new/"+name, func(b *testing.B) {
			buffer := make([]byte, 512)
			for b.Loop() {
				c, err := dial()
				if err != nil {
					b.Fatal(err)
				}
				ping(b, c, buffer)
				_ = c.Close()
			}
		})
	}
}
