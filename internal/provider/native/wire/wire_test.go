package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"go.uber.org/goleak"

	"nanoclaw/internal/provider"
	"nanoclaw/internal/testkit/loopback"
)

func TestMain(m *testing.M) {
	loopback.Main()
	goleak.VerifyTestMain(m)
}

func events(t *testing.T, r io.Reader) []string {
	t.Helper()
	var out []string
	if err := Events(r, func(name string, data []byte) error {
		out = append(out, name+"="+string(data))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestEvents(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 100_000)
	for name, c := range map[string]struct {
		in   string
		want []string
	}{
		"plain":              {"event: a\ndata: 1\n\ndata: 2\n\n", []string{"a=1", "=2"}},
		"crlf":               {"event: a\r\ndata: 1\r\n\r\n", []string{"a=1"}},
		"comments":           {": ping\n\n: x\ndata: 1\nid: 7\nretry: 5\nstrange\n\n", []string{"=1"}},
		"lines of data":      {"data: 1\ndata: 2\ndata\n\n", []string{"=1\n2\n"}},
		"no space":           {"data:1\n\ndata:  2\n\n", []string{"=1", "= 2"}},
		"without data":       {"event: a\n\ndata: 1\n\n", []string{"=1"}},
		"cut off":            {"data: 1\n\ndata: 2\n", []string{"=1"}},
		"byte order mark":    {"\xef\xbb\xbfdata: 1\n\n", []string{"=1"}},
		"a very long line":   {"data: " + long + "\n\ndata: 2\n\n", []string{"=" + long, "=2"}},
		"nothing":            {"", nil},
		"several blank ones": {"\n\n\ndata: 1\n\n\n\n", []string{"=1"}},
	} {
		if got := events(t, strings.NewReader(c.in)); !slices.Equal(got, c.want) {
			t.Errorf("%s: %.200q", name, got)
		}
		if got := events(t, iotest.OneByteReader(strings.NewReader(c.in))); !slices.Equal(got, c.want) {
			t.Errorf("%s, byte by byte: %.200q", name, got)
		}
	}
}

// endless never has an end of line.
type endless struct{ n int }

func (e *endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	e.n += len(p)
	return len(p), nil
}

func TestLinesAreBounded(t *testing.T) {
	t.Parallel()
	r := &endless{}
	if err := Lines(r, func([]byte) error { return nil }); !errors.Is(err, errLongLine) || r.n > 2*MaxLine {
		t.Errorf("%v after %d bytes", err, r.n)
	}
}

func FuzzEvents(f *testing.F) {
	f.Add("event: a\ndata: 1\n\n", 3)
	f.Add("data: 1\r\n\r\n: x\ndata\n\n", 1)
	f.Fuzz(func(t *testing.T, in string, cut int) {
		whole := events(t, strings.NewReader(in))
		if got := events(t, iotest.OneByteReader(strings.NewReader(in))); !slices.Equal(got, whole) {
			t.Fatalf("%q is not %q", got, whole)
		}
		// what came before a cut stays the same
		part := events(t, strings.NewReader(in[:min(max(cut, 0), len(in))]))
		if len(part) > len(whole) || !slices.Equal(part, whole[:len(part)]) {
			t.Fatalf("%q is no beginning of %q", part, whole)
		}
	})
}

func TestFailure(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status  int
		kind    string
		message string
		class   provider.Class
		retry   bool
	}{
		{400, "invalid_request_error", "bad", provider.ClassOther, false},
		{400, "", "prompt is too long: 9 > 8", provider.ClassContext, false},
		{400, "context_length_exceeded", "x", provider.ClassContext, false},
		{400, "", "Your credit balance is too low", provider.ClassQuota, false},
		{401, "", "no", provider.ClassAuth, false},
		{402, "", "pay", provider.ClassQuota, false},
		{403, "", "no", provider.ClassAuth, false},
		{404, "", "no", provider.ClassOther, false},
		{408, "", "slow", provider.ClassOther, true},
		{413, "", "large", provider.ClassContext, false},
		{429, "", "slow down", provider.ClassRateLimit, true},
		{429, "insufficient_quota", "You exceeded your current quota", provider.ClassQuota, false},
		{500, "", "oops", provider.ClassOther, true},
		{500, "", "the input exceeds the context length", provider.ClassContext, false},
		{502, "", "bad gateway", provider.ClassNetwork, true},
		{503, "", "busy", provider.ClassOverloaded, true},
		{504, "", "late", provider.ClassNetwork, true},
		{529, "overloaded_error", "busy", provider.ClassOverloaded, true},
	} {
		if e := Failure(c.status, http.Header{}, c.kind, c.message); e.Class != c.class || e.Retryable != c.retry || !strings.Contains(e.Error(), c.message) {
			t.Errorf("%d %s %s: %+v", c.status, c.kind, c.message, e)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for in, want := range map[string]time.Duration{
		"": 0, "3": 3 * time.Second, "0.5": 500 * time.Millisecond, "-1": 0, "soon": 0, "1e99": 7 * 24 * time.Hour, "NaN": 0,
		"Fri, 02 Jan 2026 03:05:05 GMT": time.Minute, "Fri, 02 Jan 2026 03:00:00 GMT": 0,
	} {
		if got := retryAfter(http.Header{"Retry-After": {in}}, now); got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
	if got := retryAfter(http.Header{"Retry-After-Ms": {"250"}, "Retry-After": {"9"}}, now); got != 250*time.Millisecond {
		t.Errorf("milliseconds: %s", got)
	}
}

// serve answers with a handler; the endpoint has short limits.
func serve(t *testing.T, h http.HandlerFunc) Endpoint {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // only then does the server see that a client is gone
		h(w, r)
	}))
	tr := &http.Transport{}
	t.Cleanup(func() { tr.CloseIdleConnections(); s.CloseClientConnections(); s.Close() })
	return Endpoint{URL: s.URL, Client: &http.Client{Transport: tr}, First: 200 * time.Millisecond, Idle: 200 * time.Millisecond}
}

func plainFailure(status int, h http.Header, body []byte) *Error {
	return Failure(status, h, "", string(body))
}

func readAll(_ http.Header, r io.Reader) error {
	_, err := io.Copy(io.Discard, r)
	return err
}

// Silence before an answer, or within one, ends it as a failure of the network; one that goes on slowly does not.
func TestPostSilence(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		h    http.HandlerFunc
		want error
	}{
		"before": {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, errFirst},
		"within": {func(w http.ResponseWriter, r *http.Request) {
			_, _ = fmt.Fprint(w, "x")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}, errIdle},
		"slow": {func(w http.ResponseWriter, _ *http.Request) {
			tick := time.NewTicker(80 * time.Millisecond)
			defer tick.Stop()
			for range 6 {
				<-tick.C
				_, _ = fmt.Fprint(w, "x")
				_ = http.NewResponseController(w).Flush()
			}
		}, nil},
	} {
		err := serve(t, c.h).Post(t.Context(), "/x", struct{}{}, plainFailure, readAll)
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
		var e *Error
		if c.want != nil && (!errors.As(err, &e) || e.Class != provider.ClassNetwork || !e.Retryable) {
			t.Errorf("%s: %+v", name, err)
		}
	}
}

func TestPostErrors(t *testing.T) {
	t.Parallel()
	var e *Error
	cut := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(w, "x")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	if err := cut.Post(t.Context(), "/x", struct{}{}, plainFailure, readAll); !errors.As(err, &e) || e.Class != provider.ClassNetwork || !e.Retryable {
		t.Errorf("a cut answer: %v", err)
	}
	status := serve(t, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "busy", 529) })
	if err := status.Post(t.Context(), "/x", struct{}{}, plainFailure, readAll); !errors.As(err, &e) || e.Status != 529 {
		t.Errorf("a status: %v", err)
	}
	nobody := Endpoint{URL: "http://127.0.0.1:1", Client: &http.Client{Transport: &http.Transport{}}, First: time.Second, Idle: time.Second}
	if err := nobody.Post(t.Context(), "/x", struct{}{}, plainFailure, readAll); !errors.As(err, &e) || e.Class != provider.ClassNetwork {
		t.Errorf("nobody there: %v", err)
	}
	why := errors.New("because")
	ctx, cancel := context.WithCancelCause(t.Context())
	block := serve(t, func(_ http.ResponseWriter, r *http.Request) { cancel(why); <-r.Context().Done() })
	if err := block.Post(ctx, "/x", struct{}{}, plainFailure, readAll); !errors.Is(err, why) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestCall(t *testing.T) {
	t.Parallel()
	for in, ok := range map[string]bool{"": true, "  ": true, `{"a":1}`: true, `{"a":`: false, `[1]`: false, `null`: false, `"x"`: false} {
		if b := Call("1", "n", in); (b.Text == "") != ok || b.Args == nil {
			t.Errorf("%q: %+v", in, b)
		}
	}
}
