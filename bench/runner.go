package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	_ "modernc.org/sqlite" // the floors use the same driver

	"nanoclaw/internal/config"
	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/mailbox/sqlite"
	"nanoclaw/internal/obs"
)

// commitFloor is n durable commits as a mailbox makes them (journal DELETE, synchronous FULL), in milliseconds.
func commitFloor(ctx context.Context, b *bundle, n int) (float64, error) {
	db, err := floorDB(filepath.Join(b.work, fmt.Sprintf("floor-%d.db", time.Now().UnixNano())))
	if err != nil {
		return 0, err
	}
	defer func() { _ = db.Close() }()
	var samples []float64
	for range 3 * b.n {
		began := time.Now()
		for range n {
			if _, err := db.ExecContext(ctx, "INSERT INTO t (v) VALUES ('x')"); err != nil {
				return 0, err
			}
		}
		samples = append(samples, millis(time.Since(began)))
	}
	return quantile(samples, 0.5), nil
}

func floorDB(path string) (*sql.DB, error) {
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=journal_mode(DELETE)&_pragma=synchronous(FULL)")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	if _, err := db.Exec("CREATE TABLE IF NOT EXISTS t (id INTEGER PRIMARY KEY, v TEXT)"); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// bellFloor is a small program's way from one commit to the other side's answer: a byte, a read and two commits there, a
// byte back and a read here.
func bellFloor(ctx context.Context, b *bundle) (float64, error) {
	in, err := floorDB(filepath.Join(b.work, "bell-in.db"))
	if err != nil {
		return 0, err
	}
	defer func() { _ = in.Close() }()
	out, err := floorDB(filepath.Join(b.work, "bell-out.db"))
	if err != nil {
		return 0, err
	}
	defer func() { _ = out.Close() }()
	l, err := net.Listen("unix", filepath.Join(b.work, "bell.sock"))
	if err != nil {
		return 0, err
	}
	defer func() { _ = l.Close() }()
	peer := make(chan error, 1)
	go func() { peer <- bellPeer(ctx, l.Addr().String(), in, out) }()
	c, err := l.Accept()
	if err != nil {
		return 0, err
	}
	defer func() { _ = c.Close() }()
	var samples []float64
	buf := make([]byte, 1)
	for range 5 * b.n {
		if _, err := in.ExecContext(ctx, "INSERT INTO t (v) VALUES ('x')"); err != nil {
			return 0, err
		}
		began := time.Now()
		if _, err := c.Write(buf); err != nil {
			return 0, errors.Join(err, <-peer)
		}
		if _, err := c.Read(buf); err != nil {
			return 0, errors.Join(err, <-peer)
		}
		samples = append(samples, millis(time.Since(began)))
	}
	return quantile(samples, 0.5), nil
}

func bellPeer(ctx context.Context, address string, in, out *sql.DB) error {
	c, err := net.Dial("unix", address)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	buf := make([]byte, 1)
	for {
		if _, err := c.Read(buf); err != nil {
			return nil
		}
		var v string
		if err := in.QueryRowContext(ctx, "SELECT v FROM t ORDER BY id DESC LIMIT 1").Scan(&v); err != nil {
			return err
		}
		for range 2 {
			if _, err := out.ExecContext(ctx, "INSERT INTO t (v) VALUES ('x')"); err != nil {
				return err
			}
		}
		if _, err := c.Write(buf); err != nil {
			return err
		}
	}
}

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
	settings, err := json.Marshal(config.Container{Provider: "mock", Incarnation: 1, AgentGroupID: "ag-bench", SessionID: "sess-bench"})
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

// runner is the runner alone: how fast it starts and answers, what it costs while idle.
func runner(ctx context.Context, b *bundle) ([]row, error) {
	floor, err := bellFloor(ctx, b)
	if err != nil {
		return nil, err
	}
	s, err := b.session(ctx, "runner")
	if err != nil {
		return nil, err
	}
	defer s.end()
	if err := s.start(b); err != nil {
		return nil, err
	}
	var samples []float64
	for i := range 5*b.n + 10 {
		if err := s.put(ctx, 1); err != nil {
			return nil, err
		}
		began := time.Now()
		s.bell.Ring()
		if err := s.rowsOut(ctx, 1); err != nil {
			return nil, err
		}
		if i >= 10 {
			samples = append(samples, millis(time.Since(began)))
		}
	}
	r := result("runner alone: inbound commit to outbound row", "ms", samples, floor, 1.3*floor, 0, "≤ 1.3 × floor")
	rows := []row{r, result("runner idle after work: RSS", "MB", []float64{megabytes(s.cmd.Process.Pid, "VmRSS:")}, 0, 14, 0, "≤ 14")}
	before := cpu(s.cmd.Process.Pid)
	time.Sleep(10 * time.Second)
	rows = append(rows, result("runner idle: CPU per minute", "ms", []float64{millis(cpu(s.cmd.Process.Pid)-before) * 6}, 0, 1, 0, "≤ 1"))

	backlog, err := b.backlog(ctx)
	if err != nil {
		return rows, err
	}
	starts, err := b.starts(ctx)
	return append(append(rows, backlog...), starts...), err
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
		time.Sleep(500 * time.Millisecond)
		idle = append(idle, megabytes(s.cmd.Process.Pid, "VmRSS:"))
		s.end()
	}
	return []row{
		result("runner: exec to first reply", "ms", first, 0, 25, 0, "≤ 25"),
		result("runner idle before any work: RSS", "MB", idle, 0, 12, 0, "≤ 12"),
	}, nil
}
