package tool

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"nanoclaw/internal/runner/door"
)

// waiting is a session whose questions are answered by the test.
type waiting struct {
	fake
	asked  chan Question
	answer chan string
	ended  chan error
	after  chan struct{} // if set, a wait that was cancelled returns only after it is closed
}

func newWaiting() *waiting {
	return &waiting{asked: make(chan Question, 1), answer: make(chan string, 1), ended: make(chan error, 1)}
}

func (w *waiting) Ask(ctx context.Context, q Question) (string, error) {
	w.asked <- q
	select {
	case a := <-w.answer:
		return a, nil
	case <-ctx.Done():
		w.ended <- ctx.Err()
		if w.after != nil {
			<-w.after
		}
		return "", errors.New("the question was cancelled")
	}
}

// rig is a running server with an HTTP client of its own.
type rig struct {
	*Server
	url, token string
	http       *http.Client
}

func serve(t testing.TB, set *Set, change ...func(*Server)) *rig {
	t.Helper()
	s := NewServer(set, nil)
	for _, c := range change {
		c(s)
	}
	url, token, err := s.URL(t.Context())
	must(t, err)
	transport := &http.Transport{MaxIdleConnsPerHost: 8}
	t.Cleanup(func() {
		must(t, s.Close())
		transport.CloseIdleConnections()
	})
	return &rig{s, url, token, &http.Client{Transport: withToken{transport, token}}}
}

type withToken struct {
	http.RoundTripper
	token string
}

func (w withToken) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	if r.Header.Get("Authorization") == "" {
		r.Header.Set("Authorization", "Bearer "+w.token)
	}
	return w.RoundTripper.RoundTrip(r)
}

func (r *rig) connect(t testing.TB, opt *mcp.ClientOptions) *mcp.ClientSession {
	t.Helper()
	s, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, opt).Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: r.url, HTTPClient: r.http}, nil)
	must(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func (r *rig) sessions() (n int) {
	for range r.server.Sessions() {
		n++
	}
	return n
}

func wait[T any](t testing.TB, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatalf("no %s", what)
		panic("unreachable")
	}
}

func words(t testing.TB, res *mcp.CallToolResult, err error) string {
	t.Helper()
	must(t, err)
	if len(res.Content) != 1 {
		t.Fatalf("%d items", len(res.Content))
	}
	return res.Content[0].(*mcp.TextContent).Text
}

var question = map[string]any{"title": "t", "question": "q", "options": []string{"a", "b"}}

// W23: while a question waits, other tools of the same client go on.
func TestW23QuestionBlocksNothing(t *testing.T) {
	t.Parallel()
	w := newWaiting()
	client := serve(t, New(Options{Session: w})).connect(t, nil)
	answered := make(chan string, 1)
	go func() {
		res, err := client.CallTool(t.Context(), &mcp.CallToolParams{Name: "ask_user_question", Arguments: question})
		if err != nil {
			answered <- err.Error()
			return
		}
		answered <- res.Content[0].(*mcp.TextContent).Text
	}()
	wait(t, "question", w.asked)
	res, err := client.CallTool(t.Context(), &mcp.CallToolParams{Name: "send_message", Arguments: map[string]any{"to": "me", "text": "x"}})
	if got := words(t, res, err); got != "sent to me (id: 3)" {
		t.Errorf("meanwhile: %s", got)
	}
	w.answer <- "b"
	if got := wait(t, "answer", answered); got != "b" {
		t.Errorf("answer %q", got)
	}
}

// W23: the wait ends when the client cancels the call, and when its protocol session is ended.
func TestW23QuestionEndsWithItsCaller(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"cancel", "forget"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			w := newWaiting()
			r := serve(t, New(Options{Session: w}))
			client := r.connect(t, nil)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			done := make(chan struct{})
			go func() {
				defer close(done)
				_, _ = client.CallTool(ctx, &mcp.CallToolParams{Name: "ask_user_question", Arguments: question})
			}()
			wait(t, "question", w.asked)
			if how == "cancel" {
				cancel()
			} else {
				r.Forget()
			}
			if err := wait(t, "end", w.ended); !errors.Is(err, context.Canceled) {
				t.Errorf("ended with %v", err)
			}
			wait(t, "return", done)
		})
	}
}

// The loop that calls Forget may be the very thing that a call waits for.
func TestForgetDoesNotWaitForCalls(t *testing.T) {
	t.Parallel()
	w := newWaiting()
	w.after = make(chan struct{})
	r := serve(t, New(Options{Session: w}))
	client := r.connect(t, nil)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = client.CallTool(t.Context(), &mcp.CallToolParams{Name: "ask_user_question", Arguments: question})
	}()
	wait(t, "question", w.asked)
	r.Forget()
	wait(t, "end", w.ended)
	next := r.connect(t, nil) // the next query is not in the way
	res, err := next.CallTool(t.Context(), &mcp.CallToolParams{Name: "send_message", Arguments: map[string]any{"to": "me", "text": "x"}})
	if got := words(t, res, err); got != "sent to me (id: 3)" {
		t.Errorf("the next client: %s", got)
	}
	close(w.after)
	wait(t, "return", done)
}

// A client that asked for it hears that the call goes on.
func TestProgressWhileWaiting(t *testing.T) {
	t.Parallel()
	w := newWaiting()
	heard := make(chan *mcp.ProgressNotificationParams, 100)
	client := serve(t, New(Options{Session: w}), func(s *Server) { s.progress = time.Millisecond }).connect(t, &mcp.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
			select {
			case heard <- r.Params:
			default:
			}
		},
	})
	params := &mcp.CallToolParams{Name: "ask_user_question", Arguments: question}
	params.SetProgressToken("tok")
	done := make(chan string, 1)
	go func() {
		res, err := client.CallTool(t.Context(), params)
		if err != nil {
			done <- err.Error()
			return
		}
		done <- res.Content[0].(*mcp.TextContent).Text
	}()
	wait(t, "question", w.asked)
	first, second := wait(t, "progress", heard), wait(t, "more progress", heard)
	if first.ProgressToken != "tok" || second.Progress <= first.Progress {
		t.Errorf("heard %+v, then %+v", first, second)
	}
	w.answer <- "a"
	if got := wait(t, "answer", done); got != "a" {
		t.Errorf("answer %q", got)
	}
}

func TestUnknownToolOverHTTP(t *testing.T) {
	t.Parallel()
	client := serve(t, New(Options{Session: &fake{}})).connect(t, nil)
	_, err := client.CallTool(t.Context(), &mcp.CallToolParams{Name: "SendMessage"})
	var e *jsonrpc.Error
	if !errors.As(err, &e) || e.Code != jsonrpc.CodeInvalidParams || !strings.Contains(e.Message, `unknown tool "SendMessage"; there are: send_message, send_file`) {
		t.Errorf("error %v", err)
	}
}

// A failure is one text item with a mark.
func TestFailureIsMarked(t *testing.T) {
	t.Parallel()
	client := serve(t, New(Options{Session: &fake{}})).connect(t, nil)
	res, err := client.CallTool(t.Context(), &mcp.CallToolParams{Name: "send_message", Arguments: map[string]any{"to": "me"}})
	if got := words(t, res, err); !res.IsError || !strings.HasPrefix(got, "Error: `text` is required") {
		t.Errorf("%q, %v", got, res.IsError)
	}
}

const initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`

func (r *rig) do(t *testing.T, method, url, body string, change func(*http.Request)) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	must(t, err)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	if change != nil {
		change(req)
	}
	res, err := r.http.Do(req)
	must(t, err)
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	must(t, err)
	if strings.Contains(string(b), r.token) {
		t.Errorf("the token is in the answer: %s", b)
	}
	return res.StatusCode, string(b)
}

func TestRequestsThatAreRefused(t *testing.T) {
	t.Parallel()
	r := serve(t, New(Options{Session: &fake{}}))
	header := func(key, v string) func(*http.Request) { return func(q *http.Request) { q.Header.Set(key, v) } }
	host := func(h string) func(*http.Request) { return func(q *http.Request) { q.Host = h } }
	base := strings.TrimSuffix(r.url, path)
	for _, tt := range []struct {
		name, method, url, body string
		change                  func(*http.Request)
		want                    int
	}{
		{"good", http.MethodPost, r.url, initialize, nil, 200},
		{"localhost", http.MethodPost, r.url, initialize, host("localhost:1"), 200},
		{"six", http.MethodPost, r.url, initialize, host("[::1]:1"), 200},
		{"own origin", http.MethodPost, r.url, initialize, header("Origin", base), 200},
		{"other host", http.MethodPost, r.url, initialize, host("evil.example"), 403},
		{"host that looks like it", http.MethodPost, r.url, initialize, host("127.0.0.1.evil.example:80"), 403},
		{"bare name", http.MethodPost, r.url, initialize, host("x"), 403},
		{"other origin", http.MethodPost, r.url, initialize, header("Origin", "https://evil.example"), 403},
		{"no origin", http.MethodPost, r.url, initialize, header("Origin", "null"), 403},
		{"wrong token", http.MethodPost, r.url, initialize, header("Authorization", "Bearer x"), 401},
		{"wrong token, other path", http.MethodPost, base + "/x", initialize, header("Authorization", "Bearer x"), 401},
		{"other path", http.MethodPost, base + "/x", initialize, nil, 404},
		{"root", http.MethodGet, base + "/", "", nil, 404},
		{"below", http.MethodPost, r.url + "/x", initialize, nil, 404},
		{"too large", http.MethodPost, r.url, `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"x":"` + strings.Repeat("x", maxBody) + `"}}`, nil, 413},
		{"other method", http.MethodPut, r.url, initialize, nil, 405},
		{"unknown session", http.MethodPost, r.url, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, header("Mcp-Session-Id", "nosuch"), 404},
		{"no JSON", http.MethodPost, r.url, "{", nil, 400},
	} {
		if got, body := r.do(t, tt.method, tt.url, tt.body, tt.change); got != tt.want {
			t.Errorf("%s: %d %.200s, want %d", tt.name, got, body, tt.want)
		}
	}
}

// The stream of a GET stands until its session ends, and then its client is sent away.
func TestStreamAndEndOfSession(t *testing.T) {
	t.Parallel()
	r := serve(t, New(Options{Session: &fake{}}))
	open := func() (id string, stream *http.Response) {
		post := func(body, id string) *http.Response {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.url, strings.NewReader(body))
			must(t, err)
			req.Header.Set("Content-Type", "application/json")
			req.Header.Set("Accept", "application/json, text/event-stream")
			if id != "" {
				req.Header.Set("Mcp-Session-Id", id)
			}
			res, err := r.http.Do(req)
			must(t, err)
			_, _ = io.Copy(io.Discard, res.Body)
			must(t, res.Body.Close())
			return res
		}
		id = post(initialize, "").Header.Get("Mcp-Session-Id")
		post(`{"jsonrpc":"2.0","method":"notifications/initialized"}`, id)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.url, nil)
		must(t, err)
		req.Header.Set("Accept", "text/event-stream")
		req.Header.Set("Mcp-Session-Id", id)
		stream, err = r.http.Do(req)
		must(t, err)
		if stream.StatusCode != http.StatusOK || !strings.HasPrefix(stream.Header.Get("Content-Type"), "text/event-stream") {
			t.Fatalf("the stream is %d %s", stream.StatusCode, stream.Header.Get("Content-Type"))
		}
		return id, stream
	}
	id, stream := open()
	if r.sessions() != 1 {
		t.Fatalf("%d sessions", r.sessions())
	}
	r.Forget()
	end := make(chan error, 1)
	go func() {
		_, err := bufio.NewReader(stream.Body).ReadString(0)
		end <- err
	}()
	if err := wait(t, "end of the stream", end); err == nil {
		t.Error("the stream has a line more")
	}
	must(t, stream.Body.Close())
	r.until(t, 0)
	if code, _ := r.do(t, http.MethodPost, r.url, `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`, func(q *http.Request) { q.Header.Set("Mcp-Session-Id", id) }); code != http.StatusNotFound {
		t.Errorf("a session that is forgotten answers %d", code)
	}
	id, stream = open()
	must(t, stream.Body.Close())
	if code, _ := r.do(t, http.MethodDelete, r.url, "", func(q *http.Request) { q.Header.Set("Mcp-Session-Id", id) }); code != http.StatusNoContent || r.sessions() != 0 {
		t.Errorf("delete: %d, %d sessions", code, r.sessions())
	}
}

// A client that left without a word is forgotten after a while, also when nobody calls Forget.
func TestIdleSessionEnds(t *testing.T) {
	t.Parallel()
	r := serve(t, New(Options{Session: &fake{}}), func(s *Server) { s.idle = 20 * time.Millisecond })
	if code, body := r.do(t, http.MethodPost, r.url, initialize, nil); code != http.StatusOK {
		t.Fatal(body)
	}
	r.until(t, 0)
}

// until waits for a number of protocol sessions; the library tells nobody when one has ended.
func (r *rig) until(t *testing.T, n int) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); r.sessions() != n; <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("%d sessions stay, want %d", r.sessions(), n)
		}
	}
}

// BenchmarkCallOverHTTP is a call of a tool over the real server, one protocol session for all.
func BenchmarkCallOverHTTP(b *testing.B) {
	client := serve(b, New(Options{Session: &fake{}})).connect(b, nil)
	var calls atomic.Int64
	args := json.RawMessage(`{"to":"me","text":"hello"}`)
	for b.Loop() {
		res, err := client.CallTool(b.Context(), &mcp.CallToolParams{Name: "send_message", Arguments: args})
		if err != nil || res.IsError {
			b.Fatal(res, err)
		}
		calls.Add(1)
	}
}

// A question of a client over stdio ends with the runner.
func TestW23QuestionOverStdioEndsWithTheRunner(t *testing.T) {
	t.Parallel()
	w, dir := newWaiting(), t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := NewServer(New(Options{Session: w}), nil)
	opened, err := door.Listen(ctx, dir, nil, s.Handler())
	must(t, err)
	in := initialize + `
{"jsonrpc":"2.0","method":"notifications/initialized"}
{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"ask_user_question","arguments":{"title":"t","question":"q","options":["a"]}}}
`
	done := make(chan error, 1)
	go func() { done <- Stdio(t.Context(), dir, strings.NewReader(in), io.Discard) }()
	wait(t, "question", w.asked)
	cancel()
	wait(t, "end of the wait", w.ended)
	wait(t, "end of the client", done)
	opened.Wait()
	must(t, s.Close())
}
