package egress

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"nanoclaw/internal/obs"
	"nanoclaw/internal/socket"
)

func TestMain(m *testing.M) {
	// The standard server waits half a second before it closes a connection whose request it did not read to the end.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

const marker = "sk-ant-marker-0123456789abcdef"

// keys is a KeySource that can change.
type keys struct {
	mu    sync.Mutex
	kind  string
	value string
	err   error
}

func (k *keys) set(kind, value string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.kind, k.value = kind, value
}

func (k *keys) Key(_ context.Context, name string) (string, obs.Secret, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if name != "anthropic" {
		return "", obs.Secret{}, nil
	}
	return k.kind, obs.NewSecret(k.value), k.err
}

type audit chan Call

func (a audit) Record(_ context.Context, c Call) error { a <- c; return nil }

// next is the next entry of the audit log.
func (a audit) next(t *testing.T) Call {
	t.Helper()
	select {
	case c := <-a:
		return c
	case <-time.After(10 * time.Second):
		t.Fatal("no audit entry")
		return Call{}
	}
}

// buffer is a log that may be read while it is written.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

type bundle struct {
	proxy  *Proxy
	keys   *keys
	audit  audit
	log    *buffer
	dir    string
	client *http.Client
	close  func() error
}

var everything = Session{ID: "sess-1", Group: "ag-1", Upstreams: []string{"anthropic"}}

func setup(t *testing.T, s Session, change func(*Options)) *bundle {
	t.Helper()
	b := &bundle{keys: &keys{kind: "api_key", value: marker}, audit: make(audit, 4096), log: &buffer{}, dir: t.TempDir()}
	opt := Options{Keys: b.keys, Audit: b.audit, Log: slog.New(slog.NewTextHandler(b.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Resolve: func(_ context.Context, host string) ([]netip.Addr, error) {
			return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
		}}
	if change != nil {
		change(&opt)
	}
	var err error
	if b.proxy, err = New(opt); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.proxy.Close)
	b.open(t, s)
	b.client = clientOf(t, b.dir)
	return b
}

func (b *bundle) open(t *testing.T, s Session) {
	t.Helper()
	c, err := b.proxy.Open(t.Context(), b.dir, s, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	b.close = c.Close
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

// clientOf is an HTTP client inside the sandbox, as it would be behind the relay.
func clientOf(t *testing.T, dir string) *http.Client {
	t.Helper()
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return socket.Dial(ctx, dir, SocketName) }, DisableCompression: true}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

func api(t *testing.T, h http.HandlerFunc) (func(*Options), *httptest.Server) {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return func(o *Options) { o.Upstreams = map[string]Upstream{"anthropic": Anthropic(s.URL)} }, s
}

func (b *bundle) do(t *testing.T, r *http.Request) (*http.Response, string) {
	t.Helper()
	resp, err := b.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

func request(t *testing.T, method, url string, body io.Reader) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestKeyReplacesWhatTheSandboxSent(t *testing.T) {
	t.Parallel()
	placeholder := Placeholder("api_key")
	got := make(chan *http.Request, 1)
	change, srv := api(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		got <- r
		_, _ = io.WriteString(w, "ok")
	})
	b := setup(t, everything, change)
	for _, c := range []struct{ kind, beta, wantKey, wantAuth, wantBeta string }{
		{"api_key", "a,b", marker, "", "a,b"},
		{"api_key", "", marker, "", ""},
		{"oauth_token", "a, " + oauthBeta + ",b", "", "Bearer " + marker, "a, " + oauthBeta + ",b"},
		{"oauth_token", "a", "", "Bearer " + marker, "a|" + oauthBeta},
		{"oauth_token", "", "", "Bearer " + marker, oauthBeta},
	} {
		b.keys.set(c.kind, marker) // the next request has it
		r := request(t, "POST", "http://sandbox/anthropic/v1/messages?beta=true", strings.NewReader("{}"))
		for _, h := range credentials() {
			r.Header.Set(h, placeholder)
		}
		r.Header.Set("X-Forwarded-For", "6.6.6.6")
		if c.beta != "" {
			r.Header.Set("Anthropic-Beta", c.beta)
		}
		resp, body := b.do(t, r)
		up := <-got
		if resp.StatusCode != 200 || body != "ok" {
			t.Fatalf("answer %d %q", resp.StatusCode, body)
		}
		if up.RequestURI != "/v1/messages?beta=true" || "http://"+up.Host != srv.URL {
			t.Errorf("upstream was asked for %s on %s", up.RequestURI, up.Host)
		}
		if k, a, v := up.Header.Get("X-Api-Key"), up.Header.Get("Authorization"), strings.Join(up.Header.Values("Anthropic-Beta"), "|"); k != c.wantKey || a != c.wantAuth || v != c.wantBeta {
			t.Errorf("%+v: upstream got key %q, authorization %q, beta %q", c, k, a, v)
		}
		if all := fmt.Sprint(up.Header); strings.Contains(all, placeholder) || strings.Contains(all, "6.6.6.6") {
			t.Errorf("what the sandbox sent went out: %s", all)
		}
		entry := b.audit.next(t)
		entry.At, entry.Duration = time.Time{}, 0
		want := Call{Session: "sess-1", Group: "ag-1", Method: "POST", Host: strings.TrimPrefix(srv.URL, "http://"), Path: "/v1/messages", Status: 200, BytesIn: 2, BytesOut: 2}
		if entry != want {
			t.Errorf("audit %+v, want %+v", entry, want)
		}
	}
}

func TestIdentityIsTheListener(t *testing.T) {
	t.Parallel()
	change, _ := api(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
	b := setup(t, everything, change)
	dir2 := t.TempDir()
	second, err := b.proxy.Open(t.Context(), dir2, Session{ID: "sess-2", Group: "ag-2"}, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = second.Close() }()
	for i, c := range []*http.Client{b.client, clientOf(t, dir2)} {
		r := request(t, "GET", "http://sandbox/anthropic/v1/models", nil)
		r.Header.Set("X-Session", "sess-1")
		r.Header.Set("Proxy-Authorization", "Basic c2Vzcy0xOnNlc3MtMQ==")
		r.Host = "sess-1"
		resp, err := c.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		want, status := []string{"sess-1", "sess-2"}[i], []int{200, 404}[i]
		if e := b.audit.next(t); string(e.Session) != want || resp.StatusCode != status {
			t.Errorf("request %d: taken for %s, status %d", i, e.Session, resp.StatusCode)
		}
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	asked := make(chan string, 100)
	change, _ := api(t, func(_ http.ResponseWriter, r *http.Request) { asked <- r.RequestURI })
	for name, c := range map[string]struct {
		kind, key    string
		keyErr       error
		method, path string
		status       int
		body         []string
	}{
		"no key":         {"", "", nil, "POST", "/anthropic/v1/messages", 401, []string{`"type":"authentication_error"`, "ANTHROPIC_API_KEY", "nanoclaw chat"}},
		"unreadable":     {"", "", errors.New("disk " + marker), "POST", "/anthropic/v1/messages", 502, []string{`"type":"api_error"`}},
		"strange kind":   {"password", marker, nil, "POST", "/anthropic/v1/messages", 502, []string{`"type":"api_error"`}},
		"not granted":    {"api_key", marker, nil, "POST", "/openai/v1/responses", 404, []string{`"type":"not_found_error"`, "openai"}},
		"closed path":    {"oauth_token", marker, nil, "POST", "/anthropic/api/oauth/claude_cli/create_api_key", 403, []string{`"type":"permission_error"`}},
		"dots":           {"api_key", marker, nil, "POST", "/anthropic/v1/messages/%2e%2e/%2e%2e/api", 400, []string{`"type":"invalid_request_error"`}},
		"trace":          {"api_key", marker, nil, "TRACE", "/anthropic/v1/messages", 405, []string{`"type":"invalid_request_error"`}},
		"unknown method": {"api_key", marker, nil, "BREW", "/anthropic/v1/messages", 405, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, everything, change)
			b.keys.set(c.kind, c.key)
			b.keys.err = c.keyErr
			resp, body := b.do(t, request(t, c.method, "http://sandbox"+c.path, nil))
			if resp.StatusCode != c.status || resp.Header.Get("Content-Type") != "application/json" {
				t.Errorf("answer %d %s", resp.StatusCode, body)
			}
			for _, want := range append(c.body, `{"type":"error","error":{`, "nanoclaw: ") {
				if !strings.Contains(body, want) {
					t.Errorf("%s is not in %s", want, body)
				}
			}
			e := b.audit.next(t)
			if e.Status != c.status || e.Reason == "" {
				t.Errorf("audit %+v", e)
			}
			if c.keyErr == nil && strings.Contains(b.log.String()+body+fmt.Sprint(e), marker) {
				t.Errorf("the key shows in log, answer or audit")
			}
			if strings.Contains(body, marker) {
				t.Errorf("the error's own text shows in %s", body)
			}
			select {
			case u := <-asked:
				t.Errorf("the upstream was asked for %s", u)
			default:
			}
		})
	}
}

func TestOpenRefusesWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	b := setup(t, everything, nil)
	for _, s := range []Session{{ID: "s", Upstreams: []string{"nobody"}}, {ID: "s", Allow: []string{"https://x"}}} {
		if c, err := b.proxy.Open(t.Context(), t.TempDir(), s, 0o600); err == nil {
			_ = c.Close()
			t.Errorf("%+v was opened", s)
		}
	}
	if _, err := b.proxy.Open(t.Context(), b.dir+"/gone", everything, 0o600); err == nil {
		t.Error("a folder that does not exist was taken")
	}
	for _, o := range []Options{{}, {Keys: b.keys, Audit: b.audit, Log: obs.Discard(), Upstreams: map[string]Upstream{"x": {Base: "x"}}}} {
		if _, err := New(o); err == nil {
			t.Errorf("options %+v were taken", o)
		}
	}
}

func TestStreamIsFlushedAndCutsAreSeen(t *testing.T) {
	t.Parallel()
	goOn := make(chan struct{})
	left := make(chan struct{})
	change, _ := api(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "event: first\n\n")
		_ = http.NewResponseController(w).Flush()
		switch r.URL.Query().Get("then") {
		case "end":
			<-goOn
			_, _ = io.WriteString(w, "event: last\n\n")
		case "cut":
			<-goOn
			panic(http.ErrAbortHandler)
		case "wait":
			<-r.Context().Done()
			close(left)
		}
	})
	b := setup(t, everything, change)
	read := func(then string) (*http.Response, []byte) {
		resp, err := b.client.Do(request(t, "POST", "http://sandbox/anthropic/v1/messages?then="+then, strings.NewReader("{}")))
		if err != nil {
			t.Fatal(err)
		}
		first := make([]byte, len("event: first\n\n"))
		if _, err := io.ReadFull(resp.Body, first); err != nil {
			t.Fatal(err)
		}
		return resp, first
	}

	resp, first := read("end") // the upstream has not ended: the first event came through at once
	goOn <- struct{}{}
	rest, err := io.ReadAll(resp.Body)
	if err != nil || string(first)+string(rest) != "event: first\n\nevent: last\n\n" {
		t.Errorf("stream %q %q, %v", first, rest, err)
	}
	_ = resp.Body.Close()
	if e := b.audit.next(t); e.Reason != "" || e.Status != 200 || e.BytesOut != 27 {
		t.Errorf("audit %+v", e)
	}

	resp, _ = read("cut")
	goOn <- struct{}{}
	if rest, err := io.ReadAll(resp.Body); err == nil {
		t.Errorf("a cut stream ended quietly after %q", rest)
	}
	_ = resp.Body.Close()
	if e := b.audit.next(t); e.Reason != "cut" || e.Status != 200 {
		t.Errorf("audit of a cut stream %+v", e)
	}

	resp, _ = read("wait")
	_ = resp.Body.Close() // the sandbox leaves: so does its request
	select {
	case <-left:
	case <-time.After(10 * time.Second):
		t.Error("the upstream goes on for nobody")
	}
	if e := b.audit.next(t); e.Reason != "cut" {
		t.Errorf("audit of an abandoned stream %+v", e)
	}

}

func TestKeyIsNowhere(t *testing.T) {
	t.Parallel()
	change, _ := api(t, func(w http.ResponseWriter, r *http.Request) {
		key := r.Header.Get("X-Api-Key") + r.Header.Get("Authorization")
		w.Header().Set("X-Echo", key)
		w.Header().Set("X-Debug-Request", "key="+key+";")
		w.Header().Set("Www-Authenticate", "Bearer "+key)
		w.Header().Set("Set-Cookie", "session=1")
		w.Header().Set("X-Kept", "yes")
		w.Header().Set("Trailer", "X-Trail")
		if r.Method == http.MethodPost {
			w.Header().Set("Link", "<"+key+">")
			w.WriteHeader(http.StatusEarlyHints)
		}
		if r.URL.Query().Has("redirect") {
			w.Header().Set("Location", "http://evil.test/?k="+key)
			w.WriteHeader(http.StatusFound)
		}
		_, _ = io.WriteString(w, "x")
		w.Header().Set("X-Trail", key)
	})
	for _, kind := range []string{"api_key", "oauth_token"} {
		b := setup(t, everything, change)
		b.keys.set(kind, marker)
		for _, r := range []*http.Request{
			request(t, "GET", "http://sandbox/anthropic/v1/models", nil),
			request(t, "POST", "http://sandbox/anthropic/v1/messages", strings.NewReader("{}")),
			request(t, "POST", "http://sandbox/anthropic/v1/messages?redirect", strings.NewReader("{}")),
		} {
			resp, body := b.do(t, r)
			e := b.audit.next(t)
			if all := fmt.Sprint(resp.Header, resp.Trailer, body, e); strings.Contains(all, marker) || resp.Header.Get("Set-Cookie") != "" {
				t.Errorf("%s %s: the key came back: %s", r.Method, r.URL, all)
			}
			if resp.Header.Get("X-Kept") != "yes" {
				t.Error("an ordinary header was lost")
			}
		}
		if strings.Contains(b.log.String(), marker) {
			t.Error("the key shows in the log")
		}
	}
}

func TestUpstreamThatIsNotThere(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err    error
		status int
	}{
		"refused":    {&net.OpError{Op: "dial", Err: errors.New("connection refused " + marker)}, 502},
		"unknown":    {&net.DNSError{Err: "no such host " + marker, Name: "x"}, 502},
		"in no time": {context.DeadlineExceeded, 504},
	} {
		b := setup(t, everything, func(o *Options) {
			o.Dial = func(context.Context, string, string) (net.Conn, error) { return nil, c.err }
			o.Proxy = noProxy
		})
		resp, body := b.do(t, request(t, "POST", "http://sandbox/anthropic/v1/messages", strings.NewReader("{}")))
		if resp.StatusCode != c.status || strings.Contains(body, marker) || !strings.HasPrefix(body, `{"type":"error"`) {
			t.Errorf("%s: %d %s", name, resp.StatusCode, body)
		}
	}
}

func TestBodies(t *testing.T) {
	t.Parallel()
	change, _ := api(t, func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		_, _ = fmt.Fprint(w, n)
	})
	b := setup(t, everything, change)
	post := func(n int64, known bool) (int, string) {
		r := request(t, "POST", "http://sandbox/anthropic/v1/messages", io.LimitReader(zeros{}, n))
		if known {
			r.ContentLength = n
		}
		resp, err := b.client.Do(r)
		if err != nil { // the answer came before the body was written, and the connection was closed
			return 0, ""
		}
		defer func() { _ = resp.Body.Close() }()
		body, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(body)
	}
	if status, body := post(5<<20, false); status != 200 || body != fmt.Sprint(5<<20) {
		t.Errorf("5 MiB in chunks: %d %s", status, body)
	}
	if e := b.audit.next(t); e.BytesIn != 5<<20 {
		t.Errorf("audit %+v", e)
	}
	for _, known := range []bool{true, false} {
		if status, body := post(maxBody+1, known); status != 413 && status != 0 || status == 413 && !strings.Contains(body, "request_too_large") {
			t.Errorf("too large (length known: %v): %d %s", known, status, body)
		}
		if e := b.audit.next(t); e.Status != 413 {
			t.Errorf("audit (length known: %v) %+v", known, e)
		}
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

func noProxy(*http.Request) (*url.URL, error) { return nil, nil }
