package session

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// W31: mailboxes lose what is old, while they rest as well as while an agent runs; a session that nobody uses costs one more look and then
// none (P8).
func TestW31MailboxesArePruned(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const day, kept = 24 * time.Hour, 30 * 24 * time.Hour
		w := newWorld(t, good)
		w.host()
		prune := func(want int) {
			t.Helper()
			if err := w.m.Prune(t.Context(), time.Now().Add(-kept)); err != nil {
				t.Error(err)
			}
			synctest.Wait()
			w.files.mu.Lock()
			defer w.files.mu.Unlock()
			if got := len(w.files.pruned); got != want {
				t.Errorf("pruned %d times, want %d", got, want)
			}
		}
		w.message("a")
		pass(time.Second)
		prune(0) // nothing can be old
		pass(kept + day)
		w.message("b")
		pass(time.Second)
		prune(1) // beside a running agent
		prune(1)
		pass(day)
		prune(1) // hardly anything grew old
		pass(8 * day)
		prune(2)
		pass(time.Minute)
		if n := len(w.m.Live()); n != 0 {
			t.Errorf("%d actors are left", n)
		}
		pass(kept)
		w.files.mu.Lock()
		w.files.pruneErr = errors.New("disk full")
		w.files.mu.Unlock()
		if err := w.m.Prune(t.Context(), time.Now().Add(-kept)); err == nil {
			t.Error("a failure is not told")
		}
		w.files.mu.Lock()
		w.files.pruneErr = nil
		w.files.mu.Unlock()
		prune(4) // tried again
		pass(8 * day)
		prune(4) // nothing happened since
		pass(365 * day)
		prune(4)
	})
}
