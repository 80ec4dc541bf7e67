package server

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"nanoclaw/internal/control"
	"nanoclaw/internal/obs"
	"nanoclaw/internal/socket"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeHost records what reaches it.
type fakeHost struct {
	mu        sync.Mutex
	secrets   []control.Secret
	stops     []bool
	said      []control.Say
	acked     []int64
	history   [][2]int64
	answers   []control.Answer
	files     map[string]string    // by conversation, message and name, joined with |
	cut       int64                // how many bytes of a file are missing at its end
	events    chan []control.Event // nil: Events fails at once
	after     chan int64
	err       error
	panicking bool
}

func (f *fakeHost) Status(context.Context) (control.Status, error) {
	if f.panicking {
		panic("on purpose")
	}
	return control.Status{State: control.HostRunning, PID: 42, Version: "v1", Started: control.At(time.Unix(1_700_000_000, 0))}, f.err
}

func (f *fakeHost) Stop(_ context.Context, sandboxes bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stops = append(f.stops, sandboxes)
	return f.err
}

func (f *fakeHost) PutSecret(_ context.Context, s control.Secret) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.secrets = append(f.secrets, s)
	return f.err
}

func (f *fakeHost) Bootstrap(_ context.Context, r control.BootstrapRequest) (control.Bootstrap, error) {
	return control.Bootstrap{Conversation: r.Conversation, Provider: "mock", Offline: true}, f.err
}

func (f *fakeHost) Admin(_ context.Context, r control.AdminRequest) (control.Frame, error) {
	return control.Frame{ID: "r1", OK: true, Data: r.Args["a"], Human: r.Command}, f.err
}

func (f *fakeHost) Say(_ context.Context, conversation string, m control.Say) (control.Accepted, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.said = append(f.said, m)
	return control.Accepted{ID: m.ID, Seq: int64(len(f.said))}, f.err
}

func (f *fakeHost) Answer(_ context.Context, _ string, a control.Answer) (control.Answered, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answers = append(f.answers, a)
	return control.Answered{Duplicate: len(f.answers) > 1}, f.err
}

func (f *fakeHost) File(_ context.Context, conversation, message, name string) (io.ReadCloser, int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	b, ok := f.files[conversation+"|"+message+"|"+name]
	if !ok {
		return nil, 0, &control.Error{Code: control.CodeNotFound, Message: "no such file"}
	}
	return io.NopCloser(strings.NewReader(b)), int64(len(b)) + f.cut, nil
}

func (f *fakeHost) Ack(_ context.Context, _ string, seq int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.acked = append(f.acked, seq)
	return f.err
}

func (f *fakeHost) History(_ context.Context, _ string, before int64, limit int) (control.History, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.history = append(f.history, [2]int64{before, int64(limit)})
	return control.History{Events: []control.Event{}}, f.err
}

func (f *fakeHost) Events(ctx context.Context, _ string, after int64, on func([]control.Event) error) error {
	if f.err != nil {
		return f.err
	}
	if f.after != nil {
		f.after <- after
	}
	for {
		select {
		case e := <-f.events:
			if err := on(e); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

type lines struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// serve runs a server on a new home and returns the home and how to stop it.
func serve(t *testing.T, home string, f *fakeHost, opt Options) (stop func()) {
	t.Helper()
	l, err := Listen(home)
	if err != nil {
		t.Fatal(err)
	}
	opt.Backend, opt.Chat, opt.Version = f, f, "v1"
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- New(opt).Serve(ctx, l) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

func client(t *testing.T, home string) *control.Client {
	t.Helper()
	c := control.NewClient(home)
	t.Cleanup(c.Close)
	return c
}

// raw sends bytes and returns status and body of the answer.
func raw(t *testing.T, home, request string) (int, string) {
	t.Helper()
	conn, err := socket.Dial(t.Context(), control.SocketDir(home), control.SocketName)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	go func() { _, _ = io.WriteString(conn, request) }()
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("no HTTP answer to %.60q: %v", request, err)
	}
	defer func() { _ = res.Body.Close() }()
	b, _ := io.ReadAll(res.Body)
	return res.StatusCode, string(b)
}

func post(path, body string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", path, len(body), body)
}

func TestEveryCallReachesTheHost(t *testing.T) {
	t.Parallel()
	home, f := t.TempDir(), &fakeHost{}
	serve(t, home, f, Options{})
	c, ctx := client(t, home), t.Context()
	if fi, err := os.Stat(filepath.Join(control.SocketDir(home), control.SocketName)); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("mode of the socket: %v, %v", fi.Mode(), err)
	}
	st, err := c.Status(ctx)
	if err != nil || st.PID != 42 || !st.Started.Equal(time.Unix(1_700_000_000, 0)) {
		t.Errorf("status %+v, %v", st, err)
	}
	secret := control.Secret{Name: "anthropic", Kind: control.SecretAPIKey, Value: "sk-1"}
	if err := c.PutSecret(ctx, secret); err != nil || len(f.secrets) != 1 || f.secrets[0] != secret {
		t.Errorf("secret: %v, %d", err, len(f.secrets))
	}
	if b, err := c.Bootstrap(ctx, control.BootstrapRequest{}); err != nil || b.Conversation != control.DefaultConversation || !b.Offline {
		t.Errorf("bootstrap %+v, %v", b, err)
	}
	args := map[string]json.RawMessage{"a": json.RawMessage(`[1]`)}
	if fr, err := c.Admin(ctx, control.AdminRequest{Command: "groups-list", Args: args}); err != nil || !fr.OK || fr.Human != "groups-list" || string(fr.Data) != "[1]" {
		t.Errorf("admin %+v, %v", fr, err)
	}
	for _, r := range []control.AdminRequest{{}, {Command: strings.Repeat("x", control.MaxCommand+1)}, {Command: "x", Args: map[string]json.RawMessage{"a": json.RawMessage(`"` + strings.Repeat("x", control.MaxArgs) + `"`)}}} {
		if _, err := c.Admin(ctx, r); !control.IsCode(err, control.CodeInvalid, control.CodeTooLarge) {
			t.Errorf("admin %.20q: %v", r.Command, err)
		}
	}
	if a, err := c.Say(ctx, "cli:local", control.Say{ID: "m1", Text: "a <b> & 字"}); err != nil || a.Seq != 1 || f.said[0].Text != "a <b> & 字" {
		t.Errorf("say %+v, %v", a, err)
	}
	if err := c.Ack(ctx, "cli:local", 7); err != nil || f.acked[0] != 7 {
		t.Errorf("ack: %v", err)
	}
	if h, err := c.History(ctx, "cli:local", 9, 5); err != nil || h.Events == nil || f.history[0] != [2]int64{9, 5} {
		t.Errorf("history %+v, %v", h, err)
	}
	if s, err := c.Stop(ctx, true); err != nil || !s.Sandboxes || s.PID != 42 || !f.stops[0] {
		t.Errorf("stop %+v, %v", s, err)
	}
}

func TestBadInputNamesTheFieldAndChangesNothing(t *testing.T) {
	t.Parallel()
	home, f := t.TempDir(), &fakeHost{}
	serve(t, home, f, Options{})
	const messages = "/v1/chat/cli:local/messages"
	long := strings.Repeat("x", control.MaxText+1)
	for name, c := range map[string]struct {
		request, field string
		code           control.Code
	}{
		"no JSON":               {post(messages, "hello"), "body", control.CodeInvalid},
		"empty":                 {post(messages, ""), "body", control.CodeInvalid},
		"truncated":             {post(messages, `{"id":"a","te`), "body", control.CodeInvalid},
		"array":                 {post(messages, `[]`), "body", control.CodeInvalid},
		"two objects":           {post(messages, `{"id":"a","text":"b"}{}`), "body", control.CodeInvalid},
		"unknown field":         {post(messages, `{"id":"a","txt":"b"}`), "txt", control.CodeInvalid},
		"wrong type":            {post(messages, `{"id":"a","text":5}`), "text", control.CodeInvalid},
		"no text":               {post(messages, `{"id":"a"}`), "text", control.CodeInvalid},
		"blank text":            {post(messages, `{"id":"a","text":" \n"}`), "text", control.CodeInvalid},
		"no id":                 {post(messages, `{"text":"b"}`), "id", control.CodeInvalid},
		"path as id":            {post(messages, `{"id":"../a","text":"b"}`), "id", control.CodeInvalid},
		"long text":             {post(messages, `{"id":"a","text":"`+long+`"}`), "text", control.CodeTooLarge},
		"huge body":             {post(messages, `{"id":"a","text":"`+strings.Repeat("x", control.MaxBody)+`"}`), "body", control.CodeTooLarge},
		"other channel":         {post("/v1/chat/telegram:1/messages", `{"id":"a","text":"b"}`), "conversation", control.CodeInvalid},
		"path as conversation":  {post("/v1/chat/cli:..%2Fx/messages", `{"id":"a","text":"b"}`), "conversation", control.CodeInvalid},
		"negative ack":          {post("/v1/chat/cli:local/ack", `{"seq":-1}`), "seq", control.CodeInvalid},
		"huge ack":              {post("/v1/chat/cli:local/ack", `{"seq":99999999999999999999}`), "seq", control.CodeInvalid},
		"position not a number": {"GET /v1/chat/cli:local/events?after=x HTTP/1.1\r\nHost: x\r\n\r\n", "after", control.CodeInvalid},
		"negative position":     {"GET /v1/chat/cli:local/events?after=-5 HTTP/1.1\r\nHost: x\r\n\r\n", "after", control.CodeInvalid},
		"too much history":      {"GET /v1/chat/cli:local/history?limit=1001 HTTP/1.1\r\nHost: x\r\n\r\n", "limit", control.CodeInvalid},
		"no flag":               {post("/v1/stop?sandboxes=perhaps", ""), "sandboxes", control.CodeInvalid},
		"unknown path":          {post("/v2/status", ""), "", control.CodeNotFound},
		"wrong method":          {post("/v1/status", ""), "", control.CodeNotFound},
		"other protocol":        {"GET /v1/status HTTP/1.1\r\nHost: x\r\nNanoclaw-Protocol: 99\r\n\r\n", "", control.CodeVersion},
		"secret of no kind":     {strings.Replace(post("/v1/secrets/anthropic", `{"kind":"x","value":"v"}`), "POST", "PUT", 1), "kind", control.CodeInvalid},
		"secret without value":  {strings.Replace(post("/v1/secrets/anthropic", `{"kind":"api_key"}`), "POST", "PUT", 1), "value", control.CodeInvalid},
		"secret of two lines":   {strings.Replace(post("/v1/secrets/anthropic", `{"kind":"api_key","value":"a\nb: c"}`), "POST", "PUT", 1), "value", control.CodeInvalid},
		"secret named as path":  {strings.Replace(post("/v1/secrets/..%2F..%2Fx", `{"kind":"api_key","value":"v"}`), "POST", "PUT", 1), "name", control.CodeInvalid},
		"two names":             {strings.Replace(post("/v1/secrets/a", `{"name":"b","kind":"api_key","value":"v"}`), "POST", "PUT", 1), "name", control.CodeInvalid},
		"bad bootstrap":         {post("/v1/bootstrap", `{"conversation":"a/b"}`), "conversation", control.CodeInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			status, body := raw(t, home, c.request)
			var e struct{ Error control.Error }
			if err := json.Unmarshal([]byte(body), &e); err != nil {
				t.Fatalf("answer %d %q is no error envelope: %v", status, body, err)
			}
			if e.Error.Code != c.code || e.Error.Field != c.field || e.Error.Message == "" || status != c.code.Status() {
				t.Errorf("answer %d %+v, want %s about %q", status, e.Error, c.code, c.field)
			}
		})
	}
	t.Cleanup(func() {
		if len(f.said)+len(f.secrets)+len(f.acked)+len(f.stops)+len(f.history) != 0 {
			t.Errorf("something reached the host: %+v", f)
		}
	})
}

func TestAnotherUserIsRefused(t *testing.T) {
	t.Parallel()
	for name, peer := range map[string]func(net.Conn) (int, error){
		"other uid":  func(net.Conn) (int, error) { return os.Getuid() + 4711, nil },
		"no uid":     func(net.Conn) (int, error) { return 0, errors.New("unreadable") },
		"unreadable": func(net.Conn) (int, error) { return -1, errors.New("unreadable") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			home, f := t.TempDir(), &fakeHost{}
			serve(t, home, f, Options{PeerUID: peer})
			_, err := client(t, home).Say(t.Context(), "cli:local", control.Say{ID: "a", Text: "b"})
			if !control.IsCode(err, control.CodeForbidden) || len(f.said) != 0 {
				t.Errorf("got %v, %d messages reached the host", err, len(f.said))
			}
		})
	}
}

func TestSecretsAreInNoLogAndNoError(t *testing.T) {
	t.Parallel()
	const value = "sk-marker-123"
	home, f, log := t.TempDir(), &fakeHost{err: errors.New("disk full")}, &lines{}
	stop := serve(t, home, f, Options{Log: obs.Logger(log, nil, true)})
	s := control.Secret{Name: "anthropic", Kind: control.SecretAPIKey, Value: value}
	err := client(t, home).PutSecret(t.Context(), s)
	_, body := raw(t, home, strings.Replace(post("/v1/secrets/anthropic", `{"kind":"api_key","value":"`+value+`","`+value+`":1}`), "POST", "PUT", 1))
	stop()
	if all := fmt.Sprintf("%v %+v %#v %v", s, s, s, err) + log.String(); strings.Contains(all, value) {
		t.Errorf("the value shows in %s", all)
	}
	if !strings.Contains(body, "not a field") {
		t.Errorf("answer %s", body)
	}
}

func TestErrorsKeepTheirKind(t *testing.T) {
	t.Parallel()
	home, f := t.TempDir(), &fakeHost{}
	serve(t, home, f, Options{})
	for _, c := range []struct {
		err  error
		code control.Code
		exit int
	}{
		{&control.Error{Code: control.CodeConflict, Message: "x", Hint: "y"}, control.CodeConflict, 8},
		{fmt.Errorf("wrapped: %w", &control.Error{Code: control.CodeNotFound, Message: "x"}), control.CodeNotFound, 4},
		{context.DeadlineExceeded, control.CodeTimeout, 7},
		{context.Canceled, control.CodeUnavailable, 6},
		{errors.New("anything"), control.CodeFailed, 1},
	} {
		f.err = c.err
		err := client(t, home).Events(t.Context(), "cli:local", 0, func(control.Event) error { return nil })
		var e *control.Error
		if !errors.As(err, &e) || e.Code != c.code || e.Exit() != c.exit {
			t.Errorf("%v became %v", c.err, err)
		}
		if _, err := client(t, home).Status(t.Context()); !control.IsCode(err, c.code) {
			t.Errorf("%v became %v", c.err, err)
		}
	}
}

func TestAPanicEndsOneRequestOnly(t *testing.T) {
	t.Parallel()
	home, f, log := t.TempDir(), &fakeHost{panicking: true}, &lines{}
	serve(t, home, f, Options{Log: obs.Logger(log, nil, true)})
	c := client(t, home)
	if _, err := c.Status(t.Context()); err == nil {
		t.Error("a panic was answered")
	}
	if _, err := c.Say(t.Context(), "cli:local", control.Say{ID: "a", Text: "b"}); err != nil {
		t.Errorf("the next request: %v", err)
	}
	if !strings.Contains(log.String(), "on purpose") {
		t.Errorf("the panic is not in the log: %s", log)
	}
}

// Clients that say nothing, half a head, half a body or that never read must not keep others from being served, nor
// the server from stopping.
func TestHostileClientsHoldNobodyUp(t *testing.T) {
	t.Parallel()
	home, f := t.TempDir(), &fakeHost{events: make(chan []control.Event), after: make(chan int64, 100)}
	stop := serve(t, home, f, Options{})
	for range 20 {
		for _, s := range []string{"", "GET /v1/sta", "POST /v1/bootstrap HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{", "GET /v1/chat/cli:local/events HTTP/1.1\r\nHost: x\r\n\r\n", "\x00\xff\r\n\r\n"} {
			conn, err := socket.Dial(t.Context(), control.SocketDir(home), control.SocketName)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = conn.Close() })
			if _, err := io.WriteString(conn, s); err != nil {
				t.Fatal(err)
			}
		}
	}
	for range 20 { // the streams are open
		if after := <-f.after; after != control.FromCursor {
			t.Errorf("a stream without a position starts at %d", after)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := client(t, home).Status(ctx); err != nil {
		t.Errorf("status beside hostile clients: %v", err)
	}
	start := time.Now()
	stop()
	if d := time.Since(start); d > drainTime+2*time.Second {
		t.Errorf("stopping took %v", d)
	}
	if _, err := os.Stat(filepath.Join(control.SocketDir(home), control.SocketName)); !os.IsNotExist(err) {
		t.Errorf("the socket's file is still there: %v", err)
	}
}
