package session

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"nanoclaw/internal/channel"
	"nanoclaw/internal/crashpoint"
	"nanoclaw/internal/id"
	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/obs"
	"nanoclaw/internal/sandbox"
	"nanoclaw/internal/store"
)

// State of a session's sandbox. Diagram: absent → starting → running → stopping → absent; absent → waiting → starting where
// all places are taken; starting → absent on failure; running → absent when it ends by itself. What arrives in starting or
// stopping is looked at after the change.
type State string

// Sandbox states.
const (
	Absent   State = "absent"
	Waiting  State = "waiting" // for a place; no process
	Starting State = "starting"
	Running  State = "running"
	Stopping State = "stopping"
)

// projectDelay gathers what may follow off the warm path: states of rows, outcomes, due time.
const projectDelay = 100 * time.Millisecond

// actor owns everything of one live session. Only its own goroutine touches the fields below the line.
type actor struct {
	m       *Manager
	session id.Session
	log     *slog.Logger
	adopted sandbox.Handle // runs and waits for the mailbox to open; only the actor's own goroutine
	guests  int            // under Manager.mu
	place   *place

	puts                      chan putRequest
	prunes                    chan pruneRequest
	wake, closed, check, left chan struct{}
	recycle                   chan struct{}
	started                   chan launch
	exited                    chan sandbox.Exit
	done                      chan struct{}

	infoMu sync.Mutex
	shown  Info

	// ---
	s        store.Session
	known    bool // s was read
	box      Mailbox
	boxErr   error
	bell     Bell
	handle   sandbox.Handle
	closer   func()
	state    State
	live     int64 // running incarnation, 0 if none
	began    time.Time
	ending   string // why it is being stopped
	progress bool   // the running incarnation has written something
	unshown  []mailbox.Ack
	project  *time.Timer
	armed    bool
	behind   bool // acks that an earlier host took over are not shown in the inbox
	recount  bool // a message that was given up could not be ended
	again    bool // the outbox could not be taken over; show tries again
	idle     *time.Timer
	idleStop time.Duration // of the running sandbox
	changed  bool          // settings changed while it was being started
	outage   outage
	work     channel.Work // as last shown
	side     sync.WaitGroup
}

type putRequest struct {
	rows  []mailbox.InRow
	reply chan error
}

// launch is the result of a start.
type launch struct {
	incarnation int64
	handle      sandbox.Handle
	bell        Bell
	closer      func()
	err         error
}

func newActor(m *Manager, session id.Session, s *store.Session) *actor {
	a := &actor{
		m: m, session: session, log: m.log.With(obs.KeySession, string(session)),
		puts: make(chan putRequest, 64), prunes: make(chan pruneRequest), wake: make(chan struct{}, 1), closed: make(chan struct{}, 1), check: make(chan struct{}, 1),
		left: make(chan struct{}, 1), recycle: make(chan struct{}, 1), started: make(chan launch, 1), exited: make(chan sandbox.Exit, 1), done: make(chan struct{}),
		state: Absent, place: newPlace(session), project: stoppedTimer(), idle: stoppedTimer(), outage: outage{timer: stoppedTimer()},
	}
	if s != nil {
		a.s, a.known = *s, true
	}
	a.shown = Info{Session: session, State: Absent}
	return a
}

func stoppedTimer() *time.Timer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}

// put hands rows to the actor and waits until they are durable.
func (a *actor) put(ctx context.Context, rows []mailbox.InRow) error {
	req := putRequest{rows, make(chan error, 1)}
	select {
	case a.puts <- req:
	case <-a.done:
		return ErrStopped
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-req.reply:
		return err
	case <-a.done:
		return ErrStopped
	}
}

func (a *actor) run(ctx context.Context) {
	defer close(a.done)
	defer a.shut()
	if a.boxErr = a.open(ctx); a.boxErr != nil {
		a.log.Error("a mailbox cannot be opened; its session waits for the next sweep", obs.Error(a.boxErr))
	}
	for {
		var rung <-chan struct{}
		if a.bell != nil {
			rung = a.bell.Rung()
		}
		select {
		case <-ctx.Done():
			return
		case req := <-a.puts:
			a.store(ctx, req)
		case req := <-a.prunes:
			a.onPrune(ctx, req)
		case <-rung:
			a.heard(ctx)
		case <-a.wake:
			a.look(ctx)
		case l := <-a.started:
			a.onStarted(ctx, l)
		case exit := <-a.exited:
			a.onExit(ctx, exit)
		case <-a.closed:
			a.arm()
		case <-a.project.C:
			a.show(ctx)
		case <-a.idle.C:
			a.onIdle(ctx)
		case <-a.outage.timer.C:
			a.outage.waiting = false
			if a.behind || a.again {
				a.arm()
			}
			a.look(ctx)
		case <-a.check:
			a.onCheck(ctx)
		case <-a.place.granted:
			a.onGranted(ctx)
		case <-a.place.yield:
			a.onYield(ctx)
		case <-a.recycle:
			a.onRecycle(ctx)
		case <-a.left:
		}
		if a.resting() && a.m.retire(a) {
			return
		}
	}
}

// resting: nothing is left that needs this actor.
func (a *actor) resting() bool {
	return a.state == Absent && a.adopted == nil && !a.armed && !a.outage.waiting && len(a.puts) == 0 && len(a.started) == 0
}

// open opens the mailbox and brings up to date what an earlier host left: outbound rows not taken over, acks not shown.
func (a *actor) open(ctx context.Context) error {
	if !a.known {
		s, err := a.m.opt.Store.Session(ctx, a.session)
		if err != nil {
			return err
		}
		a.s, a.known = s, true
	} else if s, err := a.m.opt.Store.Session(ctx, a.session); err == nil {
		a.s = s
	}
	a.log = a.log.With(obs.KeyGroup, string(a.s.AgentGroupID))
	box, err := a.m.opt.Open(ctx, Dir(a.m.opt.Home, a.s))
	if err != nil {
		return err
	}
	a.box = box
	if a.adopted != nil {
		if a.takeOver(ctx); a.state == Absent {
			a.m.queue.leave(a.place)
		}
		a.adopted = nil
	}
	a.behind = true
	if err := a.reproject(ctx); err != nil {
		a.log.Warn("an inbox cannot be brought up to date; it is tried again", obs.Error(err))
	}
	a.arm()
	a.collect(ctx)
	if a.live == 0 {
		a.countTries(ctx)
	}
	return nil
}

// takeOver makes an adopted sandbox ours.
func (a *actor) takeOver(ctx context.Context) {
	incarnation := a.adopted.Labels().Incarnation
	bell, err := a.m.opt.Bell(runDir(a.m.opt.Home, a.s), incarnation)
	var closer func()
	if err == nil {
		closer, err = a.m.opt.Launcher.Adopt(ctx, a.s, incarnation)
	}
	if err != nil {
		a.log.Error("a running sandbox cannot be adopted; it is stopped", obs.Error(err))
		if bell != nil {
			_ = bell.Close()
		}
		if err := a.adopted.Stop(ctx, time.Second); err != nil {
			a.log.Error("a sandbox cannot be stopped", obs.Error(err))
		}
		return
	}
	a.log.Info("a running sandbox was adopted", obs.KeyIncarnation, incarnation)
	a.attach(ctx, launch{incarnation: incarnation, handle: a.adopted, bell: bell, closer: closer})
}

// attach enters the state running.
func (a *actor) attach(ctx context.Context, l launch) {
	a.handle, a.bell, a.closer, a.live = l.handle, l.bell, l.closer, l.incarnation
	a.began, a.progress = a.m.opt.Now(), false
	a.m.queue.take(a.place, a.s.AgentGroupID)
	a.setState(Running)
	a.idleStop = a.m.opt.IdleStop
	if g, err := a.m.opt.Store.AgentGroup(ctx, a.s.AgentGroupID); err == nil {
		a.idleStop = g.Setup.Idle(a.idleStop)
	}
	a.idle.Reset(a.idleStop)
	h := l.handle
	a.side.Go(func() {
		exit, err := h.Wait(ctx)
		if err != nil && ctx.Err() != nil {
			return
		}
		if err != nil {
			exit = sandbox.Exit{Code: -1, Stderr: err.Error()}
		}
		a.exited <- exit
	})
}

// store writes all waiting rows in one commit.
func (a *actor) store(ctx context.Context, first putRequest) {
	requests := []putRequest{first}
	rows := first.rows
	for range len(a.puts) {
		req := <-a.puts
		requests = append(requests, req)
		rows = append(rows, req.rows...)
	}
	if a.boxErr != nil {
		a.boxErr = a.open(ctx)
	}
	err := a.boxErr
	if err == nil {
		_, err = a.box.Put(ctx, rows...)
	}
	if err != nil && len(requests) > 1 && errors.Is(err, mailbox.ErrInvalid) {
		for _, req := range requests {
			_, err := a.box.Put(ctx, req.rows...)
			req.reply <- err
		}
		return
	}
	if err == nil && a.bell != nil && slices.ContainsFunc(rows, func(r mailbox.InRow) bool { return r.Kind == mailbox.KindSystem }) {
		a.bell.Ring() // somebody inside waits for it; it is no work for the agent
	}
	for _, req := range requests {
		req.reply <- err
	}
}

// look reacts to "there may be something": ring the runner, or start one when something is due.
func (a *actor) look(ctx context.Context) {
	if a.box == nil {
		return
	}
	switch a.state {
	case Running:
		a.bell.Ring()
		a.idle.Reset(a.idleStop)
		if !a.work.Working {
			a.working(ctx, channel.Work{Working: true, Since: a.m.opt.Now()})
		}
	case Absent:
		if a.outage.waiting {
			return
		}
		count, _, err := a.box.Due(ctx)
		if err != nil {
			a.log.Error("an inbox cannot be read", obs.Error(err))
			a.fail(ctx, err)
			return
		}
		if count == 0 {
			a.arm()
			return
		}
		a.working(ctx, channel.Work{Working: true, Since: a.m.opt.Now()})
		a.admit(ctx)
	}
}

// heard reacts to the bell.
func (a *actor) heard(ctx context.Context) {
	a.idle.Reset(a.idleStop)
	if !a.collect(ctx) {
		a.showWork(ctx)
	}
}

// showWork tells the channel what the agent does, as its mailbox says.
func (a *actor) showWork(ctx context.Context) {
	state, err := a.box.State(ctx)
	if err != nil {
		a.log.Warn("an agent's state cannot be read", obs.Error(err))
		return
	}
	a.working(ctx, channel.Work{Working: state.Container.Turn == mailbox.TurnWorking, Tool: state.Container.CurrentTool,
		Queued: state.Container.Queued, Since: state.Container.UpdatedAt})
}

// collect takes over everything behind the cursors and reports whether there was anything.
func (a *actor) collect(ctx context.Context) (any bool) {
	for {
		page, err := a.box.Outbox(ctx, a.live, a.s.OutboundSeq, a.s.AckChange)
		if err == nil && len(page.Rows)+len(page.Bad)+len(page.Acks) == 0 {
			return any
		}
		if err == nil {
			crashpoint.Hit("host.collected")
			err = a.m.opt.Outlet.TakeOver(ctx, a.s, page)
		}
		if err != nil {
			if ctx.Err() == nil {
				a.log.Error("an outbox cannot be taken over; it is tried again", obs.Error(err))
				a.hostile(ctx, err)
				a.again = true
				a.arm()
			}
			return any
		}
		any, a.progress = true, true
		if a.outage.over() {
			a.setState(a.state)
		}
		a.s.OutboundSeq, a.s.AckChange = max(a.s.OutboundSeq, page.OutboundSeq), max(a.s.AckChange, page.AckChange)
		a.unshown = append(a.unshown, page.Acks...)
		a.arm()
		if !page.More {
			return any
		}
	}
}

// arm lets show run soon, once for all that happens until then.
func (a *actor) arm() {
	if !a.armed {
		a.armed = true
		a.project.Reset(projectDelay)
	}
}

// working tells the channel what the agent does. Since is the begin of the work, whatever happens in it.
func (a *actor) working(ctx context.Context, w channel.Work) {
	if a.work.Working && w.Working {
		w.Since = a.work.Since
	}
	a.work = w
	a.m.queue.rest(a.place, !w.Working)
	if a.m.opt.Working == nil || a.s.MessagingGroupID == "" {
		return
	}
	if d, err := a.chat(ctx); err == nil {
		a.m.opt.Working(ctx, d, w)
	}
}

// chat is the session's own conversation.
func (a *actor) chat(ctx context.Context) (store.Destination, error) {
	g, err := a.m.opt.Store.MessagingGroupByID(ctx, a.s.MessagingGroupID)
	if err != nil {
		return store.Destination{}, err
	}
	return store.Destination{Instance: g.Instance, PlatformID: g.PlatformID, ThreadID: a.s.ThreadID}, nil
}

func runDir(home string, s store.Session) string { return filepath.Join(Dir(home, s), "run") }

func (a *actor) setState(s State) {
	a.state = s
	if s == Absent {
		a.m.queue.leave(a.place)
	}
	pid := 0
	if s == Running && a.handle != nil {
		pid = a.handle.PID()
	}
	a.infoMu.Lock()
	a.shown = Info{Session: a.session, AgentGroup: a.s.AgentGroupID, State: s, Incarnation: a.live, PID: pid,
		Problem: a.outage.problem, Failures: a.outage.failures, Failing: a.outage.since, Retry: a.outage.retry}
	a.infoMu.Unlock()
}

func (a *actor) info() Info {
	a.infoMu.Lock()
	defer a.infoMu.Unlock()
	return a.shown
}

// shut gives back what the actor holds. The sandbox, if one runs, goes on (P9).
func (a *actor) shut() {
	a.side.Wait()
	a.m.queue.leave(a.place)
	if len(a.started) > 0 {
		l := <-a.started
		a.bell, a.closer = l.bell, l.closer
	}
	a.detach()
	if a.box != nil {
		if err := a.box.Close(); err != nil {
			a.log.Warn("a mailbox did not close cleanly", obs.Error(err))
		}
	}
	for _, t := range []*time.Timer{a.project, a.idle, a.outage.timer} {
		t.Stop()
	}
}

func (a *actor) detach() {
	if a.bell != nil {
		_ = a.bell.Close()
		a.bell = nil
	}
	if a.closer != nil {
		a.closer()
		a.closer = nil
	}
}
