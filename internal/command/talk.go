package command

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"nanoclaw/internal/chatui"
	"nanoclaw/internal/control"
	"nanoclaw/internal/id"
)

// talk is a chat without a screen.
type talk struct {
	*app
	client       *control.Client
	conversation string
	flags        chatFlags
	unsaved      error // the first file that could not be saved
}

// answer is what --json prints for one message.
type answer struct {
	ID       string          `json:"id"`
	State    string          `json:"state"`
	Reason   string          `json:"reason,omitempty"`
	Messages []control.Event `json:"messages"`
}

var errEnough = errors.New("enough seen")

// deadline gives ctx the timeout of the flags.
func (t *talk) deadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if t.flags.timeout == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, t.flags.timeout)
}

// say hands over one message, across restarts of the host.
func (t *talk) say(ctx context.Context, m control.Say) (control.Accepted, error) {
	var accepted control.Accepted
	err := control.Repeat(ctx, func(ctx context.Context) (err error) {
		accepted, err = t.client.Say(ctx, t.conversation, m)
		return err
	})
	return accepted, err
}

// once sends text and prints the answer when the message has ended, with later edits applied.
func (t *talk) once(parent context.Context, text string) error {
	ctx, cancel := t.deadline(parent)
	defer cancel()
	before, err := t.client.History(ctx, t.conversation, 0, 0) // another client may acknowledge the answer before we look
	if err != nil {
		return t.giveUp(parent, err)
	}
	m := control.Say{ID: id.New(id.PrefixMessage), Text: text}
	accepted, err := t.say(ctx, m)
	if err != nil {
		return t.giveUp(parent, err)
	}
	got := collector{id: m.ID, seq: accepted.Seq}
	asked := replies{t: t}
	err = t.client.Follow(ctx, t.conversation, before.Cursor, func(e control.Event) error {
		if e.Seq > accepted.Seq {
			asked.take(ctx, e)
		}
		if got.take(e) {
			return errEnough
		}
		return nil
	})
	asked.end()
	if !errors.Is(err, errEnough) {
		t.print(ctx, got.answer())
		return t.giveUp(parent, err)
	}
	if got.unread > 0 {
		fmt.Fprintf(t.err, "earlier messages not shown here: %d; see them with: nanoclaw chat\n", got.unread)
	} else if err := t.client.Ack(ctx, t.conversation, got.last); err != nil {
		fmt.Fprintf(t.err, "nanoclaw: the answer will be shown again: %v\n", err)
	}
	a := got.answer()
	t.print(ctx, a)
	if err := t.ended(a.State, a.Reason); err != nil {
		return err
	}
	return t.unsaved
}

// giveUp names why an answer did not come.
func (t *talk) giveUp(parent context.Context, err error) error {
	switch {
	case parent.Err() != nil:
		return &exitError{exitCancelled, errors.New("cancelled; an answer will be shown at the next chat")}
	case control.IsCode(err, control.CodeTimeout), errors.Is(err, context.DeadlineExceeded):
		return &exitError{exitTimeout, fmt.Errorf("no answer within %v; it will be shown at the next chat", t.flags.timeout)}
	}
	return err
}

// ended is the error of a final state.
func (t *talk) ended(state, reason string) error {
	if state == control.StateAnswered || state == control.StateSilent {
		return nil
	}
	if reason == "" {
		reason = "no reason was given; see the host's log"
	}
	return &exitError{exitFailed, fmt.Errorf("the message ended as %s: %s", state, t.plain(t.err, reason))}
}

// plain makes agent's words safe where they go to a terminal.
func (t *talk) plain(w io.Writer, s string) string {
	if t.Terminal(w) {
		return chatui.Plain(s)
	}
	return s
}

func (t *talk) print(ctx context.Context, a answer) {
	for i := range a.Messages {
		t.saveFiles(ctx, &a.Messages[i])
	}
	if t.flags.json {
		t.printJSON(t.out, a)
		return
	}
	for _, e := range a.Messages {
		if e.Question == nil { // that was printed when it came
			t.printMessage(e)
		}
	}
}

func (t *talk) printMessage(e control.Event) {
	w := t.out
	if e.Notice {
		w = t.err
	}
	if text := strings.TrimRight(e.Text, "\n"); text != "" || len(e.Files) == 0 {
		fmt.Fprintln(w, t.plain(w, text))
	}
	for _, f := range e.Files {
		fmt.Fprintln(w, chatui.FileLine(f))
	}
}

// collector picks the answer to one message out of a conversation.
type collector struct {
	id     string
	seq    int64 // of the message
	last   int64
	unread int // messages of the agent before it that nobody saw
	state  string
	reason string
	own    []control.Event
	later  map[string]bool // messages of the person behind this one
	others []control.Event // answers to them
}

// take reports whether the message has ended.
func (c *collector) take(e control.Event) bool {
	if e.Seq > 0 {
		c.last = max(c.last, e.Seq)
	}
	if e.Seq > 0 && e.Seq < c.seq {
		if e.Kind == control.EventMessage && e.Author == control.AuthorAgent {
			c.unread++
		}
		return false
	}
	switch e.Kind {
	case control.EventMessage:
		switch {
		case e.Author == control.AuthorUser && e.ID != c.id:
			if c.later == nil {
				c.later = map[string]bool{}
			}
			c.later[e.ID] = true
		case e.Author != control.AuthorAgent:
		case e.ReplyTo == "" || e.ReplyTo == c.id:
			c.own = append(c.own, e)
		case c.later[e.ReplyTo]:
			c.others = append(c.others, e)
		}
	case control.EventEdit:
		for _, list := range [][]control.Event{c.own, c.others} {
			for i := range list {
				if list[i].ID == e.Target {
					list[i].Text = e.Text
				}
			}
		}
	case control.EventSettled:
		if e.Target == c.id {
			c.state, c.reason = e.State, e.Reason
			return true
		}
	}
	return false
}

// answer so far. A message that was taken into one exchange with later ones was answered with them.
func (c *collector) answer() answer {
	a := answer{ID: c.id, State: c.state, Reason: c.reason, Messages: c.own}
	if c.state == control.StateAnswered && len(c.own) == 0 {
		a.Messages = c.others
	}
	if a.Messages == nil {
		a.Messages = []control.Event{}
	}
	return a
}

// sent is a message on its way, or what its sending ended with.
type sent struct {
	id  string
	err error
	eof bool
}

// lines sends each line of the input as a message, in order, and prints what the agent says as it comes. After the end
// of the input it waits for the outstanding answers and returns the worst end.
func (t *talk) lines(parent context.Context) error {
	ctx, cancel := context.WithCancel(parent)
	defer cancel()
	events := make(chan control.Event)
	followed := make(chan error, 1)
	go func() {
		followed <- t.client.Follow(ctx, t.conversation, control.FromCursor, func(e control.Event) error {
			select {
			case events <- e:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}()
	says := make(chan sent)
	// Reading the input cannot be cancelled; when the program gives up it ends with it.
	go t.readLines(ctx, says)
	return t.wait(parent, ctx, events, says, followed)
}

func (t *talk) readLines(ctx context.Context, says chan<- sent) {
	tell := func(s sent) bool {
		select {
		case says <- s:
			return true
		case <-ctx.Done():
			return false
		}
	}
	in := bufio.NewScanner(t.in)
	in.Buffer(make([]byte, 0, 64<<10), control.MaxText)
	for in.Scan() {
		text := strings.TrimRight(in.Text(), "\r")
		if strings.TrimSpace(text) == "" {
			continue
		}
		m := control.Say{ID: id.New(id.PrefixMessage), Text: text}
		if !tell(sent{id: m.ID}) {
			return
		}
		if _, err := t.say(ctx, m); err != nil && !tell(sent{id: m.ID, err: err}) {
			return
		}
	}
	err := in.Err()
	if errors.Is(err, bufio.ErrTooLong) {
		err = usagef("a line of the input is longer than %d bytes", control.MaxText)
	}
	tell(sent{err: err, eof: true})
}

// wait is the loop of lines.
func (t *talk) wait(parent, ctx context.Context, events <-chan control.Event, says <-chan sent, followed <-chan error) error {
	open := map[string]bool{}
	var worst error
	note := func(err error) {
		if err != nil && (worst == nil || exitCode(parent, err) > exitCode(parent, worst)) {
			worst = err
		}
	}
	eof := false
	var seen int64
	defer func() { t.ack(parent, seen) }()
	var late <-chan time.Time
	for !eof || len(open) > 0 {
		select {
		case s := <-says:
			switch {
			case s.eof:
				eof = true
				note(s.err)
				if t.flags.timeout > 0 {
					timer := time.NewTimer(t.flags.timeout)
					defer timer.Stop()
					late = timer.C
				}
			case s.err != nil:
				delete(open, s.id)
				fmt.Fprintf(t.err, "nanoclaw: not sent: %v\n", s.err)
				note(&exitError{exitCode(parent, s.err), nil})
			default:
				open[s.id] = true
			}
		case e := <-events:
			seen = max(seen, e.Seq)
			note(t.event(ctx, e, open))
			if e.Kind == control.EventSettled {
				t.ack(ctx, seen)
			}
		case <-late:
			return &exitError{exitTimeout, fmt.Errorf("%d messages without an answer within %v", len(open), t.flags.timeout)}
		case err := <-followed:
			if parent.Err() != nil {
				return &exitError{exitCancelled, nil}
			}
			return err
		}
	}
	return worst
}

// event prints one event. The error is how a message of ours failed.
func (t *talk) event(ctx context.Context, e control.Event, open map[string]bool) error {
	failed := t.saveFiles(ctx, &e)
	if t.flags.json && e.Seq > 0 {
		t.printJSON(t.out, e)
	}
	switch e.Kind {
	case control.EventMessage, control.EventEdit:
		if !t.flags.json && e.Author == control.AuthorAgent {
			t.printMessage(e)
		}
	case control.EventAnswer:
		if e.Text != "" {
			fmt.Fprintln(t.err, "answered: "+t.plain(t.err, e.Text))
		}
	case control.EventLost:
		fmt.Fprintln(t.err, "the host is away, connecting again…")
	case control.EventSettled:
		if open[e.Target] {
			delete(open, e.Target)
			if err := t.ended(e.State, e.Reason); err != nil {
				fmt.Fprintln(t.err, "nanoclaw: "+err.Error())
				failed = &exitError{exitFailed, nil}
			}
		}
	}
	return failed
}

// ack says that everything up to seq was printed. It works after a cancellation too: what was printed was seen.
func (t *talk) ack(ctx context.Context, seq int64) {
	if seq == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), ackTime)
	defer cancel()
	if err := t.client.Ack(ctx, t.conversation, seq); err != nil && !control.Temporary(err) {
		fmt.Fprintf(t.err, "nanoclaw: what was printed may be shown again: %v\n", err)
	}
}

const ackTime = 2 * time.Second
