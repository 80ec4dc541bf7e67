package metric

import (
	"errors"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
)

func scrape(t *testing.T, s *Set) string {
	t.Helper()
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != 200 || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain; version=0.0.4") {
		t.Fatalf("%d %s", w.Code, w.Header())
	}
	return w.Body.String()
}

// full is a set in which everything has happened once.
func full() *Set {
	s := New("v1", "docker")
	s.Read(func() (Now, error) {
		return Now{Known: 3, Due: 1, Pending: 2, Sessions: map[string]int64{"running": 1}, Ledger: map[string]int64{"retry": 4}, Channels: map[string]bool{"cli": true, "tg": false}}, nil
	})
	s.Inbound("cli", "stored", time.Millisecond)
	s.Inbound("cli", "dropped", time.Millisecond)
	s.Ended("cli", "answered", 2*time.Second)
	s.Ended("cli", "failed", 2*time.Second)
	s.Tried("cli", "transient")
	s.Delivered("cli", "sent", time.Second)
	s.Delivered("", "refused", 0)
	s.SandboxStarted("started", time.Second)
	s.SandboxStarted("denied", 0)
	s.SandboxEnded("idle")
	s.Egress("anthropic", 200, time.Second)
	s.Egress("other", 0, 0)
	s.Spent(Spent{Provider: "claude", Agent: "main", Input: 10, Output: -5, CacheRead: 1 << 60, USD: 0.5})
	s.Spent(Spent{Provider: "claude", Agent: "main", Failed: true, USD: 1e300})
	s.Requested("GET /v1/status", 200)
	s.Requested("", 404)
	return s
}

func TestCounts(t *testing.T) {
	t.Parallel()
	body := scrape(t, full())
	for _, line := range []string{
		`nanoclaw_messages_total{channel="cli",verdict="stored"} 1`,
		`nanoclaw_accept_seconds_count{channel="cli"} 1`,
		`nanoclaw_message_ends_total{channel="cli",state="failed"} 1`,
		`nanoclaw_answer_seconds_count{channel="cli"} 1`,
		`nanoclaw_delivery_tries_total{channel="cli",outcome="transient"} 1`,
		`nanoclaw_deliveries_total{channel="none",state="refused"} 1`,
		`nanoclaw_delivery_seconds_count{channel="cli"} 1`,
		`nanoclaw_sandbox_starts_total{result="denied"} 1`,
		`nanoclaw_sandbox_spawn_seconds_count 1`,
		`nanoclaw_sandbox_ends_total{reason="idle"} 1`,
		`nanoclaw_egress_calls_total{class="2xx",upstream="anthropic"} 1`,
		`nanoclaw_egress_calls_total{class="none",upstream="other"} 1`,
		`nanoclaw_model_results_total{agent="main",provider="claude",result="failed"} 1`,
		`nanoclaw_model_tokens_total{agent="main",kind="input",provider="claude"} 10`,
		`nanoclaw_model_tokens_total{agent="main",kind="output",provider="claude"} 0`,
		`nanoclaw_model_tokens_total{agent="main",kind="cache_read",provider="claude"} 1e+08`,
		`nanoclaw_model_cost_usd_total{agent="main",provider="claude"} 10000.5`,
		`nanoclaw_control_requests_total{code="4xx",route="none"} 1`,
		`nanoclaw_sessions{state="running"} 1`,
		`nanoclaw_sessions{state="absent"} 0`,
		`nanoclaw_ledger_rows{state="retry"} 4`,
		`nanoclaw_channel_connected{channel="tg"} 0`,
		`nanoclaw_sessions_known 3`, `nanoclaw_sessions_due 1`, `nanoclaw_messages_pending 2`, `nanoclaw_up 1`,
	} {
		if !strings.Contains(body, line+"\n") {
			t.Errorf("no line %s", line)
		}
	}
}

// What cannot be read is left out and said, and does not break the rest.
func TestUnreadableDatabase(t *testing.T) {
	t.Parallel()
	s := New("v1", "docker")
	s.Read(func() (Now, error) { return Now{}, errors.New("locked") })
	body := scrape(t, s)
	if !strings.Contains(body, "nanoclaw_up 0\n") || strings.Contains(body, "nanoclaw_sessions_known") || !strings.Contains(body, "go_goroutines") {
		t.Errorf("%s", body)
	}
}

func TestNilSetCountsNothing(t *testing.T) {
	t.Parallel()
	var s *Set
	s.Inbound("cli", "stored", 0)
	s.Ended("cli", "answered", 0)
	s.Tried("cli", "sent")
	s.Delivered("cli", "sent", 0)
	s.SandboxStarted("started", 0)
	s.SandboxEnded("idle")
	s.Egress("x", 200, 0)
	s.Spent(Spent{})
	s.Requested("x", 200)
}

// Two hosts in one process have nothing in common.
func TestNoGlobals(t *testing.T) {
	t.Parallel()
	full()
	if body := scrape(t, New("v2", "process")); strings.Contains(body, `channel="cli"`) || !strings.Contains(body, `version="v2"`) {
		t.Error("the sets share something")
	}
}

var (
	helpLine = regexp.MustCompile(`(?m)^# HELP (nanoclaw_\w+) `)
	docRow   = regexp.MustCompile("(?m)^\\| `(nanoclaw_\\w+)` \\| ([^|]*) \\|")
	label    = regexp.MustCompile(`[{,](\w+)="`)
)

// The names and labels are those that docs/operations.md lists, and follow Prometheus' own rules.
func TestConformance(t *testing.T) {
	t.Parallel()
	body := scrape(t, full())
	problems, err := promlint.New(strings.NewReader(body)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "nanoclaw_") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
	doc, err := os.ReadFile("../../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	told := map[string][]string{}
	for _, m := range docRow.FindAllStringSubmatch(string(doc), -1) {
		told[m[1]] = strings.Fields(strings.NewReplacer("`", "", ",", " ", "–", "").Replace(m[2]))
	}
	there := map[string]bool{}
	for _, m := range helpLine.FindAllStringSubmatch(body, -1) {
		name := m[1]
		there[name] = true
		want, ok := told[name]
		if !ok {
			t.Errorf("%s is not in docs/operations.md", name)
		}
		for _, line := range strings.Split(body, "\n") {
			head, _, _ := strings.Cut(line, " ")
			if base, _, _ := strings.Cut(head, "{"); strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(base, "_bucket"), "_sum"), "_count") != name {
				continue
			}
			for _, l := range label.FindAllStringSubmatch(head, -1) {
				if l[1] != "le" && !slices.Contains(want, l[1]) {
					t.Errorf("%s has the label %s, the document says %q", name, l[1], want)
				}
			}
		}
	}
	for name := range told {
		if !there[name] {
			t.Errorf("docs/operations.md names %s, which is not there", name)
		}
	}
}
