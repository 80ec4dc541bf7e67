// Package host builds the services of a home, wires them and runs them. It is the one place that knows every part.
package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"nanoclaw/internal/approval"
	"nanoclaw/internal/channel"
	"nanoclaw/internal/channel/cli"
	"nanoclaw/internal/config"
	"nanoclaw/internal/control/server"
	"nanoclaw/internal/delivery"
	"nanoclaw/internal/egress"
	"nanoclaw/internal/id"
	"nanoclaw/internal/instruction"
	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/mailbox/sqlite"
	"nanoclaw/internal/obs"
	"nanoclaw/internal/obs/metric"
	"nanoclaw/internal/operate"
	"nanoclaw/internal/route"
	"nanoclaw/internal/sandbox"
	"nanoclaw/internal/session"
	"nanoclaw/internal/store"
	"nanoclaw/internal/sweep"
	"nanoclaw/internal/vault"
)

// Options of a host.
type Options struct {
	Settings config.Settings
	Version  string
	Log      *slog.Logger
	Ready    func() // called once the control socket answers; may be nil
	// Programs is the folder of agent-runner; empty: the folder of this executable.
	Programs string
	// Channels are adapters beside those of the list: for tests.
	Channels []channel.Adapter
}

// Host is a running host.
type Host struct {
	opt       Options
	log       *slog.Logger
	began     time.Time
	store     *store.Store
	vault     *vault.Vault
	terminal  *cli.Adapter
	adapters  []channel.Adapter
	delivery  *delivery.Service
	sessions  *session.Manager
	router    *route.Router
	approvals *approval.Service
	moved     chan id.AgentGroup // whose destinations have changed
	desk      *operate.Desk
	runtime   sandbox.Runtime
	why       string // why this runtime
	install   string
	supply    supply
	shelf     instruction.Shelf
	images    *images
	metrics   *metric.Set
	stop      context.CancelFunc
	ending    sync.Once
	endBoxes  bool // stop the sandboxes too
}

// Run runs a host on its home until ctx ends or somebody stops it over the control socket; sandboxes go on unless they
// were to be stopped as well. It returns a *store.LockedError at once when another host has the home.
func Run(ctx context.Context, opt Options) error {
	home := opt.Settings.Home
	if err := os.MkdirAll(home, 0o711); err != nil {
		return fmt.Errorf("open home: %w", err)
	}
	lock, err := store.AcquireLock(home, opt.Version)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Release() }()
	st, err := store.Open(ctx, home)
	if err != nil {
		return err
	}
	defer func() { _ = st.Close() }()
	h := &Host{opt: opt, log: opt.Log, began: time.Now(), store: st}
	ctx, h.stop = context.WithCancel(ctx)
	defer h.stop()
	if err := h.build(ctx); err != nil {
		return err
	}
	return h.serve(ctx)
}

// build makes every service. Nothing runs yet.
func (h *Host) build(ctx context.Context) error {
	s := h.opt.Settings
	var err error
	if h.vault, err = vault.Open(filepath.Join(s.Home, "secrets")); err != nil {
		return err
	}
	h.vault.Known(func(value obs.Secret) { obs.Hide(h.log, value) })
	install, err := installID(s.Home)
	if err != nil {
		return err
	}
	if h.opt.Programs == "" {
		self, err := os.Executable()
		if err != nil {
			return fmt.Errorf("find own programs: %w", err)
		}
		h.opt.Programs = filepath.Dir(self)
	}
	programs, err := installPrograms(s.Home, h.opt.Programs, runnerName, clientName)
	if err != nil {
		return err
	}
	if h.runtime, h.why, err = chooseRuntime(ctx, s, h.log); err != nil {
		return err
	}
	h.log.Info("sandbox chosen", obs.KeyRuntime, h.runtime.Name(), obs.KeyReason, h.why, obs.KeyLimits, h.runtime.Limits())
	h.supply = supplyOf(s, h.runtime)
	if h.shelf, err = shelve(s.Home); err != nil {
		return err
	}
	h.images = &images{base: s.Image, network: s.DockerBuildNet, last: h.store.KV("image"), now: time.Now, log: h.log, jobs: map[string]*imageJob{},
		ready: func(g id.AgentGroup) { h.sessions.Recycle(g) }}
	h.images.builder, _ = h.runtime.(imageBuilder)
	h.install = install
	h.terminal, h.adapters = adapters(s.Home)
	h.adapters = append(h.adapters, h.opt.Channels...)
	if h.runtime.Name() == sandbox.Process {
		for _, a := range h.adapters {
			if a.Info().Type != cli.Type {
				return fmt.Errorf("channel %s: the process sandbox isolates nothing and serves the terminal only (choose docker or bubblewrap)", a.Info().Instance)
			}
		}
	}
	h.measure()
	uid, gid := sandboxUser(s)
	proxy, err := egress.New(egress.Options{Keys: h.vault, Audit: meteredAudit{auditLog{h.store}, h.metrics, hostsOf(upstreams(s))}, Log: h.log,
		Upstreams: upstreams(s)})
	if err != nil {
		return err
	}
	byInstance := map[string]channel.Adapter{}
	for _, a := range h.adapters {
		byInstance[a.Info().Instance] = a
	}
	h.moved = make(chan id.AgentGroup, 256)
	h.store.OnDestinations(func(group id.AgentGroup) {
		select {
		case h.moved <- group:
		default:
			h.log.Warn("a running agent keeps its old destinations until its next start", obs.KeyGroup, string(group))
		}
	})
	h.desk = operate.New(slices.Concat(operate.Commands(h.store, h, h.opt.Version), operate.GroupConfig(h.store, h), h.outfitting(), operate.People(h.store, h), operate.Chats(h.store, h), h.observing(),
		operate.Deliveries(h.store, h, h.terminal.UserID), operate.Approvals(h.store, h, h.terminal.UserID))...)
	h.delivery = delivery.New(delivery.Options{
		Store: h.store, Adapters: byInstance, Log: h.log, Observe: h.metrics, Actions: h.actions(),
		Put: func(ctx context.Context, s store.Session, rows ...mailbox.InRow) error {
			return h.sessions.Put(ctx, s, rows...)
		},
		Files:  outboxes{home: s.Home, opt: sqlite.HostOptions{OutUID: uid, MaxBytes: maxAttachment}},
		Closed: func(id id.Session) { h.sessions.Closed(id) },
		Tell: func(ctx context.Context, id id.Session, key, text string) error {
			return h.sessions.Tell(ctx, id, key, text)
		},
		Owner: owner,
	})
	h.approvals = approval.New(approval.Options{Store: h.store, Cards: h.delivery, Adapters: byInstance, Replay: h.replay, Log: h.log})
	h.sessions = session.New(session.Options{
		Store: h.store, Outlet: h.delivery, Home: s.Home, Log: h.log,
		Observe: h.observer(),
		Launcher: meteredLauncher{h.metrics, &launcher{
			settings: s, install: install, runtime: h.runtime, store: h.store, vault: h.vault, egress: proxy, programs: programs, supply: h.supply, shelf: h.shelf, images: h.images, life: ctx,
			uid: uid, gid: gid, zone: config.Zone(s.Zone, os.Getenv).String(), log: h.log,
		}},
		Open: func(ctx context.Context, dir string) (session.Mailbox, error) {
			b, err := sqlite.Create(ctx, dir, sqlite.HostOptions{OutUID: uid, SandboxGID: gid, Log: h.log})
			if err != nil {
				return nil, err
			}
			return box{b}, nil
		},
		Bell: func(runDir string, incarnation int64) (session.Bell, error) {
			return sqlite.ListenBell(runDir, incarnation, 0o660, h.log)
		},
		Working: func(ctx context.Context, d store.Destination, w channel.Work) {
			if a, ok := byInstance[d.Instance].(channel.Worker); ok {
				a.Working(ctx, channel.Address{PlatformID: d.PlatformID, ThreadID: d.ThreadID}, w)
			}
		},
		Owner: owner, MaxLive: places(s), IdleStop: s.IdleStop, MaxTries: s.MaxTries, ClaimTolerance: s.ClaimTolerance, Ceiling: s.Ceiling,
	})
	return nil
}

// serve runs what build made, in the order in which parts need each other, and ends it backwards.
func (h *Host) serve(ctx context.Context) error {
	uid, gid := sandboxUser(h.opt.Settings)
	h.router = route.New(route.Options{
		Store: h.store, Ends: h.delivery, Voice: h.delivery, Keeper: keeper{h.approvals}, MaxAttachment: h.opt.Settings.MaxAttachment, Log: h.log,
		Inbox: inbox{h.sessions, h.opt.Settings.Home, sqlite.HostOptions{OutUID: uid, SandboxGID: gid, Log: h.log}},
	})
	desks := map[string]*desk{}
	for _, a := range h.adapters {
		desks[a.Info().Instance] = newDesk(a.Info(), h.router, asked{h.approvals, h.delivery}, h.store, h.log)
		desks[a.Info().Instance].metrics = h.metrics
	}
	socket, err := server.Listen(h.opt.Settings.Home)
	if err != nil {
		return err
	}
	// Deliveries outlast the sessions, so that what a session has taken over is on its way before the end.
	late, endLate := context.WithCancel(context.WithoutCancel(ctx))
	defer endLate()
	var running sync.WaitGroup
	if a := h.opt.Settings.MetricsListen; a != "" {
		ended, err := h.listenMetrics(ctx, a)
		if err != nil {
			return errors.Join(err, socket.Close())
		}
		running.Go(func() { <-ended })
	}
	running.Go(func() { supervise(ctx, h.adapters, desks) })
	err = h.delivery.Start(late)
	if err == nil {
		err = h.endForeign(ctx)
	}
	if err == nil {
		err = h.sessions.Start(ctx)
	}
	if err != nil {
		h.stop()
		running.Wait()
		return errors.Join(err, socket.Close())
	}
	if err := h.delivery.Questions(ctx); err != nil {
		h.log.Warn("answers of an earlier host are passed on by the sweep", obs.Error(err))
	}
	running.Go(func() { h.approvals.Run(ctx) })
	running.Go(func() { h.keepDestinations(ctx) })
	running.Go(func() { sweep.Run(ctx, h.log, h.concerns()...) })
	if h.opt.Ready != nil {
		h.opt.Ready()
	}
	err = server.New(server.Options{Backend: h, Chat: h.terminal, Version: h.opt.Version, Log: h.log, Metrics: h.metrics.Handler(), Observe: h.metrics.Requested}).Serve(ctx, socket)
	h.stop()
	running.Wait()
	h.sessions.Wait()
	h.images.builds.Wait()
	if h.endBoxes {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		err = errors.Join(err, h.sessions.StopSandboxes(end))
		cancel()
	}
	endLate()
	h.delivery.Wait()
	h.log.Info("host has ended")
	return err
}

func (h *Host) concerns() []sweep.Concern {
	s := h.opt.Settings
	return []sweep.Concern{
		{Name: "sessions", Every: s.Sweep, Do: h.sessions.Check},
		{Name: "questions", Every: s.Sweep, Do: h.delivery.Questions},
		{Name: "approvals", Every: s.Sweep, Do: h.approvals.Check},
		{Name: "retention", Every: 24 * time.Hour, Do: func(ctx context.Context) error {
			before := time.Now().Add(-s.Retention)
			_, err := h.store.Prune(ctx, before)
			return errors.Join(err, h.sessions.Prune(ctx, before))
		}},
		{Name: "logs of sandboxes", Every: 6 * time.Hour, Do: func(context.Context) error { return h.pruneWords(time.Now()) }},
	}
}

// installID is the home's own random id: sandboxes carry it, so that two homes never touch each other's.
func installID(home string) (string, error) {
	path := filepath.Join(home, "install-id")
	b, err := os.ReadFile(path)
	if err == nil && id.Safe(string(b)) {
		return string(b), nil
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("read install id: %w", err)
	}
	if err == nil {
		return "", fmt.Errorf("read install id: %s is damaged (put its old content back, or delete it when no sandbox of this home runs)", path)
	}
	v := id.New("home")
	if err := os.WriteFile(path, []byte(v), 0o600); err != nil {
		return "", fmt.Errorf("write install id: %w", err)
	}
	return v, nil
}
