package channeltest

import (
	"fmt"
	"strings"
	"sync"
	"unicode/utf16"

	"nanoclaw/internal/channel"
)

func outboundCases() []testCase {
	edits := func(p Profile) bool { return p.Info.Caps.Edit }
	reacts := func(p Profile) bool { return p.Info.Caps.React }
	return []testCase{
		{id: "C1", title: "a text arrives; order is kept; ids are new", run: func(b *bench) {
			b.start()
			place := b.rig.Place(0)
			ids := map[string]bool{}
			for i, s := range texts(50) {
				for _, id := range b.deliver(place, text(s), fmt.Sprintf("k%d", i)).IDs {
					if ids[id] {
						b.Errorf("the id %s was given twice", id)
					}
					ids[id] = true
				}
			}
			for i, got := range b.seen(place, 50) {
				if want := texts(50)[i]; got.Text != want || !ids[got.ID] {
					b.Fatalf("message %d is %+v, want %q with an id of a receipt", i, got, want)
				}
			}
		}},
		{id: "C1b", title: "conversations are served side by side", run: func(b *bench) {
			a := b.start()
			var wg sync.WaitGroup
			for n := range 8 {
				wg.Go(func() {
					for i, s := range texts(20) {
						if _, err := a.Deliver(b.ctx, b.rig.Place(n), text(s), fmt.Sprintf("%d-%d", n, i)); err != nil {
							b.Errorf("deliver: %v", err)
						}
					}
				})
			}
			wg.Wait()
			for n := range 8 {
				got := b.seen(b.rig.Place(n), 20)
				for i, want := range texts(20) {
					if len(got) != 20 || got[i].Text != want {
						b.Fatalf("conversation %d shows %+v", n, got)
					}
				}
			}
		}},
		{id: "C4", title: "texts of every size arrive whole", run: func(b *bench) {
			b.start()
			limit := b.subject.Profile.Info.MaxText
			if limit == 0 {
				limit = 64 << 10
			}
			for i, n := range []int{1, limit - 1, limit, limit + 1, 5 * limit} {
				for j, unit := range []string{"x", "word ", "字", "👩🏽‍💻", "line\n"} {
					place := b.rig.Place(i*10 + j)
					want := sized(unit, n)
					r := b.deliver(place, text(want), "k")
					parts := b.seen(place, len(r.IDs))
					var joined strings.Builder
					for _, p := range parts {
						if m := b.subject.Profile.Info.MaxText; m > 0 && units(p.Text) > m {
							b.Errorf("a part has %d units, more than %d", units(p.Text), m)
						}
						joined.WriteString(p.Text)
					}
					if joined.String() != want {
						b.Errorf("%d units of %q arrive as %d bytes, sent were %d", n, unit, joined.Len(), len(want))
					}
				}
			}
		}},
		{id: "C8", title: "an edit replaces; an unknown id is permanent", needs: edits, run: func(b *bench) {
			b.start()
			place := b.rig.Place(0)
			id := b.deliver(place, text(marker+" short"), "k1").IDs[0]
			b.deliver(place, text(marker+" other"), "k2")
			long := marker + strings.Repeat(" longer", 200)
			for i, want := range []string{long, marker + " 短"} {
				b.deliver(place, channel.Op{Kind: channel.OpEdit, Target: id, Text: want}, fmt.Sprintf("e%d", i))
				got := b.seen(place, 2)
				if len(got) != 2 || got[0].Text != want || got[1].Text != marker+" other" {
					b.Fatalf("after an edit to %.20q… the human sees %+v", want, got)
				}
			}
			b.refused(channel.Permanent, place, channel.Op{Kind: channel.OpEdit, Target: "nothing-like-it", Text: marker}, "e9")
			b.refused(channel.Permanent, b.rig.Place(1), channel.Op{Kind: channel.OpEdit, Target: id, Text: marker}, "e10")
		}},
		{id: "C9", title: "a reaction to a message of either side", needs: reacts, run: func(b *bench) {
			b.start()
			place := b.rig.Place(0)
			event := b.say(place, marker)
			id := b.deliver(place, text(marker), "k1").IDs[0]
			b.deliver(place, channel.Op{Kind: channel.OpReact, Target: id, Emoji: "👍"}, "r1")
			b.deliver(place, channel.Op{Kind: channel.OpReact, Target: event, Emoji: "🎉"}, "r2")
			if got := b.seen(place, 1); len(got[0].Reactions) != 1 || got[0].Reactions[0] != "👍" {
				b.Errorf("the human sees %+v", got)
			}
			b.refused(channel.Permanent, place, channel.Op{Kind: channel.OpReact, Target: "nothing-like-it", Emoji: "👍"}, "r3")
		}},
		{id: "C11", title: "an empty text is refused", run: func(b *bench) {
			b.start()
			place := b.rig.Place(0)
			for i, s := range []string{"", " ", "\n\t "} {
				b.refused(channel.Permanent, place, text(s), fmt.Sprintf("k%d", i))
			}
			b.deliver(place, text(marker), "k9")
			if got := b.seen(place, 1); len(got) != 1 {
				b.Errorf("the human sees %+v", got)
			}
		}},
		{id: "C14", title: "the same key again: no second effect, the same receipt", needs: func(p Profile) bool { return p.Info.Caps.Idempotent }, run: func(b *bench) {
			b.start()
			place := b.rig.Place(0)
			first := b.deliver(place, text(marker), "k1")
			b.deliver(place, text(marker+" next"), "k2")
			for i := range 3 {
				if i == 2 {
					b.stop()
					b.start()
				}
				if again := b.deliver(place, text(marker), "k1"); len(again.IDs) != len(first.IDs) || again.IDs[0] != first.IDs[0] {
					b.Errorf("the receipt changed from %v to %v", first, again)
				}
			}
			b.deliver(b.rig.Place(1), text(marker), "k1") // another conversation is another effect
			if got := b.seen(place, 2); len(got) != 2 {
				b.Errorf("the human sees %+v", got)
			}
			b.seen(b.rig.Place(1), 1)
		}},
		{id: "C15", title: "not connected is offline; delivered once afterwards", run: func(b *bench) {
			a := b.make()
			place := b.rig.Place(0)
			b.refused(channel.Offline, place, text(marker), "k1")
			b.run(a)
			b.deliver(place, text(marker), "k1")
			if got := b.seen(place, 1); len(got) != 1 {
				b.Errorf("the human sees %+v", got)
			}
		}},
		{id: "C16", title: "an address where nobody is: permanent", needs: func(p Profile) bool { return p.Unknown != channel.Address{} }, run: func(b *bench) {
			b.start()
			b.refused(channel.Permanent, b.subject.Profile.Unknown, text(marker), "k1")
		}},
		{id: "C20", title: "optional abilities hurt nobody, running or not", run: func(b *bench) {
			a := b.make()
			place := b.rig.Place(0)
			poke := func() {
				if w, ok := a.(channel.Worker); ok {
					w.Working(b.ctx, place, channel.Work{Working: true, Tool: "shell", Queued: 1})
					w.Working(b.ctx, place, channel.Work{})
				}
			}
			poke()
			b.run(a)
			event := b.say(place, marker)
			poke()
			if s, ok := a.(channel.Settler); ok {
				for range 3 { // at least once is what the host promises
					if err := s.Settled(b.ctx, channel.Settlement{Address: place, MessageID: event, State: channel.Answered}); err != nil {
						b.Errorf("settled: %v", err)
					}
				}
			}
			b.deliver(place, text(marker), "k1")
			if got := b.seen(place, 1); len(got) != 1 {
				b.Errorf("the human sees %+v", got)
			}
		}},
	}
}

// sized is n UTF-16 units made of unit, the rest filled with x.
func sized(unit string, n int) string {
	u := units(unit)
	s := strings.Repeat(unit, n/u) + strings.Repeat("x", n%u)
	if strings.TrimSpace(s) == "" {
		return "x"
	}
	return s
}

func units(s string) int { return len(utf16.Encode([]rune(s))) }
