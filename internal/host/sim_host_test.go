package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"nanoclaw/internal/approval"
	"nanoclaw/internal/channel"
	"nanoclaw/internal/delivery"
	"nanoclaw/internal/id"
	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/mailbox/sqlite"
	"nanoclaw/internal/route"
	"nanoclaw/internal/sandbox"
	"nanoclaw/internal/session"
	"nanoclaw/internal/store"
	"nanoclaw/internal/sweep"
)

var (
	errSimGone = errors.New("this host is gone")
	errSimFull = errors.New("no space left on device")
)

// simHost is one life of a host: the real services over the real store and mailboxes, with faults at every boundary. A crash makes
// every write of it fail from one moment on, so that nothing it does afterwards counts.
type simHost struct {
	*Host
	w     *simWorld
	n     int
	dead  atomic.Bool
	crash func(where string)
	gone  chan struct{}
	stop  context.CancelFunc
	bg    sync.WaitGroup
	late  context.CancelFunc
}

// strike is what goes wrong at one write.
func (h *simHost) strike(op string, durable bool) error {
	w := h.w
	switch {
	case h.dead.Load():
		return errSimGone
	case w.calm.Load():
		return nil
	case w.chance(w.accident):
		h.crash(fmt.Sprintf("%s, durable %v", op, durable))
		return errSimGone
	case !durable && (w.full.Load() && w.chance(2) || w.chance(150)):
		return errSimFull
	}
	return nil
}

// write runs a write between its faults.
func (h *simHost) write(op string, f func() error) error {
	if err := h.strike(op, false); err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	if err := f(); err != nil {
		return err
	}
	return h.strike(op, true)
}

// simBox is a session's mailbox as a host of the simulation has it.
type simBox struct {
	session.Mailbox
	h   *simHost
	dir string
}

func (b simBox) Put(ctx context.Context, rows ...mailbox.InRow) (out []mailbox.PutResult, err error) {
	err = b.h.write("put", func() error { out, err = b.Mailbox.Put(ctx, rows...); return err })
	return out, err
}

func (b simBox) Project(ctx context.Context, acks []mailbox.Ack, d []mailbox.Delivered) error {
	return b.h.write("project", func() error { return b.Mailbox.Project(ctx, acks, d) })
}

func (b simBox) Tries(ctx context.Context, live int64, retry func(int) (time.Duration, bool)) (out []mailbox.Tried, err error) {
	if err := b.h.w.refused(b.dir); err != nil {
		return nil, err
	}
	err = b.h.write("tries", func() error { out, err = b.Mailbox.Tries(ctx, live, retry); return err })
	return out, err
}

func (b simBox) Prepare(ctx context.Context, a mailbox.Address, d []mailbox.Destination) error {
	return b.h.write("prepare", func() error { return b.Mailbox.Prepare(ctx, a, d) })
}

func (b simBox) Outbox(ctx context.Context, live, seq, change int64) (mailbox.Page, error) {
	if err := b.h.w.refused(b.dir); err != nil {
		return mailbox.Page{OutboundSeq: seq, AckChange: change}, err
	}
	return b.Mailbox.Outbox(ctx, live, seq, change)
}

// State has the heartbeat in the time of the simulation: that of the file is the machine's.
func (b simBox) State(ctx context.Context) (mailbox.State, error) {
	s, err := b.Mailbox.State(ctx)
	b.h.w.mu.Lock()
	defer b.h.w.mu.Unlock()
	s.Heartbeat = b.h.w.beats[b.dir]
	return s, err
}

// start begins a life.
func (w *simWorld) start() {
	w.hosts++
	h := &simHost{w: w, n: w.hosts, gone: make(chan struct{}), Host: &Host{log: slog.New(slog.NewTextHandler(w, nil)).With("host", w.hosts)}}
	w.note("host %d starts", h.n)
	var ctx, late context.Context
	ctx, h.stop = context.WithCancel(context.Background())
	late, h.late = context.WithCancel(context.Background())
	var once sync.Once
	h.crash = func(where string) {
		once.Do(func() {
			w.note("CRASH of host %d: %s", h.n, where)
			h.dead.Store(true)
			close(h.gone)
			h.stop()
			h.late()
		})
	}
	var err error
	if h.store, err = store.Open(ctx, w.home); err != nil {
		w.t.Fatal(err)
	}
	h.store.Fault(func(durable bool) error { return h.strike("store", durable) })
	w.host = h
	h.wire()
	desks := map[string]*desk{}
	for _, a := range h.adapters {
		desks[a.Info().Instance] = newDesk(a.Info(), h.router, asked{h.approvals, h.delivery}, h.store, h.log)
	}
	h.bg.Go(func() { supervise(ctx, h.adapters, desks) })
	err = h.delivery.Start(late)
	if err == nil {
		err = h.sessions.Start(ctx)
	}
	if err == nil {
		err = h.delivery.Questions(ctx)
	}
	if err != nil {
		h.crash("it does not start: " + err.Error())
		return
	}
	h.bg.Go(func() { h.approvals.Run(ctx) })
	h.bg.Go(func() {
		sweep.Run(ctx, h.log, sweep.Concern{Name: "sessions", Every: time.Minute, Do: h.sessions.Check},
			sweep.Concern{Name: "questions", Every: time.Minute, Do: h.delivery.Questions}, sweep.Concern{Name: "approvals", Every: time.Minute, Do: h.approvals.Check})
	})
}

// wire is what Host.build does, with what the simulation has.
func (h *simHost) wire() {
	w := h.w
	byInstance := map[string]channel.Adapter{}
	for _, p := range w.platforms {
		a := &simAccount{simPlatform: p, host: h, busy: map[channel.Address]bool{}}
		h.adapters, byInstance[p.info.Instance] = append(h.adapters, a), a
	}
	h.delivery = delivery.New(delivery.Options{
		Store: h.store, Adapters: byInstance, Log: h.log, Actions: map[string]delivery.Action{"count": h},
		Put: func(ctx context.Context, s store.Session, rows ...mailbox.InRow) error {
			return h.sessions.Put(ctx, s, rows...)
		},
		Closed: func(id id.Session) { h.sessions.Closed(id) },
		Tell: func(ctx context.Context, id id.Session, key, text string) error {
			return h.sessions.Tell(ctx, id, key, text)
		},
		Owner: func(context.Context) (store.Destination, bool) {
			return store.Destination{Instance: "alpha", PlatformID: "alpha:owner"}, true
		},
	})
	h.approvals = approval.New(approval.Options{Store: h.store, Cards: h.delivery, Adapters: byInstance, Replay: h.replay, Log: h.log})
	opt := sqlite.HostOptions{OutUID: -1, SandboxGID: -1, Log: h.log}
	h.sessions = session.New(session.Options{
		Store: h.store, Outlet: h.delivery, Launcher: h, Home: w.home, Log: h.log,
		Open: func(ctx context.Context, dir string) (session.Mailbox, error) {
			if err := w.refused(dir); err != nil {
				return nil, err
			}
			b, err := sqlite.Create(ctx, dir, opt)
			if err != nil {
				return nil, err
			}
			return simBox{box{b}, h, dir}, nil
		},
		Bell:    func(run string, _ int64) (session.Bell, error) { return w.bell(filepath.Dir(run)), nil },
		MaxLive: w.places, IdleStop: 10 * time.Minute, MaxTries: 3, ClaimTolerance: time.Minute, Ceiling: 30 * time.Minute,
	})
	h.router = route.New(route.Options{Store: h.store, Ends: h.delivery, Voice: h.delivery, Keeper: keeper{h.approvals}, MaxAttachment: 1 << 20, Log: h.log,
		Inbox: inbox{h.sessions, w.home, opt}})
}

// Do is the action count.
func (h *simHost) Do(_ context.Context, _ store.Session, key string, _ json.RawMessage) ([]mailbox.InRow, error) {
	h.w.mu.Lock()
	defer h.w.mu.Unlock()
	h.w.acted[key]++
	return []mailbox.InRow{{ID: id.Derived(mailbox.ResponsePrefix[:len(mailbox.ResponsePrefix)-1], key), Kind: mailbox.KindSystem, Timestamp: time.Now(), Content: []byte(`{"type":"cli_response"}`)}}, nil
}

var _ session.Launcher = (*simHost)(nil)

// Start spawns a sandbox, or does not.
func (h *simHost) Start(ctx context.Context, s store.Session, incarnation int64) (sandbox.Handle, func(), error) {
	w := h.w
	select {
	case <-time.After(time.Duration(w.n(300)) * time.Millisecond):
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	if h.dead.Load() {
		return nil, nil, errSimGone
	}
	if !w.calm.Load() && w.chance(8) {
		class := sandbox.RuntimeUnavailable
		if w.chance(3) {
			class = sandbox.ImageUnavailable
		}
		return nil, nil, &sandbox.Failure{Class: class, Op: "start", Err: errors.New("as told"), Hint: "wait"}
	}
	b, err := w.spawn(s, incarnation)
	if err != nil {
		return nil, nil, err
	}
	if !w.calm.Load() && w.chance(w.accident) {
		h.crash("between the start of a sandbox and its record")
		return nil, nil, errSimGone
	}
	return b, func() {}, nil
}

// Adopt implements session.Launcher.
func (h *simHost) Adopt(context.Context, store.Session, int64) (func(), error) {
	if !h.w.calm.Load() && h.w.chance(10) {
		return nil, errors.New("as told")
	}
	return func() {}, nil
}

// List implements session.Launcher.
func (h *simHost) List(context.Context) ([]sandbox.Handle, error) { return h.w.running(), nil }

// finish ends a life; everything that it started has ended then, except the sandboxes.
func (h *simHost) finish() {
	h.stop()
	h.bg.Wait()
	h.sessions.Wait()
	h.late()
	h.delivery.Wait()
	h.dead.Store(true)
	if err := h.store.Close(); err != nil {
		h.w.t.Errorf("close the store: %v", err)
	}
}
