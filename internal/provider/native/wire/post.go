package wire

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"nanoclaw/internal/provider"
)

const maxErrorBody = 64 << 10

var (
	errFirst = errors.New("the model's API did not begin to answer in time")
	errIdle  = errors.New("the model's API fell silent in the middle of an answer")
)

// Post sends body as JSON to path and gives the answer's body to read, which it closes afterwards. An answer with another status
// than 200 is an *Error made by failure from status, header and body. So is a silence longer than the endpoint allows, and a
// broken connection.
func (e Endpoint) Post(ctx context.Context, path string, body any, failure func(status int, h http.Header, body []byte) *Error, read func(http.Header, io.Reader) error) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(body); err != nil {
		return &Error{Class: provider.ClassOther, Message: "encode the request: " + err.Error(), Err: err}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var began atomic.Bool
	watch := time.AfterFunc(e.First, func() {
		if began.Load() {
			cancel(errIdle)
			return
		}
		cancel(errFirst)
	})
	defer watch.Stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.URL+path, bytes.NewReader(b.Bytes()))
	if err != nil {
		return &Error{Class: provider.ClassOther, Message: "address of the model's API: " + err.Error(), Err: err}
	}
	for k, v := range e.Header {
		req.Header[k] = v
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "nanoclaw")
	res, err := e.Client.Do(req)
	if err != nil {
		return broken(ctx, err)
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		text, err := io.ReadAll(io.LimitReader(res.Body, maxErrorBody))
		if err != nil && len(text) == 0 {
			text = []byte(res.Status)
		}
		return failure(res.StatusCode, res.Header, text)
	}
	err = read(res.Header, &alive{r: res.Body, beat: func() { began.Store(true); watch.Reset(e.Idle) }})
	if err == nil {
		return nil
	}
	if cause := context.Cause(ctx); cause != nil {
		return broken(ctx, cause)
	}
	var known *Error
	if errors.As(err, &known) {
		return known
	}
	return broken(ctx, err)
}

// alive tells of every read that brought something. After the first one the shorter limit counts.
type alive struct {
	r    io.Reader
	beat func()
}

func (a *alive) Read(p []byte) (int, error) {
	n, err := a.r.Read(p)
	if n > 0 {
		a.beat()
	}
	return n, err
}

// broken is the error of a connection that failed; ctx's own reason if that ended it.
func broken(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	switch {
	case errors.Is(cause, errFirst), errors.Is(cause, errIdle):
		err = cause
	case cause != nil:
		return cause
	}
	return &Error{Class: provider.ClassNetwork, Retryable: true, Message: err.Error(), Err: err}
}

// Failure is what an HTTP status means; kind and message are the API's own words.
func Failure(status int, h http.Header, kind, message string) *Error {
	e := &Error{Status: status, Class: provider.ClassOther, Message: strings.TrimSpace(fmt.Sprintf("%d %s: %s", status, kind, message))}
	e.After = retryAfter(h, time.Now())
	switch {
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		e.Class = provider.ClassAuth
	case status == http.StatusPaymentRequired:
		e.Class = provider.ClassQuota
	case status == http.StatusTooManyRequests:
		e.Class, e.Retryable = provider.ClassRateLimit, true
	case status == http.StatusServiceUnavailable, status == 529:
		e.Class, e.Retryable = provider.ClassOverloaded, true
	case status == http.StatusBadGateway, status == http.StatusGatewayTimeout:
		e.Class, e.Retryable = provider.ClassNetwork, true
	case status == http.StatusRequestEntityTooLarge:
		e.Class = provider.ClassContext
	case status == http.StatusRequestTimeout, status == http.StatusConflict, status >= 500:
		e.Retryable = true
	}
	low := strings.ToLower(kind + " " + message)
	for _, p := range phrases() {
		if strings.Contains(low, p.text) {
			e.Class = p.class
			e.Retryable = false
			break
		}
	}
	if e.Class == provider.ClassRateLimit && e.After > 0 {
		e.ResetsAt = time.Now().Add(e.After)
	}
	return e
}

type phrase struct {
	text  string
	class provider.Class
}

// phrases say more than a status does.
func phrases() []phrase {
	return []phrase{
		{"credit balance", provider.ClassQuota}, {"insufficient_quota", provider.ClassQuota}, {"billing", provider.ClassQuota},
		{"exceeded your current quota", provider.ClassQuota},
		{"prompt is too long", provider.ClassContext}, {"context_length_exceeded", provider.ClassContext},
		{"context length", provider.ClassContext}, {"context window", provider.ClassContext}, {"context size", provider.ClassContext},
		{"maximum context", provider.ClassContext}, {"input is too long", provider.ClassContext}, {"exceeds the limit of", provider.ClassContext},
		{"exceed context limit", provider.ClassContext},
	}
}

// retryAfter reads how long the API asks to wait: retry-after-ms, or retry-after in seconds or as a date.
func retryAfter(h http.Header, now time.Time) time.Duration {
	const most = 7 * 24 * time.Hour
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil && ms > 0 {
		return min(time.Duration(min(ms, 1e12)*float64(time.Millisecond)), most)
	}
	v := h.Get("Retry-After")
	if s, err := strconv.ParseFloat(v, 64); err == nil {
		if s > 0 {
			return min(time.Duration(min(s, 1e9)*float64(time.Second)), most)
		}
		return 0
	}
	if at, err := http.ParseTime(v); err == nil && at.After(now) {
		return min(at.Sub(now), most)
	}
	return 0
}
