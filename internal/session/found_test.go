package session

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"nanoclaw/internal/channel"
	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/sandbox"
)

// Found by the simulation of the host: an inbox that could not be brought up to date at the start counted as if it were, and its
// finished messages kept an agent running for ever.
func TestProjectionThatFailsAtTheStartIsRepeated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, good)
		w.files.settleErr = errBroken
		w.host()
		w.message("a")
		pass(time.Second)
		w.kill()
		w.host()
		pass(5 * time.Second)
		w.files.mu.Lock()
		w.files.settleErr = nil
		w.files.mu.Unlock()
		pass(5 * time.Second)
		if got := w.files.find("a").Status; got != mailbox.StatusCompleted {
			t.Errorf("the inbox shows %s", got)
		}
		pass(30 * time.Minute)
		if _, live := w.count(); live != 0 || len(w.m.Live()) != 0 {
			t.Errorf("%d sandboxes and %v live with nothing to do", live, w.m.Live())
		}
	})
}

// The same while no agent can be started: what is finished is shown without anything new from it.
func TestProjectionIsRepeatedAfterAnOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, good)
		w.files.settleErr = errBroken
		w.host()
		w.message("a")
		pass(time.Second)
		w.kill()
		for _, b := range w.running() {
			b.stop.Do(func() { close(b.term) })
			<-b.dead
		}
		w.fail = []error{errBroken, errBroken}
		w.host()
		w.m.Wake(w.session.ID)
		pass(1500 * time.Millisecond)
		w.files.mu.Lock()
		w.files.settleErr = nil
		w.files.mu.Unlock()
		pass(time.Hour)
		if got := w.files.find("a").Status; got != mailbox.StatusCompleted {
			t.Errorf("the inbox shows %s", got)
		}
		if _, live := w.count(); live != 0 || len(w.m.Live()) != 0 {
			t.Errorf("%d sandboxes and %v live with nothing to do", live, w.m.Live())
		}
	})
}

// Found by the simulation of the host: a sandbox whose mailbox could not be opened at the start was never adopted, and in the way of
// every other one of its session.
func TestSandboxIsAdoptedOnceItsMailboxOpens(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, good)
		w.host()
		w.message("a")
		pass(time.Second)
		w.kill()
		w.openErr = errBroken
		w.host()
		pass(10 * time.Second)
		if err := w.m.Put(context.Background(), w.session, mailbox.InRow{ID: "b", Kind: mailbox.KindChat, Trigger: true}); err == nil {
			t.Error("a row was stored in a mailbox that cannot be opened")
		}
		w.mu.Lock()
		w.openErr = nil
		w.mu.Unlock()
		w.message("b")
		pass(time.Second)
		if got := w.ended("b"); len(got) != 1 || got[0] != channel.Answered {
			t.Errorf("ended as %v", got)
		}
		if starts, live := w.count(); starts != 1 || live != 1 {
			t.Errorf("%d starts, %d live; want the sandbox of the host before", starts, live)
		}
	})
}

// Found by the simulation of the host: what runs for a session without being known gives way to the next start.
func TestStraySandboxIsStopped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(_ *world, b *box) { <-b.term })
		w.host()
		w.mu.Lock()
		w.launch(w.session, 1)
		w.runner, w.fail = good, []error{sandbox.ErrRunning}
		w.mu.Unlock()
		w.message("a")
		pass(5 * time.Second)
		if got := w.ended("a"); len(got) != 1 || got[0] != channel.Answered {
			t.Errorf("ended as %v", got)
		}
		if _, live := w.count(); live != 1 {
			t.Errorf("%d sandboxes", live)
		}
	})
}

// Found by the simulation of the host: a message that was given up while its end could not be written never ended; now it ends as soon
// as that works, and at the latest under the next host.
func TestGivenUpMessageEndsLater(t *testing.T) {
	t.Parallel()
	for name, restart := range map[string]bool{"same host": false, "next host": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, func(w *world, b *box) { w.files.claim(b.labels.Incarnation) })
				w.endErr = errBroken
				w.host()
				w.message("a")
				pass(5 * time.Minute)
				if got := w.files.find("a"); got.Status != mailbox.StatusFailed || len(w.ended("a")) != 0 {
					t.Fatalf("%+v, ended %v", got, w.ended("a"))
				}
				if restart {
					w.kill()
				}
				w.mu.Lock()
				w.endErr = nil
				w.mu.Unlock()
				if restart {
					w.host()
					w.m.Wake(w.session.ID)
				}
				pass(5 * time.Second)
				if got := w.ended("a"); len(got) == 0 || got[0] != channel.Dead {
					t.Errorf("ended as %v", got)
				}
				if starts, live := w.count(); starts != 3 || live != 0 {
					t.Errorf("%d starts, %d live", starts, live)
				}
				pass(5 * time.Minute)
				if live := w.m.Live(); len(live) != 0 {
					t.Errorf("still live: %+v", live)
				}
			})
		})
	}
}
