package host

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"nanoclaw/internal/channel"
	"nanoclaw/internal/config"
	"nanoclaw/internal/egress"
	"nanoclaw/internal/id"
	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/obs"
	"nanoclaw/internal/obs/metric"
	"nanoclaw/internal/sandbox"
	"nanoclaw/internal/session"
	"nanoclaw/internal/store"
)

func body(t *testing.T, m *metric.Set) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return w.Body.String()
}

func wants(t *testing.T, m *metric.Set, lines ...string) {
	t.Helper()
	text := body(t, m)
	for _, l := range lines {
		if !strings.Contains(text, l+"\n") {
			t.Errorf("no line %s", l)
		}
	}
}

type startsAs struct {
	session.Launcher
	err error
}

func (s startsAs) Start(context.Context, store.Session, int64) (sandbox.Handle, func(), error) {
	return nil, nil, s.err
}
func (s startsAs) Adopt(context.Context, store.Session, int64) (func(), error) { return nil, s.err }

func TestStartsAreCounted(t *testing.T) {
	t.Parallel()
	m := metric.New("v", "docker")
	for _, err := range []error{nil, &sandbox.Failure{Class: sandbox.Denied}, errors.New("odd")} {
		_, _, got := meteredLauncher{m, startsAs{err: err}}.Start(t.Context(), store.Session{}, 1)
		if got != err {
			t.Errorf("%v became %v", err, got)
		}
		_, _ = meteredLauncher{m, startsAs{err: err}}.Adopt(t.Context(), store.Session{}, 1)
	}
	wants(t, m, `nanoclaw_sandbox_starts_total{result="started"} 1`, `nanoclaw_sandbox_starts_total{result="adopted"} 1`,
		`nanoclaw_sandbox_starts_total{result="denied"} 1`, `nanoclaw_sandbox_starts_total{result="failed"} 1`, `nanoclaw_sandbox_spawn_seconds_count 1`)
}

// Labels are bounded: a host that an agent chose is no label.
func TestUpstreamsAreNamed(t *testing.T) {
	t.Parallel()
	st, err := store.Open(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = st.Close() }()
	m := metric.New("v", "docker")
	a := meteredAudit{auditLog{st}, m, hostsOf(map[string]egress.Upstream{"anthropic": {Base: "https://api.anthropic.com"}, "ollama": {Base: "http://127.0.0.1:11434/x"}})}
	for _, host := range []string{"api.anthropic.com", "api.anthropic.com:443", "127.0.0.1:11434", "evil.example:443", ""} {
		if err := a.Record(t.Context(), egress.Call{Host: host, Status: 200}); err != nil {
			t.Fatal(err)
		}
	}
	wants(t, m, `nanoclaw_egress_calls_total{class="2xx",upstream="anthropic"} 2`, `nanoclaw_egress_calls_total{class="2xx",upstream="ollama"} 1`, `nanoclaw_egress_calls_total{class="2xx",upstream="other"} 2`)
}

type spends struct {
	session.Mailbox
	log []mailbox.Usage
	err error
}

func (s spends) Usage(_ context.Context, after int64, _ int) (out []mailbox.Usage, err error) {
	for _, u := range s.log {
		if u.ID > after {
			out = append(out, u)
		}
	}
	return out, s.err
}

// Every result is counted once, those of an earlier host not again; what an agent calls its provider is no label.
func TestUsageIsCountedOnce(t *testing.T) {
	t.Parallel()
	st, err := store.Open(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = st.Close() }()
	now := time.Now()
	o := observer{metrics: metric.New("v", "docker"), store: st, since: now, read: &usageRead{at: map[id.Session]int64{}}}
	box := spends{log: []mailbox.Usage{{ID: 1, Timestamp: now.Add(-time.Hour), Provider: "mock", InputTokens: 100}, {ID: 2, Timestamp: now, Provider: "mock", InputTokens: 10},
		{ID: 3, Timestamp: now, Provider: "<script>", InputTokens: 1}}}
	for range 3 {
		o.Worked(t.Context(), store.Session{ID: "sess-1"}, box)
	}
	box.log = append(box.log, mailbox.Usage{ID: 4, Timestamp: now, Provider: "mock", InputTokens: 5})
	o.Worked(t.Context(), store.Session{ID: "sess-1"}, spends{err: errors.New("busy"), log: box.log})
	o.Worked(t.Context(), store.Session{ID: "sess-1"}, box)
	wants(t, o.metrics, `nanoclaw_model_tokens_total{agent="none",kind="input",provider="mock"} 15`, `nanoclaw_model_tokens_total{agent="none",kind="input",provider="other"} 1`)
	if verdictWord(channel.Verdict{Kind: channel.Stored}, nil) != "stored" || verdictWord(channel.Verdict{Kind: channel.Stored}, errors.New("x")) != "error" {
		t.Error("verdicts have other words")
	}
}

// Metrics on TCP are for this machine: by address, and by the name in the request.
func TestMetricsOnLoopback(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	h := &Host{metrics: metric.New("v", "docker"), log: obs.Logger(&log, nil, false)}
	ctx, cancel := context.WithCancel(t.Context())
	done, err := h.listenMetrics(ctx, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, address, _ := strings.Cut(log.String(), "address=")
	address = strings.TrimSpace(address)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for host, want := range map[string]int{address: 200, "localhost": 200, "[::1]:1": 200, "evil.example": 403, "evil.example:80": 403, "10.0.0.1": 403} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = host
		res, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if res.StatusCode != want || want == 200 && !strings.Contains(string(b), "nanoclaw_build_info") {
			t.Errorf("host %s: %d", host, res.StatusCode)
		}
	}
	if _, err := h.listenMetrics(ctx, address); err == nil || !strings.Contains(err.Error(), "metrics.listen") {
		t.Errorf("a port that is taken: %v", err)
	}
	cancel()
	<-done
}

// PERF-6: logs of sandboxes go by age; that of a running one never.
func TestPERF6LogsOfSandboxesArePruned(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	old := time.Now().Add(-48 * time.Hour)
	for _, s := range []string{"quiet", "running", "fresh"} {
		dir := session.Dir(home, store.Session{ID: id.Session(s), AgentGroupID: "ag-1"})
		for range 2 {
			if err := keepWords(dir, "last words of "+s); err != nil {
				t.Fatal(err)
			}
		}
		if s == "fresh" {
			continue
		}
		for _, name := range []string{"sandbox.log", "sandbox.log.1"} {
			if err := os.Chtimes(filepath.Join(dir, "sandbox", name), old, old); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := pruneLogs(filepath.Join(home, "sessions"), time.Now().Add(-24*time.Hour), map[string]bool{"running": true}); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(home, "sessions", "*", "*", "sandbox", "*"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, p := range left {
		names = append(names, filepath.Base(filepath.Dir(filepath.Dir(p)))+"/"+filepath.Base(p))
	}
	if got := strings.Join(names, " "); got != "fresh/sandbox.log fresh/sandbox.log.1 running/sandbox.log" {
		t.Errorf("left: %s", got)
	}
	if err := (&Host{opt: Options{Settings: config.Settings{Home: t.TempDir()}}}).pruneWords(time.Now()); err != nil {
		t.Errorf("without a bound: %v", err)
	}
	if err := pruneLogs(filepath.Join(home, "none"), time.Now(), nil); err != nil {
		t.Errorf("a new home: %v", err)
	}
}
