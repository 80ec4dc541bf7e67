package session

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"nanoclaw/internal/channel"
	"nanoclaw/internal/config/container"
	"nanoclaw/internal/crashpoint"
	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/obs"
	"nanoclaw/internal/sandbox"
	"nanoclaw/internal/store"
)

// Numbers of starts and stops.
const (
	stopGrace    = 10 * time.Second
	killGrace    = 2 * time.Second
	quick        = 10 * time.Second // a sandbox that ends sooner and wrote nothing counts as a failed start
	retryFirst   = time.Second
	retryMost    = time.Minute
	silentOutage = 2 * time.Minute // a person is told when an agent cannot be started for longer (spec/bugs.md DLV-8)
	projectPage  = 500
)

// admit starts the next incarnation, as soon as there is a place.
func (a *actor) admit(ctx context.Context) {
	if a.m.queue.ask(a.place, a.s.AgentGroupID, strings.HasPrefix(a.s.ThreadID, mailbox.TaskThread)) {
		a.start(ctx)
		return
	}
	a.log.Info("all places for sandboxes are taken; a session waits")
	a.setState(Waiting)
}

// onGranted ends the wait for a place. What was waited for may be gone by then.
func (a *actor) onGranted(ctx context.Context) {
	if a.state != Waiting {
		return
	}
	if count, _, err := a.box.Due(ctx); err == nil && count == 0 {
		a.setState(Absent)
		a.working(ctx, channel.Work{})
		a.arm()
		return
	}
	a.start(ctx)
}

// onRecycle ends the sandbox so that the next one takes changed settings. One that is being started may have read the old ones.
func (a *actor) onRecycle(ctx context.Context) {
	switch a.state {
	case Running:
		a.stop(ctx, stopGrace, EndedRecycled)
	case Starting:
		a.changed = true
	case Absent: // a failed start may work with other settings
		if a.outage.waiting {
			a.outage.waiting = false
			a.outage.timer.Stop()
			a.look(ctx)
		}
	}
}

// onYield ends the sandbox for one that waits for a place, unless it has something to do after all.
func (a *actor) onYield(ctx context.Context) {
	switch {
	case a.state != Running:
	case a.busy(ctx) && a.state == Running:
		a.m.queue.rest(a.place, false)
		a.bell.Ring()
		a.arm() // the mailbox says when it rests
	case a.state == Running:
		a.log.Info("an idle sandbox is ended for a session that waits")
		a.stop(ctx, stopGrace, EndedYielded)
	}
}

// start spawns the next incarnation in the background.
func (a *actor) start(ctx context.Context) {
	a.setState(Starting)
	s := a.s
	a.side.Go(func() { a.started <- a.launch(ctx, s) })
}

func (a *actor) launch(ctx context.Context, s store.Session) (l launch) {
	st := a.m.opt.Store
	if l.incarnation, l.err = st.NextIncarnation(ctx, s.ID); l.err != nil {
		return l
	}
	crashpoint.Hit("host.start")
	destinations, err := st.Destinations(ctx, s.AgentGroupID)
	if err != nil {
		l.err = err
		return l
	}
	var routing mailbox.Address
	if s.MessagingGroupID != "" {
		g, err := st.MessagingGroupByID(ctx, s.MessagingGroupID)
		if err != nil {
			l.err = err
			return l
		}
		routing = mailbox.Address{ChannelType: g.ChannelType, PlatformID: g.PlatformID, ThreadID: s.ThreadID}
	}
	if l.err = a.box.Prepare(ctx, routing, destinations); l.err != nil {
		return l
	}
	if l.bell, l.err = a.m.opt.Bell(runDir(a.m.opt.Home, s), l.incarnation); l.err != nil {
		return l
	}
	l.handle, l.closer, l.err = a.m.opt.Launcher.Start(ctx, s, l.incarnation)
	if errors.Is(l.err, sandbox.ErrRunning) {
		l.err = errors.Join(l.err, a.endStray(ctx))
	}
	crashpoint.Hit("host.started")
	return l
}

// endStray ends what runs for the session without being known: it could be neither adopted nor stopped. The next try has room.
func (a *actor) endStray(ctx context.Context) error {
	running, err := a.m.opt.Launcher.List(ctx)
	if err != nil {
		return fmt.Errorf("find running sandboxes: %w", err)
	}
	for _, h := range running {
		if h.Labels().Session == string(a.session) {
			a.log.Warn("a sandbox that nobody watches is stopped", obs.KeyIncarnation, h.Labels().Incarnation)
			return h.Stop(ctx, stopGrace)
		}
	}
	return nil
}

func (a *actor) onStarted(ctx context.Context, l launch) {
	a.s.Incarnation = max(a.s.Incarnation, l.incarnation)
	if l.err != nil {
		if l.bell != nil {
			_ = l.bell.Close()
		}
		a.changed = false
		a.setState(Absent)
		a.fail(ctx, l.err)
		return
	}
	a.log.Info("sandbox started", obs.KeyIncarnation, l.incarnation, obs.KeyPID, l.handle.PID())
	a.attach(ctx, l)
	if a.changed {
		a.changed = false
		a.stop(ctx, stopGrace, EndedRecycled)
		return
	}
	a.bell.Ring()
}

// onExit takes what the ended incarnation left, counts its open claims as tries, and starts the next one if something is
// due.
func (a *actor) onExit(ctx context.Context, exit sandbox.Exit) {
	level := a.log.Info
	asked := a.state == Stopping
	if !asked && exit.Code != 0 {
		level = a.log.Warn
	}
	level("sandbox ended", obs.KeyIncarnation, a.live, obs.KeyReason, a.endedBy(exit), obs.KeyCode, exit.Code, obs.KeySignal, exit.Signal, obs.KeyOOM, exit.OOM)
	a.log.Debug("last words of a sandbox", obs.KeyIncarnation, a.live, obs.KeyWhat, tail(exit.Stderr)) // may hold message text
	a.m.opt.Observe.SandboxEnded(a.s, a.endedBy(exit), exit)
	a.ending = ""
	early := !asked && !a.progress && a.m.opt.Now().Sub(a.began) < quick
	a.detach()
	a.handle, a.live = nil, 0
	a.idle.Stop()
	a.setState(Absent)
	a.collect(ctx)
	a.show(ctx)
	a.countTries(ctx)
	a.working(ctx, channel.Work{})
	switch {
	case early && exit.Code == container.ExitNoProgram:
		a.fail(ctx, &sandbox.Failure{Class: sandbox.SpecInvalid, Op: "start agent", Err: errors.New(lastLine(exit.Stderr)), Hint: "the program of its provider; `nanoclaw doctor` says how to get it"})
		return
	case early:
		a.fail(ctx, fmt.Errorf("the agent's program ended at once (code %d%s): %s", exit.Code, oom(exit), tail(exit.Stderr)))
		return
	}
	a.look(ctx)
}

// countTries counts claims of dead incarnations, each as one try of its row, and gives rows up that had their share.
func (a *actor) countTries(ctx context.Context) {
	tried, err := a.box.Tries(ctx, a.live, func(tries int) (time.Duration, bool) {
		if tries >= a.m.opt.MaxTries {
			return 0, true
		}
		if tries <= 1 {
			return 0, false
		}
		return 5 * time.Second << min(tries-2, 4), false
	})
	if err != nil {
		a.log.Error("claims of an ended agent cannot be counted", obs.Error(err))
		a.hostile(ctx, err)
		return
	}
	for _, t := range tried {
		if t.Again { // an earlier host may have died before it ended the message
			if m, err := a.m.opt.Store.MessageByRow(ctx, t.ID); errors.Is(err, store.ErrNotFound) || err == nil && m.State != "pending" {
				continue
			}
		}
		a.log.Warn("a message was not finished by the agent that took it", obs.KeyMessage, t.ID, obs.KeyCount, t.Tries, obs.KeyGivenUp, t.Failed)
		if t.Failed {
			a.giveUp(ctx, t.ID, fmt.Sprintf("the agent stopped %d times while working on it", t.Tries))
		}
	}
	if len(tried) > 0 {
		a.arm()
	}
}

// giveUp ends a message as dead and tells the person who waits for it.
func (a *actor) giveUp(ctx context.Context, rowID, reason string) {
	if d, err := a.chat(ctx); err == nil {
		if err := a.m.opt.Outlet.Say(ctx, d, "dead:"+rowID, "Your message could not be answered: "+reason+"."); err != nil {
			a.log.Error("could not tell that a message was given up", obs.KeyMessage, rowID, obs.Error(err))
		}
	}
	if err := a.m.opt.Outlet.Finish(ctx, store.End{RowID: rowID, State: channel.Dead, Reason: reason}); err != nil {
		a.log.Error("a message cannot be ended; it is tried again", obs.KeyMessage, rowID, obs.Error(err))
		a.recount = true
	}
}

// hostile ends a sandbox whose outbox was refused: it is not read again before the next look.
func (a *actor) hostile(ctx context.Context, err error) {
	if !errors.Is(err, mailbox.ErrHostile) {
		return
	}
	if a.state == Running {
		a.stop(ctx, killGrace, EndedHostile)
	}
	a.progress = false
	a.fail(ctx, &sandbox.Failure{Class: sandbox.Denied, Op: "read the agent's outbox", Err: err, Hint: "the operator looks at the folder out/ of this session"})
}

// stop ends the sandbox in the background; onExit follows.
func (a *actor) stop(ctx context.Context, grace time.Duration, why string) {
	a.ending = why
	a.setState(Stopping)
	h := a.handle
	a.side.Go(func() {
		if err := h.Stop(ctx, grace); err != nil && ctx.Err() == nil {
			a.log.Error("a sandbox cannot be stopped", obs.Error(err))
		}
	})
}

// onIdle ends a sandbox that has nothing to do (design.md section 4).
func (a *actor) onIdle(ctx context.Context) {
	if a.state != Running {
		return
	}
	if a.busy(ctx) && a.state == Running {
		a.bell.Ring()
		a.idle.Reset(a.idleStop)
		return
	}
	if a.state != Running {
		return // what it wrote was refused
	}
	a.log.Info("an idle sandbox is ended")
	a.stop(ctx, stopGrace, EndedIdle)
}

// busy looks whether the running sandbox has something to do.
func (a *actor) busy(ctx context.Context) bool {
	a.collect(ctx)
	a.show(ctx)
	count, _, err := a.box.Due(ctx)
	if err != nil || count > 0 {
		return true
	}
	state, err := a.box.State(ctx)
	return err == nil && state.Container.Turn == mailbox.TurnWorking && a.m.opt.Now().Sub(state.Heartbeat) < a.idleStop
}

// onCheck is the sweep's look: lost bells, stuck claims, silent runners.
func (a *actor) onCheck(ctx context.Context) {
	if a.box == nil {
		if a.boxErr = a.open(ctx); a.boxErr != nil {
			return
		}
	}
	a.collect(ctx)
	if a.state != Running {
		a.look(ctx)
		return
	}
	state, err := a.box.State(ctx)
	if err != nil {
		a.log.Warn("an agent's state cannot be read", obs.Error(err))
		a.hostile(ctx, err)
		return
	}
	reason := Stuck(Signs{Now: a.m.opt.Now(), Began: a.began, Incarnation: a.live, State: state, Tolerance: a.m.opt.ClaimTolerance, Ceiling: a.m.opt.Ceiling})
	if reason == "" {
		if n, _, err := a.box.Due(ctx); err == nil && n > 0 {
			a.bell.Ring()
		}
		return
	}
	a.log.Warn("a stuck agent is ended", obs.KeyReason, reason)
	a.stop(ctx, killGrace, EndedStuck)
}

func tail(s string) string {
	const most = 600
	if len(s) > most {
		return "…" + s[len(s)-most:]
	}
	return s
}

func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return tail(s[strings.LastIndexByte(s, '\n')+1:])
}

func oom(e sandbox.Exit) string {
	if e.OOM {
		return ", out of memory"
	}
	return ""
}
