package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"nanoclaw/internal/channel"
	"nanoclaw/internal/egress"
	"nanoclaw/internal/id"
	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/obs"
	"nanoclaw/internal/obs/metric"
	"nanoclaw/internal/sandbox"
	"nanoclaw/internal/session"
	"nanoclaw/internal/store"
)

// scrapeTime is how long the database may take for a scrape.
const scrapeTime = 5 * time.Second

// measure makes the metrics of this host.
func (h *Host) measure() {
	h.metrics = metric.New(h.opt.Version, h.runtime.Name())
	h.metrics.Read(func() (metric.Now, error) {
		ctx, cancel := context.WithTimeout(context.Background(), scrapeTime)
		defer cancel()
		counts, err := h.store.Counts(ctx)
		if err != nil {
			return metric.Now{}, err
		}
		ledger, err := h.store.LedgerStates(ctx)
		if err != nil {
			return metric.Now{}, err
		}
		now := metric.Now{Known: counts.Sessions, Due: counts.DueSessions, Pending: counts.PendingMessages,
			Sessions: map[string]int64{}, Ledger: map[string]int64{}, Channels: map[string]bool{}}
		for s, n := range ledger {
			now.Ledger[string(s)] = n
		}
		for _, l := range h.sessions.Live() {
			now.Sessions[string(l.State)]++
		}
		for _, a := range h.adapters {
			now.Channels[a.Info().Instance] = a.Status().State == channel.Connected
		}
		return now, nil
	})
}

// verdictWord is the label of what an adapter was told about an event.
func verdictWord(v channel.Verdict, err error) string {
	if err != nil {
		return "error"
	}
	return string(v.Kind)
}

// meteredLauncher counts starts.
type meteredLauncher struct {
	metrics *metric.Set
	session.Launcher
}

func (l meteredLauncher) Start(ctx context.Context, s store.Session, incarnation int64) (sandbox.Handle, func(), error) {
	begun := time.Now()
	h, closer, err := l.Launcher.Start(ctx, s, incarnation)
	result := "started"
	var f *sandbox.Failure
	switch {
	case errors.As(err, &f):
		result = string(f.Class)
	case err != nil:
		result = "failed"
	}
	l.metrics.SandboxStarted(result, time.Since(begun))
	return h, closer, err
}

func (l meteredLauncher) Adopt(ctx context.Context, s store.Session, incarnation int64) (func(), error) {
	closer, err := l.Launcher.Adopt(ctx, s, incarnation)
	if err == nil {
		l.metrics.SandboxStarted("adopted", 0)
	}
	return closer, err
}

// meteredAudit counts what it keeps.
type meteredAudit struct {
	auditLog
	metrics *metric.Set
	names   map[string]string // of upstreams, by host:port
}

func (m meteredAudit) Record(ctx context.Context, c egress.Call) error {
	name := m.names[c.Host]
	if name == "" {
		name = "other"
	}
	m.metrics.Egress(name, c.Status, c.Duration)
	return m.auditLog.Record(ctx, c)
}

// hostsOf are the names of upstreams by the hosts that calls to them are kept under.
func hostsOf(all map[string]egress.Upstream) map[string]string {
	names := map[string]string{}
	for name, up := range all {
		u, err := url.Parse(up.Base)
		if err != nil {
			continue
		}
		port := u.Port()
		if port == "" {
			port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
		}
		names[u.Host], names[net.JoinHostPort(u.Hostname(), port)] = name, name
	}
	return names
}

// observer hears of sessions' work and counts what it cost.
type observer struct {
	metrics *metric.Set
	store   *store.Store
	since   time.Time // what was before is not counted again
	read    *usageRead
	keep    string // home in which last words are kept, where the sandbox itself writes no file
	log     *slog.Logger
}

// usageRead is up to where the usage log of each session was counted.
type usageRead struct {
	mu sync.Mutex
	at map[id.Session]int64
}

func (h *Host) observer() observer {
	o := observer{metrics: h.metrics, store: h.store, since: h.began, read: &usageRead{at: map[id.Session]int64{}}, log: h.log}
	if h.runtime.Name() == sandbox.Docker {
		o.keep = h.opt.Settings.Home
	}
	return o
}

func (o observer) SandboxEnded(s store.Session, reason string, exit sandbox.Exit) {
	o.metrics.SandboxEnded(reason)
	if o.keep != "" {
		if err := keepWords(session.Dir(o.keep, s), exit.Stderr); err != nil {
			o.log.Warn("the last words of a sandbox cannot be kept", obs.KeySession, string(s.ID), obs.Error(err))
		}
	}
}

// usagePage is how many entries of the usage log one look reads; the log holds no more.
const usagePage = 1000

// Worked counts what the session's results have cost since the last look. A log that cannot be read is looked at the next time.
func (o observer) Worked(ctx context.Context, s store.Session, b session.Mailbox) {
	from, ok := b.(interface {
		Usage(ctx context.Context, after int64, limit int) ([]mailbox.Usage, error)
	})
	if !ok {
		return
	}
	o.read.mu.Lock()
	defer o.read.mu.Unlock()
	all, err := from.Usage(ctx, o.read.at[s.ID], usagePage)
	if err != nil || len(all) == 0 {
		return
	}
	agent := "none"
	if g, err := o.store.AgentGroup(ctx, s.AgentGroupID); err == nil {
		agent = g.Folder
	}
	for _, u := range all {
		o.read.at[s.ID] = max(o.read.at[s.ID], u.ID)
		if u.Timestamp.Before(o.since) {
			continue
		}
		provider := u.Provider
		if !slices.Contains(providerNames(), provider) {
			provider = "other"
		}
		o.metrics.Spent(metric.Spent{Provider: provider, Agent: agent, Failed: u.Failed, Input: u.InputTokens, Output: u.OutputTokens,
			CacheRead: u.CacheReadTokens, CacheCreation: u.CacheCreationTokens, USD: u.CostUSD})
	}
}

// listenMetrics serves the metrics on a loopback address until ctx ends, and returns when it listens. done is closed when it has
// ended.
func (h *Host) listenMetrics(ctx context.Context, address string) (done <-chan struct{}, err error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("serve metrics (setting metrics.listen): %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", ownHost(h.metrics.Handler()))
	s := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10}
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { _ = s.Close() })
	go func() {
		defer close(ended)
		defer stop()
		if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			h.log.Error("metrics are served no more", obs.Error(err))
		}
	}()
	h.log.Info("metrics are served", obs.KeyAddress, l.Addr().String())
	return ended, nil
}

// ownHost refuses requests by a name: a page of the web may have made it point here.
func ownHost(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := r.Host
		if host, _, err := net.SplitHostPort(name); err == nil {
			name = host
		}
		ip, err := netip.ParseAddr(strings.Trim(name, "[]"))
		if name != "localhost" && (err != nil || !ip.IsLoopback()) {
			http.Error(w, "only for programs of this machine", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}
