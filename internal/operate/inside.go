package operate

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"nanoclaw/internal/control"
	"nanoclaw/internal/id"
	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/store"
)

// Limits of requests from inside.
const (
	maxRequestID = 64
	perMinute    = 20 // of one session
	window       = time.Minute
)

// Inside carries out the commands of agents: it reads their requests, which are believed in nothing, and makes the rows that
// answer them.
type Inside struct {
	desk *Desk
	now  func() time.Time

	mu   sync.Mutex
	last map[id.Session][]time.Time // of the requests of the last minute
}

// NewInside makes an Inside; now is the clock, nil is time.Now.
func NewInside(d *Desk, now func() time.Time) *Inside {
	if now == nil {
		now = time.Now
	}
	return &Inside{desk: d, now: now, last: map[id.Session][]time.Time{}}
}

// request is a mailbox.AdminOut as an agent may have written it.
type request struct {
	RequestID json.RawMessage `json:"requestId"`
	Command   json.RawMessage `json:"command"`
	Args      json.RawMessage `json:"args"`
}

// Do carries out one request of an agent under key and returns the row for its inbox. A request that is broken but says its
// id is answered by an error; one without a usable id is refused with an error. The row's id follows from the request's, so
// that an answer is there once, however often it is put.
func (i *Inside) Do(ctx context.Context, s store.Session, key string, content json.RawMessage) ([]mailbox.InRow, error) {
	var r request
	var requestID string
	if json.Unmarshal(content, &r) != nil || json.Unmarshal(r.RequestID, &requestID) != nil {
		return nil, fmt.Errorf("the request has no usable id")
	}
	if !id.Safe(requestID) || len(requestID) > maxRequestID {
		return nil, fmt.Errorf("the request's id is not 1 to %d of A-Z a-z 0-9 . _ -", maxRequestID)
	}
	f := i.answer(ctx, Caller{Session: s, Key: key}, requestID, r)
	if err := ctx.Err(); err != nil {
		return nil, err // the host is ending: the next one answers
	}
	row, err := responseRow(requestID, f)
	if err != nil {
		row, err = responseRow(requestID, control.Fail(requestID, &control.Error{Code: control.CodeTooLarge,
			Message: "the answer is too large to be passed on", Hint: "ask for less, for example with --limit"}))
	}
	return []mailbox.InRow{row}, err
}

func (i *Inside) answer(ctx context.Context, c Caller, requestID string, r request) control.Frame {
	if !i.admit(c.Session.ID) {
		return control.Fail(requestID, &control.Error{Code: control.CodeUnavailable,
			Message: fmt.Sprintf("too many commands: at most %d in a minute", perMinute), Hint: "wait a moment and try again"})
	}
	var a control.AdminRequest
	if json.Unmarshal(r.Command, &a.Command) != nil {
		return control.Fail(requestID, control.Invalid("command", "must be a text"))
	}
	if len(r.Args) > control.MaxArgs {
		return control.Fail(requestID, &control.Error{Code: control.CodeTooLarge, Field: "args", Message: fmt.Sprintf("is larger than %d bytes", control.MaxArgs)})
	}
	if len(r.Args) > 0 && json.Unmarshal(r.Args, &a.Args) != nil {
		return control.Fail(requestID, control.Invalid("args", "must be an object"))
	}
	return i.desk.Do(ctx, c, requestID, a)
}

// admit counts a request and reports whether it may be carried out.
func (i *Inside) admit(s id.Session) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	now := i.now()
	for session, times := range i.last { // sessions that rest are forgotten
		for len(times) > 0 && now.Sub(times[0]) >= window {
			times = times[1:]
		}
		if i.last[session] = times; len(times) == 0 {
			delete(i.last, session)
		}
	}
	if len(i.last[s]) >= perMinute {
		return false
	}
	i.last[s] = append(i.last[s], now)
	return true
}

func responseRow(requestID string, f control.Frame) (mailbox.InRow, error) {
	frame, err := mailbox.EncodeContent(f)
	if err != nil {
		return mailbox.InRow{}, err
	}
	content, err := mailbox.EncodeContent(mailbox.ResponseIn{Type: mailbox.TypeResponse, RequestID: requestID, Frame: frame})
	if err != nil {
		return mailbox.InRow{}, err
	}
	row := mailbox.InRow{ID: mailbox.ResponsePrefix + requestID, Kind: mailbox.KindSystem, Content: content}
	return row, row.Validate()
}
