package session

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"nanoclaw/internal/mailbox"
)

// W15: the answer to a command from inside reaches a runner that is there at once, and wakes nobody: no sandbox is started for
// it, and no person is shown that the agent works.
func TestW15AnswerRingsAndWakesNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rings := 0
		w := newWorld(t, func(w *world, b *box) {
			for {
				if ids := w.files.claim(b.labels.Incarnation); len(ids) > 0 {
					w.files.answer(b.labels.Incarnation, ids)
					signal(w.bell.toHost)
					continue
				}
				select {
				case <-b.term:
					return
				case <-w.bell.toRunner:
					w.mu.Lock()
					rings++
					w.mu.Unlock()
				}
			}
		})
		put := func(name string, kind mailbox.Kind) {
			t.Helper()
			if err := w.m.Put(context.Background(), w.session, mailbox.InRow{ID: name, Kind: kind, Content: []byte(`{}`)}); err != nil {
				t.Fatal(err)
			}
			pass(time.Second)
		}
		w.host()
		put("cli-resp-early", mailbox.KindSystem)
		if starts, _ := w.count(); starts != 0 || len(w.m.Live()) != 0 {
			t.Errorf("%d starts, %d live sessions for an answer that nobody waits for", starts, len(w.m.Live()))
		}
		w.message("a")
		pass(time.Second)
		w.mu.Lock()
		before, shown := rings, len(w.works)
		w.mu.Unlock()
		put("cli-resp-1", mailbox.KindSystem)
		w.mu.Lock()
		if rings != before+1 || len(w.works) != shown {
			t.Errorf("%d rings, shown %d times; want one ring and nothing to see", rings-before, len(w.works)-shown)
		}
		before = rings
		w.mu.Unlock()
		put("context", mailbox.KindChat)
		w.mu.Lock()
		defer w.mu.Unlock()
		if rings != before {
			t.Error("a context row rang the bell")
		}
	})
}
