package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"nanoclaw/internal/config/container"
	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/mailbox/sqlite"
	"nanoclaw/internal/obs"
)

// session is a session folder driven by hand, with the real runner on it.
type session struct {
	dir    string
	host   *sqlite.Host
	bell   *sqlite.Bell
	cmd    *exec.Cmd
	seq    int64
	change int64
	n      int
}

func (b *bundle) session(ctx context.Context, name string) (*session, error) {
	s := &session{dir: filepath.Join(b.work, name)}
	var err error
	if s.host, err = sqlite.Create(ctx, s.dir, sqlite.HostOptions{OutUID: -1, SandboxGID: -1, Log: obs.Discard()}); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Join(s.dir, "agent"), 0o700); err != nil {
		return nil, err
	}
	settings, err := json.Marshal(container.Config{Provider: "mock", Incarnation: 1, AgentGroupID: "ag-bench", SessionID: "sess-bench"})
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(s.dir, "agent", "container.json"), settings, 0o600); err != nil {
		return nil, err
	}
	home := mailbox.Address{ChannelType: "cli", PlatformID: "cli:local"}
	if err := s.host.SetRouting(ctx, home); err != nil {
		return nil, err
	}
	if err := s.host.SetDestinations(ctx, []mailbox.Destination{{Name: "terminal", Type: mailbox.DestinationChannel, ChannelType: "cli", PlatformID: "cli:local"}}); err != nil {
		return nil, err
	}
	s.bell, err = sqlite.ListenBell(filepath.Join(s.dir, "run"), 1, 0o660, obs.Discard())
	return s, err
}

func (s *session) put(ctx context.Context, n int) error {
	rows := make([]mailbox.InRow, 0, n)
	for range n {
		s.n++
		rows = append(rows, mailbox.InRow{ID: fmt.Sprintf("msg-%d", s.n), Kind: mailbox.KindChat, Timestamp: time.Now(), Trigger: true,
			Address: mailbox.Address{ChannelType: "cli", PlatformID: "cli:local"}, Content: []byte(fmt.Sprintf(`{"text":"number %d","sender":"Ann"}`, s.n))})
	}
	_, err := s.host.Put(ctx, rows...)
	return err
}

// start runs the runner on the folder.
func (s *session) start(b *bundle, args ...string) error {
	s.cmd = exec.Command(filepath.Join(b.bin, "agent-runner"), append([]string{"--root", s.dir}, args...)...)
	s.cmd.Env = []string{"TZ=UTC", "HOME=" + filepath.Join(s.dir, "home"), "PATH=/usr/bin:/bin"}
	var errs bytes.Buffer
	s.cmd.Stderr = &errs
	if err := s.cmd.Start(); err != nil {
		return fmt.Errorf("start runner: %w: %s", err, errs.String())
	}
	return nil
}

func (s *session) end() {
	if s.cmd != nil && s.cmd.Process != nil {
		_ = s.cmd.Process.Signal(syscall.SIGTERM)
		_ = s.cmd.Wait()
	}
	_ = s.bell.Close()
	_ = s.host.Close()
}

// rowsOut waits until n more rows are in the outbox.
func (s *session) rowsOut(ctx context.Context, n int) error {
	limit := time.NewTimer(60 * time.Second)
	defer limit.Stop()
	for n > 0 {
		rows, err := s.host.Outbound(ctx, s.seq, 1000)
		if err != nil {
			return err
		}
		for _, r := range rows {
			s.seq = r.Row.Seq
			n--
		}
		if n <= 0 {
			return nil
		}
		select {
		case <-s.bell.Rung():
		case <-limit.C:
			return fmt.Errorf("%d rows did not come within 60 s", n)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// alone is the runner alone: how fast it starts and answers, what it costs while idle.
func alone(ctx context.Context, b *bundle) ([]row, error) {
	rows, err := b.exchanges(ctx)
	if err != nil {
		return rows, err
	}
	backlog, err := b.backlog(ctx)
	if err != nil {
		return rows, err
	}
	starts, err := b.starts(ctx)
	return append(append(rows, backlog...), starts...), err
}

// rest is how long after its last work a program counts as idle.
const rest = 5 * time.Second

// exchanges are single messages, each beside a sample of the floor.
func (b *bundle) exchanges(ctx context.Context) ([]row, error) {
	floor, err := b.pair(ctx)
	if err != nil {
		return nil, err
	}
	defer floor.end()
	s, err := b.session(ctx, "runner")
	if err != nil {
		return nil, err
	}
	defer s.end()
	if err := s.start(b); err != nil {
		return nil, err
	}
	const warmUp = 20
	var ours, floors []float64
	for i := range 10*b.n + warmUp {
		f, err := floor.sample(ctx)
		if err != nil {
			return nil, err
		}
		o, err := s.sample(ctx)
		if err != nil {
			return nil, err
		}
		if err := s.settle(ctx); err != nil {
			return nil, err
		}
		if i >= warmUp {
			ours, floors = append(ours, o), append(floors, f)
		}
	}
	least := quantile(floors, 0.5)
	rows := []row{result("runner alone: inbound commit to outbound row", "ms", ours, least, 1.3*least, 0, "≤ 1.3 × floor")}
	const idle = 30 * time.Second
	time.Sleep(rest)
	before := cpu(s.cmd.Process.Pid)
	time.Sleep(idle)
	spent := millis(cpu(s.cmd.Process.Pid)-before) * float64(time.Minute/idle)
	return append(rows,
		result("runner idle after work: RSS", "MB", []float64{megabytes(s.cmd.Process.Pid, "VmRSS:")}, 0, 14, 0, "≤ 14"),
		result("runner idle after work: CPU per minute", "ms", []float64{spent}, 0, 1, 0, "≤ 1")), nil
}

// sample is the way of one message from its commit to the outbound row read here, in milliseconds.
func (s *session) sample(ctx context.Context) (float64, error) {
	if err := s.put(ctx, 1); err != nil {
		return 0, err
	}
	began := time.Now()
	s.bell.Ring()
	if err := s.rowsOut(ctx, 1); err != nil {
		return 0, err
	}
	return millis(time.Since(began)), nil
}

// settle copies acks into the inbox, as a host does once nothing else is to be done.
func (s *session) settle(ctx context.Context) error {
	acks, next, err := s.host.Acks(ctx, s.change)
	if err != nil {
		return err
	}
	s.change = next
	return s.host.Settle(ctx, acks...)
}

// backlog is a thousand rows that wait when the runner starts.
func (b *bundle) backlog(ctx context.Context) ([]row, error) {
	var samples []float64
	for i := range 3 {
		s, err := b.session(ctx, fmt.Sprintf("backlog-%d", i))
		if err != nil {
			return nil, err
		}
		if err := s.put(ctx, 1000); err != nil {
			return nil, err
		}
		began := time.Now()
		if err := s.start(b); err != nil {
			return nil, err
		}
		if err := s.finished(ctx); err != nil {
			s.end()
			return nil, err
		}
		samples = append(samples, millis(time.Since(began)))
		s.end()
	}
	return []row{result("backlog: 1,000 rows waiting, all acknowledged in order", "ms", samples, 0, 1000, 0, "≤ 1000")}, nil
}

// finished waits until every row that was put has a final ack.
func (s *session) finished(ctx context.Context) error {
	limit := time.NewTimer(60 * time.Second)
	defer limit.Stop()
	done, cursor := 0, int64(0)
	seen := map[string]bool{}
	for {
		acks, next, err := s.host.Acks(ctx, cursor)
		if err != nil {
			return err
		}
		cursor = next
		for _, a := range acks {
			if a.Status.Final() && !seen[a.MessageID] {
				seen[a.MessageID] = true
				done++
			}
		}
		if done >= s.n {
			return nil
		}
		select {
		case <-s.bell.Rung():
		case <-time.After(20 * time.Millisecond):
		case <-limit.C:
			return fmt.Errorf("%d of %d rows were finished within 60 s", done, s.n)
		}
	}
}

// starts is exec to first reply, and memory before any work.
func (b *bundle) starts(ctx context.Context) ([]row, error) {
	var first, idle []float64
	for i := range b.n {
		s, err := b.session(ctx, fmt.Sprintf("start-%d", i))
		if err != nil {
			return nil, err
		}
		if err := s.put(ctx, 1); err != nil {
			return nil, err
		}
		began := time.Now()
		if err := s.start(b); err != nil {
			return nil, err
		}
		if err := s.rowsOut(ctx, 1); err != nil {
			s.end()
			return nil, err
		}
		first = append(first, millis(time.Since(began)))
		s.end()
	}
	for i := range 3 {
		s, err := b.session(ctx, fmt.Sprintf("idle-%d", i))
		if err != nil {
			return nil, err
		}
		if err := s.start(b); err != nil {
			return nil, err
		}
		time.Sleep(rest)
		idle = append(idle, megabytes(s.cmd.Process.Pid, "VmRSS:"))
		s.end()
	}
	return []row{
		result("runner: exec to first reply", "ms", first, 0, 25, 0, "≤ 25"),
		result("runner idle before any work: RSS", "MB", idle, 0, 12, 0, "≤ 12"),
	}, nil
}
