package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"nanoclaw/internal/channel/cli"
	"nanoclaw/internal/control"
	"nanoclaw/internal/id"
	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/store"
)

// population of a home.
type population struct {
	agents   int // each with a terminal conversation of its own: those that are spoken to
	sessions int // in all, spread over the agents
	past     int // messages that were answered long ago, spread over the sessions
}

func conversation(i int) string { return "cli:c" + strconv.Itoa(i) }

// populate makes a home's store.
func populate(ctx context.Context, home string, p population) error {
	if err := os.MkdirAll(home, 0o711); err != nil {
		return err
	}
	st, err := store.Open(ctx, home)
	if err != nil {
		return err
	}
	defer func() { _ = st.Close() }()
	handle, name := cli.Operator(os.Getuid())
	groups := make([]id.AgentGroup, p.agents)
	for i := range groups {
		groups[i], err = st.Bootstrap(ctx, store.First{Owner: id.User(cli.UserID(handle)), OwnerName: name, AgentName: "Nano", Folder: fmt.Sprintf("agent-%d", i), Provider: "mock",
			ChannelType: cli.Type, Instance: cli.Type, PlatformID: conversation(i), DestinationAs: "terminal"})
		if err != nil {
			return err
		}
	}
	var sessions []store.Session
	for i := range p.sessions - p.agents { // the others come with their first message
		s, err := st.ResolveSession(ctx, fmt.Sprintf("bench-%d", i), groups[i%len(groups)], "", "")
		if err != nil {
			return err
		}
		sessions = append(sessions, s)
	}
	const page = 1000
	for n := 0; n < p.past; n += page {
		if err := past(ctx, st, sessions, n, page); err != nil {
			return err
		}
	}
	return nil
}

// past stores messages that have ended, and their answers that were sent.
func past(ctx context.Context, st *store.Store, sessions []store.Session, first, count int) error {
	messages := make([]store.Message, 0, count)
	answers := make([]store.Ledger, 0, count)
	for n := first; n < first+count; n++ {
		s := sessions[n%len(sessions)]
		messages = append(messages, store.Message{Instance: cli.Type, PlatformID: conversation(0), PlatformMessageID: fmt.Sprintf("past-%d", n), AgentGroupID: s.AgentGroupID,
			RowID: fmt.Sprintf("msg-past-%d", n), SessionID: s.ID})
		answers = append(answers, store.Ledger{ID: id.Ledger(id.New(id.PrefixLedger)), SessionID: s.ID, OutboundID: fmt.Sprintf("out-past-%d", n), Seq: int64(n),
			Destination: store.Destination{Instance: cli.Type, PlatformID: conversation(0)}, Kind: string(mailbox.KindChat), Content: []byte(`{"text":"an answer of the past"}`),
			Exchange: fmt.Sprintf("ex-past-%d", n), State: store.Sent})
	}
	if _, err := st.Accept(ctx, messages); err != nil {
		return err
	}
	if _, err := st.Ingest(ctx, store.Ingest{Rows: answers}); err != nil {
		return err
	}
	return st.MarkProjected(ctx, answers)
}

// crowdSettings let so many sandboxes live.
func crowdSettings(kind string, places int) string {
	return fmt.Sprintf("[sandbox]\nkind = %q\nmax_live = %d\n", kind, places)
}

// crowd is a host with ten thousand sessions of which two hundred are spoken to, a hundred times a second for a minute.
func crowd(ctx context.Context, b *bundle) ([]row, error) {
	const (
		sessions, live = 10_000, 200
		perSecond      = 100
		minute         = 60
	)
	home := filepath.Join(b.work, "crowd")
	if err := populate(ctx, home, population{agents: live, sessions: sessions}); err != nil {
		return nil, err
	}
	m, _, err := b.host(ctx, home, crowdSettings("process", live+8))
	if err != nil {
		return nil, err
	}
	defer m.stop(ctx)
	l := newLoad()
	listening, end := context.WithCancel(ctx)
	defer end()
	for i := range live {
		go l.listen(listening, m, conversation(i))
	}
	say := func(ctx context.Context, i int, name string) error {
		_, err := m.client.Say(ctx, conversation(i%live), control.Say{ID: name, Text: word(name)})
		return err
	}
	kind := func(of string) func(int) string { return func(int) string { return of } }
	if err := l.wake(ctx, live, say); err != nil {
		return nil, fmt.Errorf("start %d agents: %w", live, err)
	}
	if err := errors.Join(l.drive(ctx, perSecond, 5*perSecond, kind("warm"), say), l.rest(ctx)); err != nil {
		return nil, err
	}
	time.Sleep(rest)
	atRest := megabytes(m.cmd.Process.Pid, "VmRSS:")

	floor, err := openCommits(filepath.Join(b.work, "crowd.db"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = floor.db.Close() }()
	beside, stop := context.WithCancel(ctx)
	var most float64
	var floors []float64
	var watching sync.WaitGroup
	watching.Go(func() {
		for beside.Err() == nil {
			most = max(most, megabytes(m.cmd.Process.Pid, "VmRSS:"))
			if f, err := floor.sample(ctx, 3); err == nil { // the message, its claim, its answer
				floors = append(floors, f)
			}
			select {
			case <-time.After(200 * time.Millisecond):
			case <-beside.Done():
			}
		}
	})
	before := cpu(m.cmd.Process.Pid)
	err = errors.Join(l.drive(ctx, perSecond, minute*perSecond, kind("load"), say), l.rest(ctx))
	spent := millis(cpu(m.cmd.Process.Pid)-before) / (minute * perSecond)
	stop()
	watching.Wait()
	if err != nil {
		return nil, err
	}
	s, err := m.client.Status(ctx)
	if err != nil {
		return nil, err
	}
	took := l.took["load"]
	label := fmt.Sprintf("%d sessions, %d live, %d messages/s for %d s", sessions, s.Sandbox.Live, perSecond, minute)
	p99 := quantile(took, 0.99)
	return []row{
		{Name: label + ": added latency", Unit: "ms", P50: quantile(took, 0.5), P95: quantile(took, 0.95), P99: p99, Floor: quantile(floors, 0.5), Goal: "p99 ≤ 50", OK: p99 <= 50 && s.Sandbox.Live >= live},
		result(label+": host RSS, the most", "MB", []float64{most}, atRest, 120, 0, "≤ 120"),
		{Name: label + ": host CPU per message", Unit: "ms", P50: spent, P95: spent, Goal: "for comparison", OK: true},
	}, nil
}

// scale compares what a message costs in homes that differ in one thing, message by message in turn.
func scale(ctx context.Context, b *bundle) ([]row, error) {
	const agents = 8
	homes := []struct {
		name string
		population
	}{
		{"scale-small", population{agents, 1000, 0}},
		{"scale-many", population{agents, 10_000, 0}},
		{"scale-old", population{agents, 1000, 200_000}},
	}
	var machines []*machine
	var loads []*load
	listening, end := context.WithCancel(ctx)
	defer end()
	for _, h := range homes {
		home := filepath.Join(b.work, h.name)
		if err := populate(ctx, home, h.population); err != nil {
			return nil, err
		}
		m, _, err := b.host(ctx, home, processSettings)
		if err != nil {
			return nil, err
		}
		defer m.stop(ctx)
		l := newLoad()
		for i := range agents {
			go l.listen(listening, m, conversation(i))
		}
		machines, loads = append(machines, m), append(loads, l)
	}
	ask := func(i, j int, kind string) error {
		l := loads[j]
		name := l.begin(kind, time.Now())
		if _, err := machines[j].client.Say(ctx, conversation(i%agents), control.Say{ID: name, Text: word(name)}); err != nil {
			return err
		}
		return l.rest(ctx)
	}
	each := func(n int, kind string) error {
		for i := range n {
			for j := range machines {
				if err := ask(i, (i+j)%len(machines), kind); err != nil {
					return fmt.Errorf("%s: %w", homes[j].name, err)
				}
			}
		}
		return nil
	}
	if err := each(10*agents, "warm"); err != nil {
		return nil, err
	}
	before := make([]time.Duration, len(machines))
	for j, m := range machines {
		before[j] = cpu(m.cmd.Process.Pid)
	}
	n := max(20*b.n, 800)
	if err := each(n, "cost"); err != nil {
		return nil, err
	}
	time.Sleep(time.Second) // what follows off the path
	var latency, work []float64
	for j, m := range machines {
		latency = append(latency, quantile(loads[j].took["cost"], 0.5))
		work = append(work, millis(cpu(m.cmd.Process.Pid)-before[j])/float64(n))
	}
	compare := func(name, unit string, v []float64, j int) row {
		ratio := v[j] / v[0]
		return row{Name: name, Unit: unit, P50: v[j], P95: v[j], Floor: v[0], Goal: "≤ 1.15 × floor", OK: ratio <= 1.15}
	}
	return []row{
		compare("a message with 10,000 sessions; floor: with 1,000", "ms", latency, 1),
		compare("host CPU per message with 10,000 sessions; floor: with 1,000", "ms", work, 1),
		compare("a message after 200,000 others; floor: with none", "ms", latency, 2),
		compare("host CPU per message after 200,000 others; floor: with none", "ms", work, 2),
	}, nil
}
