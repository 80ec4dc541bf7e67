package delivery

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"nanoclaw/internal/channel"
	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/store"
)

// W6: a platform that fails again and again is asked by one row at a time until it takes one; nothing is lost by that.
func TestW6BreakerSparesAFailingPlatform(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &platform{script: map[string][]error{}}
		b := setup(t, p)
		var page mailbox.Page
		for i := range 20 {
			text := fmt.Sprintf("m%d", i)
			r := row(int64(2*i+1), chat, text)
			r.ThreadID = fmt.Sprintf("t%d", i) // a queue for each
			for range 5 {
				p.script[text] = append(p.script[text], outcome(channel.Offline, 0))
			}
			page.Rows = append(page.Rows, r)
		}
		b.take(t, page)
		wait(100 * time.Millisecond)
		first := len(p.log())
		if why := b.s.Paused("cli"); first < breakAfter || !strings.Contains(why, "failures in a row") {
			t.Errorf("after %d tries: %q", first, why)
		}
		wait(30 * time.Second)
		if tries := len(p.log()) - first; tries > 6 || tries < 3 {
			t.Errorf("%d tries in half a minute; want one at a time with growing pauses", tries)
		}
		p.mu.Lock()
		p.script = map[string][]error{}
		p.mu.Unlock()
		wait(5 * time.Minute)
		for row, state := range b.states(t) {
			if state != store.Sent {
				t.Errorf("%s: %s", row, state)
			}
		}
		if why := b.s.Paused("cli"); why != "" {
			t.Error(why)
		}
	})
}
