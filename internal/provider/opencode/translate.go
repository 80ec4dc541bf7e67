package opencode

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"nanoclaw/internal/obs"
	"nanoclaw/internal/provider"
)

const compacted = "The conversation was summarised."

const (
	deltaEvery = time.Second // activity of a streaming answer, at most
	longPause  = time.Minute // a retry that is further away is no use
)

// read translates one event. It never blocks on the reader of the events.
func (q *query) read(data []byte) {
	var e event
	if err := json.Unmarshal(data, &e); err != nil {
		q.log.Warn("opencode: an event that is no object", obs.Error(err), obs.KeyCount, len(data))
		return
	}
	switch e.Type {
	case "server.heartbeat":
		return // it says nothing of the turn
	case "server.connected":
		q.connects.Do(func() { close(q.connected) })
	case "message.part.delta":
		q.heard()
		if now := time.Now(); now.Sub(q.lastDelta) >= deltaEvery {
			q.lastDelta = now
			q.events.Put(provider.Event{Kind: provider.Activity})
		}
		return
	}
	q.heard()
	q.events.Put(provider.Event{Kind: provider.Activity})
	if err := q.note(e); err != nil {
		q.log.Warn("opencode: an event could not be read", obs.KeyKind, e.Type, obs.Error(err))
	}
}

// heard puts off the watch.
func (q *query) heard() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.arm()
}

// decode calls use under mu when the event is about our session; those of sub-agents are activity only.
func decode[T any](q *query, raw json.RawMessage, session func(T) string, use func(T)) error {
	var v T
	if err := json.Unmarshal(raw, &v); err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if id := session(v); id != q.session || id == "" {
		return nil
	}
	use(v)
	q.arm()
	return nil
}

func (q *query) note(e event) error {
	switch e.Type {
	case "message.updated":
		return decode(q, e.Properties, func(m messageEvent) string { return m.Info.SessionID }, q.message)
	case "message.part.updated":
		return decode(q, e.Properties, func(p partEvent) string { return p.Part.SessionID }, q.part)
	case "session.status":
		return decode(q, e.Properties, func(s statusEvent) string { return s.SessionID }, q.status)
	case "session.error":
		return decode(q, e.Properties, func(s errorEvent) string { return s.SessionID }, q.sessionError)
	case "session.idle":
		return decode(q, e.Properties, func(s sessionEvent) string { return s.SessionID }, func(sessionEvent) { q.rests() })
	case "session.compacted":
		return decode(q, e.Properties, func(s sessionEvent) string { return s.SessionID }, func(sessionEvent) {
			q.log.Info("opencode: the conversation was compacted")
			if q.turn != nil {
				q.turn.compact, q.turn.order = true, ""
			}
			q.events.Put(provider.Event{Kind: provider.Compacted})
		})
	case "permission.asked", "permission.updated", "question.asked":
		var a askedEvent
		if err := json.Unmarshal(e.Properties, &a); err != nil {
			return err
		}
		q.worker.do(func() { q.reply(e.Type, a) })
	}
	return nil
}

// reply answers what the program asks. The sandbox is the wall, so it may do everything; nobody is there for a question.
func (q *query) reply(kind string, a askedEvent) {
	ctx, cancel := context.WithTimeout(q.ctx, callWait)
	defer cancel()
	var err error
	if kind == "question.asked" {
		err = q.server.call(ctx, http.MethodPost, []string{"question", a.ID, "reject"}, struct{}{}, nil)
	} else {
		err = q.server.call(ctx, http.MethodPost, []string{"session", a.SessionID, "permissions", a.ID}, permissionBody{"always"}, nil)
	}
	if err != nil && q.ctx.Err() == nil {
		q.log.Warn("opencode: an answer could not be given", obs.KeyKind, kind, obs.Error(err))
	}
}

// message is a message that began, changed or ended. It is told in its newest state, so an answer may be closed when it is first
// seen. It names the newest prompt that the model has seen.
func (q *query) message(m messageEvent) {
	if m.Info.Role != "assistant" {
		for _, i := range q.inputs {
			if i.id == m.Info.ID && i.posted {
				i.store()
			}
		}
		return
	}
	if q.past[m.Info.ID] {
		return // an afterthought of a turn that is over
	}
	if q.turn == nil {
		q.turn = newTurn() // nobody asked for it
	}
	t := q.turn
	if _, known := t.answers[m.Info.ID]; !known {
		t.last = m.Info.ID
	}
	t.answers[m.Info.ID] = answer{closed: m.Info.Time.Completed != 0, summary: bool(m.Info.Summary)}
	if m.Info.Error != nil && m.Info.Error.Name != aborted {
		t.failure = m.Info.Error
	}
	for n := len(q.inputs) - 1; n >= 0; n-- {
		if q.inputs[n].posted && q.inputs[n].id == m.Info.ParentID {
			for _, i := range append([]*input(nil), q.inputs[:n+1]...) {
				q.take(i)
			}
			break
		}
	}
	if !t.began {
		t.began = true
		q.flush()
		q.notify()
	}
}

func (q *query) part(e partEvent) {
	p, t := e.Part, q.turn
	if t == nil {
		return
	}
	if p.Type == "compaction" && !t.compact {
		t.order = p.MessageID
	}
	a, ours := t.answers[p.MessageID]
	if !ours {
		return // a prompt
	}
	switch p.Type {
	case "text":
		if p.Time.End == 0 || t.parts[p.ID] || a.summary || strings.TrimSpace(p.Text) == "" {
			return
		}
		t.parts[p.ID], t.text = true, p.Text
		q.events.Put(provider.Event{Kind: provider.Text, Text: p.Text})
	case "tool":
		name, open := t.tools[p.ID]
		switch p.State.Status {
		case "running":
			if open || t.parts[p.ID] {
				return
			}
			t.tools[p.ID] = p.Tool
			t.parts[p.ID] = true
			q.events.Put(provider.Event{Kind: provider.ToolStart, Tool: p.Tool})
			q.alive.Reset(q.p.opt.KeepAlive)
		case "completed", "error":
			if open {
				delete(t.tools, p.ID)
				q.events.Put(provider.Event{Kind: provider.ToolEnd, Tool: name})
			}
		}
	case "step-finish":
		if !t.parts[p.ID] {
			t.parts[p.ID] = true
			t.usage.InputTokens += p.Tokens.Input
			t.usage.OutputTokens += p.Tokens.Output + p.Tokens.Reasoning
			t.usage.CacheReadTokens += p.Tokens.Cache.Read
			t.usage.CacheCreationTokens += p.Tokens.Cache.Write
			t.usage.CostUSD += p.Cost
		}
	}
}

func (q *query) status(s statusEvent) {
	t := q.turn
	if t == nil {
		return
	}
	switch s.Status.Type {
	case "busy":
		t.busy = true
	case "retry":
		f := failure{}
		f.Data.Message = s.Status.Message
		class, _ := f.classify()
		q.events.Put(provider.Event{
			Kind: provider.Error, Class: class, Retryable: true, Message: q.redact(fmt.Sprintf("%s (try %d)", s.Status.Message, s.Status.Attempt)),
		})
		next := time.UnixMilli(s.Status.Next)
		far := s.Status.Next != 0 && time.Until(next) > longPause
		if t.giveUp == nil && (s.Status.Attempt > q.p.opt.Retries || far) {
			f.Data.Retryable = true
			t.giveUp = &f
			if far {
				t.resets = next.UTC()
			}
			q.interrupt()
		}
	}
}

func (q *query) sessionError(e errorEvent) {
	if q.turn == nil || e.Error == nil || e.Error.Name == aborted {
		return
	}
	q.turn.failure = e.Error
	if !q.turn.began {
		q.turn.began = true
		q.notify()
	}
}

// rests says that the session does nothing. That is the end of a turn only if its last answer is closed.
func (q *query) rests() {
	t := q.turn
	if t == nil || !t.began && !t.aborting || t.last != "" && !t.answers[t.last].closed {
		return
	}
	q.complete()
}

// endTools ends what has not ended by itself. mu is held.
func (q *query) endTools() {
	if q.turn == nil {
		return
	}
	for id, name := range q.turn.tools {
		delete(q.turn.tools, id)
		q.events.Put(provider.Event{Kind: provider.ToolEnd, Tool: name})
	}
}

// complete ends the running turn; mu is held.
func (q *query) complete() {
	q.endTools()
	t := q.turn
	e := provider.Event{Kind: provider.Result, Text: t.text, Usage: &t.usage}
	switch {
	case t.silent:
		err := q.silentError()
		e.Text, e.IsError, e.Class, e.Retryable, e.Message, e.Notice = "", true, err.Class, true, err.Error(), notices[err.Class]
	case t.giveUp != nil:
		t.giveUp.failed(&e, t.resets)
	case t.aborting:
		e.Interrupted = true
	case t.failure != nil:
		t.failure.failed(&e, time.Time{})
	case t.command && t.compact:
		e.Text = compacted
	case t.command:
		e.Text, e.IsError, e.Class, e.Retryable, e.Message = "", true, provider.ClassOther, false, "the program ended without a summary"
	}
	e.Message = q.redact(e.Message)
	q.events.Put(e)
	q.turn, q.past = nil, map[string]bool{}
	for id := range t.answers {
		q.past[id] = true
	}
	if t.order != "" {
		q.withdraw(t.order)
	}
	posted := false
	for _, i := range q.inputs {
		posted = posted || i.posted
	}
	switch {
	case posted && t.aborting:
		q.recover()
	case posted:
		q.strand()
	}
	q.flush()
	q.arm()
	q.notify()
}
