package delivery

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"nanoclaw/internal/channel"
	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/store"
)

// A failure at the third part of five: the parts before it are out and stay, the others come once and in order.
func TestPartsGoOnWhereTheyFailed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		script []error
		third  string // what the platform sees of the third part
	}{
		"transient":    {[]error{outcome(channel.Transient, 0), outcome(channel.Transient, 0)}, "cc|cc|cc"},
		"rate-limited": {[]error{outcome(channel.RateLimited, time.Minute)}, "cc|cc"},
		"offline":      {[]error{outcome(channel.Offline, 0)}, "cc|cc"},
		"unknown":      {[]error{outcome(channel.Ambiguous, 0)}, "cc|cc (repeat)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := setup(t, &platform{limit: 2, script: map[string][]error{"cc": c.script}})
				b.take(t, mailbox.Page{Rows: []mailbox.OutRow{row(1, chat, "aabbccdde"), row(3, chat, "x")}})
				wait(10 * time.Minute)
				var want []string
				for _, v := range strings.Split("aa|bb|"+c.third+"|dd|e|x", "|") {
					want = append(want, chat+" "+v)
				}
				if d := cmp.Diff(want, b.p.log()); d != "" {
					t.Error(d)
				}
				rows, err := b.st.Ledgers(t.Context(), b.session.ID, 10)
				if err != nil || rows[0].State != store.Sent {
					t.Fatalf("%+v, %v", rows, err)
				}
				first := "p-" + string(rows[0].ID)
				if d := cmp.Diff([]string{first, first + "-1", first + "-2", first + "-3", first + "-4"}, rows[0].PartIDs); d != "" || rows[0].PlatformMessageID != first {
					t.Error(rows[0].PlatformMessageID, d)
				}
			})
		})
	}
}

// A part that the platform refuses for good ends the message; the agent is told once.
func TestPartThatIsRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, &platform{limit: 2, script: map[string][]error{"bb": {outcome(channel.Permanent, 0)}}})
		b.take(t, mailbox.Page{Rows: []mailbox.OutRow{row(1, chat, "aabbcc"), row(3, chat, "x")}})
		wait(time.Minute)
		if got := strings.Join(b.p.log(), "|"); got != chat+" aa|"+chat+" bb|"+chat+" x" {
			t.Error(got)
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		if len(b.told) != 1 {
			t.Errorf("told %q", b.told)
		}
	})
}

// DLV-3: a host that ends while a part is on its way repeats that part at most, marked where the platform takes no key.
func TestDLV3RestartBetweenParts(t *testing.T) {
	t.Parallel()
	for _, idempotent := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			home := t.TempDir()
			first := &platform{limit: 2, idempotent: idempotent, hold: make(chan struct{}), holdAt: "bb"}
			b := setupAt(t, first, home)
			b.take(t, mailbox.Page{Rows: []mailbox.OutRow{row(1, chat, "aabbcc")}})
			wait(time.Second)
			second := &platform{limit: 2, idempotent: idempotent}
			again := setupAt(t, second, home)
			wait(time.Second)
			want := []string{chat + " bb (repeat)", chat + " cc"}
			if idempotent {
				want[0] = chat + " bb"
			}
			if d := cmp.Diff(want, second.log()); d != "" {
				t.Error(d)
			}
			again.end()
			close(first.hold)
			b.end()
		})
	}
}

// DLV-12: an edit of a message in parts changes its parts: those it has too many go, those it lacks come behind.
func TestDLV12EditOfParts(t *testing.T) {
	t.Parallel()
	for name, caps := range map[string]channel.Caps{"deletes": {Edit: true, Delete: true}, "cannot delete": {Edit: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := setup(t, &platform{limit: 4, caps: caps})
				said := 0
				// take has the message sent or edited and returns the platform ids of the row's parts
				take := func(r mailbox.OutRow, want ...string) []string {
					t.Helper()
					b.take(t, mailbox.Page{Rows: []mailbox.OutRow{r}})
					wait(time.Minute)
					log := b.p.log()
					if d := cmp.Diff(want, log[said:]); d != "" {
						t.Error(d)
					}
					said = len(log)
					rows, err := b.st.Ledgers(context.Background(), b.session.ID, 10)
					if err != nil {
						t.Fatal(err)
					}
					return rows[len(rows)-1].PartIDs
				}
				edit := func(seq int64, target, text string) mailbox.OutRow {
					r := row(seq, chat, "")
					r.Content = []byte(`{"operation":"edit","messageId":"` + target + `","text":"` + text + `"}`)
					return r
				}
				gone := func(part string) string {
					if caps.Delete {
						return chat + " [delete " + part + "]"
					}
					return chat + " …[edit " + part + "]"
				}
				sent := take(row(1, chat, "aaaabbbbcccc"), chat+" aaaa", chat+" bbbb", chat+" cccc")
				take(edit(3, sent[0], "xx"), chat+" xx[edit "+sent[0]+"]", gone(sent[1]), gone(sent[2]))
				more := take(edit(5, sent[0], "uuuuvvvvww"), chat+" uuuu[edit "+sent[0]+"]", chat+" vvvv[edit ]", chat+" ww[edit ]")
				if more[0] != sent[0] || more[1] == sent[1] {
					t.Errorf("parts %q became %q", sent, more)
				}
				take(edit(7, sent[0], "11112222"), chat+" 1111[edit "+more[0]+"]", chat+" 2222[edit "+more[1]+"]", gone(more[2]))
			})
		})
	}
}
