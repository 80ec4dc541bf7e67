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

// APR-10: a card of the host that is decided keeps title and text, loses its options and shows what was decided and by whom, in the way
// that its chat has. Everything happens once per key, also after a restart.
func TestAPR10ClosedCards(t *testing.T) {
	t.Parallel()
	at := store.Destination{Instance: "cli", PlatformID: chat}
	const key = "card-appr-1-1"
	plain := chat + " New sender\n\nWho?\nMore.\n\n1. Allow\n2. Deny\n\nAnswer with a number."
	for name, c := range map[string]struct {
		p    *platform
		want []string
	}{
		"buttons": {&platform{caps: channel.Caps{Buttons: true, Edit: true}}, []string{chat + " [question ] ?New sender/Who?\nMore./2",
			chat + " [answered p-CARD] ?New sender/Who?\nMore./2 =Allowed by Ann."}},
		"edits":   {&platform{caps: channel.Caps{Edit: true}}, []string{plain, chat + " New sender\n\nWho?\nMore.\n\nAllowed by Ann.[edit p-CARD]"}},
		"neither": {&platform{}, []string{plain, chat + " New sender\n\nWho?\n\nAllowed by Ann."}},
		"it was never shown": {&platform{caps: channel.Caps{Buttons: true}, script: map[string][]error{"": {outcome(channel.Permanent, 0)}}},
			[]string{chat + " [question ] ?New sender/Who?\nMore./2"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := setup(t, c.p)
				options := []mailbox.Option{{Label: "Allow", Value: "approve"}, {Label: "Deny", Value: "reject"}}
				for range 2 {
					if err := b.s.ShowCard(context.Background(), at, key, "New sender", "Who?\nMore.", options); err != nil {
						t.Fatal(err)
					}
					wait(time.Second)
				}
				for range 2 {
					if err := b.s.CloseCard(context.Background(), at, b.s.CardID(key), "Allowed by Ann.", "approve"); err != nil {
						t.Fatal(err)
					}
					wait(time.Second)
				}
				for i, s := range c.want {
					c.want[i] = strings.ReplaceAll(s, "CARD", string(b.s.CardID(key)))
				}
				if d := cmp.Diff(c.want, b.p.log()); d != "" {
					t.Error(d)
				}
				b.end()
			})
		})
	}
}

// A card that no chat could show is refused at once; an agent cannot close one.
func TestCardsThatAreNone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, &platform{caps: allCaps})
		at := store.Destination{Instance: "cli", PlatformID: chat}
		if err := b.s.ShowCard(context.Background(), at, "card-1", "Title", "Text", nil); err == nil {
			t.Error("a card without options was taken")
		}
		if err := b.s.ShowCard(context.Background(), at, "../card", "Title", "Text", []mailbox.Option{{Label: "x"}}); err == nil {
			t.Error("a key that is no file name was taken")
		}
		r := row(1, chat, "x")
		r.Content = []byte(`{"type":"card_closed","card":"led-1","outcome":"Allowed"}`)
		b.take(t, mailbox.Page{Rows: []mailbox.OutRow{r}})
		wait(time.Second)
		for id, state := range b.states(t) {
			if state != store.Refused {
				t.Errorf("%s is %s", id, state)
			}
		}
		if len(b.p.log()) != 0 {
			t.Errorf("%q", b.p.log())
		}
		b.end()
	})
}
