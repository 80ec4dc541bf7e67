package control

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

// Events calls on with each event after position after (or FromCursor), one at a time, first an EventHello. It returns
// the error of on, or an *Error when the stream ends: ended by the host is CodeUnreachable.
func (c *Client) Events(ctx context.Context, conversation string, after int64, on func(Event) error) error {
	path := chatPath(conversation, "events")
	if after != FromCursor {
		path += "?after=" + strconv.FormatInt(after, 10)
	}
	res, err := c.send(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(make([]byte, 0, 16<<10), maxLine)
	for lines.Scan() {
		if len(lines.Bytes()) == 0 {
			continue
		}
		var e Event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return &Error{Code: CodeFailed, Message: fmt.Sprintf("an event of the host cannot be read: %v", err), Err: err}
		}
		if err := on(e); err != nil {
			return err
		}
	}
	err = lines.Err()
	if errors.Is(err, bufio.ErrTooLong) {
		return &Error{Code: CodeFailed, Message: fmt.Sprintf("an event of the host is larger than %d bytes", maxLine), Err: err}
	}
	if err == nil {
		err = io.EOF
	}
	return c.broken(ctx, err)
}

// Pauses between attempts to reach a host that is away.
const (
	pauseMin = 25 * time.Millisecond
	pauseMax = time.Second
)

// Follow is Events that survives restarts of the host: after a break it connects again and goes on behind the last event,
// so that on sees each entry once. An outage is one EventLost; the EventHello after it says that it is over. It returns
// the error of on, the end of ctx as an *Error, or an *Error that no repetition cures.
func (c *Client) Follow(ctx context.Context, conversation string, after int64, on func(Event) error) error {
	var stop error
	lost := false
	pause := pauseMin
	for {
		err := c.Events(ctx, conversation, after, func(e Event) error {
			lost, pause = false, pauseMin
			if e.Seq > 0 {
				after = max(after, e.Seq)
			}
			if e.Hello != nil && after == FromCursor {
				after = e.Hello.Cursor
			}
			stop = on(e)
			return stop
		})
		switch {
		case stop != nil:
			return stop
		case ctx.Err() != nil:
			return c.broken(ctx, ctx.Err())
		case !Temporary(err):
			return err
		}
		if !lost {
			lost = true
			if err := on(Event{Kind: EventLost, Reason: err.Error()}); err != nil {
				return err
			}
		}
		if err := wait(ctx, pause); err != nil {
			return c.broken(ctx, err)
		}
		pause = min(2*pause, pauseMax)
	}
}

// Repeat calls do until it returns something other than a Temporary error, with growing pauses, and at most until ctx
// ends: for requests that must survive a restart of the host.
func Repeat(ctx context.Context, do func(context.Context) error) error {
	for pause := pauseMin; ; pause = min(2*pause, pauseMax) {
		err := do(ctx)
		if !Temporary(err) || wait(ctx, pause) != nil {
			return err
		}
	}
}

func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
