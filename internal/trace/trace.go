// Package trace tells what became of one message, from its receipt to the platform's acknowledgement of the answer, or where it
// stopped and which rule did it. It reads what is durable anyway, so that it works over restarts and costs nothing until
// somebody asks (spec/operator.md section 20.8).
package trace

import (
	"context"
	"errors"
	"fmt"
	"time"

	"nanoclaw/internal/channel"
	"nanoclaw/internal/control"
	"nanoclaw/internal/id"
	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/store"
)

// Store is what is read of the central database.
type Store interface {
	TraceMessages(ctx context.Context, anyID string) ([]store.Traced, error)
	TraceLast(ctx context.Context, session id.Session) (store.Traced, error)
	TraceExchange(ctx context.Context, session id.Session, exchange string) ([]store.TracedLedger, error)
	TraceDelivery(ctx context.Context, anyID string) ([]store.TracedLedger, error)
	TraceNotices(ctx context.Context, key string) ([]store.TracedLedger, error)
	Drops(ctx context.Context, platformMessageID string) ([]store.Drop, error)
	Session(ctx context.Context, session id.Session) (store.Session, error)
	AgentGroup(ctx context.Context, group id.AgentGroup) (store.AgentGroup, error)
}

// Box is what is read of a session's mailbox.
type Box interface {
	Trace(ctx context.Context, rowID string) (mailbox.Trace, error)
	TraceExchange(ctx context.Context, exchange string) (mailbox.Trace, error)
	Close() error
}

// Live is what a session does at the moment.
type Live struct {
	State       string // absent, starting, running, stopping
	Incarnation int64  // running one, 0 if there is none
	Problem     string // why no agent can be started
}

// Options of a Tracer.
type Options struct {
	Store Store
	// Open opens a session's mailbox to look at it; mailbox.ErrNotExist if it has none.
	Open     func(ctx context.Context, s store.Session) (Box, error)
	Live     func(s id.Session) Live
	MaxTries int
	Now      func() time.Time // nil: time.Now
}

// Tracer follows messages.
type Tracer struct{ opt Options }

// New makes a Tracer.
func New(opt Options) *Tracer {
	if opt.Now == nil {
		opt.Now = time.Now
	}
	return &Tracer{opt}
}

// Trace follows what the query names. An *control.Error of code not-found says that nothing is known of it.
func (t *Tracer) Trace(ctx context.Context, q control.TraceQuery) (control.Trace, error) {
	if q.Last {
		return t.last(ctx, q)
	}
	messages, err := t.opt.Store.TraceMessages(ctx, q.ID)
	if err != nil {
		return control.Trace{}, err
	}
	if len(messages) > 0 {
		return t.messages(ctx, messages, q.Text)
	}
	ways, err := t.deliveries(ctx, q)
	if err != nil || len(ways) > 0 {
		return control.Trace{Ways: ways}, err
	}
	drops, err := t.opt.Store.Drops(ctx, q.ID)
	if err != nil {
		return control.Trace{}, err
	}
	for _, d := range drops {
		ways = append(ways, dropped(d))
	}
	if len(ways) > 0 {
		return control.Trace{Ways: ways}, nil
	}
	if q.Session != "" {
		return t.row(ctx, q)
	}
	return control.Trace{}, &control.Error{Code: control.CodeNotFound, Message: fmt.Sprintf("nothing is known of %q", q.ID),
		Hint: "it was never received here, or is older than the setting retention; the row of a task needs --session"}
}

func (t *Tracer) last(ctx context.Context, q control.TraceQuery) (control.Trace, error) {
	m, err := t.opt.Store.TraceLast(ctx, id.Session(q.Session))
	none := errors.Is(err, store.ErrNotFound)
	if err != nil && !none {
		return control.Trace{}, err
	}
	if q.Session == "" {
		drops, err := t.opt.Store.Drops(ctx, "")
		if err != nil {
			return control.Trace{}, err
		}
		if len(drops) > 0 && (none || drops[0].At.After(m.Received)) {
			return control.Trace{Ways: []control.Way{dropped(drops[0])}}, nil
		}
	}
	if none {
		return control.Trace{}, &control.Error{Code: control.CodeNotFound, Message: "no message was received yet"}
	}
	return t.messages(ctx, []store.Traced{m}, q.Text)
}

func (t *Tracer) messages(ctx context.Context, all []store.Traced, text bool) (control.Trace, error) {
	var out control.Trace
	for _, m := range all {
		w, err := t.message(ctx, m, text)
		if err != nil {
			return control.Trace{}, err
		}
		out.Ways = append(out.Ways, w)
	}
	return out, nil
}

// deliveries follows a delivery back to the messages that its exchange answered; without any it stands for itself.
func (t *Tracer) deliveries(ctx context.Context, q control.TraceQuery) ([]control.Way, error) {
	rows, err := t.opt.Store.TraceDelivery(ctx, q.ID)
	if err != nil {
		return nil, err
	}
	var ways []control.Way
	done := map[string]bool{}
	for _, row := range rows {
		var asked []store.Traced
		if row.Exchange != "" && row.SessionID != "" {
			if done[row.Exchange] {
				continue
			}
			done[row.Exchange] = true
			box, _, err := t.look(ctx, row.SessionID, func(b Box) (mailbox.Trace, error) { return b.TraceExchange(ctx, row.Exchange) })
			if err != nil {
				return nil, err
			}
			for _, rowID := range box.With {
				m, err := t.opt.Store.TraceMessages(ctx, rowID)
				if err != nil {
					return nil, err
				}
				asked = append(asked, m...)
			}
		}
		if len(asked) == 0 {
			ways = append(ways, t.delivery(row, q.Text))
			continue
		}
		found, err := t.messages(ctx, asked, q.Text)
		if err != nil {
			return nil, err
		}
		ways = append(ways, found.Ways...)
	}
	return ways, nil
}

// look opens a session's mailbox and reads. why says in words why there is nothing to read.
func (t *Tracer) look(ctx context.Context, session id.Session, read func(Box) (mailbox.Trace, error)) (found mailbox.Trace, why string, err error) {
	s, err := t.opt.Store.Session(ctx, session)
	if errors.Is(err, store.ErrNotFound) {
		return found, "its session is closed", nil
	}
	if err != nil {
		return found, "", err
	}
	box, err := t.opt.Open(ctx, s)
	if errors.Is(err, mailbox.ErrNotExist) {
		return found, "its session has no mailbox", nil
	}
	if err != nil {
		return found, "its mailbox cannot be opened: " + err.Error(), ctx.Err()
	}
	found, err = read(box)
	if closeErr := box.Close(); err == nil {
		err = closeErr
	}
	return found, "", err
}

// message follows one message of one agent.
func (t *Tracer) message(ctx context.Context, m store.Traced, text bool) (control.Way, error) {
	w := &way{now: t.opt.Now(), first: m.Received, text: text}
	w.Message, w.Session = m.RowID, string(m.SessionID)
	w.Agent = t.agent(ctx, m.AgentGroupID)
	w.received(m, func(g id.AgentGroup) string { return t.agent(ctx, g) })
	box, why, err := t.look(ctx, m.SessionID, func(b Box) (mailbox.Trace, error) { return b.Trace(ctx, m.RowID) })
	if err != nil {
		return w.Way, err
	}
	var ledger []store.TracedLedger
	if box.Ack != nil {
		if ledger, err = t.opt.Store.TraceExchange(ctx, m.SessionID, box.Ack.Exchange); err != nil {
			return w.Way, err
		}
	}
	notices, err := t.opt.Store.TraceNotices(ctx, "dead:"+m.RowID)
	if err != nil {
		return w.Way, err
	}
	live := t.opt.Live(m.SessionID)
	w.inbox(box, why, m.Final.IsZero(), live)
	w.exchange(box)
	w.ledger(ledger, box.Out)
	w.ledger(notices, nil)
	w.end(m)
	w.judge(verdict{m: m, box: box, why: why, ledger: ledger, live: live, maxTries: t.opt.MaxTries})
	return w.done(), nil
}

// row follows a row of a session's inbox that is no chat message: a task, an answer.
func (t *Tracer) row(ctx context.Context, q control.TraceQuery) (control.Trace, error) {
	session := id.Session(q.Session)
	box, why, err := t.look(ctx, session, func(b Box) (mailbox.Trace, error) { return b.Trace(ctx, q.ID) })
	if err != nil {
		return control.Trace{}, err
	}
	if box.Row == nil && box.Ack == nil {
		if why == "" {
			why = "its mailbox holds no such row"
		}
		return control.Trace{}, &control.Error{Code: control.CodeNotFound, Message: fmt.Sprintf("nothing is known of %q in session %s: %s", q.ID, q.Session, why)}
	}
	m := store.Traced{Message: store.Message{RowID: q.ID, SessionID: session, State: "pending"}}
	w := &way{now: t.opt.Now(), text: q.Text}
	w.Message, w.Session = q.ID, q.Session
	if box.Row != nil {
		m.Received, w.first = box.Row.Timestamp, box.Row.Timestamp
	}
	var ledger []store.TracedLedger
	if box.Ack != nil {
		if ledger, err = t.opt.Store.TraceExchange(ctx, session, box.Ack.Exchange); err != nil {
			return control.Trace{}, err
		}
		if box.Ack.Status.Final() {
			m.State, m.Reason, m.Final = channel.Silent, box.Ack.Reason, box.Ack.StatusChanged
			switch {
			case box.Ack.Status != mailbox.AckCompleted:
				m.State = channel.Failed
			case len(ledger) > 0:
				m.State = channel.Answered
			}
		}
	}
	live := t.opt.Live(session)
	w.inbox(box, why, m.Final.IsZero(), live)
	w.exchange(box)
	w.ledger(ledger, box.Out)
	w.judge(verdict{m: m, box: box, why: why, ledger: ledger, live: live, maxTries: t.opt.MaxTries})
	return control.Trace{Ways: []control.Way{w.done()}}, nil
}

// delivery is a ledger row that answers no message that is known.
func (t *Tracer) delivery(row store.TracedLedger, text bool) control.Way {
	w := &way{now: t.opt.Now(), first: row.CreatedAt, text: text}
	w.Session = string(row.SessionID)
	w.ledger([]store.TracedLedger{row}, nil)
	w.deliveryVerdict(row)
	return w.done()
}

func dropped(d store.Drop) control.Way {
	w := &way{first: d.At}
	w.step(d.At, control.TraceStep{Step: "received", ID: d.PlatformMessageID, What: fmt.Sprintf("received from %s, chat %s, sender %s; its text was not kept", d.Instance, d.PlatformID, d.Sender)})
	w.step(d.At, control.TraceStep{Step: "dropped", Reason: d.Reason, What: "dropped: " + d.Reason})
	w.Outcome, w.Verdict = control.TraceDropped, "stopped here: "+d.Reason
	return w.done()
}

// agent is an agent group's name, else its id.
func (t *Tracer) agent(ctx context.Context, group id.AgentGroup) string {
	g, err := t.opt.Store.AgentGroup(ctx, group)
	if err != nil || g.Name == "" {
		return string(group)
	}
	return g.Name
}
