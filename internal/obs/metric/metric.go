// Package metric counts what a host does, for Prometheus. It holds a registry of its own and no globals. Services know nothing
// of it: they report to small interfaces that a Set satisfies, and the host wires the two. All methods may be called on a nil Set,
// which counts nothing.
//
// Labels are bounded: channel instances, agent folders and providers of this host, and words from fixed lists. No label holds the id
// of a person, a chat, a session or a message. docs/operations.md lists the metrics.
package metric

import (
	"net/http"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/common/expfmt"
)

// Set is the metrics of one host.
type Set struct {
	registry *prometheus.Registry

	messages, ends    *prometheus.CounterVec
	accept, answer    *prometheus.HistogramVec
	starts, boxEnds   *prometheus.CounterVec
	spawn             prometheus.Histogram
	tries, deliveries *prometheus.CounterVec
	delivery          *prometheus.HistogramVec
	egress            *prometheus.CounterVec
	egressSeconds     *prometheus.HistogramVec
	results, tokens   *prometheus.CounterVec
	cost              *prometheus.CounterVec
	control           *prometheus.CounterVec
}

// Buckets, in seconds: of what takes milliseconds, and of what waits for a model or a person's network.
var (
	quick = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, 1}
	slow  = []float64{.01, .05, .25, 1, 2.5, 5, 10, 30, 60, 300, 1800}
)

// New makes a Set. sandbox is the kind of sandbox that runs.
func New(version, sandbox string) *Set {
	s := &Set{registry: prometheus.NewRegistry()}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "nanoclaw", Name: name, Help: help}, labels)
		s.registry.MustRegister(v)
		return v
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: "nanoclaw", Name: name, Help: help, Buckets: buckets}, labels)
		s.registry.MustRegister(v)
		return v
	}
	s.messages = counter("messages_total", "Events received from channels, by what became of them at the door.", "channel", "verdict")
	s.accept = histogram("accept_seconds", "From an event's arrival to its durable storage.", quick, "channel")
	s.ends = counter("message_ends_total", "Messages that came to their end, by end state.", "channel", "state")
	s.answer = histogram("answer_seconds", "From a message's durable storage to the moment its channel was told that it is answered.", slow, "channel")
	s.starts = counter("sandbox_starts_total", "Sandboxes by result: started, adopted, or the class of failure.", "result")
	s.boxEnds = counter("sandbox_ends_total", "Sandboxes that ended, by reason.", "reason")
	s.spawn = histogram("sandbox_spawn_seconds", "Time to start a sandbox.", slow).WithLabelValues().(prometheus.Histogram)
	s.tries = counter("delivery_tries_total", "Calls of platforms by outcome.", "channel", "outcome")
	s.deliveries = counter("deliveries_total", "Deliveries that came to a final state.", "channel", "state")
	s.delivery = histogram("delivery_seconds", "From taking an outbound row over to the platform's acknowledgement.", slow, "channel")
	s.egress = counter("egress_calls_total", "Calls of sandboxes to the outside, by upstream and class of status.", "upstream", "class")
	s.egressSeconds = histogram("egress_call_seconds", "Duration of calls of sandboxes to the outside.", slow, "upstream")
	s.results = counter("model_results_total", "Results of models.", "provider", "agent", "result")
	s.tokens = counter("model_tokens_total", "Tokens as the agents report them.", "provider", "agent", "kind")
	s.cost = counter("model_cost_usd_total", "Cost in US dollars as the agents report it.", "provider", "agent")
	s.control = counter("control_requests_total", "Requests on the control socket.", "route", "code")
	info := prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "nanoclaw", Name: "build_info", Help: "What runs; always 1."}, []string{"version", "go", "sandbox"})
	info.WithLabelValues(version, runtime.Version(), sandbox).Set(1)
	s.registry.MustRegister(info, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return s
}

// Handler answers a scrape in the text format.
func (s *Set) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		families, err := s.registry.Gather()
		if len(families) == 0 && err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		format := expfmt.NewFormat(expfmt.TypeTextPlain)
		w.Header().Set("Content-Type", string(format))
		enc := expfmt.NewEncoder(w, format)
		for _, f := range families {
			if enc.Encode(f) != nil {
				return
			}
		}
	})
}

// Inbound counts an event of a channel. verdict is what its adapter was told; took is what storing it took.
func (s *Set) Inbound(instance, verdict string, took time.Duration) {
	if s == nil {
		return
	}
	s.messages.WithLabelValues(instance, verdict).Inc()
	if verdict == "stored" {
		s.accept.WithLabelValues(instance).Observe(took.Seconds())
	}
}

// Ended counts the end of a message whose channel was told; since is the time since it was received.
func (s *Set) Ended(instance, state string, since time.Duration) {
	if s == nil {
		return
	}
	s.ends.WithLabelValues(instance, state).Inc()
	if state == "answered" {
		s.answer.WithLabelValues(instance).Observe(since.Seconds())
	}
}

// Tried counts one call of a platform.
func (s *Set) Tried(instance, outcome string) {
	if s != nil {
		s.tries.WithLabelValues(channel(instance), outcome).Inc()
	}
}

// Delivered counts a delivery at its final state; since is the time since it was taken over.
func (s *Set) Delivered(instance, state string, since time.Duration) {
	if s == nil {
		return
	}
	s.deliveries.WithLabelValues(channel(instance), state).Inc()
	if state == "sent" {
		s.delivery.WithLabelValues(channel(instance)).Observe(since.Seconds())
	}
}

// channel is the label of what goes nowhere: acts of the host, and rows without a route.
func channel(instance string) string {
	if instance == "" {
		return "none"
	}
	return instance
}

// SandboxStarted counts a start: result is started, adopted or a class of failure.
func (s *Set) SandboxStarted(result string, took time.Duration) {
	if s == nil {
		return
	}
	s.starts.WithLabelValues(result).Inc()
	if result == "started" {
		s.spawn.Observe(took.Seconds())
	}
}

// SandboxEnded counts an end by its reason.
func (s *Set) SandboxEnded(reason string) {
	if s != nil {
		s.boxEnds.WithLabelValues(reason).Inc()
	}
}

// Egress counts a call to the outside.
func (s *Set) Egress(upstream string, status int, took time.Duration) {
	if s == nil {
		return
	}
	s.egress.WithLabelValues(upstream, class(status)).Inc()
	s.egressSeconds.WithLabelValues(upstream).Observe(took.Seconds())
}

func class(status int) string {
	if status < 100 || status > 599 {
		return "none"
	}
	return string('0'+rune(status/100)) + "xx"
}

// Spent is what one result of a model cost.
type Spent struct {
	Provider, Agent                         string // names of this host
	Failed                                  bool
	Input, Output, CacheRead, CacheCreation int64
	USD                                     float64
}

// Most that one result is believed to have used: an agent writes these numbers.
const (
	mostTokens = 100_000_000
	mostUSD    = 10_000
)

// Spent counts what one result of a model cost.
func (s *Set) Spent(v Spent) {
	if s == nil {
		return
	}
	result := "ok"
	if v.Failed {
		result = "failed"
	}
	s.results.WithLabelValues(v.Provider, v.Agent, result).Inc()
	for kind, n := range map[string]int64{"input": v.Input, "output": v.Output, "cache_read": v.CacheRead, "cache_creation": v.CacheCreation} {
		s.tokens.WithLabelValues(v.Provider, v.Agent, kind).Add(float64(min(max(n, 0), mostTokens)))
	}
	if v.USD > 0 {
		s.cost.WithLabelValues(v.Provider, v.Agent).Add(min(v.USD, mostUSD))
	}
}

// Requested counts a request on the control socket. route is a pattern, never a path.
func (s *Set) Requested(route string, status int) {
	if s == nil {
		return
	}
	if route == "" {
		route = "none"
	}
	s.control.WithLabelValues(route, class(status)).Inc()
}
