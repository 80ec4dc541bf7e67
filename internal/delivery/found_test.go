package delivery

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"nanoclaw/internal/channel"
	"nanoclaw/internal/id"
	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/store"
)

// Found by the simulation of the host: an outcome that could not be written was forgotten until the next start, which sent the message
// again.
func TestOutcomeIsWrittenOnceTheDiskHasRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &platform{hold: make(chan struct{})}
		b := setup(t, p)
		var full atomic.Bool
		b.st.Fault(func(bool) error {
			if full.Load() {
				return errors.New("no space left on device")
			}
			return nil
		})
		b.take(t, mailbox.Page{Rows: []mailbox.OutRow{row(1, chat, "hi"), row(3, chat, "there")}})
		synctest.Wait()
		full.Store(true)
		close(p.hold)
		wait(10 * time.Second)
		if got := b.states(t); got["out-1"] != store.Sending || len(p.log()) != 1 {
			t.Errorf("%v, %q while the disk is full; want what follows to wait", got, p.log())
		}
		full.Store(false)
		wait(time.Minute)
		if got := b.states(t); got["out-1"] != store.Sent || got["out-3"] != store.Sent {
			t.Errorf("%v", got)
		}
		if log := p.log(); len(log) != 2 {
			t.Errorf("%q", log)
		}
	})
}

// P2: a host that ends between the end of a delivery and the word about it leaves the word to the next one.
func TestFailureIsToldAfterARestart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		home := t.TempDir()
		b := setupAt(t, &platform{script: map[string][]error{"hi": {outcome(channel.Permanent, 0)}}}, home)
		b.s.opt.Tell = func(context.Context, id.Session, string, string) error { return errors.New("no space left on device") }
		b.s.opt.Owner = func(context.Context) (store.Destination, bool) { return store.Destination{}, false }
		b.take(t, mailbox.Page{Rows: []mailbox.OutRow{row(1, chat, "hi")}})
		wait(time.Second)
		if got := b.states(t)["out-1"]; got != store.Refused {
			t.Fatalf("state %s", got)
		}
		b.end()
		again := setupAt(t, &platform{}, home)
		wait(time.Second)
		if len(again.told) != 1 || !strings.Contains(again.told[0], "not delivered") {
			t.Errorf("the agent was told %q", again.told)
		}
		again.end()
		third := setupAt(t, &platform{}, home)
		wait(time.Second)
		if len(third.told) != 0 {
			t.Errorf("the agent was told again: %q", third.told)
		}
	})
}
