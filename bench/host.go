package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"nanoclaw/internal/control"
	"nanoclaw/internal/id"
	"nanoclaw/internal/store"
)

// machine is a home with a running host.
type machine struct {
	home   string
	cmd    *exec.Cmd
	client *control.Client
	events chan control.Event
	cancel context.CancelFunc
	next   atomic.Int64
}

// host starts a host on a new home, or on one that exists, and says how long it took to answer.
func (b *bundle) host(ctx context.Context, home, settings string) (*machine, time.Duration, error) {
	if err := os.MkdirAll(home, 0o711); err != nil {
		return nil, 0, err
	}
	if err := os.WriteFile(filepath.Join(home, "nanoclaw.toml"), []byte(settings), 0o600); err != nil {
		return nil, 0, err
	}
	log, err := os.Create(home + ".log")
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = log.Close() }()
	m := &machine{home: home, client: control.NewClient(home), events: make(chan control.Event, 1<<16)}
	m.cmd = exec.Command(filepath.Join(b.bin, "nanoclaw"), "serve")
	m.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "NANOCLAW_HOME=" + home, "NANOCLAW_LOG_LEVEL=warn"}
	m.cmd.Stdout, m.cmd.Stderr = log, log
	began := time.Now()
	if err := m.cmd.Start(); err != nil {
		return nil, 0, err
	}
	for {
		if _, err := m.client.Status(ctx); err == nil {
			break
		}
		if ctx.Err() != nil || time.Since(began) > 30*time.Second {
			tail, _ := os.ReadFile(home + ".log")
			return nil, 0, fmt.Errorf("the host does not answer: %s", tail)
		}
		time.Sleep(time.Millisecond)
	}
	took := time.Since(began)
	if _, err := m.client.Bootstrap(ctx, control.BootstrapRequest{}); err != nil {
		return nil, 0, err
	}
	follow, cancel := context.WithCancel(ctx)
	m.cancel = cancel
	go func() {
		_ = m.client.Follow(follow, control.DefaultConversation, 0, func(e control.Event) error {
			m.events <- e
			return nil
		})
	}()
	return m, took, nil
}

func (m *machine) stop(ctx context.Context) {
	m.cancel()
	if _, err := m.client.Stop(ctx, true); err != nil {
		_ = m.cmd.Process.Signal(syscall.SIGTERM)
	}
	_ = m.cmd.Wait()
	m.client.Close()
}

// say sends one message.
func (m *machine) say(ctx context.Context) (string, error) {
	name := fmt.Sprintf("b%d-%d", os.Getpid(), m.next.Add(1))
	_, err := m.client.Say(ctx, control.DefaultConversation, control.Say{ID: name, Text: "ping " + name + "."})
	return name, err
}

// reply waits for the answer to a message.
func (m *machine) reply(ctx context.Context, name string) error {
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for {
		select {
		case e := <-m.events:
			if e.Kind == control.EventMessage && e.Author == control.AuthorAgent && strings.Contains(e.Text, name+".") {
				return nil
			}
		case <-limit.C:
			return errors.New("no answer in time")
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// settled waits for the end of a message's exchange.
func (m *machine) settled(ctx context.Context, name string) error {
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for {
		select {
		case e := <-m.events:
			if e.Kind == control.EventSettled && e.Target == name {
				return nil
			}
		case <-limit.C:
			return errors.New("no end in time")
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (m *machine) roundTrip(ctx context.Context) (time.Duration, error) {
	began := time.Now()
	name, err := m.say(ctx)
	if err != nil {
		return 0, err
	}
	err = m.reply(ctx, name)
	return time.Since(began), err
}

// patience is how long an answer may take: the heaviest program needs a minute for its first one on a busy machine.
const patience = 2 * time.Minute

const processSettings = "[sandbox]\nkind = \"process\"\n"

// warm is the added latency through a whole host, its throughput, and a burst.
func warm(ctx context.Context, b *bundle) ([]row, error) {
	floor, err := openCommits(filepath.Join(b.work, "warm.db"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = floor.db.Close() }()
	var rows []row
	for _, kind := range []string{"process", "bubblewrap"} {
		m, _, err := b.host(ctx, filepath.Join(b.work, "warm-"+kind), "[sandbox]\nkind = \""+kind+"\"\n")
		if err != nil {
			return rows, err
		}
		r, err := warmRows(ctx, b, m, kind, floor)
		m.stop(ctx)
		rows = append(rows, r...)
		if err != nil {
			return rows, err
		}
	}
	return rows, nil
}

func warmRows(ctx context.Context, b *bundle, m *machine, kind string, floor commits) ([]row, error) {
	for range 20 {
		if _, err := m.roundTrip(ctx); err != nil {
			return nil, err
		}
	}
	const durable = 3 // commits that must come one after the other: the message, its claim, its answer
	var latency, floors []float64
	for range max(10*b.n, 300) {
		f, err := floor.sample(ctx, durable)
		if err != nil {
			return nil, err
		}
		d, err := m.roundTrip(ctx)
		if err != nil {
			return nil, err
		}
		floors, latency = append(floors, f), append(latency, millis(d))
	}
	n := max(10*b.n, 300)
	began := time.Now()
	for range n {
		if _, err := m.roundTrip(ctx); err != nil {
			return nil, err
		}
	}
	rate := float64(n) / time.Since(began).Seconds()
	rows := []row{
		result("added latency warm, socket to socket, mock, "+kind, "ms", latency, quantile(floors, 0.5), 7.5, 25, "p50 ≤ 7.5, p95 ≤ 25"),
		{Name: "one message at a time, closed loop, " + kind, Unit: "1/s", P50: rate, P95: rate, Goal: "≥ 125", OK: rate >= 125},
	}
	if kind != "process" {
		return rows, nil
	}
	var bursts []float64
	for range 5 {
		began := time.Now()
		var last string
		for range 30 {
			var err error
			if last, err = m.say(ctx); err != nil {
				return rows, err
			}
		}
		if err := m.reply(ctx, last); err != nil {
			return rows, err
		}
		bursts = append(bursts, millis(time.Since(began)))
	}
	return append(rows, result("backlog: 30 lines on the socket", "ms", bursts, 0, 300, 0, "≤ 300")), nil
}

// cold is the first message of a session, its sandbox included.
func cold(ctx context.Context, b *bundle) ([]row, error) {
	var rows []row
	for _, c := range []struct {
		kind, settings, goal string
		most                 float64
		bare                 []string // a sandbox of this kind that does nothing
	}{
		{"bubblewrap", "[sandbox]\nkind = \"bubblewrap\"\n", "≤ 60", 60, []string{"bwrap", "--unshare-all", "--unshare-user", "--disable-userns",
			"--ro-bind", "/usr", "/usr", "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64", "--proc", "/proc", "--dev", "/dev", "/usr/bin/true"}},
		{"docker", "[sandbox]\nkind = \"docker\"\nimage = \"nanoclaw-agent:test\"\n", "≤ 400, ≤ floor + 80", 400,
			[]string{"docker", "run", "--rm", "--network", "none", "nanoclaw-agent:test", "true"}},
	} {
		name := "cold start to first reply, " + c.kind
		m, _, err := b.host(ctx, filepath.Join(b.work, "cold-"+c.kind), c.settings)
		if err != nil {
			rows = append(rows, row{Name: name, Note: err.Error()})
			continue
		}
		var samples, floors []float64
		for range min(b.n, 30) {
			var d, bare time.Duration
			if bare, err = timed(ctx, c.bare); err != nil {
				break
			}
			if d, err = m.roundTrip(ctx); err != nil {
				break
			}
			samples, floors = append(samples, millis(d)), append(floors, millis(bare))
			if err = m.restart(ctx, b); err != nil {
				break
			}
		}
		m.stop(ctx)
		if err != nil {
			rows = append(rows, row{Name: name, Note: err.Error()})
			continue
		}
		floor := quantile(floors, 0.5)
		r := result(name, "ms", samples, floor, c.most, 0, c.goal)
		r.OK = r.OK && (c.kind != "docker" || r.P50 <= floor+80)
		rows = append(rows, r)
	}
	return rows, nil
}

// restart ends the host with its sandboxes and starts it again.
func (m *machine) restart(ctx context.Context, b *bundle) error {
	settings, err := os.ReadFile(filepath.Join(m.home, "nanoclaw.toml"))
	if err != nil {
		return err
	}
	m.stop(ctx)
	again, _, err := b.host(ctx, m.home, string(settings))
	if err != nil {
		return err
	}
	m.cmd, m.client, m.events, m.cancel = again.cmd, again.client, again.events, again.cancel
	return nil
}

// timed runs a command.
func timed(ctx context.Context, command []string) (time.Duration, error) {
	began := time.Now()
	if out, err := exec.CommandContext(ctx, command[0], command[1:]...).CombinedOutput(); err != nil {
		return 0, fmt.Errorf("%s: %w: %s", strings.Join(command, " "), err, out)
	}
	return time.Since(began), nil
}

// hosts is an idle host with many sessions: memory, time to start, work per minute.
func hosts(ctx context.Context, b *bundle) ([]row, error) {
	var rows []row
	for _, c := range []struct {
		sessions       int
		memory, start  float64
		memoryGoal, by string
	}{
		{1, 20, 50, "≤ 20", "≤ 50"}, {1000, 25, 50, "≤ 25", "≤ 50"}, {10_000, 40, 100, "≤ 40", "≤ 100"},
	} {
		home := filepath.Join(b.work, fmt.Sprintf("host-%d", c.sessions))
		if err := fill(ctx, home, c.sessions); err != nil {
			return rows, err
		}
		var starts []float64
		for range 9 {
			m, took, err := b.host(ctx, home, processSettings)
			if err != nil {
				return rows, err
			}
			starts = append(starts, millis(took))
			m.stop(ctx)
		}
		m, _, err := b.host(ctx, home, processSettings)
		if err != nil {
			return rows, err
		}
		before := cpu(m.cmd.Process.Pid)
		const idle = 10 * time.Second
		time.Sleep(idle)
		spent := millis(cpu(m.cmd.Process.Pid)-before) * float64(time.Minute/idle)
		rss := megabytes(m.cmd.Process.Pid, "VmRSS:")
		label := fmt.Sprintf(", %d sessions", c.sessions)
		rows = append(rows,
			result("host start to accepting work"+label, "ms", starts, 0, c.start, 0, c.by),
			result("host idle: RSS"+label, "MB", []float64{rss}, 0, c.memory, 0, c.memoryGoal))
		if c.sessions == 1000 {
			rows = append(rows, result("host idle: CPU per minute"+label, "ms", []float64{spent}, 0, 5, 0, "≤ 5"))
			status, err := commandTime(ctx, b, home)
			if err != nil {
				m.stop(ctx)
				return rows, err
			}
			rows = append(rows, result("ncl status", "ms", status, 0, 20, 0, "≤ 20"))
		}
		m.stop(ctx)
	}
	return rows, nil
}

// fill makes the sessions of a home.
func fill(ctx context.Context, home string, n int) error {
	st, err := store.Open(ctx, home)
	if err != nil {
		return err
	}
	defer func() { _ = st.Close() }()
	group, err := st.Bootstrap(ctx, store.First{Owner: "cli:bench", AgentName: "Nano", Folder: "main", Provider: "mock", ChannelType: "cli",
		Instance: "cli", PlatformID: "cli:local", DestinationAs: "terminal"})
	if err != nil {
		return err
	}
	for i := range n {
		if _, err := st.ResolveSession(ctx, fmt.Sprintf("bench-%d", i), group, id.MessagingGroup(""), ""); err != nil {
			return err
		}
	}
	return nil
}

func commandTime(ctx context.Context, b *bundle, home string) (samples []float64, err error) {
	for range b.n {
		cmd := exec.CommandContext(ctx, filepath.Join(b.bin, "ncl"), "status")
		cmd.Env = []string{"NANOCLAW_HOME=" + home, "HOME=" + home}
		began := time.Now()
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("ncl status: %w: %s", err, out)
		}
		samples = append(samples, millis(time.Since(began)))
	}
	return samples, nil
}

// megabytes of a field of /proc/<pid>/status.
func megabytes(pid int, field string) float64 {
	return megabytesIn(fmt.Sprintf("/proc/%d/status", pid), field)
}

func megabytesIn(path, field string) float64 {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	for _, line := range strings.Split(string(b), "\n") {
		if rest, ok := strings.CutPrefix(line, field); ok {
			kb, _ := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			return kb / 1000
		}
	}
	return 0
}

// cpu time a process has used.
func cpu(pid int) time.Duration {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", pid))
	if err != nil {
		return 0
	}
	var total time.Duration
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		ns, _ := strconv.ParseInt(strings.Fields(string(b))[0], 10, 64)
		return time.Duration(ns)
	}
	for _, t := range tasks {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/schedstat", pid, t.Name()))
		if err != nil {
			continue
		}
		ns, _ := strconv.ParseInt(strings.Fields(string(b))[0], 10, 64)
		total += time.Duration(ns)
	}
	return total
}
