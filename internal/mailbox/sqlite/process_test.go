package sqlite

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"nanoclaw/internal/mailbox"
)

// childVariable holds `<role> <incarnation> <folder>`: the test binary then is that process.
const childVariable = "NANOCLAW_MAILBOX_TEST_CHILD"

// child plays the part of another process and reports whether it did.
func child() bool {
	role, rest, _ := strings.Cut(os.Getenv(childVariable), " ")
	if role == "" {
		return false
	}
	number, dir, _ := strings.Cut(rest, " ")
	n, err := strconv.ParseInt(number, 10, 64)
	if err == nil {
		switch role {
		case "runner":
			err = echo(context.Background(), dir, n)
		case "host":
			err = feed(context.Background(), dir, n)
		default:
			err = errors.New("unknown role " + role)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, role+":", err)
		os.Exit(1)
	}
	return true
}

func start(t *testing.T, role string, n int64, dir string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d %s", childVariable, role, n, dir))
	cmd.Stderr = os.Stderr
	must(t, cmd.Start())
	return cmd
}

// echo is a runner that answers every row with one row, two exchanges at a time, until it is asked to stop.
func echo(ctx context.Context, dir string, incarnation int64) error {
	r, err := OpenRunner(ctx, dir, RunnerOptions{Incarnation: incarnation})
	if err != nil {
		return err
	}
	bell := DialBell(ctx, filepath.Join(dir, runDir), incarnation, nil)
	defer func() { _ = bell.Close() }()
	for exchange := 0; ; {
		batch, err := r.Fetch(ctx, 5)
		if err != nil {
			return err
		}
		if len(batch.Rows) == 0 {
			select {
			case <-bell.Rung():
			case <-time.After(20 * time.Millisecond):
			}
			continue
		}
		exchange++
		name := fmt.Sprintf("ex-%d-%d", incarnation, exchange)
		if old := batch.Rows[0].Exchange; old != "" {
			name = old
		}
		sent, err := r.Sent(ctx, name)
		if err != nil {
			return err
		}
		had := map[string]bool{}
		for _, row := range sent {
			had[row.InReplyTo] = true
		}
		var f mailbox.Finish
		var ids []string
		for _, row := range batch.Rows {
			ids = append(ids, row.ID)
		}
		if err := r.Claim(ctx, name, ids); err != nil {
			return err
		}
		for i, row := range batch.Rows {
			out := mailbox.OutRow{Kind: mailbox.KindChat, Content: row.Content, InReplyTo: row.ID, Exchange: name, Segment: 1}
			f.Completed = append(f.Completed, row.ID)
			switch {
			case had[row.ID]:
			case i == 0: // one leaves before the end of the exchange
				if _, err := r.Write(ctx, out); err != nil {
					return err
				}
				bell.Ring()
			default:
				f.Out = append(f.Out, out)
			}
		}
		if string(batch.Rows[len(batch.Rows)-1].Content) == `{"text":"stop"}` {
			if _, err := r.Finish(ctx, f); err != nil {
				return err
			}
			return r.Close()
		}
		if _, err := r.Finish(ctx, f); err != nil {
			return err
		}
		bell.Ring()
	}
}

// feed is a host that puts n numbered rows, one at a time, each known to its parent only once it is durable.
func feed(ctx context.Context, dir string, n int64) error {
	h, err := Open(ctx, dir, HostOptions{OutUID: -1, SandboxGID: -1})
	if err != nil {
		return err
	}
	for i := range n {
		p, err := h.Put(ctx, inRow(fmt.Sprint(i)), inRow(fmt.Sprint(i)))
		if err != nil {
			return err
		}
		fmt.Println(p[0].ID, p[0].Seq)
	}
	return h.Close()
}

// follower reads what a runner writes, settles its acks, and checks order.
type follower struct {
	s       *session
	seq     int64
	change  int64
	answers map[string]int
	order   []string
}

func (f *follower) look() {
	f.s.Helper()
	rows, err := f.s.h.Outbound(f.s.Context(), f.seq, 100)
	f.s.must(err)
	for _, row := range rows {
		f.s.must(row.Err)
		f.seq = row.Row.Seq
		f.answers[row.Row.InReplyTo]++
		f.order = append(f.order, row.Row.InReplyTo)
	}
	acks, next, err := f.s.h.Acks(f.s.Context(), f.change)
	f.s.must(err)
	f.change = next
	f.s.must(f.s.h.Settle(f.s.Context(), acks...))
}

// A host and a runner in two processes exchange thousands of rows at full speed: nothing is lost, doubled or out of order.
func TestW16TwoProcesses(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	n := 2000
	if raceDetector {
		n = 500
	}
	bell, err := ListenBell(filepath.Join(s.dir, runDir), 1, 0o600, nil)
	must(t, err)
	defer func() { must(t, bell.Close()) }()
	cmd := start(t, "runner", 1, s.dir)
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	f := &follower{s: s, answers: map[string]int{}}
	var ids []string
	for len(ids) < n {
		// Bursts of random size, some with context rows between.
		var rows []mailbox.InRow
		for range 1 + rand.IntN(8) {
			rows = append(rows, inRow(fmt.Sprint(len(ids)+len(rows))))
		}
		for _, p := range s.put(rows...) {
			ids = append(ids, p.ID)
		}
		bell.Ring()
		f.look()
	}
	stop := s.put(inRow("stop"))
	ids = append(ids, stop[0].ID)
	bell.Ring()
	for done := false; !done; {
		select {
		case err := <-ended:
			must(t, err)
			done = true
		case <-bell.Rung():
		case <-time.After(10 * time.Millisecond):
		}
		f.look()
	}
	f.look()
	if len(f.order) != len(ids) {
		t.Errorf("%d answers to %d rows", len(f.order), len(ids))
	}
	for i, rowID := range f.order {
		if f.answers[rowID] != 1 || rowID != ids[i] {
			t.Fatalf("answer %d is to %s (%d times), want %s", i, rowID, f.answers[rowID], ids[i])
		}
	}
	if due, _, err := s.h.Due(t.Context()); err != nil || due != 0 {
		t.Errorf("%d rows left due, error %v", due, err)
	}
}

// A host that is root and a sandbox with a uid of its own: the sandbox reads in/, writes out/, and cannot write in/.
func TestAcrossUsers(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root to be two users")
	}
	const uid = 23456
	s := newSession(t, func(o *HostOptions) { o.OutUID, o.SandboxGID = uid, uid })
	for dir := s.dir; dir != os.TempDir() && len(dir) > 1; dir = filepath.Dir(dir) {
		must(t, os.Chmod(dir, 0o711))
	}
	bell, err := ListenBell(filepath.Join(s.dir, runDir), 1, 0o660, nil)
	must(t, err)
	defer func() { must(t, bell.Close()) }()
	must(t, bell.Chown(-1, uid))
	must(t, exec.Command("cp", os.Args[0], filepath.Join(s.dir, "test")).Run())
	p := s.put(inRow("1"), inRow("stop"))
	cmd := exec.Command(filepath.Join(s.dir, "test"))
	cmd.Env = []string{fmt.Sprintf("%s=runner 1 %s", childVariable, s.dir)}
	cmd.Dir, cmd.Stderr = s.dir, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	must(t, cmd.Run())
	rows, err := s.h.Outbound(t.Context(), 0, 10)
	if err != nil || len(rows) != 2 || rows[1].Row.InReplyTo != p[1].ID {
		t.Errorf("rows %+v, error %v", rows, err)
	}
	heard(t, "bell of the other user", bell.Rung())
	deny := exec.Command("/bin/sh", "-c", "echo x >> in/inbound.db || echo x > in/new || echo x > run/new")
	deny.Dir, deny.SysProcAttr = s.dir, cmd.SysProcAttr
	if out, err := deny.CombinedOutput(); err == nil {
		t.Errorf("the sandbox wrote on the host's side: %s", out)
	}
}

// The runner is killed again and again in the midst of its work, each time a new incarnation takes over: every row is answered
// exactly once, since an exchange that is run again knows what it has sent.
func TestRunnerKilledAtRandom(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	kills := 40
	if raceDetector {
		kills = 10
	}
	f := &follower{s: s, answers: map[string]int{}}
	var ids []string
	for incarnation := int64(1); incarnation <= int64(kills); incarnation++ {
		cmd := start(t, "runner", incarnation, s.dir)
		kill := time.Now().Add(time.Duration(5+rand.IntN(40)) * time.Millisecond)
		for time.Now().Before(kill) {
			for _, p := range s.put(inRow("a"), inRow("b"), inRow("c")) {
				ids = append(ids, p.ID)
			}
			f.look()
		}
		must(t, cmd.Process.Kill())
		_ = cmd.Wait()
		_, err := s.h.CountTries(t.Context(), incarnation+1, func(int) (time.Duration, bool) { return 0, false })
		must(t, err)
		f.look()
	}
	ids = append(ids, s.put(inRow("stop"))[0].ID)
	must(t, start(t, "runner", int64(kills)+1, s.dir).Wait())
	for range 1 + len(ids)/100 {
		f.look()
	}
	for _, rowID := range ids {
		if f.answers[rowID] != 1 {
			t.Errorf("row %s was answered %d times", rowID, f.answers[rowID])
		}
	}
	if due, _, err := s.h.Due(t.Context()); err != nil || due != 0 {
		t.Errorf("%d rows left due, error %v", due, err)
	}
}

// The host is killed in the midst of its puts: what it called durable is there, pairs are whole, numbers are given once.
func TestHostKilledAtRandom(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	must(t, s.h.Close())
	promised := map[string]int64{}
	kills := 40
	if raceDetector {
		kills = 10
	}
	for range kills {
		self, err := os.Executable()
		must(t, err)
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=host 1000000 %s", childVariable, s.dir))
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		must(t, err)
		must(t, cmd.Start())
		lines := bufio.NewScanner(out)
		for range 1 + rand.IntN(5) {
			if lines.Scan() {
				promise(t, promised, lines.Text())
			}
		}
		must(t, cmd.Process.Kill())
		for lines.Scan() {
			promise(t, promised, lines.Text())
		}
		_ = cmd.Wait()
	}
	h, err := Open(t.Context(), s.dir, HostOptions{OutUID: -1, SandboxGID: -1})
	must(t, err)
	s.h = h
	t.Cleanup(func() { _ = h.Close() })
	for rowID, seq := range promised {
		if row, err := h.Row(t.Context(), rowID); err != nil || row.Seq != seq {
			t.Errorf("row %s: seq %d, want %d, error %v", rowID, row.Seq, seq, err)
		}
	}
	n, _, err := h.Due(t.Context())
	must(t, err)
	if n%2 != 0 || n < 2*len(promised) {
		t.Errorf("%d rows, want pairs and at least %d", n, 2*len(promised))
	}
	p := s.put(inRow("next"))
	if p[0].Seq != int64(2*n+2) {
		t.Errorf("next seq %d with %d rows", p[0].Seq, n)
	}
}

func promise(t *testing.T, promised map[string]int64, line string) {
	t.Helper()
	rowID, number, ok := strings.Cut(line, " ")
	seq, err := strconv.ParseInt(number, 10, 64)
	if !ok || err != nil {
		return // the line the kill cut short
	}
	promised[rowID] = seq
}
