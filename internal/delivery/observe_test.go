package delivery

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"nanoclaw/internal/channel"
	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/store"
)

// heard notes what an Observer hears.
type heard struct {
	mu  sync.Mutex
	all []string
}

func (h *heard) add(format string, a ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, fmt.Sprintf(format, a...))
}

func (h *heard) Tried(instance, outcome string) { h.add("tried %s %s", instance, outcome) }
func (h *heard) Delivered(instance, state string, since time.Duration) {
	h.add("delivered %s %s %v", instance, state, since >= 0)
}
func (h *heard) Ended(instance, state string, since time.Duration) {
	h.add("ended %s %s %v", instance, state, since > 0)
}

// Every call of a platform, every final state and every end of a message is heard once.
func TestObserver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, &platform{script: map[string][]error{"hi": {outcome(channel.Transient, 0)}, "no": {outcome(channel.Permanent, 0)}}})
		h := &heard{}
		b.s.opt.Observe = h
		if _, err := b.st.Accept(context.Background(), []store.Message{{Instance: "cli", PlatformID: chat, PlatformMessageID: "m", AgentGroupID: b.session.AgentGroupID,
			RowID: "row-m", SessionID: b.session.ID, Trigger: true}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		b.take(t, mailbox.Page{Rows: []mailbox.OutRow{row(1, chat, "hi"), row(3, chat, "no"), row(5, "cli:unknown", "lost")}, AckChange: 1,
			Acks: []mailbox.Ack{{MessageID: "row-m", Status: mailbox.AckCompleted, Exchange: "ex-1"}}})
		wait(time.Minute)
		slices.Sort(h.all)
		want := "delivered  no-route true|delivered cli refused true|delivered cli sent true|ended cli answered true|tried cli permanent|tried cli sent|tried cli transient"
		if got := strings.Join(h.all, "|"); got != want {
			t.Errorf("heard %s\nwant  %s", got, want)
		}
		b.end()
	})
}
