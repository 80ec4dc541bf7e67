package channeltest

import (
	"fmt"
	"strings"
	"time"

	"nanoclaw/internal/channel"
)

func lifecycleCases() []testCase {
	return []testCase{
		{id: "A0", title: "the profile is what the adapter says", run: func(b *bench) {
			if got := b.make().Info(); got != b.subject.Profile.Info {
				b.Errorf("Info is %+v, the profile says %+v", got, b.subject.Profile.Info)
			}
			if s := b.adapter.Status(); s.State == channel.Connected {
				b.Errorf("connected before Run: %+v", s)
			}
		}},
		{id: "A3", title: "stop ends everything and says so", run: func(b *bench) {
			a := b.start()
			b.say(b.rig.Place(0), marker)
			b.stop()
			if s := a.Status().State; s == channel.Connected {
				b.Errorf("status after the end of Run is %s", s)
			}
			b.refused(channel.Offline, b.rig.Place(0), text(marker), "late")
		}},
		{id: "A4", title: "twenty starts and stops: one receive loop, nothing twice", run: func(b *bench) {
			a := b.make()
			place := b.rig.Place(0)
			for i := range 20 {
				if i%2 == 1 {
					a = b.make() // a new process
				}
				b.run(a)
				b.say(place, fmt.Sprintf("%s %d", marker, i))
				b.deliver(place, text(fmt.Sprintf("%s reply %d", marker, i)), fmt.Sprintf("k%d", i))
				b.stop()
			}
			b.run(a)
			if got := len(b.host.EventsAt(place.PlatformID)); got != 20 {
				b.Errorf("%d events were stored, want 20", got)
			}
			if got := b.seen(place, 20); len(got) != 20 {
				b.Errorf("%d messages are seen, want 20", len(got))
			}
		}},
	}
}

func inboundCases() []testCase {
	return []testCase{
		{id: "B1", title: "a direct message carries ids, names, time", run: func(b *bench) {
			a := b.start()
			place := b.rig.Place(0)
			before := time.Now().Add(-time.Minute)
			event := b.say(place, "  "+marker+" 你好 👋🏽\nsecond line ")
			first := b.oneEvent(place)
			if first.ID != event {
				b.Errorf("the event's id is %q, the platform's %q", first.ID, event)
			}
			if first.Text != "  "+marker+" 你好 👋🏽\nsecond line " {
				b.Errorf("the text became %q", first.Text)
			}
			if first.Kind != "chat" || first.Group || first.Mention != channel.Yes || first.Address != place {
				b.Errorf("kind %q, group %v, mention %v, address %v of a direct message at %v", first.Kind, first.Group, first.Mention, first.Address, place)
			}
			if first.Sender.ID != b.subject.Profile.Sender || !strings.HasPrefix(first.Sender.ID, a.Info().Type+":") || first.Sender.Name == "" || first.Sender.IsBot {
				b.Errorf("sender %+v, want the id %s", first.Sender, b.subject.Profile.Sender)
			}
			if first.At.Before(before) || first.At.After(time.Now().Add(time.Minute)) {
				b.Errorf("time %v", first.At)
			}
			b.stop()
			b.start()
			b.say(place, marker+" again")
			if got := b.host.EventsAt(place.PlatformID); len(got) != 2 || got[1].Sender.ID != first.Sender.ID {
				b.Errorf("after a restart the events are %+v", got)
			}
		}},
		{id: "B11", title: "order within a chat; chats do not wait for each other", run: func(b *bench) {
			b.start()
			slow, quick := b.rig.Place(0), b.rig.Place(1)
			release := b.host.Hold(slow.PlatformID)
			defer release()
			done := make(chan error, 1)
			go func() {
				var err error
				for _, s := range texts(100) {
					if _, err = b.rig.Say(b.ctx, slow, s); err != nil {
						break
					}
				}
				done <- err
			}()
			for _, s := range texts(10) {
				b.say(quick, s)
			}
			if n := len(b.host.EventsAt(slow.PlatformID)); n != 0 {
				b.Fatalf("%d events were stored through a closed gate", n)
			}
			release()
			if err := <-done; err != nil {
				b.Fatal(err)
			}
			b.until("stored", func() bool { return len(b.host.EventsAt(slow.PlatformID)) == 100 })
			for i, want := range texts(100) {
				if got := b.host.EventsAt(slow.PlatformID)[i].Text; got != want {
					b.Fatalf("event %d is %q, want %q", i, got, want)
				}
			}
		}},
		{id: "B12", title: "a failed store is not acknowledged, and arrives later once", run: func(b *bench) {
			b.start()
			b.host.FailNext(1)
			b.say(b.rig.Place(0), marker)
			b.oneEvent(b.rig.Place(0))
		}},
		{id: "B13", title: "killed after the store, before the acknowledgement: once", run: func(b *bench) {
			b.start()
			b.host.LoseNext(1)
			b.say(b.rig.Place(0), marker)
			b.oneEvent(b.rig.Place(0))
		}},
		{id: "B14", title: "an event delivered three more times is stored once", run: func(b *bench) {
			b.start()
			place := b.rig.Place(0)
			event := b.say(place, marker)
			for i := range 3 {
				if i == 2 {
					b.stop()
					b.start()
				}
				if err := b.rig.Redeliver(b.ctx, place, event, marker); err != nil {
					b.Fatalf("redeliver: %v", err)
				}
			}
			b.oneEvent(place)
		}},
	}
}

// oneEvent waits for the event of a place and checks that it is the only one.
func (b *bench) oneEvent(place channel.Address) channel.Inbound {
	b.Helper()
	b.until("stored", func() bool { return len(b.host.EventsAt(place.PlatformID)) > 0 })
	got := b.host.EventsAt(place.PlatformID)
	if len(got) != 1 {
		b.Fatalf("%d events were stored, want 1", len(got))
	}
	return got[0]
}
