package session

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"nanoclaw/internal/channel"
	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/sandbox"
	"nanoclaw/internal/store"
)

// W24: an agent's own idle time counts, not the host's.
func TestW24IdlePolicyOfTheGroup(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, good)
		if _, _, err := w.st.UpdateGroup(t.Context(), "cli:ann", w.session.AgentGroupID, store.GroupChange{Setup: &store.Setup{IdleMinutes: 2}}); err != nil {
			t.Fatal(err)
		}
		w.host()
		w.message("a")
		pass(119 * time.Second)
		if _, live := w.count(); live != 1 {
			t.Fatal("ended before its idle time")
		}
		pass(2 * time.Second)
		if _, live := w.count(); live != 0 {
			t.Error("an idle sandbox runs on after two minutes; the host's own ten apply")
		}
	})
}

// The ending incarnation polls on for a moment: it must not take the word for the next one (spec/host.md section 12.7).
func TestRestartTellsTheNextIncarnation(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, good)
		w.host()
		w.message("a")
		pass(time.Second)
		for range 2 { // asked for twice under one key: one row
			if n, err := w.m.Restart(context.Background(), w.session.AgentGroupID, "", "k", "Packages were added."); err != nil || n != 1 {
				t.Fatalf("%d restarted, %v", n, err)
			}
		}
		pass(time.Second)
		w.files.mu.Lock()
		defer w.files.mu.Unlock()
		if len(w.files.rows) != 2 {
			t.Fatalf("%d rows", len(w.files.rows))
		}
		r := w.files.rows[1]
		if r.AfterIncarnation != 1 || !r.Trigger {
			t.Errorf("the row is for incarnations after %d, wakes %v", r.AfterIncarnation, r.Trigger)
		}
		if a := w.files.acks[r.ID]; a.Incarnation <= 1 || a.Status != mailbox.AckCompleted {
			t.Errorf("answered by incarnation %d: %s", a.Incarnation, a.Status)
		}
	})
}

// Settings that change while a sandbox is being started reach the next one.
func TestRecycleWhileStarting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(w *world, b *box) {
			if b.labels.Incarnation == 1 {
				<-b.term
				return
			}
			good(w, b)
		})
		w.delay = time.Minute
		w.host()
		w.message("a")
		pass(time.Second)
		w.m.Recycle("")
		pass(3 * time.Minute)
		if starts, live := w.count(); starts != 2 || live != 1 {
			t.Errorf("%d starts, %d live; want a second one with the changed settings", starts, live)
		}
		if got := w.ended("a"); len(got) != 1 || got[0] != channel.Answered {
			t.Errorf("ended as %v", got)
		}
	})
}

// What the operator changed may have been the fault: the next start is not kept waiting.
func TestRecycleEndsThePauseOfAnOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, good)
		for range 6 {
			w.fail = append(w.fail, &sandbox.Failure{Class: sandbox.ImageUnavailable, Op: "start", Err: errBroken})
		}
		w.host()
		w.message("a")
		pass(40 * time.Second)
		l := w.m.Live()
		if len(l) != 1 || l[0].Failures != 6 || time.Until(l[0].Retry) < 10*time.Second || l[0].Failing.IsZero() {
			t.Fatalf("the outage is shown as %+v", l)
		}
		w.m.Recycle(w.session.AgentGroupID)
		pass(time.Second)
		if got := w.ended("a"); len(got) != 1 {
			t.Errorf("ended as %v a second after the change", got)
		}
	})
}

// W12: what arrives while a sandbox is being stopped starts the next one at once, not with the sweep.
func TestW12WakeWhileStopping(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(w *world, b *box) {
			if b.labels.Incarnation > 1 {
				good(w, b)
				return
			}
			w.files.answer(1, w.files.claim(1))
			signal(w.bell.toHost)
			<-b.term
			time.Sleep(5 * time.Second) // it takes its time and takes nothing
		})
		w.host()
		w.message("a")
		pass(time.Second)
		w.m.Recycle("")
		synctest.Wait()
		w.message("b")
		pass(6 * time.Second)
		if got := w.ended("b"); len(got) != 1 || got[0] != channel.Answered {
			t.Errorf("ended as %v a second after the old sandbox", got)
		}
	})
}
