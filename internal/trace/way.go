package trace

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"nanoclaw/internal/control"
	"nanoclaw/internal/id"
	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/store"
)

// way collects the steps of one message.
type way struct {
	control.Way
	now   time.Time
	first time.Time
	text  bool
}

func (w *way) step(at time.Time, s control.TraceStep) {
	s.At = control.At(at)
	if !at.IsZero() && !w.first.IsZero() {
		s.AfterMS = at.Sub(w.first).Milliseconds()
	}
	w.Steps = append(w.Steps, s)
}

// done puts the steps in the order of their times; one without a time stays behind the step it followed.
func (w *way) done() control.Way {
	type placed struct {
		at time.Time
		s  control.TraceStep
	}
	all := make([]placed, 0, len(w.Steps))
	var last time.Time
	for _, s := range w.Steps {
		if !s.At.IsZero() {
			last = s.At.Time
		}
		all = append(all, placed{last, s})
	}
	slices.SortStableFunc(all, func(a, b placed) int { return a.at.Compare(b.at) })
	w.Steps = w.Steps[:0]
	for _, p := range all {
		w.Steps = append(w.Steps, p.s)
	}
	return w.Way
}

// received tells receipt and routing.
func (w *way) received(m store.Traced, agent func(id.AgentGroup) string) {
	thread := ""
	if m.ThreadID != "" {
		thread = ", thread " + m.ThreadID
	}
	w.step(m.Received, control.TraceStep{Step: "received", ID: m.PlatformMessageID, What: fmt.Sprintf("received from %s, chat %s%s, as message %s", m.Instance, m.PlatformID, thread, m.PlatformMessageID)})
	for _, c := range m.Routed {
		what := fmt.Sprintf("wiring %s, agent %s: %s: %s", c.Wiring, agent(c.Group), action(c.Action), c.Reason)
		w.step(m.Received, control.TraceStep{Step: "routed", ID: string(c.Wiring), State: c.Action, Reason: c.Reason, What: what})
	}
	if len(m.Routed) == 0 {
		w.step(m.Received, control.TraceStep{Step: "routed", What: "which wiring took it was not kept (an older version received it)"})
	}
}

func action(word string) string {
	switch word {
	case "engage":
		return "for this agent"
	case "accumulate":
		return "kept as context"
	case "drop":
		return "not for this agent"
	case "hold":
		return "held: somebody was asked whether the sender is let in"
	case "decline":
		return "declined: the sender was told"
	case "refuse":
		return "refused: the sender was told"
	}
	return word
}

// inbox tells what the session's own files say of the row and of who took it.
func (w *way) inbox(box mailbox.Trace, why string, open bool, live Live) {
	switch {
	case why != "":
		w.step(time.Time{}, control.TraceStep{Step: "inbox", What: "its way inside the session is not known: " + why})
		return
	case box.Row != nil:
		what := fmt.Sprintf("in the inbox of session %s as #%d", w.Session, box.Row.Seq)
		if box.Row.Tries > 0 {
			what += fmt.Sprintf(", %s failed so far", tries(box.Row.Tries))
		}
		if box.Row.ProcessAfter.After(w.now) {
			what += ", not before " + box.Row.ProcessAfter.UTC().Format(time.RFC3339)
		}
		w.step(w.first, control.TraceStep{Step: "inbox", ID: box.Row.ID, State: string(box.Row.Status), What: what, Text: w.inText(box.Row.Content)})
	case open:
		w.step(time.Time{}, control.TraceStep{Step: "inbox", What: "the inbox has no row of it"})
	default:
		w.step(time.Time{}, control.TraceStep{Step: "inbox", What: "the row in the inbox is pruned"})
	}
	for _, p := range box.Problems {
		w.step(time.Time{}, control.TraceStep{Step: "problem", Reason: p, What: "what the agent wrote cannot be read: " + p})
	}
	a := box.Ack
	if a == nil {
		return
	}
	switch {
	case !a.Status.Final():
		what := fmt.Sprintf("claimed by incarnation %d for exchange %s", a.Incarnation, a.Exchange)
		if a.Incarnation != live.Incarnation {
			what += ", which is gone"
		}
		w.step(a.StatusChanged, control.TraceStep{Step: "claimed", ID: a.Exchange, State: string(a.Status), What: what})
	default:
		what := fmt.Sprintf("incarnation %d ended exchange %s: %s", a.Incarnation, orNone(a.Exchange), a.Status)
		if a.Reason != "" {
			what += ": " + oneLine(a.Reason)
		}
		if n := len(box.With); n > 0 {
			what += fmt.Sprintf(" (with %d other messages)", n)
		}
		w.step(a.StatusChanged, control.TraceStep{Step: "exchange", ID: a.Exchange, State: string(a.Status), Reason: a.Reason, What: what})
	}
}

// exchange tells tools, blocks that did not leave, nudge, retries, and cost.
func (w *way) exchange(box mailbox.Trace) {
	at := time.Time{}
	if box.Ack != nil {
		at = box.Ack.StatusChanged
	}
	if n := box.Note; n != nil {
		for _, tool := range n.Tools {
			w.step(tool.At, control.TraceStep{Step: "tool", ID: tool.Name, What: "tool " + tool.Name})
		}
		if n.More > 0 {
			w.step(at, control.TraceStep{Step: "tool", What: fmt.Sprintf("and %d more tool calls", n.More)})
		}
		for _, class := range n.Retries {
			w.step(at, control.TraceStep{Step: "retry", Reason: class, What: "the model failed and was asked again: " + class})
		}
		for _, l := range n.Lost {
			to := "a block"
			if l.To != "" {
				to = "a block to " + l.To
			}
			w.step(at, control.TraceStep{Step: "block", ID: l.To, State: "lost", Reason: l.Why, What: to + " did not leave: " + l.Why})
		}
		if n.Nudged {
			w.step(at, control.TraceStep{Step: "nudge", What: "the model was asked once to address its answer"})
		}
		if n.Stopped {
			w.step(at, control.TraceStep{Step: "stop", What: "a person stopped it"})
		}
	}
	for _, u := range box.Usage {
		what := fmt.Sprintf("%s answered: %d tokens in, %d out", strings.TrimSpace(u.Provider+" "+u.Model), u.InputTokens+u.CacheReadTokens+u.CacheCreationTokens, u.OutputTokens)
		if u.CostUSD > 0 {
			what += fmt.Sprintf(", %.4f USD", u.CostUSD)
		}
		state := ""
		if u.Failed {
			what, state = what+", with an error", "failed"
		}
		w.step(u.Timestamp, control.TraceStep{Step: "model", ID: u.Provider, State: state, What: what})
	}
}

// ledger tells what the exchange wrote and what became of it. A row that is in the outbox alone was not taken over yet.
func (w *way) ledger(rows []store.TracedLedger, out []mailbox.OutRow) {
	known := map[string]bool{}
	for _, v := range rows {
		known[v.OutboundID] = true
		var from *mailbox.OutRow
		for i := range out {
			if out[i].ID == v.OutboundID {
				from = &out[i]
			}
		}
		if from != nil {
			w.wrote(*from)
		}
		what := fmt.Sprintf("delivery %s to %s: %s", v.ID, place(v.Destination), "queued")
		if v.Kind == "notice" {
			what = fmt.Sprintf("the host's own words, delivery %s to %s: queued", v.ID, place(v.Destination))
		}
		if v.Kind == "system" {
			what = fmt.Sprintf("a request to the host, delivery %s: queued", v.ID)
		}
		if v.NotBefore.After(v.CreatedAt) && len(v.History) == 0 && !v.State.Final() {
			what += ", not before " + v.NotBefore.UTC().Format(time.RFC3339)
		}
		s := control.TraceStep{Step: "delivery", ID: string(v.ID), State: string(store.Queued), What: what}
		if from == nil {
			s.Text = w.outText(v.Content)
		}
		if v.State.Final() && len(v.History) == 0 { // decided when it was taken over
			s.State, s.Reason, s.What = string(v.State), v.Reason, strings.TrimSuffix(what, "queued")+word(v.State, v.Reason, "")
		}
		w.step(v.CreatedAt, s)
		for i, c := range v.History {
			platform := ""
			if i == len(v.History)-1 {
				platform = v.PlatformMessageID
			}
			w.step(c.At, control.TraceStep{Step: "delivery", ID: string(v.ID), State: string(c.State), Reason: c.Reason, What: fmt.Sprintf("delivery %s: %s", v.ID, word(c.State, c.Reason, platform))})
		}
		if n := len(v.History); n > 0 && v.State.Final() && v.History[n-1].State != v.State { // its history is longer than what is kept
			w.step(v.Updated, control.TraceStep{Step: "delivery", ID: string(v.ID), State: string(v.State), Reason: v.Reason, What: fmt.Sprintf("delivery %s: %s (steps before are not kept)", v.ID, word(v.State, v.Reason, v.PlatformMessageID))})
		}
	}
	for _, r := range out {
		if !known[r.ID] {
			w.wrote(r)
		}
	}
}

func (w *way) wrote(r mailbox.OutRow) {
	what := fmt.Sprintf("the agent wrote a row of kind %s", r.Kind)
	if r.PlatformID != "" {
		what += " to " + strings.TrimPrefix(r.ChannelType+" ", " ") + r.PlatformID
	}
	if r.Segment > 1 {
		what += fmt.Sprintf(", segment %d", r.Segment)
	}
	if r.Fallback {
		what += ", without an address: to the person who waits"
	}
	w.step(r.Timestamp, control.TraceStep{Step: "wrote", ID: r.ID, What: what, Text: w.outText(r.Content)})
}

// end tells the message's own end.
func (w *way) end(m store.Traced) {
	if m.Final.IsZero() || m.State == "context" {
		return
	}
	what := "ended: " + string(m.State)
	if m.Reason != "" {
		what += ": " + oneLine(m.Reason)
	}
	w.step(m.Final, control.TraceStep{Step: "end", State: string(m.State), Reason: m.Reason, What: what})
	if !m.Settled.IsZero() {
		w.step(m.Settled, control.TraceStep{Step: "told", What: "the channel was told how it ended"})
	}
}

func word(s store.LedgerState, reason, platform string) string {
	text := map[store.LedgerState]string{store.Queued: "queued", store.Sending: "handed to the platform", store.Sent: "acknowledged by the platform", store.Retry: "to be tried again",
		store.Refused: "refused", store.NoRoute: "no way there", store.Unknown: "not known whether it arrived", store.Dead: "given up"}[s]
	if text == "" {
		text = string(s)
	}
	if platform != "" && s == store.Sent {
		text += " as " + platform
	}
	if reason != "" {
		text += ": " + oneLine(reason)
	}
	return text
}

func place(d store.Destination) string {
	s := strings.TrimSpace(d.Instance + " " + d.PlatformID)
	if d.ThreadID != "" {
		s += " thread " + d.ThreadID
	}
	return orNone(s)
}

func orNone(s string) string {
	if s == "" {
		return "(none)"
	}
	return s
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

func tries(n int) string {
	if n == 1 {
		return "1 try"
	}
	return fmt.Sprintf("%d tries", n)
}

func (w *way) inText(content json.RawMessage) string {
	var c mailbox.ChatIn
	if !w.text || json.Unmarshal(content, &c) != nil {
		return ""
	}
	return c.Text
}

func (w *way) outText(content json.RawMessage) string {
	var c mailbox.ChatOut
	if !w.text || json.Unmarshal(content, &c) != nil {
		return ""
	}
	return c.Text
}
