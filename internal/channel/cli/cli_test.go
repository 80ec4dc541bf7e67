package cli

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"nanoclaw/internal/channel"
	"nanoclaw/internal/channel/channeltest"
	"nanoclaw/internal/control"
)

const local = "cli:local"

// running is an adapter on a host that survives it.
func running(t *testing.T, h *channeltest.Host) (*Adapter, func()) {
	t.Helper()
	a := New("ann", "Ann", t.TempDir())
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx, h) }()
	for a.Status().State != channel.Connected {
		runtime.Gosched()
	}
	stop := func() {
		cancel()
		if err, ok := <-ended; ok && err != nil {
			t.Errorf("Run: %v", err)
		}
		close(ended)
	}
	stopped := false
	t.Cleanup(func() {
		if !stopped {
			stop()
		}
	})
	return a, func() { stopped = true; stop() }
}

func say(t *testing.T, a *Adapter, id, text string) control.Accepted {
	t.Helper()
	acc, err := a.Say(t.Context(), local, control.Say{ID: id, Text: text})
	if err != nil {
		t.Fatalf("say %s: %v", id, err)
	}
	return acc
}

func deliver(t *testing.T, a *Adapter, key, text string) string {
	t.Helper()
	r, err := a.Deliver(t.Context(), channel.Address{PlatformID: local}, channel.Op{Kind: channel.OpText, Text: text}, key)
	if err != nil {
		t.Fatalf("deliver %s: %v", key, err)
	}
	return r.IDs[0]
}

// collect attaches after a position and returns what comes until the log's end as short words.
func collect(t *testing.T, a *Adapter, after int64) []string {
	t.Helper()
	h, err := a.History(t.Context(), local, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	last := int64(0)
	err = a.Events(t.Context(), local, after, func(events []control.Event) error {
		for _, e := range events {
			if e.Hello != nil {
				last = e.Hello.Last
				if after == control.FromCursor {
					after = e.Hello.Cursor
				}
				if after >= last {
					return errEnough
				}
				continue
			}
			out = append(out, fmt.Sprintf("%d %s %s%s%s", e.Seq, e.Kind, e.Author, e.State, cutText(e.Text)))
			if e.Seq == last {
				return errEnough
			}
		}
		return nil
	})
	if !errors.Is(err, errEnough) || last != h.Last {
		t.Fatalf("events: %v; last %d, history says %d", err, last, h.Last)
	}
	return out
}

func cutText(s string) string {
	if s == "" {
		return ""
	}
	return ":" + s[:min(len(s), 12)]
}

func TestReplyWhileNobodyIsAttachedIsShownAtTheNextAttach(t *testing.T) {
	t.Parallel()
	h := channeltest.NewHost()
	a, stop := running(t, h)
	say(t, a, "m1", "question")
	deliver(t, a, "k1", "first")
	if err := a.Ack(t.Context(), local, 2); err != nil {
		t.Fatal(err)
	}
	deliver(t, a, "k2", "second")
	stop()

	a, _ = running(t, h)
	deliver(t, a, "k3", "third")
	want := []string{"3 message agent:second", "4 message agent:third"}
	for range 2 { // nothing is taken as seen until somebody says so
		if diff := cmp.Diff(want, collect(t, a, control.FromCursor)); diff != "" {
			t.Fatalf("attach after a restart (-want +got):\n%s", diff)
		}
	}
	if err := a.Ack(t.Context(), local, 99); err != nil {
		t.Fatal(err)
	}
	if err := a.Ack(t.Context(), local, 1); err != nil {
		t.Fatal(err)
	}
	if got := collect(t, a, control.FromCursor); len(got) != 0 {
		t.Errorf("after the acknowledgement %v is shown again", got)
	}
	deliver(t, a, "k4", "fourth")
	if diff := cmp.Diff([]string{"5 message agent:fourth"}, collect(t, a, control.FromCursor)); diff != "" {
		t.Errorf("an acknowledgement beyond the end swallowed what came later:\n%s", diff)
	}
}

// A kill between the host's store and the log must neither lose nor double the message, and the client's repetition
// must heal the log.
func TestSayAgainAfterAKillBetweenStoreAndLog(t *testing.T) {
	t.Parallel()
	for name, arm := range map[string]func(*channeltest.Host){
		"before the log": func(h *channeltest.Host) { h.FailWrites(1) },
		"after the log":  func(h *channeltest.Host) { h.LoseWrites(1) },
		"before the host": func(h *channeltest.Host) {
			h.FailNext(1)
		},
		"after the host": func(h *channeltest.Host) { h.LoseNext(1) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := channeltest.NewHost()
			a, stop := running(t, h)
			say(t, a, "m0", "zero")
			arm(h)
			if _, err := a.Say(t.Context(), local, control.Say{ID: "m1", Text: "one"}); !errors.Is(err, channeltest.ErrStore) {
				t.Fatalf("the failure was acknowledged: %v", err)
			}
			stop()
			a, _ = running(t, h)
			first := say(t, a, "m1", "one")
			again := say(t, a, "m1", "one")
			if again.Seq != first.Seq || !again.Duplicate {
				t.Errorf("the same id twice: %+v then %+v", first, again)
			}
			say(t, a, "m2", "two")
			if n := len(h.EventsAt(local)); n != 3 {
				t.Errorf("the host stored %d events, want 3", n)
			}
			want := []string{"1 message user:zero", "2 message user:one", "3 message user:two"}
			if diff := cmp.Diff(want, collect(t, a, 0)); diff != "" {
				t.Errorf("log (-want +got):\n%s", diff)
			}
		})
	}
}

// The host was killed before the log had the message, and the agent answered before the client said it again: the position
// the client gets is before the answer, so that it sees it.
func TestSayAgainAfterTheAnswer(t *testing.T) {
	t.Parallel()
	h := channeltest.NewHost()
	a, stop := running(t, h)
	h.LoseNext(1)
	if _, err := a.Say(t.Context(), local, control.Say{ID: "m1", Text: "one"}); !errors.Is(err, channeltest.ErrStore) {
		t.Fatalf("the failure was acknowledged: %v", err)
	}
	stop()
	a, _ = running(t, h)
	to := channel.Address{PlatformID: local}
	if _, err := a.Deliver(t.Context(), to, channel.Op{Kind: channel.OpText, Text: "answer", ReplyTo: "m1"}, "key-1"); err != nil {
		t.Fatal(err)
	}
	if err := a.Settled(t.Context(), channel.Settlement{Address: to, MessageID: "m1", State: channel.Answered}); err != nil {
		t.Fatal(err)
	}
	acc := say(t, a, "m1", "one")
	if got := collect(t, a, acc.Seq); len(got) < 2 || !strings.Contains(got[0], "answer") || !strings.Contains(got[1], "settled") {
		t.Errorf("behind position %d there is %q", acc.Seq, got)
	}
}

func TestAnswerNeverStandsBeforeItsQuestion(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := channeltest.NewHost()
		a := New("ann", "", t.TempDir())
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- a.Run(ctx, h) }()
		synctest.Wait()
		release := h.Hold(local)
		said := make(chan error, 1)
		go func() {
			_, err := a.Say(ctx, local, control.Say{ID: "m1", Text: "question"})
			said <- err
		}()
		synctest.Wait()
		delivered := make(chan error, 1)
		go func() {
			_, err := a.Deliver(ctx, channel.Address{PlatformID: local}, channel.Op{Kind: channel.OpText, Text: "answer"}, "k")
			delivered <- err
		}()
		synctest.Wait()
		select {
		case err := <-delivered:
			t.Errorf("the answer did not wait for its question: %v", err)
		default:
		}
		// Another conversation is not held back.
		if _, err := a.Deliver(ctx, channel.Address{PlatformID: "cli:other"}, channel.Op{Kind: channel.OpText, Text: "x"}, "k"); err != nil {
			t.Error(err)
		}
		release()
		if err := errors.Join(<-said, <-delivered); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"1 message user:question", "2 message agent:answer"}, collect(t, a, 0)); diff != "" {
			t.Error(diff)
		}
		cancel()
		<-ended
	})
}

func TestStreamsAreLiveAndManyAndSeeWork(t *testing.T) {
	t.Parallel()
	h := channeltest.NewHost()
	a, stop := running(t, h)
	a.Working(t.Context(), channel.Address{PlatformID: local}, channel.Work{Working: true, Tool: "shell"})
	type stream struct {
		events chan control.Event
		ended  chan error
	}
	var all []stream
	for range 3 {
		s := stream{make(chan control.Event, 100), make(chan error, 1)}
		all = append(all, s)
		go func() {
			s.ended <- a.Events(context.Background(), local, control.FromCursor, func(events []control.Event) error {
				for _, e := range events {
					s.events <- e
				}
				return nil
			})
		}()
	}
	next := func(s stream, kind control.EventKind) control.Event {
		t.Helper()
		select {
		case e := <-s.events:
			if e.Kind != kind {
				t.Fatalf("got %+v, want a %s", e, kind)
			}
			return e
		case <-time.After(10 * time.Second):
			t.Fatalf("no %s came", kind)
			return control.Event{}
		}
	}
	for _, s := range all {
		next(s, control.EventHello)
		if w := next(s, control.EventWorking).Work; !w.Working || w.Tool != "shell" {
			t.Errorf("a client that attaches during a turn sees %+v", w)
		}
	}
	say(t, a, "m1", "hi")
	deliver(t, a, "k1", "hello")
	for range 2 {
		if err := a.Settled(t.Context(), channel.Settlement{Address: channel.Address{PlatformID: local}, MessageID: "m1", State: channel.Failed, Reason: "why"}); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range all {
		if e := next(s, control.EventMessage); e.Author != control.AuthorUser || e.ID != "m1" || e.Seq != 1 {
			t.Errorf("%+v", e)
		}
		if e := next(s, control.EventMessage); e.Author != control.AuthorAgent || e.Seq != 2 {
			t.Errorf("%+v", e)
		}
		if e := next(s, control.EventSettled); e.Target != "m1" || e.State != control.StateFailed || e.Reason != "why" || e.Seq != 3 {
			t.Errorf("%+v", e)
		}
	}
	stop()
	for _, s := range all {
		if err := <-s.ended; !control.IsCode(err, control.CodeUnavailable) {
			t.Errorf("a stream ended with %v", err)
		}
		if len(s.events) != 0 {
			t.Errorf("more events: %+v", <-s.events)
		}
	}
	if _, err := a.Say(t.Context(), local, control.Say{ID: "m2", Text: "x"}); !control.IsCode(err, control.CodeUnavailable) {
		t.Errorf("say after the end: %v", err)
	}
}

func TestRetentionDropsOldAcknowledgedEntriesOnly(t *testing.T) {
	t.Parallel()
	h := channeltest.NewHost()
	a, _ := running(t, h)
	const n = 1500
	add := func(from, to int) {
		for i := from; i <= to; i++ {
			deliver(t, a, fmt.Sprint(i), fmt.Sprintf("t%d", i))
		}
	}
	add(1, n)
	if got := len(collect(t, a, 0)); got != n {
		t.Fatalf("%d of %d unacknowledged entries are left", got, n)
	}
	if err := a.Ack(t.Context(), local, 300); err != nil {
		t.Fatal(err)
	}
	add(n+1, n+100)
	if got := collect(t, a, 0); got[0] != "301 message agent:t301" {
		t.Errorf("the oldest entry is %q, want the first unacknowledged one", got[0])
	}
	if err := a.Ack(t.Context(), local, n+100); err != nil {
		t.Fatal(err)
	}
	add(n+101, n+300)
	if got := len(collect(t, a, 0)); got < keepEntries || got > keepEntries+pruneEvery {
		t.Errorf("%d entries are left, want about %d", got, keepEntries)
	}
	page, err := a.History(t.Context(), local, n+301, 250)
	if err != nil || len(page.Events) != 250 || page.Events[249].Text != fmt.Sprintf("t%d", n+300) || page.Events[0].Seq != n+51 {
		t.Errorf("history: %v, %d events, %+v", err, len(page.Events), page.Events[0])
	}
	pairs, err := h.Store().List(t.Context(), "", "~", 100_000)
	if err != nil || len(pairs) > 2*(keepEntries+pruneEvery)+2 {
		t.Errorf("%d keys are left in the store (%v): an index entry outlives what it points to", len(pairs), err)
	}
}

func TestHistoryIsBoundedByBytes(t *testing.T) {
	t.Parallel()
	a, _ := running(t, channeltest.NewHost())
	for i := range 12 {
		deliver(t, a, fmt.Sprint(i), strings.Repeat("y", control.MaxEntry))
	}
	got, err := a.History(t.Context(), local, 0, 1000)
	if err != nil || len(got.Events) == 0 || len(got.Events) > 4 || got.Events[len(got.Events)-1].Seq != 12 {
		t.Errorf("%d entries of 1 MiB in one answer, %v", len(got.Events), err)
	}
	_, err = a.Deliver(t.Context(), channel.Address{PlatformID: local}, channel.Op{Kind: channel.OpText, Text: strings.Repeat("y", control.MaxEntry+1)}, "big")
	var o *channel.Outcome
	if !errors.As(err, &o) || o.Kind != channel.Permanent || o.Hint == "" {
		t.Errorf("a text beyond the limit: %v", err)
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	a, _ := running(t, channeltest.NewHost())
	for name, m := range map[string]control.Say{
		"empty text": {ID: "m"}, "blank text": {ID: "m", Text: " \n"}, "no id": {Text: "x"}, "path as id": {ID: "../x", Text: "x"},
	} {
		if _, err := a.Say(t.Context(), local, m); !control.IsCode(err, control.CodeInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, op := range map[string]channel.Op{
		"a file outside": {Kind: channel.OpText, Text: "x", Files: []channel.File{{Name: "../f"}}}, "no emoji": {Kind: channel.OpReact, Target: "x"},
		"unknown operation": {Kind: "dance", Text: "x"}, "edit of nothing": {Kind: channel.OpEdit, Text: "x"},
	} {
		var o *channel.Outcome
		if _, err := a.Deliver(t.Context(), channel.Address{PlatformID: local}, op, "k"); !errors.As(err, &o) || o.Kind != channel.Permanent {
			t.Errorf("%s: %v", name, err)
		}
	}
	if h, err := a.History(t.Context(), local, 0, 10); err != nil || h.Last != 0 {
		t.Errorf("something was stored: %+v, %v", h, err)
	}
	if err := a.Run(t.Context(), channeltest.NewHost()); err == nil {
		t.Error("a second Run was accepted")
	}
}

// droppingHost refuses every event.
type droppingHost struct{ *channeltest.Host }

func (droppingHost) Inbound(context.Context, channel.Inbound) (channel.Verdict, error) {
	return channel.Verdict{Kind: channel.Dropped, Reason: "nobody is wired to it"}, nil
}

func TestDroppedMessageIsToldAndNotLogged(t *testing.T) {
	t.Parallel()
	h := channeltest.NewHost()
	a := New("ann", "", t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx, droppingHost{h}) }()
	for a.Status().State != channel.Connected {
		runtime.Gosched()
	}
	_, err := a.Say(ctx, local, control.Say{ID: "m", Text: "x"})
	if !control.IsCode(err, control.CodeForbidden) || !strings.Contains(err.Error(), "nobody is wired") {
		t.Errorf("got %v", err)
	}
	if got := collect(t, a, 0); len(got) != 0 {
		t.Errorf("the log has %v", got)
	}
	cancel()
	<-ended
}

func TestUserIDEscapesColons(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{"ann": "cli:ann", "dom:ann": "cli:dom%3Aann", "a%3Ab": "cli:a%253Ab"} {
		if got := UserID(in); got != want {
			t.Errorf("UserID(%q) = %q, want %q", in, got, want)
		}
	}
}

func FuzzCodec(f *testing.F) {
	for _, s := range []string{"local", "a.b-c_d", ".hidden", "../x", "a:b", "", "ä", strings.Repeat("x", 65), "x\x00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if id, err := Encode(s); err == nil {
			back, err := Decode(id)
			if err != nil || back != s {
				t.Errorf("%q became %q and came back as %q, %v", s, id, back, err)
			}
			if strings.ContainsAny(s, "/:\x00") || s[0] == '.' {
				t.Errorf("%q was accepted", s)
			}
		}
		if name, err := Decode(s); err == nil {
			if again, err := Encode(name); err != nil || again != s {
				t.Errorf("decoded %q encodes as %q, %v", s, again, err)
			}
		}
	})
}

func FuzzEntry(f *testing.F) {
	f.Add(`{"seq":1,"kind":"message","at":"2026-01-01T00:00:00.000Z"}`)
	f.Add(`{"kind":1}`)
	f.Add(`null`)
	f.Fuzz(func(t *testing.T, s string) {
		e, err := decodeEntry(s)
		if err == nil && indexOf(e) == "" {
			t.Error("an entry without an index")
		}
	})
}

func BenchmarkDeliverToAnAttachedClient(b *testing.B) {
	h := channeltest.NewHost()
	a := New("ann", "", b.TempDir())
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error, 2)
	go func() { ended <- a.Run(ctx, h) }()
	for a.Status().State != channel.Connected {
		runtime.Gosched()
	}
	got := make(chan int64)
	go func() {
		ended <- a.Events(ctx, local, control.FromCursor, func(events []control.Event) error {
			for _, e := range events {
				if e.Seq > 0 {
					got <- e.Seq
				}
			}
			return nil
		})
	}()
	for i := 0; b.Loop(); i++ {
		if _, err := a.Deliver(ctx, channel.Address{PlatformID: local}, channel.Op{Kind: channel.OpText, Text: "x"}, fmt.Sprint(i)); err != nil {
			b.Fatal(err)
		}
		<-got
	}
	cancel()
	<-ended
	<-ended
}
