package session

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"nanoclaw/internal/channel"
	"nanoclaw/internal/config/container"
	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/obs"
	"nanoclaw/internal/sandbox"
	"nanoclaw/internal/store"
)

// A message starts a sandbox, is answered, and later everything is given back (P8).
func TestRUN17MessageIsAnsweredAndTheSessionRests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, good)
		w.host()
		w.message("a")
		pass(time.Second)
		w.message("b")
		pass(time.Second)
		if starts, live := w.count(); starts != 1 || live != 1 {
			t.Errorf("%d starts, %d live; want one sandbox for both messages", starts, live)
		}
		for _, m := range []string{"a", "b"} {
			if got := w.ended(m); len(got) != 1 || got[0] != channel.Answered {
				t.Errorf("message %s ended as %v", m, got)
			}
		}
		w.mu.Lock()
		if n := len(w.works); n < 2 || !w.works[0].Working || w.works[n-1].Working {
			t.Errorf("shown as working: %+v; want it to begin and to end", w.works)
		}
		w.mu.Unlock()
		pass(11 * time.Minute)
		if starts, live := w.count(); starts != 1 || live != 0 {
			t.Errorf("%d starts, %d live after the idle time", starts, live)
		}
		if n := len(w.m.Live()); n != 0 {
			t.Errorf("%d actors are left", n)
		}
		if due, next, err := w.st.Due(context.Background(), time.Now(), 10); err != nil || len(due) != 0 || !next.IsZero() {
			t.Errorf("still due: %v %v %v", due, next, err)
		}
		if d := w.files.delivered["out-1"]; d != "delivered" {
			t.Errorf("the inbox shows %q for the first answer", d)
		}
	})
}

// W8: every claim that dies with its incarnation is one try; after the last the message is dead and the person is told.
func TestPoisonMessage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(w *world, b *box) {
			w.files.claim(b.labels.Incarnation)
			b.exit = sandbox.Exit{Code: -1, Signal: "killed"}
		})
		w.host()
		w.message("poison")
		pass(30 * time.Minute)
		if got := w.ended("poison"); len(got) != 1 || got[0] != channel.Dead {
			t.Errorf("ended as %v, want dead once", got)
		}
		if starts, _ := w.count(); starts != 3 {
			t.Errorf("%d starts, want one per try", starts)
		}
		if w.told() != 1 {
			t.Errorf("the person was told %d times", w.told())
		}
		w.mu.Lock()
		w.runner = good
		w.mu.Unlock()
		w.message("next")
		pass(2 * time.Minute)
		if got := w.ended("next"); len(got) != 1 || got[0] != channel.Answered {
			t.Errorf("the next message ended as %v", got)
		}
	})
}

// P9: a running sandbox survives the host, is adopted, and what it wrote in between is taken over.
func TestAdoption(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		w := newWorld(t, func(w *world, b *box) {
			ids := w.files.claim(b.labels.Incarnation)
			<-release
			w.files.answer(b.labels.Incarnation, ids)
			good(w, b)
		})
		w.host()
		w.message("a")
		pass(time.Second)
		w.kill()
		close(release)
		synctest.Wait()
		w.host()
		pass(time.Second)
		if got := w.ended("a"); len(got) != 1 || got[0] != channel.Answered {
			t.Errorf("ended as %v", got)
		}
		if starts, live := w.count(); starts != 1 || live != 1 {
			t.Errorf("%d starts, %d live; want the same sandbox", starts, live)
		}
		w.message("b")
		pass(time.Second)
		if got := w.ended("b"); len(got) != 1 {
			t.Errorf("the adopted sandbox did not answer: %v", got)
		}
	})
}

func TestSandboxWithoutSessionIsStopped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, good)
		stale := w.session
		stale.ID = "sess-gone"
		w.launch(stale, 7)
		w.launch(w.session, 99) // an incarnation the centre does not know
		w.host()
		pass(time.Second)
		if _, live := w.count(); live != 0 {
			t.Errorf("%d orphans still run", live)
		}
	})
}

// DLV-8: starts that fail are tried again with pauses; the person is told once per outage; the message is answered.
func TestOutage(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err  error
		fast bool // told at once
	}{
		"daemon away":   {&sandbox.Failure{Class: sandbox.RuntimeUnavailable, Op: "start", Err: errBroken}, false},
		"image missing": {&sandbox.Failure{Class: sandbox.ImageUnavailable, Op: "start", Err: errBroken, Hint: "build it"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, good)
				for range 9 {
					w.fail = append(w.fail, c.err)
				}
				w.host()
				w.message("a")
				pass(5 * time.Second)
				if told := w.told() == 1; told != c.fast {
					t.Errorf("told at once: %v", told)
				}
				if live := w.m.Live(); len(live) != 1 || live[0].AgentGroup != w.session.AgentGroupID || !strings.Contains(live[0].Problem, errBroken.Error()) {
					t.Errorf("status shows %+v", live)
				}
				pass(30 * time.Minute)
				if w.told() != 1 {
					t.Errorf("told %d times", w.told())
				}
				if got := w.ended("a"); len(got) != 1 || got[0] != channel.Answered {
					t.Errorf("ended as %v", got)
				}
				if starts, _ := w.count(); starts != 10 {
					t.Errorf("%d starts", starts)
				}
				for _, l := range w.m.Live() {
					if l.Problem != "" {
						t.Errorf("still a problem after the answer: %+v", l)
					}
				}
			})
		})
	}
}

// What only the operator can mend is told to the owner too, once per outage; a runner that finds no program of its provider is such
// a case, whatever sandbox it runs in.
func TestOwnerIsToldOfWhatLasts(t *testing.T) {
	t.Parallel()
	gone := func(w *world, b *box) {
		b.exit = sandbox.Exit{Code: container.ExitNoProgram, Stderr: "a log line\nagent-runner: find the codex program\n"}
	}
	for name, c := range map[string]struct {
		fail   error
		runner func(*world, *box)
		want   string
	}{
		"program missing on the machine": {&sandbox.Failure{Class: sandbox.SpecInvalid, Op: "start", Err: errBroken, Hint: "the codex program"}, good, errBroken.Error() + ". What would help: the codex program."},
		"program missing in the image":   {nil, gone, "agent-runner: find the codex program. What would help: the program of its provider; `nanoclaw doctor` says how to get it."},
		"daemon away":                    {&sandbox.Failure{Class: sandbox.RuntimeUnavailable, Op: "start", Err: errBroken}, good, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, c.runner)
				w.owner = store.Destination{Instance: "cli", PlatformID: "owner"}
				for range 3 {
					if c.fail != nil {
						w.fail = append(w.fail, c.fail)
					}
				}
				w.host()
				w.message("a")
				pass(20 * time.Second)
				w.mu.Lock()
				defer w.mu.Unlock()
				switch {
				case c.want == "" && len(w.owned) == 0:
				case c.want == "" || len(w.owned) != 1 || len(w.said) != 1 || !strings.HasSuffix(w.owned[0], c.want) || !strings.Contains(w.said[0], "cannot be started"):
					t.Errorf("the owner was told %q, the person %q", w.owned, w.said)
				}
			})
		})
	}
}

// The time shown is that of the whole work: neither a tool nor a follow-up begins it anew.
func TestWorkIsShownFromItsBegin(t *testing.T) {
	t.Parallel()
	w := newWorld(t, good)
	var shown []channel.Work
	m := New(Options{Store: w.st, Log: obs.Discard(), Working: func(_ context.Context, _ store.Destination, v channel.Work) { shown = append(shown, v) }})
	a := newActor(m, w.session.ID, &w.session)
	begin := time.Now()
	for i, tool := range []string{"", "Bash", ""} {
		a.working(t.Context(), channel.Work{Working: true, Tool: tool, Since: begin.Add(time.Duration(i) * time.Minute)})
		if got := shown[i]; !got.Since.Equal(begin) || got.Tool != tool {
			t.Errorf("step %d shows %+v, want it since %v", i, got, begin)
		}
	}
	a.working(t.Context(), channel.Work{})
	next := begin.Add(time.Hour)
	a.working(t.Context(), channel.Work{Working: true, Since: next})
	if got := shown[len(shown)-1]; !got.Since.Equal(next) {
		t.Errorf("the next work shows %+v, want it since %v", got, next)
	}
}

// P3: the host ends between taking over and showing it in the inbox; the next one catches up and starts nothing.
func TestProjectionIsRepeated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, good)
		w.host()
		w.message("a")
		synctest.Wait()
		time.Sleep(projectDelay / 2)
		if w.files.find("a").Status != mailbox.StatusPending {
			t.Fatal("the inbox was brought up to date too early for this test")
		}
		w.kill()
		for _, b := range w.running() {
			b.stop.Do(func() { close(b.term) })
			<-b.dead
		}
		w.host()
		pass(time.Minute)
		if got := w.files.find("a").Status; got != mailbox.StatusCompleted {
			t.Errorf("the inbox shows %s", got)
		}
		if starts, _ := w.count(); starts != 1 {
			t.Errorf("%d starts: a finished message woke the agent", starts)
		}
		if got := w.ended("a"); len(got) != 1 {
			t.Errorf("the message ended %d times", len(got))
		}
	})
}

// An outbox that no runner writes ends its sandbox and harms nothing.
func TestHostileOutbox(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(w *world, b *box) {
			w.files.mu.Lock()
			w.files.outErr = mailbox.ErrHostile
			w.files.mu.Unlock()
			signal(w.bell.toHost)
			<-b.term
		})
		w.host()
		w.message("a")
		pass(10 * time.Second)
		if _, live := w.count(); live != 0 {
			t.Error("the sandbox still runs")
		}
		if w.told() != 1 {
			t.Errorf("the person was told %d times", w.told())
		}
	})
}

// A central database that fails for a moment loses nothing.
func TestTakeOverIsTriedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, good)
		w.takeErr = errBroken
		w.host()
		w.message("a")
		pass(time.Second)
		w.mu.Lock()
		w.takeErr = nil
		w.mu.Unlock()
		pass(5 * time.Second)
		if got := w.ended("a"); len(got) != 1 || w.took != 1 {
			t.Errorf("ended %v, %d rows taken over", got, w.took)
		}
	})
}

func TestStuckRunnerIsEndedAndTheMessageTriedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		first := true
		w := newWorld(t, func(w *world, b *box) {
			if first {
				first = false
				w.files.claim(b.labels.Incarnation)
				<-b.term
				return
			}
			good(w, b)
		})
		w.host()
		w.message("a")
		for range 4 {
			pass(time.Minute)
			if err := w.m.Check(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
		pass(time.Minute)
		if got := w.ended("a"); len(got) != 1 || got[0] != channel.Answered {
			t.Errorf("ended as %v", got)
		}
		if starts, _ := w.count(); starts != 2 {
			t.Errorf("%d starts", starts)
		}
	})
}

func TestRecycleStartsAgainOnlyWhenThereIsWork(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, good)
		w.host()
		w.message("a")
		pass(time.Second)
		w.m.Recycle("")
		pass(time.Second)
		if starts, live := w.count(); starts != 1 || live != 0 {
			t.Errorf("%d starts, %d live after the recycling", starts, live)
		}
		w.message("b")
		pass(time.Second)
		if starts, _ := w.count(); starts != 2 || len(w.ended("b")) != 1 {
			t.Errorf("%d starts, b ended %v", starts, w.ended("b"))
		}
	})
}

// spec/host.md section 11.2.
func TestStuck(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 8, 18, 12, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	claim := func(d time.Duration, incarnation int64) mailbox.Ack {
		return mailbox.Ack{MessageID: "m", Status: mailbox.AckProcessing, StatusChanged: ago(d), Incarnation: incarnation}
	}
	for name, c := range map[string]struct {
		state mailbox.State
		began time.Duration
		want  bool
	}{
		"idle, silent for hours":                    {mailbox.State{Heartbeat: ago(5 * time.Hour)}, 6 * time.Hour, false},
		"claim, fresh heartbeat":                    {mailbox.State{Acks: []mailbox.Ack{claim(10*time.Minute, 2)}, Heartbeat: ago(time.Second)}, time.Hour, false},
		"claim, no heartbeat since":                 {mailbox.State{Acks: []mailbox.Ack{claim(2*time.Minute, 2)}, Heartbeat: ago(3 * time.Minute)}, time.Hour, true},
		"claim within the tolerance":                {mailbox.State{Acks: []mailbox.Ack{claim(50*time.Second, 2)}, Heartbeat: ago(time.Hour)}, time.Hour, false},
		"claim of an older incarnation":             {mailbox.State{Acks: []mailbox.Ack{claim(time.Hour, 1)}, Heartbeat: ago(time.Hour)}, time.Hour, false},
		"claim with an unreadable time (SWP-6)":     {mailbox.State{Acks: []mailbox.Ack{{MessageID: "m", Status: mailbox.AckProcessing, Incarnation: 2}}}, time.Hour, false},
		"no heartbeat at all counts from the start": {mailbox.State{Acks: []mailbox.Ack{claim(40*time.Minute, 2)}}, 45 * time.Minute, true},
		"heartbeat stopped half an hour ago":        {mailbox.State{Acks: []mailbox.Ack{claim(time.Hour, 2)}, Heartbeat: ago(31 * time.Minute)}, 2 * time.Hour, true},
		"a long shell call is not stuck": {mailbox.State{Acks: []mailbox.Ack{claim(40*time.Minute, 2)}, Heartbeat: ago(39 * time.Minute),
			Container: mailbox.ContainerState{CurrentTool: "Bash", ToolTimeout: time.Hour}}, time.Hour, false},
		"another tool's timeout does not widen": {mailbox.State{Acks: []mailbox.Ack{claim(40*time.Minute, 2)}, Heartbeat: ago(39 * time.Minute),
			Container: mailbox.ContainerState{CurrentTool: "Read", ToolTimeout: time.Hour}}, time.Hour, true},
	} {
		got := Stuck(Signs{Now: now, Began: ago(c.began), Incarnation: 2, State: c.state, Tolerance: time.Minute, Ceiling: 30 * time.Minute})
		if (got != "") != c.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}
