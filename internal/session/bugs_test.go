package session

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"nanoclaw/internal/channel"
	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/sandbox"
)

// Entries of spec/bugs.md, by their number.

// SWP-4: a model that is slow but gives signs is alive, however long it takes; one that is silent for the ceiling is not.
func TestSWP4SlowModelIsAlive(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 8, 18, 12, 0, 0, 0, time.UTC)
	claim := []mailbox.Ack{{MessageID: "m", Status: mailbox.AckProcessing, StatusChanged: now.Add(-5 * time.Hour), Incarnation: 2}}
	for silent, want := range map[time.Duration]bool{time.Second: false, 29 * time.Minute: false, 31 * time.Minute: true, 61 * time.Minute: true} {
		for ceiling, wide := range map[time.Duration]bool{30 * time.Minute: false, time.Hour: true} {
			signs := Signs{Now: now, Began: now.Add(-6 * time.Hour), Incarnation: 2, State: mailbox.State{Acks: claim, Heartbeat: now.Add(-silent)},
				Tolerance: time.Minute, Ceiling: ceiling}
			if got := Stuck(signs) != ""; got != (want && (!wide || silent > time.Hour)) {
				t.Errorf("silent for %v under a ceiling of %v: stuck %v", silent, ceiling, got)
			}
		}
	}
}

// SWP-5: a row whose tool hangs each time holds its session no longer than its tries, and what waits behind it is answered.
func TestSWP5HungToolIsEnded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(w *world, b *box) {
			ids := w.files.claim(b.labels.Incarnation)
			if slices.Contains(ids, "poison") {
				w.files.mu.Lock()
				w.files.state.Container = mailbox.ContainerState{Turn: mailbox.TurnWorking, CurrentTool: "WebFetch"}
				w.files.mu.Unlock()
				<-b.term
				return
			}
			w.files.answer(b.labels.Incarnation, ids)
			signal(w.bell.toHost)
			good(w, b)
		})
		w.host()
		w.message("poison")
		for range 20 {
			pass(time.Minute)
			if err := w.m.Check(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
		w.message("good")
		pass(time.Minute)
		if got := w.ended("poison"); len(got) != 1 || got[0] != channel.Dead {
			t.Errorf("the row that hangs ended as %v", got)
		}
		if got := w.ended("good"); len(got) != 1 || got[0] != channel.Answered {
			t.Errorf("the row behind it ended as %v", got)
		}
		if starts, _ := w.count(); starts != 4 {
			t.Errorf("%d starts; want three tries and one for the row behind", starts)
		}
	})
}

// CON-7: while the runtime is not up, starts are tried for as long as it takes, with pauses of at most a minute, and nothing piles up.
func TestCON7RuntimeComesUpLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, good)
		for range 1000 {
			w.fail = append(w.fail, &sandbox.Failure{Class: sandbox.RuntimeUnavailable, Op: "start", Err: errBroken})
		}
		w.host()
		w.message("a")
		pass(time.Hour)
		starts, _ := w.count()
		if starts < 60 || starts > 70 {
			t.Errorf("%d tries in an hour", starts)
		}
		if n := len(w.m.Live()); n != 1 {
			t.Errorf("%d live sessions", n)
		}
		w.mu.Lock()
		w.fail = nil
		w.mu.Unlock()
		pass(retryMost + time.Second)
		if got := w.ended("a"); len(got) != 1 || got[0] != channel.Answered {
			t.Errorf("ended as %v", got)
		}
	})
}

// words collects a log.
type words struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (w *words) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.Write(p)
}

func (w *words) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.String()
}

// CON-5, CON-8: the log has the last line that a program wrote before it ended at once, and not its exit code alone.
func TestCON8LastWordsOfAProgramThatEndsAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(_ *world, b *box) {
			b.exit = sandbox.Exit{Code: 1, Stderr: "starting\n--dangerously-skip-permissions cannot be used with root privileges"}
		})
		var log words
		w.logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
		w.host()
		w.message("a")
		pass(time.Second)
		if s := log.String(); !strings.Contains(s, "cannot be used with root privileges") || !strings.Contains(s, "code=1") {
			t.Errorf("the log says:\n%s", s)
		}
	})
}

// CON-11: after a stop no sandbox is left within 15 s, and one that cannot be ended is named.
func TestCON11StopLeavesNoSandbox(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, good)
		w.host()
		w.message("a")
		pass(time.Second)
		w.kill()
		begun := time.Now()
		if err := w.m.StopSandboxes(context.Background()); err != nil {
			t.Error(err)
		}
		if _, live := w.count(); live != 0 || time.Since(begun) > 15*time.Second {
			t.Errorf("%d left after %v", live, time.Since(begun))
		}
	})
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		w := newWorld(t, func(*world, *box) { <-release })
		w.host()
		w.message("a")
		pass(time.Second)
		w.kill()
		ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
		defer cancel()
		if err := w.m.StopSandboxes(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a sandbox that does not end: %v", err)
		}
		close(release)
		synctest.Wait()
	})
}
