package acp

import (
	"fmt"
	"time"

	"nanoclaw/internal/provider"
)

// arm sets the watch that fits the state; mu is held.
func (q *query) arm() {
	limit := time.Duration(0)
	switch {
	case q.aborted || q.err != nil:
	case q.session == "":
		return // the limit of opening it goes on
	case q.turn != nil && len(q.turn.tools) > 0:
	case !q.idle():
		limit = q.p.opt.Silence
	case q.ended:
		limit = q.p.opt.EndWait
	default:
		limit = q.p.opt.IdleClose
	}
	if limit <= 0 {
		q.watch.Stop()
		q.due = time.Time{}
		return
	}
	q.due = time.Now().Add(limit)
	q.watch.Reset(limit)
}

// ring is called when the watch runs out.
func (q *query) ring() {
	q.mu.Lock()
	if q.aborted || q.err != nil || q.due.IsZero() || time.Now().Before(q.due) { // it was put off while it ran out
		q.mu.Unlock()
		return
	}
	opened, busy, t := q.session != "", q.turn != nil || len(q.inputs) > 0, q.turn
	switch {
	case !opened:
		q.mu.Unlock()
		q.fail(&provider.QueryError{Op: "start the agent", Class: provider.ClassOther, Retryable: true, Err: fmt.Errorf("no session within %s", q.p.opt.InitWait)})
	case busy && t != nil && !t.silent:
		t.silent = true
		q.log.Warn("acp: the agent is silent, interrupting the turn")
		q.cancel()
		q.mu.Unlock()
		if !q.wait(q.p.opt.InterruptWait, func() bool { return q.turn != t }) {
			q.fail(q.silentError())
		}
	case busy:
		q.mu.Unlock()
		q.fail(q.silentError())
	case q.ended:
		q.mu.Unlock()
		q.log.Warn("acp: the agent does not exit after its last turn")
		q.child.End(true)
	default:
		q.log.Info("acp: the idle agent is closed")
		q.ended = true
		q.flush()
		q.arm()
		q.mu.Unlock()
	}
}

func (q *query) silentError() *provider.QueryError {
	return &provider.QueryError{
		Op: "run the turn", Class: provider.ClassNetwork, Retryable: true, Err: fmt.Errorf("nothing was heard of it for %s", q.p.opt.Silence),
	}
}

// keepAlive tells that a tool still runs, of which the agent may say nothing: the process is there.
func (q *query) keepAlive() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.aborted && q.err == nil && q.turn != nil && len(q.turn.tools) > 0 {
		q.alive.Reset(q.p.opt.KeepAlive)
		q.events.Put(provider.Event{Kind: provider.Activity})
	}
}
