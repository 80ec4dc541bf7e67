package delivery

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"nanoclaw/internal/channel"
	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/store"
)

// A dead delivery is tried again once for each time that it is asked for, and given up only while it is dead.
func TestDeadLetters(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		lost := outcome(channel.Ambiguous, 0)
		b := setup(t, &platform{script: map[string][]error{"hi": {lost, lost, nil}, "no": {lost, lost}}})
		b.take(t, mailbox.Page{Rows: []mailbox.OutRow{row(1, chat, "hi"), row(3, chat, "no")}})
		wait(time.Minute)
		dead, err := b.st.Deliveries(ctx, store.Dead, 10)
		if err != nil || len(dead) != 2 {
			t.Fatalf("%+v, %v", dead, err)
		}
		no, hi := dead[0].ID, dead[1].ID
		for i, want := range []bool{true, false} {
			if changed, err := b.s.Revive(ctx, "cli:ann", hi); err != nil || changed != want {
				t.Errorf("revive %d: %v, %v", i, changed, err)
			}
			wait(time.Minute)
		}
		for i, want := range []bool{true, false} {
			if changed, err := b.st.Drop(ctx, "cli:ann", no); err != nil || changed != want {
				t.Errorf("drop %d: %v, %v", i, changed, err)
			}
		}
		if changed, err := b.st.Drop(ctx, "cli:ann", hi); err != nil || changed {
			t.Errorf("what was sent was dropped: %v, %v", changed, err)
		}
		if got := b.states(t); got["out-1"] != store.Sent || got["out-3"] != store.Refused {
			t.Errorf("%v", got)
		}
		if log := b.p.log(); log[len(log)-1] != chat+" hi (repeat)" || len(log) != 5 {
			t.Errorf("%q: want one more try, marked", log)
		}
		if audit, err := b.st.AuditTail(ctx, 10); err != nil || len(audit) != 2 {
			t.Errorf("%+v, %v", audit, err)
		}
	})
}
