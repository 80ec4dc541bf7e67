package egress

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"nanoclaw/internal/obs"
	"nanoclaw/internal/socket"
)

// raw sends bytes over a connection of its own and returns what comes back until the other side closes. Unless the bytes ask
// for that themselves, it says that it has said all once an answer has begun: not earlier, since that is leaving.
func raw(t *testing.T, dir, send string) string {
	t.Helper()
	c := dial(t, dir)
	defer func() { _ = c.Close() }()
	if _, err := io.WriteString(c, send); err != nil && !errors.Is(err, syscall.EPIPE) {
		t.Fatal(err)
	}
	first := make([]byte, 1)
	if _, err := io.ReadFull(c, first); err != nil {
		return ""
	}
	if u, ok := c.(*net.UnixConn); ok && !strings.Contains(send, "Connection: close") {
		_ = u.CloseWrite()
	}
	b, err := io.ReadAll(c)
	if err != nil && !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("%q: %v after %q", cut(send, 60), err, b)
	}
	return string(first) + string(b)
}

func dial(t *testing.T, dir string) net.Conn {
	t.Helper()
	c, err := socket.Dial(t.Context(), dir, SocketName)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	return c
}

// echo serves one behaviour on loopback and returns its address.
func echo(t *testing.T, serve func(*net.TCPConn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer func() { _ = c.Close() }()
				serve(c.(*net.TCPConn))
			})
		}
	})
	t.Cleanup(func() { _ = l.Close(); wg.Wait() })
	return l.Addr().String()
}

func TestTunnel(t *testing.T) {
	t.Parallel()
	address := echo(t, func(c *net.TCPConn) {
		b, err := io.ReadAll(c) // until the sandbox has said all
		if err == nil {
			_, _ = fmt.Fprintf(c, "got %s", b)
		}
	})
	b := setup(t, Session{ID: "sess-1", Group: "ag-1", Allow: []string{address}}, nil)
	answer := raw(t, b.dir, "CONNECT "+address+" HTTP/1.1\r\nHost: "+address+"\r\nProxy-Authorization: Basic eDp5\r\n\r\nearly late")
	if want := "HTTP/1.1 200 Connection established\r\n\r\ngot early late"; answer != want {
		t.Errorf("answer %q, want %q", answer, want)
	}
	e := b.audit.next(t)
	e.At, e.Duration = time.Time{}, 0
	if want := (Call{Session: "sess-1", Group: "ag-1", Method: "CONNECT", Host: address, Status: 200, BytesIn: 10, BytesOut: 14}); e != want {
		t.Errorf("audit %+v, want %+v", e, want)
	}
}

func TestTunnelsEndWithTheirSession(t *testing.T) {
	t.Parallel()
	address := echo(t, func(c *net.TCPConn) { _, _ = io.Copy(c, c) })
	s := Session{ID: "sess-1", Allow: []string{address}}
	b := setup(t, s, nil)
	c := dial(t, b.dir)
	defer func() { _ = c.Close() }()
	_, _ = fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: x\r\n\r\n", address)
	in := bufio.NewReader(c)
	for range 2 {
		if _, err := in.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	_, _ = io.WriteString(c, "ping\n")
	if line, err := in.ReadString('\n'); line != "ping\n" {
		t.Fatalf("%q %v", line, err)
	}
	if err := b.close(); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(in); len(rest) != 0 {
		t.Errorf("after the end came %q, %v", rest, err)
	}
	if e := b.audit.next(t); e.Reason != "cut" || e.BytesIn != 5 || e.BytesOut != 5 {
		t.Errorf("audit %+v", e)
	}
	if _, err := os.Lstat(filepath.Join(b.dir, SocketName)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket's file is still there: %v", err)
	}
	b.open(t, s) // the host is back
	if got := raw(t, b.dir, "CONNECT "+address+" HTTP/1.1\r\nHost: x\r\n\r\nagain"); !strings.HasSuffix(got, "again") {
		t.Errorf("after opening again: %q", got)
	}
}

func TestAllowListIsTheOnlyWay(t *testing.T) {
	t.Parallel()
	internal := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "internal") }))
	defer internal.Close()
	loopback := strings.TrimPrefix(internal.URL, "http://")
	var mu sync.Mutex
	var dialled []string
	answers := map[string][]netip.Addr{
		"good.test":    {netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("93.184.216.34")},
		"rebind.test":  {netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1"), netip.MustParseAddr("169.254.169.254")},
		"mapped.test":  {netip.MustParseAddr("::ffff:127.0.0.1")},
		"nowhere.test": {},
	}
	b := setup(t, Session{ID: "s", Allow: []string{"good.test:80", "good.test:443", "*.test:80", "*.test:443", loopback}}, func(o *Options) {
		o.Resolve = func(_ context.Context, host string) ([]netip.Addr, error) {
			a, ok := answers[host]
			if !ok {
				return nil, &net.DNSError{Err: "no such host", Name: host}
			}
			return a, nil
		}
		o.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			mu.Lock()
			dialled = append(dialled, address)
			mu.Unlock()
			return (&net.Dialer{}).DialContext(ctx, network, loopback) // stands for the internet
		}
	})
	take := func() string {
		mu.Lock()
		defer mu.Unlock()
		s := strings.Join(dialled, " ")
		dialled = nil
		return s
	}
	for _, c := range []struct{ target, status, dialled, body string }{
		{"good.test", "200", "93.184.216.34", ""},
		{"GOOD.test.", "200", "93.184.216.34", ""},
		{"rebind.test", "403", "", "an address of this machine"},
		{"mapped.test", "403", "", "an address of this machine"},
		{"nowhere.test", "403", "", "an address of this machine"},
		{"unknown.test", "502", "", "look up"},
		{"evil.example", "403", "", "egress.allow"},
		{"127.0.0.1", "403", "", "egress.allow"},
		{"169.254.169.254", "403", "", `"169.254.169.254:`},
		{"[::1]", "403", "", "egress.allow"},
		{"localhost", "403", "", "egress.allow"},
	} {
		for port, send := range map[string]string{
			"443": "CONNECT " + c.target + ":443 HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
			"80":  "GET http://" + c.target + "/x?secret=1 HTTP/1.1\r\nHost: other.test\r\nConnection: close\r\n\r\n",
		} {
			got := raw(t, b.dir, send)
			want := c.dialled
			if want != "" {
				want += ":" + port
			}
			if d := take(); !strings.HasPrefix(got, "HTTP/1.1 "+c.status) || !strings.Contains(got, c.body) || d != want {
				t.Errorf("%q:\n%s\ndialled %q, want %q", cut(send, 50), got, d, want)
			}
			if c.status == "200" && !strings.Contains(got, "internal") {
				t.Errorf("%q: no answer came through: %s", cut(send, 50), got)
			}
			if e := b.audit.next(t); strings.Contains(e.Path, "secret") || fmt.Sprint(e.Status) != c.status || c.status == "403" && e.Reason == "" {
				t.Errorf("audit %+v", e)
			}
		}
	}
	got := raw(t, b.dir, "GET "+internal.URL+"/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	if !strings.HasSuffix(got, "internal") || take() != loopback {
		t.Errorf("an address that the list names: %s", got)
	}
}

func TestHostileRequests(t *testing.T) {
	t.Parallel()
	seen := make(chan string, 100)
	change, _ := api(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		seen <- r.Method + " " + r.RequestURI + " " + string(b)
	})
	b := setup(t, Session{ID: "s", Upstreams: []string{"anthropic"}, Allow: []string{"good.test:80"}}, change)
	const ok = "/anthropic/v1/messages"
	for name, c := range map[string]struct{ send, want string }{
		"no http":                 {"hello\r\n\r\n", "400"},
		"http/1.0":                {"GET " + ok + " HTTP/1.0\r\n\r\n", "505"},
		"http/0.9":                {"GET " + ok + "\r\n\r\n", "400"},
		"http/2 preface":          {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "505"},
		"two hosts":               {"GET " + ok + " HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "400"},
		"no host":                 {"GET " + ok + " HTTP/1.1\r\n\r\n", "400"},
		"two lengths":             {"POST " + ok + " HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", "400"},
		"negative length":         {"POST " + ok + " HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", "400"},
		"length with plus":        {"POST " + ok + " HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n\r\na", "400"},
		"two encodings":           {"POST " + ok + " HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n", "501"},
		"odd encoding":            {"POST " + ok + " HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", "501"},
		"space before colon":      {"POST " + ok + " HTTP/1.1\r\nHost: a\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n", "400"},
		"folded header":           {"GET " + ok + " HTTP/1.1\r\n Host: a\r\n\r\n", "400"},
		"control in header":       {"GET " + ok + " HTTP/1.1\r\nHost: a\r\nX: a\x00b\r\n\r\n", "400"},
		"many headers":            {"GET " + ok + " HTTP/1.1\r\nHost: a\r\n" + strings.Repeat("X-Flood: 0123456789\r\n", 5000) + "\r\n", "431"},
		"one huge header":         {"GET " + ok + " HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("x", 100<<10) + "\r\n\r\n", "431"},
		"huge url":                {"GET " + ok + "?" + strings.Repeat("x", 100<<10) + " HTTP/1.1\r\nHost: a\r\n\r\n", "431"},
		"double slash":            {"GET //anthropic/v1/messages HTTP/1.1\r\nHost: a\r\n\r\n", "400"},
		"other host by slashes":   {"GET //evil.test/v1/messages HTTP/1.1\r\nHost: a\r\n\r\n", "400"},
		"encoded slash":           {"GET /anthropic%2fv1/messages HTTP/1.1\r\nHost: a\r\n\r\n", "400"},
		"encoded slash below":     {"GET /anthropic/v1%2fmessages HTTP/1.1\r\nHost: a\r\n\r\n", "400"},
		"dots":                    {"GET /anthropic/v1/messages/../../api HTTP/1.1\r\nHost: a\r\n\r\n", "400"},
		"encoded dots":            {"GET /anthropic/%2e%2e/v1/messages HTTP/1.1\r\nHost: a\r\n\r\n", "400"},
		"asterisk":                {"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", "400"},
		"absolute to ourselves":   {"GET http://anthropic/v1/messages HTTP/1.1\r\nHost: a\r\n\r\n", "403"},
		"absolute https":          {"GET https://good.test/ HTTP/1.1\r\nHost: a\r\n\r\n", "400"},
		"absolute ftp":            {"GET ftp://good.test/ HTTP/1.1\r\nHost: a\r\n\r\n", "400"},
		"absolute with user info": {"GET http://u:p@good.test/ HTTP/1.1\r\nHost: a\r\n\r\n", "400"},
		"absolute trick":          {"GET http://good.test@evil.test/ HTTP/1.1\r\nHost: a\r\n\r\n", "400"},
		"absolute other":          {"GET http://evil.test/ HTTP/1.1\r\nHost: good.test\r\n\r\n", "403"},
		"absolute no host":        {"GET http:///x HTTP/1.1\r\nHost: good.test\r\n\r\n", "400"},
		"connect user info":       {"CONNECT u:p@good.test:80 HTTP/1.1\r\nHost: a\r\n\r\n", "400"},
		"connect no port":         {"CONNECT good.test HTTP/1.1\r\nHost: a\r\n\r\n", "400"},
		"connect path":            {"CONNECT " + ok + " HTTP/1.1\r\nHost: a\r\n\r\n", "400"},
		"connect url":             {"CONNECT http://good.test:80 HTTP/1.1\r\nHost: a\r\n\r\n", "400"},
		"connect number":          {"CONNECT 2130706433:80 HTTP/1.1\r\nHost: a\r\n\r\n", "400"},
		"connect with body":       {"CONNECT good.test:80 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc", "400"},
		"connect in chunks":       {"CONNECT good.test:80 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "400"},
		"host header says ok":     {"CONNECT evil.test:80 HTTP/1.1\r\nHost: good.test:80\r\n\r\n", "403"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := raw(t, b.dir, c.send); !strings.HasPrefix(strings.Replace(got, "HTTP/1.0", "HTTP/1.1", 1), "HTTP/1.1 "+c.want+" ") {
				t.Errorf("answer %q, want %s", cut(got, 300), c.want)
			}
		})
	}
	t.Cleanup(func() {
		select {
		case u := <-seen:
			t.Errorf("the upstream was asked for %s", u)
		default:
		}
	})
}

func TestUpgradeAndFramingStopHere(t *testing.T) {
	t.Parallel()
	seen := make(chan string, 10)
	change, _ := api(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		seen <- fmt.Sprint(r.RequestURI, " ", string(body), " ", r.TransferEncoding, r.ContentLength, r.Header["Upgrade"], r.Header["Connection"], r.Header["X-Hop"])
		if r.URL.Query().Has("switch") {
			c, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n")
			_ = c.Close()
		}
	})
	b := setup(t, everything, change)
	// Both framings: what goes out has one, and the tail is a request of its own, which is refused here.
	got := raw(t, b.dir, "POST /anthropic/v1/messages HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\nGET /admin HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
	if s := <-seen; s != "/v1/messages ab [chunked] -1 [] [] []" {
		t.Errorf("upstream saw %q", s)
	}
	if !strings.HasPrefix(got, "HTTP/1.1 200") || !strings.Contains(got, "HTTP/1.1 404") {
		t.Errorf("answers %q", got)
	}
	got = raw(t, b.dir, "GET /anthropic/v1/messages?switch HTTP/1.1\r\nHost: a\r\nConnection: close, Upgrade, X-Hop\r\nX-Hop: 1\r\nUpgrade: websocket\r\n\r\n")
	if s := <-seen; s != "/v1/messages?switch  [] 0 [] [] []" {
		t.Errorf("upstream saw %q", s)
	}
	if !strings.HasPrefix(got, "HTTP/1.1 502") {
		t.Errorf("a changed protocol came through: %q", got)
	}
}

func TestConnectionsAreLimited(t *testing.T) {
	t.Parallel()
	change, _ := api(t, func(http.ResponseWriter, *http.Request) {})
	b := setup(t, everything, change)
	const get = "GET /anthropic/v1/models HTTP/1.1\r\nHost: a\r\n\r\n"
	var held []net.Conn
	for range maxConnections {
		c := dial(t, b.dir)
		defer func() { _ = c.Close() }()
		_, _ = io.WriteString(c, get)
		if line, err := bufio.NewReader(c).ReadString('\n'); !strings.HasPrefix(line, "HTTP/1.1 200") {
			t.Fatalf("%q %v", line, err)
		}
		held = append(held, c)
	}
	if got := raw(t, b.dir, get); !strings.HasPrefix(got, "HTTP/1.1 503") {
		t.Errorf("one connection too many: %q", got)
	}
	_ = held[0].Close()
	for deadline := time.Now().Add(10 * time.Second); ; {
		if strings.HasPrefix(raw(t, b.dir, get), "HTTP/1.1 200") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("a place that was left is never free")
		}
	}
}

func TestRateLimit(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	b := &bucket{perSecond: 10, size: 3, now: func() time.Time { return now }}
	for i := range 5 {
		if _, ok := b.take(); ok != (i < 3) {
			t.Errorf("call %d: %v", i, ok)
		}
	}
	now = now.Add(100 * time.Millisecond)
	if n, ok := b.take(); !ok || n != 2 {
		t.Errorf("after a tenth of a second: %v, %d suppressed; want 2", ok, n)
	}
	now = now.Add(time.Hour)
	for i := range 4 {
		if n, ok := b.take(); ok != (i < 3) || n != 0 {
			t.Errorf("after an hour, call %d: %v %d", i, ok, n)
		}
	}
}

func TestFloodIsNotWrittenToTheAuditLog(t *testing.T) {
	t.Parallel()
	b := setup(t, everything, nil)
	send := strings.Repeat("GET /nobody HTTP/1.1\r\nHost: a\r\n\r\n", 2000)
	got := raw(t, b.dir, send)
	if n := strings.Count(got, "HTTP/1.1 429"); n < 500 {
		t.Errorf("%d of 2000 requests at once were refused by the rate limit", n)
	}
	if n := len(b.audit); n > 1500 {
		t.Errorf("%d entries in the audit log", n)
	}
}

func TestWatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, beat, stop := watch(t.Context(), time.Minute)
		defer stop()
		for range 3 {
			time.Sleep(59 * time.Second)
			beat()
		}
		if ctx.Err() != nil {
			t.Fatal("ended while it was alive")
		}
		time.Sleep(61 * time.Second)
		if !errors.Is(context.Cause(ctx), errSilent) {
			t.Errorf("cause %v", context.Cause(ctx))
		}
	})
}

func BenchmarkProvide(b *testing.B) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }))
	defer srv.Close()
	a := make(audit, 1)
	go func() {
		for range a {
		}
	}()
	defer close(a)
	p, err := New(Options{Keys: &keys{kind: "api_key", value: marker}, Audit: a, Log: obs.Discard(), Upstreams: map[string]Upstream{"anthropic": Anthropic(srv.URL)}})
	if err != nil {
		b.Fatal(err)
	}
	defer p.Close()
	dir := b.TempDir()
	c, err := p.Open(b.Context(), dir, everything, 0o600)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return socket.Dial(ctx, dir, SocketName) }}
	defer tr.CloseIdleConnections()
	d, ok := c.(*door)
	if !ok {
		b.Fatal("not a door")
	}
	d.rate.mu.Lock()
	d.rate.perSecond, d.rate.size = 1e9, 1e9
	d.rate.mu.Unlock()
	for name, url := range map[string]string{"direct": srv.URL + "/v1/models", "proxied": "http://sandbox/anthropic/v1/models"} {
		b.Run(name, func(b *testing.B) {
			client := &http.Client{Transport: tr}
			if name == "direct" {
				client = srv.Client()
			}
			for b.Loop() {
				resp, err := client.Get(url)
				if err != nil {
					b.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
				if resp.StatusCode != 200 {
					b.Fatal(resp.Status)
				}
			}
		})
	}
}
