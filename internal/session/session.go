// Package session keeps one actor per live session: it owns the mailbox's host half, the sandbox, the bell, the timers
// and the delivery cursors of that session. A session that is not live costs nothing but its rows (P8; spec/host.md
// section 26.6).
package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"nanoclaw/internal/channel"
	"nanoclaw/internal/id"
	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/obs"
	"nanoclaw/internal/sandbox"
	"nanoclaw/internal/store"
)

// Mailbox is the host's half of a session's mailbox. Its methods may be called from several goroutines.
type Mailbox interface {
	Put(ctx context.Context, rows ...mailbox.InRow) ([]mailbox.PutResult, error)
	Due(ctx context.Context) (count int, next time.Time, err error)
	// Project copies the ends of rows and the outcomes of deliveries into the inbox; it may be repeated.
	Project(ctx context.Context, acks []mailbox.Ack, delivered []mailbox.Delivered) error
	Tries(ctx context.Context, live int64, retry func(tries int) (time.Duration, bool)) ([]mailbox.Tried, error)
	Prepare(ctx context.Context, routing mailbox.Address, destinations []mailbox.Destination) error
	// Outbox reads one page behind the cursors. live is the running incarnation, 0 if there is none.
	Outbox(ctx context.Context, live, afterSeq, afterChange int64) (mailbox.Page, error)
	State(ctx context.Context) (mailbox.State, error)
	Prune(ctx context.Context, before time.Time) error
	Close() error
}

// Bell is the doorbell between host and runner. Rung is coalesced; Ring never blocks.
type Bell interface {
	Ring()
	Rung() <-chan struct{}
	Close() error
}

// Outlet takes what agents write on its way.
type Outlet interface {
	TakeOver(ctx context.Context, s store.Session, page mailbox.Page) error
	Finish(ctx context.Context, ends ...store.End) error
	Say(ctx context.Context, d store.Destination, key, text string) error
}

// Launcher starts sandboxes.
type Launcher interface {
	// Start opens what belongs to a spawn (container settings, egress) and starts the sandbox. closer ends what is not the
	// sandbox's own; it is called when the sandbox has ended.
	Start(ctx context.Context, s store.Session, incarnation int64) (h sandbox.Handle, closer func(), err error)
	// Adopt opens what belongs to a sandbox that an earlier host started.
	Adopt(ctx context.Context, s store.Session, incarnation int64) (closer func(), err error)
	// List finds the running sandboxes of this home.
	List(ctx context.Context) ([]sandbox.Handle, error)
}

// Options of a Manager.
type Options struct {
	Store    *store.Store
	Outlet   Outlet
	Launcher Launcher
	Home     string
	Open     func(ctx context.Context, dir string) (Mailbox, error)
	Bell     func(runDir string, incarnation int64) (Bell, error)
	Working  func(ctx context.Context, d store.Destination, w channel.Work)
	// Owner is where the owner is told of what keeps an agent from starting until somebody mends it; nil: nowhere.
	Owner func(ctx context.Context) (store.Destination, bool)

	MaxLive        int // sandboxes at a time; 0: no bound
	IdleStop       time.Duration
	MaxTries       int
	ClaimTolerance time.Duration
	Ceiling        time.Duration
	Log            *slog.Logger
	Observe        Observer // nil: nobody
	Now            func() time.Time
}

// Manager holds the live sessions.
type Manager struct {
	opt   Options
	log   *slog.Logger
	queue *queue

	mu     sync.Mutex
	live   map[id.Session]*actor
	ctx    context.Context // of Start; nil before
	actors sync.WaitGroup
	due    chan time.Time
}

// New makes a Manager.
func New(opt Options) *Manager {
	if opt.Now == nil {
		opt.Now = time.Now
	}
	if opt.Observe == nil {
		opt.Observe = deaf{}
	}
	return &Manager{opt: opt, log: opt.Log.With(obs.KeyComponent, "session"), queue: newQueue(opt.MaxLive, opt.Now), live: map[id.Session]*actor{}, due: make(chan time.Time, 16)}
}

// ErrStopped: the host is ending or not started; nothing was stored.
var ErrStopped = errors.New("sessions are stopped")

// Start adopts the sandboxes that run (P9), stops those that belong to no session, and wakes what is due. Rows can be put
// from then on. Everything ends with ctx, except the sandboxes.
func (m *Manager) Start(ctx context.Context) error {
	m.mu.Lock()
	m.ctx = ctx
	m.mu.Unlock()
	running, err := m.opt.Launcher.List(ctx)
	if err != nil {
		return fmt.Errorf("find running sandboxes: %w", err)
	}
	for _, h := range running {
		l := h.Labels()
		s, err := m.opt.Store.Session(ctx, id.Session(l.Session))
		switch {
		case err == nil && l.Incarnation == s.Incarnation:
			m.adopt(s, h)
		case err == nil || errors.Is(err, store.ErrNotFound):
			m.log.Warn("a sandbox without a session is stopped", obs.KeySession, l.Session, obs.KeyIncarnation, l.Incarnation)
			if err := h.Stop(ctx, time.Second); err != nil {
				return fmt.Errorf("stop orphaned sandbox of %s: %w", l.Session, err)
			}
		default:
			return err
		}
	}
	next, err := m.wakeDue(ctx)
	if err != nil {
		return err
	}
	m.actors.Go(func() { m.timer(ctx, next) })
	return nil
}

// wakeDue wakes the sessions whose time has come and returns when the next one is due (zero: none).
func (m *Manager) wakeDue(ctx context.Context) (next time.Time, err error) {
	const page = 10_000
	due, next, err := m.opt.Store.Due(ctx, m.opt.Now(), page)
	if err != nil {
		return time.Time{}, err
	}
	for _, s := range due {
		m.Wake(s)
	}
	return next, nil
}

// timer wakes sessions when they become due. There is one timer for all of them, set to the earliest.
func (m *Manager) timer(ctx context.Context, next time.Time) {
	t := stoppedTimer()
	defer t.Stop()
	for {
		if !next.IsZero() {
			t.Reset(max(next.Sub(m.opt.Now()), 0))
		}
		select {
		case <-ctx.Done():
			return
		case at := <-m.due:
			if next.IsZero() || at.Before(next) {
				next = at
			}
		case <-t.C:
			var err error
			if next, err = m.wakeDue(ctx); err != nil && ctx.Err() == nil {
				m.log.Error("due sessions cannot be read; the sweep tries again", obs.Error(err))
			}
		}
	}
}

// dueAt tells the timer that a session becomes due. A full channel drops the word: the sweep finds the session.
func (m *Manager) dueAt(at time.Time) {
	select {
	case m.due <- at:
	default:
	}
}

// Put stores rows in a session's inbox, durable on return.
func (m *Manager) Put(ctx context.Context, s store.Session, rows ...mailbox.InRow) error {
	a, err := m.enter(s.ID, &s)
	if err != nil {
		return err
	}
	defer m.leave(a)
	return a.put(ctx, rows)
}

// Wake makes a session look at its inbox and its outbox.
func (m *Manager) Wake(s id.Session) {
	a, err := m.enter(s, nil)
	if err != nil {
		return
	}
	defer m.leave(a)
	signal(a.wake)
}

// Closed tells a session that a delivery of its own ended. It does nothing for a session that is not live: the outcome is
// projected when it is next.
func (m *Manager) Closed(s id.Session) {
	m.mu.Lock()
	a := m.live[s]
	m.mu.Unlock()
	if a != nil {
		signal(a.closed)
	}
}

// Tell puts a notice for the agent into its inbox as context, once per key.
func (m *Manager) Tell(ctx context.Context, session id.Session, key, text string) error {
	s, err := m.opt.Store.Session(ctx, session)
	if err != nil {
		return err
	}
	row, err := m.notice(s, key, text)
	if err != nil {
		return err
	}
	return m.Put(ctx, s, row)
}

// Check is the sweep's net under lost bells, stuck claims, silent runners and lost timers: every live session looks for
// itself and every due one is woken.
func (m *Manager) Check(ctx context.Context) error {
	m.mu.Lock()
	for _, a := range m.live {
		signal(a.check)
	}
	m.mu.Unlock()
	_, err := m.wakeDue(ctx)
	return err
}

// Recycle ends every running sandbox of an agent group ("" is all of them) when it can, so that the next spawn takes changed
// settings; what is due starts at once. It returns how many there are.
func (m *Manager) Recycle(group id.AgentGroup) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for _, a := range m.live {
		i := a.info()
		if group != "" && i.AgentGroup != "" && i.AgentGroup != group {
			continue
		}
		signal(a.recycle)
		if i.State != Absent {
			n++
		}
	}
	return n
}

// Restart is Recycle with a word to the agent: text is put into the inbox of each conversation that runs, for the incarnation
// after the one that is ended, so that the ending one cannot take it, and starts the next one. key makes it one row however often
// it is asked for. session "" is all of the group's.
func (m *Manager) Restart(ctx context.Context, group id.AgentGroup, session id.Session, key, text string) (n int, err error) {
	for _, l := range m.Live() {
		if l.AgentGroup != group || session != "" && l.Session != session || l.State != Running && l.State != Starting {
			continue
		}
		s, err := m.opt.Store.Session(ctx, l.Session)
		if err != nil {
			return n, err
		}
		if text != "" {
			row, err := m.notice(s, key, text)
			if err != nil {
				return n, err
			}
			row.Trigger, row.AfterIncarnation = true, s.Incarnation
			if err := m.Put(ctx, s, row); err != nil {
				return n, err
			}
		}
		m.mu.Lock()
		if a := m.live[l.Session]; a != nil {
			signal(a.recycle)
		}
		m.mu.Unlock()
		n++
	}
	return n, nil
}

// notice is a row by which the system tells the agent something.
func (m *Manager) notice(s store.Session, key, text string) (mailbox.InRow, error) {
	content, err := mailbox.EncodeContent(mailbox.ChatIn{Text: text, Sender: mailbox.SenderSystem, SenderID: mailbox.SenderSystem})
	return mailbox.InRow{
		ID: id.Derived(id.PrefixNotice, string(s.ID), key), Kind: mailbox.KindChat, Timestamp: m.opt.Now(),
		Address: mailbox.Address{ChannelType: mailbox.ChannelAgent, PlatformID: string(s.AgentGroupID)}, Content: content,
	}, err
}

// StopSandboxes ends every sandbox and waits for them; rows stay where they are.
func (m *Manager) StopSandboxes(ctx context.Context) error {
	handles, err := m.opt.Launcher.List(ctx)
	if err != nil {
		return fmt.Errorf("find running sandboxes: %w", err)
	}
	errs := make([]error, len(handles))
	var wait sync.WaitGroup
	for i, h := range handles {
		wait.Go(func() { errs[i] = h.Stop(ctx, 10*time.Second) })
	}
	wait.Wait()
	return errors.Join(errs...)
}

// Wait returns when every actor has ended after the context of Start did.
func (m *Manager) Wait() { m.actors.Wait() }

// Info of a live session, for `status`.
type Info struct {
	Session     id.Session
	AgentGroup  id.AgentGroup
	State       State
	Incarnation int64
	PID         int
	Problem     string    // why no agent can be started at the moment
	Failures    int       // starts that failed on end
	Failing     time.Time // since when
	Retry       time.Time // when the next one is tried
}

// Places are how many sandboxes there may be at a time (0: any number), and how many sessions wait for a place.
func (m *Manager) Places() (most, waiting int) {
	_, waiting = m.queue.count()
	return m.opt.MaxLive, waiting
}

// Live lists the live sessions.
func (m *Manager) Live() []Info {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([]Info, 0, len(m.live))
	for _, a := range m.live {
		out = append(out, a.info())
	}
	return out
}

// enter returns the session's actor and keeps it alive until leave. s may be nil: it is then read when the actor starts.
func (m *Manager) enter(session id.Session, s *store.Session) (*actor, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ctx == nil || m.ctx.Err() != nil {
		return nil, ErrStopped
	}
	a := m.live[session]
	if a == nil {
		a = newActor(m, session, s)
		m.spawn(a)
	}
	a.guests++
	return a, nil
}

func (m *Manager) leave(a *actor) {
	m.mu.Lock()
	a.guests--
	m.mu.Unlock()
	signal(a.left)
}

func (m *Manager) adopt(s store.Session, h sandbox.Handle) {
	m.mu.Lock()
	defer m.mu.Unlock()
	a := newActor(m, s.ID, &s)
	a.adopted = h
	m.queue.take(a.place, s.AgentGroupID)
	signal(a.wake)
	m.spawn(a)
}

func (m *Manager) spawn(a *actor) {
	m.live[a.session] = a
	m.actors.Add(1)
	go func() {
		defer m.actors.Done()
		a.run(m.ctx)
	}()
}

// retire removes an actor that has nothing to do; it fails when somebody has just come in.
func (m *Manager) retire(a *actor) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if a.guests > 0 || len(a.wake) > 0 {
		return false
	}
	delete(m.live, a.session)
	return true
}

// Dir is the folder of a session.
func Dir(home string, s store.Session) string {
	return filepath.Join(home, "sessions", string(s.AgentGroupID), string(s.ID))
}

// signal leaves one token in a channel of capacity one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
