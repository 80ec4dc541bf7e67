package mailboxtest

import (
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/mailbox/sqlite"
)

// order: each side's numbers rise in the order of its commits, and no number is used by both (M1).
func order(t *testing.T, b *Box) {
	r := b.Runner(Incarnation)
	const writers, each = 4, 10
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for range each {
				if _, err := b.Host.Put(t.Context(), Chat("in")); err != nil {
					t.Error(err)
				}
			}
		})
		wg.Go(func() {
			last := int64(0)
			for range each {
				row, err := r.Write(t.Context(), Say("out", ""))
				if err != nil || row.Seq <= last {
					t.Errorf("seq %d after %d, error %v", row.Seq, last, err)
				}
				last = row.Seq
			}
		})
	}
	wg.Wait()
	used := map[int64]bool{}
	out, err := b.Host.Outbound(t.Context(), 0, 1000)
	must(t, err)
	for i, o := range out {
		if o.Err != nil || o.Row.Seq%2 == 0 || used[o.Row.Seq] || i > 0 && o.Row.Seq <= out[i-1].Row.Seq {
			t.Errorf("outbound %d: seq %d, error %v", i, o.Row.Seq, o.Err)
		}
		used[o.Row.Seq] = true
	}
	batch, err := r.Fetch(t.Context(), 100)
	must(t, err)
	for i, in := range batch.Rows {
		if in.Seq%2 != 0 || used[in.Seq] || i > 0 && in.Seq <= batch.Rows[i-1].Seq {
			t.Errorf("inbound %d: seq %d", i, in.Seq)
		}
	}
	if len(out) != writers*each || len(batch.Rows) != writers*each {
		t.Errorf("%d rows out and %d in, want %d each", len(out), len(batch.Rows), writers*each)
	}
	row, err := r.Write(t.Context(), Say("after", ""))
	must(t, err)
	if last := batch.Rows[len(batch.Rows)-1].Seq; row.Seq <= last {
		t.Errorf("outbound seq %d is not above the inbound seq %d that the runner has seen", row.Seq, last)
	}
}

// visibility: what a side has written it reads back at once, field by field; the other side sees it after the commit, and a
// signal says so (M2).
func visibility(t *testing.T, b *Box) {
	in := mailbox.InRow{
		ID: "msg-1", Kind: mailbox.KindTask, Timestamp: b.Clock.Now(), Status: mailbox.StatusPending, ProcessAfter: b.Clock.Now().Add(-time.Minute),
		Recurrence: "0 9 * * *", SeriesID: "task-1", Tries: 2, Trigger: true,
		Address: mailbox.Address{ChannelType: "cli", PlatformID: "cli:local", ThreadID: "7"}, Content: []byte(`{"prompt":"<do> & tell"}`),
		PlatformMessageID: "99", SourceSessionID: "sess-x", AfterIncarnation: 3,
	}
	b.Put(in)
	in.Seq = 2
	got, err := b.Host.Row(t.Context(), "msg-1")
	must(t, err)
	if d := cmp.Diff(in, got); d != "" {
		t.Errorf("the host reads back another row: %s", d)
	}
	r := b.Runner(Incarnation)
	batch, err := r.Fetch(t.Context(), 10)
	must(t, err)
	if d := cmp.Diff([]mailbox.InRow{in}, batch.Rows); d != "" {
		t.Errorf("the runner reads another row: %s", d)
	}
	if row, found, err := r.LatestFrom(t.Context(), mailbox.Address{ChannelType: "cli", PlatformID: "cli:local"}); err != nil || !found || row.ID != "msg-1" {
		t.Errorf("newest row of the chat: %v, found %v, error %v", row.ID, found, err)
	}

	out := mailbox.OutRow{
		ID: "out-1", InReplyTo: "msg-1", Timestamp: b.Clock.Now(), DeliverAfter: b.Clock.Now().Add(time.Hour), Kind: mailbox.KindChat,
		Address: in.Address, Content: []byte(`{"text":"<b> & done"}`), Exchange: "ex-1", Segment: 2, Fallback: true,
	}
	out, err = r.Write(t.Context(), out)
	must(t, err)
	sent, err := r.Sent(t.Context(), "ex-1")
	must(t, err)
	if d := cmp.Diff([]mailbox.OutRow{out}, sent); d != "" {
		t.Errorf("the runner reads back another row: %s", d)
	}
	var seen []sqlite.OutResult
	Until(t, b.bell, func() bool {
		var err error
		seen, err = b.Host.Outbound(t.Context(), 0, 10)
		must(t, err)
		return len(seen) > 0
	})
	if d := cmp.Diff([]sqlite.OutResult{{Row: out}}, seen); d != "" {
		t.Errorf("the host reads another row: %s", d)
	}
	if more, err := b.Host.Outbound(t.Context(), out.Seq, 10); err != nil || len(more) != 0 {
		t.Errorf("behind the last row: %v, error %v", more, err)
	}
	must(t, r.SetState(t.Context(), "continuation:mock", "abc"))
	if v, ok, err := r.StateValue(t.Context(), "continuation:mock"); err != nil || !ok || v != "abc" {
		t.Errorf("state reads %q, %v, error %v", v, ok, err)
	}
	must(t, r.DeleteState(t.Context(), "continuation:mock"))
	if _, ok, err := r.StateValue(t.Context(), "continuation:mock"); err != nil || ok {
		t.Errorf("a deleted value is there: %v, error %v", ok, err)
	}
}

// idempotence: a row whose id is there already changes nothing, on both sides (M4).
func idempotence(t *testing.T, b *Box) {
	first := Chat("first")
	first.ID = "msg-same"
	again := Chat("again")
	again.ID = "msg-same"
	p, err := b.Host.Put(t.Context(), first, again, Chat("other"))
	must(t, err)
	if p[0].Duplicate || !p[1].Duplicate || p[1].Seq != p[0].Seq || p[2].Duplicate || p[2].Seq != p[0].Seq+2 {
		t.Errorf("results %+v", p)
	}
	p2, err := b.Host.Put(t.Context(), again)
	must(t, err)
	row, err := b.Host.Row(t.Context(), "msg-same")
	must(t, err)
	if !p2[0].Duplicate || string(row.Content) != string(first.Content) {
		t.Errorf("put again: %+v, content %s", p2, row.Content)
	}
	r := b.Runner(Incarnation)
	say := Say("one", "ex-1")
	say.ID = "out-same"
	one, err := r.Write(t.Context(), say)
	must(t, err)
	say.Content = Say("two", "").Content
	two, err := r.Write(t.Context(), say)
	must(t, err)
	if d := cmp.Diff(one, two); d != "" {
		t.Errorf("written again, another row: %s", d)
	}
	next, err := r.Write(t.Context(), Say("three", ""))
	must(t, err)
	if next.Seq != one.Seq+2 {
		t.Errorf("seq %d after %d: the refused row took a number", next.Seq, one.Seq)
	}
	ack := mailbox.Ack{MessageID: "msg-same", Status: mailbox.AckCompleted}
	must(t, b.Host.Settle(t.Context(), ack, ack))
	must(t, b.Host.Settle(t.Context(), mailbox.Ack{MessageID: "msg-same", Status: mailbox.AckFailed}))
	if row, err := b.Host.Row(t.Context(), "msg-same"); err != nil || row.Status != mailbox.StatusCompleted {
		t.Errorf("status %s, error %v: the first final ack must stand", row.Status, err)
	}
	must(t, b.Host.MarkDelivered(t.Context(), mailbox.Delivered{MessageOutID: "out-same", PlatformMessageID: "p1", Status: "delivered"}))
	must(t, b.Host.MarkDelivered(t.Context(), mailbox.Delivered{MessageOutID: "out-same", Status: "failed"}))
	if d, ok, err := r.Delivered(t.Context(), "out-same"); err != nil || !ok || d.Status != "delivered" || d.PlatformMessageID != "p1" {
		t.Errorf("outcome %+v, found %v, error %v: the first must win", d, ok, err)
	}
}

// atomicity: a step of several rows happens as a whole or not at all (M5).
func atomicity(t *testing.T, b *Box) {
	bad := Chat("bad")
	bad.Content = []byte(`["no object"]`)
	_, err := b.Host.Put(t.Context(), Chat("good"), bad)
	wantError(t, "put with one bad row", err, mailbox.ErrInvalid)
	if n, _, err := b.Host.Due(t.Context()); err != nil || n != 0 {
		t.Errorf("%d rows due after a refused put, error %v", n, err)
	}
	ids := b.Put(Chat("1"), Chat("2"))
	r := b.Runner(Incarnation)
	must(t, r.Claim(t.Context(), "ex-1", ids))
	noKind := Say("bad", "ex-1")
	noKind.Kind = "nonsense"
	_, err = r.Finish(t.Context(), mailbox.Finish{Out: []mailbox.OutRow{Say("good", "ex-1"), noKind}, Completed: ids})
	wantError(t, "finish with one bad row", err, mailbox.ErrInvalid)
	if claims, err := b.Host.Claims(t.Context()); err != nil || len(claims) != 2 {
		t.Errorf("%d claims after a refused finish, error %v", len(claims), err)
	}
	if out, err := b.Host.Outbound(t.Context(), 0, 10); err != nil || len(out) != 0 {
		t.Errorf("%d rows out after a refused finish, error %v", len(out), err)
	}

	channel := func(name string) mailbox.Destination {
		return mailbox.Destination{Name: name, Type: mailbox.DestinationChannel, ChannelType: "cli", PlatformID: "cli:" + name}
	}
	sets := [][]mailbox.Destination{{channel("a"), channel("b")}, {channel("c"), channel("d"), channel("e")}}
	must(t, b.Host.SetDestinations(t.Context(), sets[0]))
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 1; i <= 20; i++ {
			if err := b.Host.SetDestinations(t.Context(), sets[i%2]); err != nil {
				t.Error(err)
			}
		}
		close(stop)
	})
	for running := true; running; {
		select {
		case <-stop:
			running = false
		default:
		}
		got, err := r.Destinations(t.Context())
		must(t, err)
		if cmp.Diff(sets[0], got) != "" && cmp.Diff(sets[1], got) != "" {
			t.Fatalf("half a set of destinations: %+v", got)
		}
	}
	wg.Wait()
	err = b.Host.SetDestinations(t.Context(), []mailbox.Destination{channel("x"), channel("x")})
	wantError(t, "the same name twice", err, mailbox.ErrInvalid)
	if d, ok, err := r.DestinationFor(t.Context(), mailbox.Address{ChannelType: "cli", PlatformID: "cli:b", ThreadID: "5"}); err != nil || !ok || d.Name != "b" {
		t.Errorf("name of an address: %+v, %v, error %v", d, ok, err)
	}
	if _, ok, err := r.Destination(t.Context(), "c"); err != nil || ok {
		t.Errorf("a name of the other set: found %v, error %v", ok, err)
	}
	want := mailbox.Address{ChannelType: "cli", PlatformID: "cli:a", ThreadID: "1"}
	must(t, b.Host.SetRouting(t.Context(), want))
	if got, err := r.Routing(t.Context()); err != nil || got != want {
		t.Errorf("routing %+v, error %v", got, err)
	}
}

// dueByClock: due times are judged by the mailbox's clock (M6).
func dueByClock(t *testing.T, b *Box) {
	later := Chat("later")
	later.ProcessAfter = b.Clock.Now().Add(time.Hour)
	context := Chat("context")
	context.Trigger = false
	ids := b.Put(later, context)
	r := b.Runner(Incarnation)
	n, next, err := b.Host.Due(t.Context())
	must(t, err)
	if n != 0 || !next.Equal(later.ProcessAfter) {
		t.Errorf("due %d, next %s", n, next)
	}
	batch, err := r.Fetch(t.Context(), 10)
	must(t, err)
	if len(batch.Rows) != 0 || !batch.Next.Equal(later.ProcessAfter) {
		t.Errorf("fetched %d rows, next %s: context alone must not wake", len(batch.Rows), batch.Next)
	}
	b.Clock.Add(time.Hour)
	if n, next, err := b.Host.Due(t.Context()); err != nil || n != 1 || !next.IsZero() {
		t.Errorf("due %d, next %s, error %v", n, next, err)
	}
	wantIDs(t, "fetched when due", b.Fetch(r, 10), ids)
}
