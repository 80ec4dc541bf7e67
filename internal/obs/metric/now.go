package metric

import "github.com/prometheus/client_golang/prometheus"

// Now is what a host reads when it is asked, and does not count: it costs nothing between scrapes.
type Now struct {
	Known    int64            // sessions of the home
	Due      int64            // sessions that wait for their time
	Sessions map[string]int64 // live ones by the state of their sandbox
	Pending  int64            // messages without an end
	Ledger   map[string]int64 // deliveries kept, by state
	Channels map[string]bool  // connected, by instance
}

// Read makes read part of every scrape. An error leaves its gauges out and sets nanoclaw_up to 0. It must be called once, before
// the first scrape.
func (s *Set) Read(read func() (Now, error)) {
	gauge := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("nanoclaw_"+name, help, labels, nil)
	}
	s.registry.MustRegister(&reader{
		read:     read,
		up:       gauge("up", "1 if the host's database can be read."),
		known:    gauge("sessions_known", "Conversations of this home."),
		due:      gauge("sessions_due", "Conversations that wait for their time."),
		sessions: gauge("sessions", "Live conversations by the state of their sandbox.", "state"),
		pending:  gauge("messages_pending", "Messages without an end."),
		ledger:   gauge("ledger_rows", "Deliveries in the ledger, by state.", "state"),
		channel:  gauge("channel_connected", "1 if the channel is connected.", "channel"),
	})
}

type reader struct {
	read                                               func() (Now, error)
	up, known, due, sessions, pending, ledger, channel *prometheus.Desc
}

func (r *reader) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{r.up, r.known, r.due, r.sessions, r.pending, r.ledger, r.channel} {
		ch <- d
	}
}

// States that are always shown, so that a graph has its zero.
var (
	boxStates    = []string{"absent", "starting", "running", "stopping"}
	ledgerStates = []string{"queued", "sending", "sent", "retry", "refused", "no-route", "unknown", "dead"}
)

func (r *reader) Collect(ch chan<- prometheus.Metric) {
	send := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	now, err := r.read()
	if err != nil {
		send(r.up, 0)
		return
	}
	send(r.up, 1)
	send(r.known, float64(now.Known))
	send(r.due, float64(now.Due))
	send(r.pending, float64(now.Pending))
	for _, s := range boxStates {
		send(r.sessions, float64(now.Sessions[s]), s)
	}
	for _, s := range ledgerStates {
		send(r.ledger, float64(now.Ledger[s]), s)
	}
	for name, connected := range now.Channels {
		v := 0.0
		if connected {
			v = 1
		}
		send(r.channel, v, name)
	}
}
