package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"nanoclaw/internal/obs"
	"nanoclaw/internal/sandbox"
	"nanoclaw/internal/store"
)

// outage is a time in which no agent can be started.
type outage struct {
	timer    *time.Timer
	waiting  bool
	failures int
	since    time.Time
	retry    time.Time // the next try
	told     bool
	problem  string // the last failure
	owner    bool   // the owner was told
}

// over ends an outage and reports whether there was one.
func (o *outage) over() bool {
	was := o.failures > 0
	o.failures, o.told, o.owner, o.since, o.retry, o.problem = 0, false, false, time.Time{}, time.Time{}, ""
	return was
}

// fail notes a failed start and tries again after a growing pause. The person who waits is told once per outage: at once if
// waiting will not help, else after two minutes. In the first case the owner is told too.
func (a *actor) fail(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	o := &a.outage
	if o.failures++; o.since.IsZero() {
		o.since = a.m.opt.Now()
	}
	pause := min(retryFirst<<min(o.failures-1, 6), retryMost)
	a.log.Error("an agent cannot be started; it is tried again", obs.Error(err), obs.KeyCount, o.failures, obs.KeyPause, pause.Milliseconds())
	o.waiting, o.problem, o.retry = true, err.Error(), a.m.opt.Now().Add(pause)
	o.timer.Reset(pause)
	a.setState(a.state)
	var f *sandbox.Failure
	lasting := errors.As(err, &f) && !f.Class.Retryable()
	if o.told || (!lasting && a.m.opt.Now().Sub(o.since) < silentOutage) {
		return
	}
	d, chatErr := a.chat(ctx)
	if lasting && !o.owner {
		o.owner = true
		a.tellOwner(ctx, d, f)
	}
	if chatErr != nil {
		return
	}
	text := "The agent cannot be started at the moment; your message is kept and will be answered when it can."
	if f != nil && f.Hint != "" {
		text += " What would help: " + f.Hint + "."
	}
	if err := a.m.opt.Outlet.Say(ctx, d, fmt.Sprintf("outage:%s:%d", a.session, o.since.UnixMilli()), text); err != nil {
		a.log.Error("could not tell about an outage", obs.Error(err))
		return
	}
	o.told = true
}

// tellOwner says what keeps the agent from starting, unless the owner is the person who waits: about an agent once an hour, in
// however many sessions it is.
func (a *actor) tellOwner(ctx context.Context, waiting store.Destination, f *sandbox.Failure) {
	if a.m.opt.Owner == nil {
		return
	}
	owner, ok := a.m.opt.Owner(ctx)
	if !ok || owner.Instance == waiting.Instance && owner.PlatformID == waiting.PlatformID {
		return
	}
	name := string(a.s.AgentGroupID)
	if g, err := a.m.opt.Store.AgentGroup(ctx, a.s.AgentGroupID); err == nil {
		name = g.Name
	}
	text := fmt.Sprintf("The agent %s cannot be started: %v.", name, f.Err)
	if f.Hint != "" {
		text += " What would help: " + f.Hint + "."
	}
	key := fmt.Sprintf("outage-owner:%s:%s", a.s.AgentGroupID, a.outage.since.UTC().Format("2006-01-02T15"))
	if err := a.m.opt.Outlet.Say(ctx, owner, key, text); err != nil {
		a.log.Error("could not tell the owner about an outage", obs.Error(err))
	}
}
