package trace

import (
	"fmt"
	"time"

	"nanoclaw/internal/channel"
	"nanoclaw/internal/control"
	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/store"
)

// verdict is all that the last line depends on.
type verdict struct {
	m        store.Traced
	box      mailbox.Trace
	why      string // nothing is known of the session's own files
	ledger   []store.TracedLedger
	live     Live
	maxTries int
}

// judge says in one line where the message is, and by which rule.
func (w *way) judge(v verdict) {
	switch v.m.State {
	case "context":
		w.Outcome, w.Verdict = control.TraceContext, "stored as context, wakes nobody"
		for _, c := range v.m.Routed {
			if c.Group == v.m.AgentGroupID {
				w.Verdict += ": " + c.Reason
			}
		}
	case channel.Answered:
		w.answered(v)
	case channel.Silent:
		w.silent(v)
	case channel.Failed:
		w.ended(control.TraceFailed, "failed", v)
	case channel.Refused:
		w.ended(control.TraceRefused, "refused", v)
	case channel.Dead:
		w.ended(control.TraceDead, "given up", v)
	default:
		w.Outcome, w.Verdict = control.TraceWaiting, "waiting "+waiting(v, w.now)
	}
}

func (w *way) ended(outcome, words string, v verdict) {
	w.Outcome, w.Verdict = outcome, "stopped here: "+words
	if v.m.Reason != "" {
		w.Verdict += ": " + oneLine(v.m.Reason)
	}
	w.elapsed(v.m.Final)
}

func (w *way) elapsed(at time.Time) {
	if !at.IsZero() && !w.first.IsZero() {
		w.ElapsedMS = at.Sub(w.first).Milliseconds()
	}
}

// span is a length of time as people read it.
func span(ms int64) string {
	d := time.Duration(ms) * time.Millisecond
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", ms)
	case d < time.Minute:
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return d.Round(time.Second).String()
}

// answered looks at what became of the answers: an answer that nobody got is none.
func (w *way) answered(v verdict) {
	var first time.Time
	var open, lost *store.TracedLedger
	sent, all := 0, 0
	for i := range v.ledger {
		row := &v.ledger[i]
		if row.Kind != "chat" {
			continue
		}
		all++
		switch {
		case row.State == store.Sent:
			sent++
			if at := sentAt(*row); first.IsZero() || at.Before(first) {
				first = at
			}
		case row.State.Final():
			lost = row
		case open == nil:
			open = row
		}
	}
	switch {
	case all == 0:
		w.Outcome, w.Verdict = control.TraceAnswered, "answered; its deliveries are pruned"
		w.elapsed(v.m.Final)
		return
	case sent > 0:
		w.elapsed(first)
		w.Outcome, w.Verdict = control.TraceAnswered, "answered after "+span(w.ElapsedMS)
	case open != nil:
		w.Outcome, w.Verdict = control.TraceWaiting, "waiting for its delivery: "+pending(*open, w.now)
		return
	default:
		w.Outcome, w.Verdict = control.TraceUndelivered, "stopped here: the answer was not delivered: "+word(lost.State, lost.Reason, "")
		w.elapsed(lost.Updated)
		return
	}
	if open != nil {
		w.Verdict += fmt.Sprintf("; %d of %d messages sent, the next one waits: %s", sent, all, pending(*open, w.now))
	} else if lost != nil {
		w.Verdict += fmt.Sprintf("; %d of %d messages sent, one was not: %s", sent, all, word(lost.State, lost.Reason, ""))
	}
}

func sentAt(v store.TracedLedger) time.Time {
	for _, c := range v.History {
		if c.State == store.Sent {
			return c.At
		}
	}
	return v.Updated
}

// pending says what an open delivery waits for.
func pending(v store.TracedLedger, now time.Time) string {
	text := word(v.State, v.Reason, "")
	if v.NotBefore.After(now) {
		text += ", in " + span(v.NotBefore.Sub(now).Milliseconds())
	}
	if v.Tries > 0 {
		text += fmt.Sprintf(" (%s)", tries(v.Tries))
	}
	return text
}

func (w *way) silent(v verdict) {
	w.elapsed(v.m.Final)
	w.Outcome, w.Verdict = control.TraceSilent, "silent: the agent ended it after "+span(w.ElapsedMS)+" without sending anything"
	n := v.box.Note
	switch {
	case n != nil && n.Stopped:
		w.Outcome, w.Verdict = control.TraceStopped, "stopped here: a person stopped the agent after "+span(w.ElapsedMS)
	case n != nil && len(n.Lost) > 0:
		w.Verdict += "; a block did not leave: " + n.Lost[len(n.Lost)-1].Why
	case v.m.Reason != "":
		w.Verdict += ": " + oneLine(v.m.Reason)
	}
}

// waiting says what a message without an end waits for.
func waiting(v verdict, now time.Time) string {
	a, row := v.box.Ack, v.box.Row
	running := v.live.State == "running"
	switch {
	case v.why != "":
		return "for ever: " + v.why
	case a != nil && a.Status.Final():
		return "for the host to take over how it ended"
	case v.box.Hostile:
		return "for the operator: what the agent wrote was refused"
	case row == nil:
		return "for ever: the inbox has no row of it"
	case a != nil && running && a.Incarnation == v.live.Incarnation:
		return "for the agent, which has it since " + span(now.Sub(a.StatusChanged).Milliseconds()) + doing(v.box, now)
	case row.Status == mailbox.StatusFailed:
		return "for the host to end it: the row was given up"
	case row.ProcessAfter.After(now):
		return fmt.Sprintf("for its next try in %s (%s of %d failed)%s", span(row.ProcessAfter.Sub(now).Milliseconds()), tries(row.Tries), v.maxTries, problem(v.live))
	case a != nil:
		return fmt.Sprintf("for another try: incarnation %d took it and is gone (%s of %d counted)%s", a.Incarnation, tries(row.Tries), v.maxTries, problem(v.live))
	case running:
		return "for its turn with the running agent" + doing(v.box, now)
	case v.live.State == "starting":
		return "for the sandbox, which is starting"
	case v.live.State == "stopping":
		return "for the sandbox, which is ending and starts again"
	}
	if v.live.Problem != "" {
		return "for a sandbox" + problem(v.live)
	}
	return "for the host to wake its session"
}

func problem(l Live) string {
	if l.Problem == "" {
		return ""
	}
	return "; no agent can be started: " + oneLine(l.Problem)
}

// doing says what the runner tells of itself.
func doing(box mailbox.Trace, now time.Time) string {
	text := ""
	if box.State.Turn == mailbox.TurnWorking {
		text = ", working"
	}
	if box.State.CurrentTool != "" {
		text = ", in tool " + mailbox.NoteWord(box.State.CurrentTool)
	}
	if !box.Beat.IsZero() {
		text += fmt.Sprintf(", last sign of life %s ago", span(max(now.Sub(box.Beat).Milliseconds(), 0)))
	}
	return text
}

// deliveryVerdict is the last line of a delivery that answers no message.
func (w *way) deliveryVerdict(v store.TracedLedger) {
	switch {
	case v.State == store.Sent:
		at := sentAt(v)
		w.elapsed(at)
		w.Outcome, w.Verdict = control.TraceSent, "sent after "+span(w.ElapsedMS)
	case v.State.Final():
		w.Outcome, w.Verdict = control.TraceUndelivered, "stopped here: "+word(v.State, v.Reason, "")
	default:
		w.Outcome, w.Verdict = control.TraceWaiting, "waiting for its delivery: "+pending(v, w.now)
	}
}
