package tool

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"nanoclaw/internal/control"
	"nanoclaw/internal/runner/door"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 20 * time.Second

// box is a session that knows one name.
type box struct {
	Session
	mu    sync.Mutex
	texts []string
	block bool
}

func (b *box) Send(ctx context.Context, m Message) (Sent, error) {
	if b.block {
		<-ctx.Done()
		return Sent{}, ctx.Err()
	}
	if m.To != "me" {
		return Sent{}, &UnknownDestination{Name: m.To, Known: []string{"me"}}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.texts = append(b.texts, m.Text)
	return Sent{To: m.To, Seq: int64(2*len(b.texts) + 1)}, nil
}

func (b *box) sent() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.texts)
}

func TestSendMessage(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, args string
		want       string // result
		fails      string // part of the error
		sent       []string
	}{
		{name: "plain", args: `{"to":"me","text":" hi "}`, want: "sent to me (id: 3)", sent: []string{"hi"}},
		{name: "internal", args: `{"to":"me","text":"a<internal>b <internal>c</internal></internal>d"}`, want: "sent to me (id: 3)", sent: []string{"ad"}},
		{name: "code", args: "{\"to\":\"me\",\"text\":\"see `<internal>` there\"}", want: "sent to me (id: 3)", sent: []string{"see `<internal>` there"}},
		{name: "unknown", args: `{"to":"you","text":"hi"}`, fails: `unknown destination "you"; known names: me`},
		{name: "no to", args: `{"text":"hi"}`, fails: "`to` is required"},
		{name: "no text", args: `{"to":"me"}`, fails: "`text` is required"},
		{name: "only internal", args: `{"to":"me","text":"<internal>x</internal>"}`, fails: "`text` is required"},
		{name: "open internal", args: `{"to":"me","text":"<internal>x"}`, fails: "`text` is required"},
		{name: "nothing", args: ``, fails: "`to` is required"},
		{name: "null", args: `null`, fails: "`to` is required"},
		{name: "other field", args: `{"to":"me","text":"x","thread":"t"}`, fails: `unknown field "thread"`},
		{name: "wrong type", args: `{"to":1,"text":"x"}`, fails: "`to` must be a string"},
		{name: "no object", args: `[1]`, fails: "must be an object"},
		{name: "too long", args: `{"to":"me","text":"` + strings.Repeat("x", maxText+1) + `"}`, fails: "at most 262144"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := &box{}
			got, err := New(Options{Session: b}).Call(t.Context(), "send_message", json.RawMessage(tt.args))
			if tt.fails != "" {
				if err == nil || !strings.Contains(err.Error(), tt.fails) {
					t.Errorf("error %v, want %q", err, tt.fails)
				}
			} else if err != nil || got != tt.want {
				t.Errorf("%q, %v; want %q", got, err, tt.want)
			}
			if !slices.Equal(b.sent(), tt.sent) {
				t.Errorf("sent %q, want %q", b.sent(), tt.sent)
			}
		})
	}
}

func TestUnknownTool(t *testing.T) {
	t.Parallel()
	_, err := New(Options{Session: &box{}}).Call(t.Context(), "nosuch", nil)
	if !errors.Is(err, ErrUnknownTool) || !strings.Contains(err.Error(), "send_message") {
		t.Fatal(err)
	}
}

type bearer struct{ token string }

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return http.DefaultTransport.RoundTrip(r)
}

func connect(t *testing.T, transport mcp.Transport) *mcp.ClientSession {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(ctx, transport, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func talk(t *testing.T, s *mcp.ClientSession, b *box) {
	t.Helper()
	list, err := s.ListTools(t.Context(), nil)
	if err != nil || len(list.Tools) != len(samples()) {
		t.Fatalf("tools %+v, %v", list, err)
	}
	res, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "send_message", Arguments: map[string]any{"to": "me", "text": "a < b"}})
	if err != nil || res.IsError || !strings.HasPrefix(res.Content[0].(*mcp.TextContent).Text, "sent to me (id: ") {
		t.Fatalf("%+v, %v", res, err)
	}
	res, err = s.CallTool(t.Context(), &mcp.CallToolParams{Name: "send_message", Arguments: map[string]any{"to": "you", "text": "x"}})
	if err != nil || !res.IsError || !strings.HasPrefix(res.Content[0].(*mcp.TextContent).Text, "Error: unknown destination") {
		t.Fatalf("%+v, %v", res, err)
	}
	if got := b.sent(); !slices.Equal(got, []string{"a < b"}) {
		t.Fatalf("sent %q", got)
	}
}

func TestOverHTTP(t *testing.T) {
	t.Parallel()
	b := &box{}
	s := NewServer(New(Options{Session: b}), nil)
	url, token, err := s.URL(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	if again, same, _ := s.URL(t.Context()); again != url || same != token || len(token) < 20 || !strings.HasPrefix(url, "http://127.0.0.1:") {
		t.Fatalf("%s became %s", url, again)
	}
	client := connect(t, &mcp.StreamableClientTransport{Endpoint: url, HTTPClient: &http.Client{Transport: bearer{token}}})
	talk(t, client, b)
	s.Forget()
	(&rig{Server: s}).until(t, 0)
	_ = client.Close()
	for name, auth := range map[string]string{"none": "", "wrong": "Bearer x", "other scheme": "Basic " + token, "bare": token} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`))
		if err != nil {
			t.Fatal(err)
		}
		if auth != "" {
			req.Header.Set("Authorization", auth)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if res.StatusCode != http.StatusUnauthorized || strings.Contains(string(body), token) {
			t.Errorf("%s: %d %s", name, res.StatusCode, body)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.URL(t.Context()); err == nil {
		t.Error("a closed server serves")
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
}

// A blocking tool ends when its caller is gone.
func TestCancelledCall(t *testing.T) {
	t.Parallel()
	b := &box{block: true}
	s := NewServer(New(Options{Session: b}), nil)
	url, token, err := s.URL(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	client := connect(t, &mcp.StreamableClientTransport{Endpoint: url, HTTPClient: &http.Client{Transport: bearer{token}}})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := client.CallTool(ctx, &mcp.CallToolParams{Name: "send_message", Arguments: map[string]any{"to": "me", "text": "x"}})
		done <- err
	}()
	cancel()
	select {
	case err := <-done:
		if err == nil {
			t.Error("no error")
		}
	case <-time.After(patience):
		t.Fatal("hangs")
	}
	_ = client.Close()
	if err := s.Close(); err != nil { // waits for handlers
		t.Fatal(err)
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
}

func TestOverStdio(t *testing.T) {
	t.Parallel()
	b, dir := &box{}, t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	s := NewServer(New(Options{Session: b}), nil)
	opened, err := door.Listen(ctx, dir, nil, s.Handler())
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(dir, control.RunnerSocket))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v", info, err)
	}
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := Stdio(ctx, dir, inR, outW)
		_ = outW.Close()
		done <- err
	}()
	client := connect(t, &mcp.IOTransport{Reader: outR, Writer: inW})
	talk(t, client, b)
	_ = client.Close()
	_ = inW.Close()
	select {
	case err := <-done:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(patience):
		t.Fatal("does not end with its input")
	}
	cancel()
	opened.Wait()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, control.RunnerSocket)); !os.IsNotExist(err) {
		t.Errorf("the socket is left: %v", err)
	}
	if err := Stdio(t.Context(), dir, strings.NewReader(""), io.Discard); err == nil || !strings.Contains(err.Error(), "is one running") {
		t.Errorf("error %v", err)
	}
}

// All requests are written at once and the input ends: every answer still comes.
func TestStdioAnswersWhatWasAskedBeforeTheEnd(t *testing.T) {
	t.Parallel()
	b, dir := &box{}, t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	s := NewServer(New(Options{Session: b}), nil)
	opened, err := door.Listen(ctx, dir, nil, s.Handler())
	if err != nil {
		t.Fatal(err)
	}
	in := `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"send_message","arguments":{"to":"me","text":"last words"}}}
`
	var out bytes.Buffer
	if err := Stdio(ctx, dir, strings.NewReader(in), &out); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "sent to me") {
		t.Errorf("answers: %s", out.String())
	}
	cancel()
	opened.Wait()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
