package sandboxtest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"nanoclaw/internal/id"
	"nanoclaw/internal/sandbox"
	"nanoclaw/internal/sandbox/sandboxtest/ask"
)

// codeTerm is the probe's exit code after SIGTERM.
const codeTerm = 7

func testExitCode(t *testing.T, b *bench) {
	s := b.session(t)
	for _, code := range []int{0, 3, 120} { // also: the session can start again each time
		h, l := s.start(t)
		l.must(t, ask.Question{Do: ask.Say, Mark: fmt.Sprintf("last words %d\n", code)})
		l.ask(t, ask.Question{Do: ask.Exit, N: int64(code)})
		e := b.wait(t, h)
		if e.Code != code || e.Signal != "" || e.OOM {
			t.Errorf("exit %+v, want code %d", e, code)
		}
		if !strings.Contains(e.Stderr, fmt.Sprintf("last words %d", code)) {
			t.Errorf("stderr of the end is %q", e.Stderr)
		}
		b.wantNone(t)
	}
}

func testStop(t *testing.T, b *bench) {
	s := b.session(t)
	h, _ := s.start(t)
	if h.Labels() != s.spec.Labels {
		t.Errorf("labels %+v, want %+v", h.Labels(), s.spec.Labels)
	}
	before := time.Now()
	if err := h.Stop(b.ctx, patience); err != nil {
		t.Fatal(err)
	}
	if time.Since(before) > patience/2 {
		t.Error("SIGTERM did not reach the command")
	}
	if e := b.wait(t, h); e.Code != codeTerm {
		t.Errorf("exit %+v, want code %d", e, codeTerm)
	}
	if err := h.Stop(b.ctx, patience); err != nil {
		t.Errorf("a second stop: %v", err)
	}
	b.wantNone(t)
}

func testStopByForce(t *testing.T, b *bench) {
	s := b.session(t)
	h, l := s.start(t)
	l.must(t, ask.Question{Do: ask.Stubborn})
	const grace = 300 * time.Millisecond
	before := time.Now()
	if err := h.Stop(b.ctx, grace); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(before); took < grace {
		t.Errorf("killed after %v, grace was %v", took, grace)
	}
	if e := b.wait(t, h); e.Code == 0 || e.Code == codeTerm || e.OOM {
		t.Errorf("exit %+v, want one by force", e)
	}
	b.wantNone(t)
}

func testStopTakesAll(t *testing.T, b *bench) {
	s := b.session(t)
	h, l := s.start(t)
	mark := b.family(t, l)
	if err := h.Stop(b.ctx, patience); err != nil {
		t.Fatal(err)
	}
	if left := marked(t, mark); len(left) > 0 {
		t.Errorf("processes %v of the sandbox run on", left)
	}
}

// testEndTakesAll: what the command leaves behind ends with it. Without isolation that cannot hold for orphans outside of
// every group, so it is asked of the others alone.
func testEndTakesAll(t *testing.T, b *bench) {
	if !b.Isolated && !b.Limited {
		t.Skip("not promised by this runtime here")
	}
	s := b.session(t)
	s.spec.Limits.PIDs = 100
	h, l := s.start(t)
	mark := b.family(t, l)
	l.ask(t, ask.Question{Do: ask.Exit})
	b.wait(t, h)
	if left := marked(t, mark); len(left) > 0 {
		t.Errorf("processes %v of the sandbox run on", left)
	}
}

// family makes the probe start other processes, and checks that they can be seen from here.
func (b *bench) family(t *testing.T, l *link) (mark string) {
	t.Helper()
	mark = id.New("mark")
	if a := l.must(t, ask.Question{Do: ask.Family, Mark: mark}); a.Error != "" {
		t.Fatal(a.Error)
	}
	for deadline := time.Now().Add(patience); len(marked(t, mark)) < 3; { // the shell's child has yet to replace itself
		if time.Now().After(deadline) {
			t.Fatalf("processes %v, want three", marked(t, mark))
		}
		l.must(t, ask.Question{Do: ask.Ping})
	}
	return mark
}

func testDuplicate(t *testing.T, b *bench) {
	s := b.session(t)
	h, _ := s.start(t)
	for name, r := range map[string]sandbox.Runtime{"same host": b.runtime, "other host": b.open(t)} {
		if _, err := r.Start(b.ctx, s.spec); !errors.Is(err, sandbox.ErrRunning) {
			t.Errorf("%s: second start: %v, want %v", name, err, sandbox.ErrRunning)
		}
	}
	other := b.session(t)
	ho, lo := other.start(t)
	lo.must(t, ask.Question{Do: ask.Ping})
	if err := h.Stop(b.ctx, patience); err != nil {
		t.Fatal(err)
	}
	lo.must(t, ask.Question{Do: ask.Ping})
	if err := ho.Stop(b.ctx, patience); err != nil {
		t.Fatal(err)
	}
	// Of many starts at once, one wins.
	race := b.session(t)
	if err := sandbox.Prepare(race.spec); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	results := make(chan error, 4)
	for range cap(results) {
		all.Go(func() {
			_, err := b.runtime.Start(b.ctx, race.spec)
			results <- err
		})
	}
	all.Wait()
	close(results)
	won := 0
	for err := range results {
		if err == nil {
			won++
		} else if !errors.Is(err, sandbox.ErrRunning) {
			t.Errorf("start in a race: %v", err)
		}
	}
	if won != 1 {
		t.Errorf("%d starts of one session won", won)
	}
}

func testWaiters(t *testing.T, b *bench) {
	s := b.session(t)
	h, l := s.start(t)
	short, cancel := context.WithTimeout(b.ctx, 10*time.Millisecond)
	defer cancel()
	if _, err := h.Wait(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a wait that is given up: %v", err)
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(b.ctx, patience)
			defer cancel()
			if e, err := h.Wait(ctx); err != nil || e.Code != 5 {
				t.Errorf("wait: %+v, %v", e, err)
			}
		})
	}
	l.ask(t, ask.Question{Do: ask.Exit, N: 5})
	all.Wait()
}

// testBadCommand: a command that is not there fails the start, or ends the sandbox with words about it.
func testBadCommand(t *testing.T, b *bench) {
	s := b.session(t)
	s.spec.Command = []string{"/nonexistent/runner"}
	if err := sandbox.Prepare(s.spec); err != nil {
		t.Fatal(err)
	}
	h, err := b.runtime.Start(b.ctx, s.spec)
	if err != nil {
		var f *sandbox.Failure
		if !errors.As(err, &f) {
			t.Errorf("error %v is no failure", err)
		}
		b.wantNone(t)
		return
	}
	if e := b.wait(t, h); e.Code == 0 || !strings.Contains(e.Stderr, "/nonexistent/runner") {
		t.Errorf("exit %+v, want one that names the command", e)
	}
}

func testForeign(t *testing.T, b *bench) {
	s := b.session(t)
	_, l := s.start(t)
	// Another home shares everything but the id, even this session's.
	other := b.session(t)
	other.spec.Labels.Install = install()
	other.spec.Labels.Session = s.spec.Labels.Session
	_, lo := other.start(t)
	found, err := b.runtime.List(b.ctx, other.spec.Labels.Install)
	if err != nil || len(found) != 1 || found[0].Labels() != other.spec.Labels {
		t.Fatalf("list of the other install: %d, %v", len(found), err)
	}
	if err := found[0].Stop(b.ctx, patience); err != nil {
		t.Fatal(err)
	}
	if _, ok := lo.ask(t, ask.Question{Do: ask.Ping}); ok {
		t.Error("the stopped one answers")
	}
	l.must(t, ask.Question{Do: ask.Ping})
	if found, err := b.runtime.List(b.ctx, b.install); err != nil || len(found) != 1 || found[0].Labels() != s.spec.Labels {
		t.Errorf("list of this install: %d, %v", len(found), err)
	}
}

// testHostKilled kills the host that started a sandbox; the next one finds it, talks to it and stops it.
func testHostKilled(t *testing.T, b *bench) {
	s := b.session(t)
	if err := sandbox.Prepare(s.spec); err != nil {
		t.Fatal(err)
	}
	plan, err := json.Marshal(hostPlan{b.records, s.spec})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(b.dir, "plan.json")
	if err := os.WriteFile(path, plan, 0o600); err != nil {
		t.Fatal(err)
	}
	host := exec.Command("/proc/self/exe")
	host.Env = append(os.Environ(), hostVariable+"="+path)
	host.Stderr = os.Stderr
	out, err := host.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := host.Start(); err != nil {
		t.Fatal(err)
	}
	said, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || !strings.HasPrefix(said, "started ") {
		_ = host.Process.Kill()
		t.Fatalf("the host said %q, %v (%v)", said, err, host.Wait())
	}
	l := s.accept(t)
	mark := b.family(t, l)
	if err := host.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = host.Wait()
	l.must(t, ask.Question{Do: ask.Ping})

	// The next host binds the socket anew; the sandbox finds it through its read-only mount.
	_ = s.listener.Close()
	_ = l.conn.Close()
	s.listen(t)
	l = s.accept(t)
	l.must(t, ask.Question{Do: ask.Ping})
	found, err := b.runtime.List(b.ctx, b.install)
	if err != nil || len(found) != 1 {
		t.Fatalf("found %d sandboxes, %v", len(found), err)
	}
	h := found[0]
	if h.Labels() != s.spec.Labels || said != fmt.Sprintf("started %d\n", h.PID()) {
		t.Errorf("found %+v with pid %d; started was %+v, and the host said %q", h.Labels(), h.PID(), s.spec.Labels, said)
	}
	if _, err := b.runtime.Start(b.ctx, s.spec); !errors.Is(err, sandbox.ErrRunning) {
		t.Errorf("second start beside an adopted one: %v, want %v", err, sandbox.ErrRunning)
	}
	if err := h.Stop(b.ctx, patience); err != nil {
		t.Fatal(err)
	}
	if e := b.wait(t, h); e.Code != codeTerm && b.Isolated {
		t.Errorf("exit %+v, want code %d", e, codeTerm)
	}
	if left := marked(t, mark); len(left) > 0 {
		t.Errorf("processes %v of the sandbox run on", left)
	}
	b.wantNone(t)
	if left, err := os.ReadDir(b.records); err == nil && len(left) > 0 {
		t.Errorf("%d files are left of the records, first %s", len(left), left[0].Name())
	}
}

func (b *bench) wantNone(t *testing.T) {
	t.Helper()
	found, err := b.runtime.List(b.ctx, b.install)
	if err != nil || len(found) != 0 {
		t.Errorf("list: %d sandboxes, %v; want none", len(found), err)
	}
}
