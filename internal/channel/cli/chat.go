package cli

import (
	"context"
	"fmt"
	"strings"

	"nanoclaw/internal/channel"
	"nanoclaw/internal/control"
	"nanoclaw/internal/crashpoint"
	"nanoclaw/internal/id"
)

// CrashSaid is the crash point between the host's store and the log.
const CrashSaid = "cli.said"

// Say hands a message of the operator to the host and then puts it into the log. The order is what makes a kill between
// the two harmless: the host has the message, and the client, which got no answer, sends it again under the same id; the
// host finds it a duplicate and the log gets its entry then. The other order could show a message that no agent ever gets.
// Messages of one conversation are stored one at a time, in the order they come.
func (a *Adapter) Say(ctx context.Context, conversation string, m control.Say) (control.Accepted, error) {
	if !id.Safe(m.ID) {
		return control.Accepted{}, control.Invalid("id", "must be 1 to 128 of A-Z a-z 0-9 . _ - and start with no dot")
	}
	if strings.TrimSpace(m.Text) == "" {
		return control.Accepted{}, control.Invalid("text", "is empty")
	}
	c, ctx, release, err := a.use(ctx, conversation)
	if err != nil {
		return control.Accepted{}, err
	}
	defer release()
	c.sayMu.Lock()
	defer c.sayMu.Unlock()
	if err := ctx.Err(); err != nil {
		return control.Accepted{}, err
	}
	done := make(chan struct{})
	c.setSaying(done)
	defer func() {
		c.setSaying(nil)
		close(done)
	}()
	v, err := c.host.Inbound(ctx, channel.Inbound{
		ID: m.ID, Kind: "chat", Address: channel.Address{PlatformID: conversation}, Text: m.Text,
		Sender: channel.Sender{ID: a.UserID(), Name: a.name}, Mention: channel.Yes, At: c.host.Now(),
	})
	if err != nil {
		return control.Accepted{}, fmt.Errorf("store the message: %w", err)
	}
	if v.Kind == channel.Dropped {
		return control.Accepted{}, &control.Error{Code: control.CodeForbidden, Message: "the message was not taken: " + v.Reason}
	}
	crashpoint.Hit(CrashSaid)
	// The host has it: a caller that leaves now must not leave the log without it.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTime)
	defer cancel()
	seq, duplicate, err := c.append(ctx, indexUser+m.ID, control.Event{Kind: control.EventMessage, Author: control.AuthorUser, ID: m.ID, Text: m.Text})
	if err != nil {
		return control.Accepted{}, err
	}
	if v.Kind == channel.Consumed { // it has ended; the host says no more about it
		if _, _, err := c.append(ctx, indexSettled+m.ID, control.Event{Kind: control.EventSettled, Target: m.ID, State: control.StateAnswered}); err != nil {
			return control.Accepted{}, err
		}
	}
	if v.Kind == channel.Duplicate && !duplicate {
		if seq, err = c.beforeAnswers(ctx, m.ID, seq); err != nil {
			return control.Accepted{}, err
		}
	}
	return control.Accepted{ID: m.ID, Seq: seq, Duplicate: duplicate}, nil
}

// Answer presses an option of a question for the operator.
func (a *Adapter) Answer(ctx context.Context, conversation string, in control.Answer) (control.Answered, error) {
	c, ctx, release, err := a.use(ctx, conversation)
	if err != nil {
		return control.Answered{}, err
	}
	defer release()
	v, err := c.host.Answer(ctx, channel.Answer{QuestionID: in.Question, Value: in.Value, Address: channel.Address{PlatformID: conversation},
		Sender: channel.Sender{ID: a.UserID(), Name: a.name}})
	if err != nil {
		return control.Answered{}, fmt.Errorf("store the answer: %w", err)
	}
	if v.Kind == channel.Dropped {
		return control.Answered{}, &control.Error{Code: control.CodeConflict, Message: "the answer was not taken: " + v.Reason}
	}
	return control.Answered{Duplicate: v.Kind == channel.Duplicate}, nil
}

// lateScan is how many entries before a late one may belong to it.
const lateScan = 200

// beforeAnswers is the position that everything a message led to stands behind: its own, seq, unless the host was killed
// before the log had the message and the agent answered before the client said it again.
func (c *conversation) beforeAnswers(ctx context.Context, messageID string, seq int64) (int64, error) {
	entries, _, err := c.read(ctx, max(1, seq-lateScan), seq, lateScan)
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		if e.ReplyTo == messageID || e.Kind == control.EventSettled && e.Target == messageID {
			return e.Seq - 1, nil
		}
	}
	return seq, nil
}

func (c *conversation) setSaying(done chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.saying = done
}

// Events calls on with a hello, then with every entry after position after (control.FromCursor: after the acknowledged
// one) and every change of what the agent does, as they come. A slow on holds back nobody else and costs no memory: it
// reads from the log. It returns the error of on, or of ctx, or a CodeUnavailable error when the channel stops.
func (a *Adapter) Events(ctx context.Context, conversation string, after int64, on func([]control.Event) error) error {
	c, stream, release, err := a.use(ctx, conversation)
	if err != nil {
		return err
	}
	defer release()
	cursor, last, err := c.positions(stream)
	if err != nil {
		return err
	}
	if after == control.FromCursor {
		after = cursor
	}
	if err := on([]control.Event{{Kind: control.EventHello, At: control.At(c.host.Now()), Hello: &control.Hello{Cursor: cursor, Last: last}}}); err != nil {
		return err
	}
	var seen int64 // change of work that was sent
	for {
		c.mu.Lock()
		changed, last, work, workN := c.changed, c.last, c.work, c.workN
		c.mu.Unlock()
		var out []control.Event
		if after < last {
			if out, err = c.following(stream, after); err != nil {
				return err
			}
		}
		if n := len(out); n > 0 {
			after = out[n-1].Seq
		} else {
			after = max(after, last) // what was there is deleted
		}
		if workN != seen && after >= last {
			seen = workN
			out = append(out, control.Event{Kind: control.EventWorking, At: control.At(c.host.Now()), Work: &work})
		}
		if len(out) > 0 {
			if err := on(out); err != nil {
				return err
			}
			continue
		}
		select {
		case <-changed:
		case <-stream.Done():
			if ctx.Err() == nil {
				return errStopped()
			}
			return ctx.Err()
		}
	}
}

func (c *conversation) positions(ctx context.Context) (cursor, last int64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.load(ctx); err != nil {
		return 0, 0, err
	}
	cursor, _, err = c.number(ctx, "cursor")
	return cursor, c.last, err
}

// Ack moves the acknowledged position forward, at most to the newest entry.
func (a *Adapter) Ack(ctx context.Context, conversation string, seq int64) error {
	c, ctx, release, err := a.use(ctx, conversation)
	if err != nil {
		return err
	}
	defer release()
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.load(ctx); err != nil {
		return err
	}
	cursor, _, err := c.number(ctx, "cursor")
	if err != nil {
		return err
	}
	if seq = min(seq, c.last); seq <= cursor {
		return nil
	}
	if err := c.host.Store().Update(ctx, channel.Pair{Key: c.key("cursor"), Value: pad(seq)}); err != nil {
		return fmt.Errorf("acknowledge in conversation %s: %w", c.name, err)
	}
	return nil
}

// History returns at most limit entries before position before (0: the end), oldest first.
func (a *Adapter) History(ctx context.Context, conversation string, before int64, limit int) (control.History, error) {
	c, ctx, release, err := a.use(ctx, conversation)
	if err != nil {
		return control.History{}, err
	}
	defer release()
	cursor, last, err := c.positions(ctx)
	if err != nil {
		return control.History{}, err
	}
	if before <= 0 || before > last {
		before = last + 1
	}
	events, err := c.preceding(ctx, before, limit)
	if err != nil {
		return control.History{}, err
	}
	return control.History{Events: events, Cursor: cursor, Last: last}, nil
}
