package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"nanoclaw/internal/socket"
)

// Client of one home's host. Its methods may be called at the same time; each connects as needed, so that a Client
// outlives restarts of the host. Every error is an *Error.
type Client struct {
	home string
	http *http.Client
}

// NewClient makes a client for the host of home. It does not connect.
func NewClient(home string) *Client {
	dir := SocketDir(home)
	return &Client{home: home, http: &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return socket.Dial(ctx, dir, SocketName)
		},
		MaxIdleConnsPerHost: 4,
		IdleConnTimeout:     30 * time.Second,
		DisableCompression:  true,
	}}}
}

// Close gives up idle connections. The client stays usable.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Status of the host.
func (c *Client) Status(ctx context.Context) (Status, error) {
	var s Status
	return s, c.call(ctx, http.MethodGet, "/v1/status", nil, &s)
}

// Stop makes the host stop, with or without its sandboxes. It returns when the host began to.
func (c *Client) Stop(ctx context.Context, sandboxes bool) (Stopping, error) {
	var s Stopping
	return s, c.call(ctx, http.MethodPost, "/v1/stop?sandboxes="+strconv.FormatBool(sandboxes), Empty{}, &s)
}

// PutSecret hands a key to the host, which uses it at once.
func (c *Client) PutSecret(ctx context.Context, s Secret) error {
	return c.call(ctx, http.MethodPut, "/v1/secrets/"+url.PathEscape(s.Name), s, &Empty{})
}

// Bootstrap makes what a first conversation needs.
func (c *Client) Bootstrap(ctx context.Context, r BootstrapRequest) (Bootstrap, error) {
	var b Bootstrap
	return b, c.call(ctx, http.MethodPost, "/v1/bootstrap", r, &b)
}

// Say hands over a message of the person. It returns when the message is on disk, and may be repeated with the same id.
func (c *Client) Say(ctx context.Context, conversation string, m Say) (Accepted, error) {
	var a Accepted
	return a, c.call(ctx, http.MethodPost, chatPath(conversation, "messages"), m, &a)
}

// Answer presses an option of a question. CodeConflict: the host did not take it; the message says why. It may be repeated.
func (c *Client) Answer(ctx context.Context, conversation string, a Answer) (Answered, error) {
	var out Answered
	return out, c.call(ctx, http.MethodPost, chatPath(conversation, "answers"), a, &out)
}

// File opens a file of a message and returns its size. Fewer bytes than that are an error of the reader. The caller closes it.
func (c *Client) File(ctx context.Context, conversation, message, name string) (io.ReadCloser, int64, error) {
	res, err := c.send(ctx, http.MethodGet, chatPath(conversation, "files/"+url.PathEscape(message)+"/"+url.PathEscape(name)), nil)
	if err != nil {
		return nil, 0, err
	}
	return res.Body, res.ContentLength, nil
}

// Ack says that a person saw everything up to seq.
func (c *Client) Ack(ctx context.Context, conversation string, seq int64) error {
	return c.call(ctx, http.MethodPost, chatPath(conversation, "ack"), Ack{seq}, &Empty{})
}

// History returns at most limit entries before position before; 0 is the end.
func (c *Client) History(ctx context.Context, conversation string, before int64, limit int) (History, error) {
	var h History
	q := url.Values{"limit": {strconv.Itoa(limit)}}
	if before > 0 {
		q.Set("before", strconv.FormatInt(before, 10))
	}
	return h, c.call(ctx, http.MethodGet, chatPath(conversation, "history")+"?"+q.Encode(), nil, &h)
}

func chatPath(conversation, what string) string {
	return "/v1/chat/" + url.PathEscape(conversation) + "/" + what
}

func (c *Client) call(ctx context.Context, method, path string, in, out any) error {
	res, err := c.send(ctx, method, path, in)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(io.LimitReader(res.Body, maxLine+1))
	if err != nil {
		return c.broken(ctx, err)
	}
	if len(b) > maxLine {
		return &Error{Code: CodeFailed, Message: fmt.Sprintf("the host's answer to %s is larger than %d bytes", path, maxLine)}
	}
	if err := json.Unmarshal(b, out); err != nil {
		return &Error{Code: CodeFailed, Message: fmt.Sprintf("the host's answer to %s cannot be read: %v", path, err), Err: err}
	}
	return nil
}

// send returns a 2xx answer; the caller closes its body.
func (c *Client) send(ctx context.Context, method, path string, in any) (*http.Response, error) {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return nil, &Error{Code: CodeFailed, Message: "encode the request: " + err.Error(), Err: err}
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://control"+path, body)
	if err != nil {
		return nil, &Error{Code: CodeFailed, Message: "make the request: " + err.Error(), Err: err}
	}
	req.Header.Set(HeaderProtocol, strconv.Itoa(Protocol))
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := c.http.Do(req)
	if err != nil {
		return nil, c.broken(ctx, err)
	}
	if res.StatusCode/100 == 2 {
		return res, nil
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(io.LimitReader(res.Body, MaxBody))
	if err != nil {
		return nil, c.broken(ctx, err)
	}
	var f failure
	if json.Unmarshal(b, &f) != nil || f.Error == nil || f.Error.Code == "" {
		return nil, &Error{Code: CodeFailed, Message: fmt.Sprintf("the host answered %s to %s %s", res.Status, method, path)}
	}
	return nil, f.Error
}

// broken names what a failed connection means.
func (c *Client) broken(ctx context.Context, err error) *Error {
	switch cause := ctx.Err(); {
	case errors.Is(cause, context.DeadlineExceeded):
		return &Error{Code: CodeTimeout, Message: "the host did not answer in time", Err: err}
	case cause != nil:
		return &Error{Code: CodeCancelled, Message: "cancelled", Err: err}
	}
	if errors.Is(err, fs.ErrPermission) {
		return &Error{Code: CodeUnreachable, Message: c.home + " is the home of another user", Hint: "run as that user, or choose another home with --home or NANOCLAW_HOME", Err: err}
	}
	return &Error{Code: CodeUnreachable, Message: "no host answers for " + c.home, Hint: "start it with: nanoclaw serve", Err: err}
}
