package mailboxtest

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/mailbox/sqlite"
)

// claim: a claimed row is nobody else's until it is given back; a finished one never comes again (M3).
func claim(t *testing.T, b *Box) {
	ids := b.Put(Chat("1"), Chat("2"), Chat("3"))
	r := b.Runner(Incarnation)
	must(t, r.Claim(t.Context(), "ex-1", ids[:2]))
	wantIDs(t, "beside a claim", b.Fetch(r, 10), ids[2:])
	state, err := b.Host.State(t.Context())
	must(t, err)
	if state.Container.Turn != mailbox.TurnWorking || len(state.Acks) != 2 || state.Acks[0].Exchange != "ex-1" || state.Acks[0].Incarnation != Incarnation {
		t.Errorf("state after the claim: %+v", state)
	}
	_, cursor, err := b.Host.Acks(t.Context(), 0)
	must(t, err)
	_, err = r.Finish(t.Context(), mailbox.Finish{Completed: ids[:1], Release: ids[1:2], Failed: []mailbox.Failure{{ID: ids[2], Reason: "no such model"}}})
	must(t, err)
	wantIDs(t, "after giving one back", b.Fetch(r, 10), ids[1:2])
	wantError(t, "claim of a finished row", r.Claim(t.Context(), "ex-2", ids[:2]), mailbox.ErrInvalid)
	wantIDs(t, "after a refused claim", b.Fetch(r, 10), ids[1:2])
	acks, next, err := b.Host.Acks(t.Context(), cursor)
	must(t, err)
	if len(acks) != 2 || acks[0].MessageID != ids[0] || acks[0].Status != mailbox.AckCompleted || acks[0].Exchange != "ex-1" ||
		acks[1].Status != mailbox.AckFailed || acks[1].Reason != "no such model" {
		t.Errorf("changed acks: %+v", acks)
	}
	if again, same, err := b.Host.Acks(t.Context(), next); err != nil || len(again) != 0 || same != next {
		t.Errorf("nothing new, yet %+v and cursor %d after %d, error %v", again, same, next, err)
	}
	must(t, r.Claim(t.Context(), "ex-2", ids[1:2]))
	must(t, r.Release(t.Context(), ids))
	must(t, r.Claim(t.Context(), "ex-3", ids[1:2]))
	if acks, _, err := b.Host.Acks(t.Context(), next); err != nil || len(acks) != 1 || acks[0].Exchange != "ex-3" {
		t.Errorf("a claim after a release is hidden behind the cursor: %+v, error %v", acks, err)
	}
	must(t, r.Release(t.Context(), ids[1:2]))
	if s, err := b.Host.State(t.Context()); err != nil || s.Container.Turn != mailbox.TurnIdle {
		t.Errorf("turn %q without a claim, error %v", s.Container.Turn, err)
	}
	must(t, b.Host.Settle(t.Context(), acks...))
	for i, want := range []mailbox.Status{mailbox.StatusCompleted, mailbox.StatusPending, mailbox.StatusFailed} {
		if row, err := b.Host.Row(t.Context(), ids[i]); err != nil || row.Status != want {
			t.Errorf("row %d is %s, want %s, error %v", i, row.Status, want, err)
		}
	}
}

// fence: from the moment a newer incarnation has opened the mailbox, writes of an older one change nothing, and the older
// one's claims are dead: counted once, and run again under their exchange (M3).
func fence(t *testing.T, b *Box) {
	ids := b.Put(Chat("1"), Chat("2"))
	old := b.Runner(Incarnation - 1)
	must(t, old.Claim(t.Context(), "ex-1", ids))
	_, err := old.Write(t.Context(), Say("part", "ex-1"))
	must(t, err)
	r := b.Runner(Incarnation)
	third := b.Put(Chat("3"))

	for what, write := range map[string]func() error{
		"claim":     func() error { return old.Claim(t.Context(), "ex-9", third) },
		"release":   func() error { return old.Release(t.Context(), ids) },
		"finish":    func() error { _, err := old.Finish(t.Context(), mailbox.Finish{Completed: ids}); return err },
		"write":     func() error { _, err := old.Write(t.Context(), Say("late", "")); return err },
		"state":     func() error { return old.SetState(t.Context(), "k", "v") },
		"container": func() error { return old.SetContainer(t.Context(), mailbox.ContainerState{Turn: mailbox.TurnIdle}) },
	} {
		wantError(t, what+" of a fenced incarnation", write(), mailbox.ErrFenced)
	}
	_, err = sqlite.OpenRunner(t.Context(), b.Dir, sqlite.RunnerOptions{Incarnation: Incarnation - 1})
	wantError(t, "opening with an old incarnation", err, mailbox.ErrFenced)
	if out, err := b.Host.Outbound(t.Context(), 0, 10); err != nil || len(out) != 1 {
		t.Errorf("%d rows out, want the one from before the fence, error %v", len(out), err)
	}

	batch, err := r.Fetch(t.Context(), 1)
	must(t, err)
	if len(batch.Rows) != 2 || batch.Rows[0].Exchange != "ex-1" || batch.Rows[1].Exchange != "ex-1" {
		t.Errorf("exchange to run again: %+v", batch.Rows)
	}
	if sent, err := r.Sent(t.Context(), "ex-1"); err != nil || len(sent) != 1 || sent[0].Incarnation != Incarnation-1 {
		t.Errorf("rows of the exchange by the old incarnation: %+v, error %v", sent, err)
	}
	give := func(tries int) (time.Duration, bool) { return time.Duration(tries) * time.Minute, tries > 1 }
	tried, err := b.Host.CountTries(t.Context(), Incarnation, give)
	must(t, err)
	if len(tried) != 2 || tried[0].Tries != 1 || tried[0].Failed || tried[0].Exchange != "ex-1" || tried[0].Incarnation != Incarnation-1 {
		t.Errorf("tries: %+v", tried)
	}
	if again, err := b.Host.CountTries(t.Context(), Incarnation, give); err != nil || len(again) != 0 {
		t.Errorf("counted twice: %+v, error %v", again, err)
	}
	wantIDs(t, "while the exchange waits for its retry", b.Fetch(r, 10), third)
	b.Clock.Add(time.Minute)
	wantIDs(t, "the exchange when due", b.Fetch(r, 10), ids)
	must(t, r.Claim(t.Context(), "ex-1", ids))
	b.Runner(Incarnation + 1)
	if tried, err := b.Host.CountTries(t.Context(), Incarnation+1, give); err != nil || len(tried) != 2 || !tried[1].Failed || tried[1].Tries != 2 {
		t.Errorf("second incarnation: %+v, error %v", tried, err)
	}
	if row, err := b.Host.Row(t.Context(), ids[0]); err != nil || row.Status != mailbox.StatusFailed || row.Tries != 2 {
		t.Errorf("row given up: %+v, error %v", row, err)
	}
	again, err := b.Host.CountTries(t.Context(), Incarnation+1, give)
	if err != nil || len(again) != 2 || !again[0].Again || !again[0].Failed || again[0].Tries != 2 {
		t.Errorf("given up, and the caller may not have told it: %+v, error %v", again, err)
	}
}

// blobs go by reference, in both directions (M7).
func blobs(t *testing.T, b *Box) {
	const name = "Grüße aus 東京 (1).txt"
	path, err := b.Host.PutBlob(t.Context(), "msg-1", name, strings.NewReader("hello"), 5)
	must(t, err)
	if path != "inbox/msg-1/"+name {
		t.Errorf("path %q", path)
	}
	if again, err := b.Host.PutBlob(t.Context(), "msg-1", name, strings.NewReader("other"), 5); err != nil || again != path {
		t.Errorf("stored again: %q, error %v", again, err)
	}
	if got, err := os.ReadFile(filepath.Join(b.Dir, "in", path)); err != nil || string(got) != "hello" {
		t.Errorf("stored %q, error %v", got, err)
	}
	_, err = b.Host.PutBlob(t.Context(), "msg-1", "big", strings.NewReader("123456"), 5)
	wantError(t, "a blob over the cap", err, mailbox.ErrInvalid)
	wantGone(t, filepath.Join(b.Dir, "in", "inbox", "msg-1", "big"))

	folder := filepath.Join(b.Dir, "out", "outbox", "out-1")
	must(t, os.MkdirAll(folder, 0o700))
	must(t, os.WriteFile(filepath.Join(folder, name), []byte("report"), 0o600))
	f, size, err := b.Host.OpenOutBlob("out-1", name)
	must(t, err)
	got, err := io.ReadAll(f)
	if err = errors.Join(err, f.Close()); err != nil || string(got) != "report" || size != 6 {
		t.Errorf("read %q, size %d, error %v", got, size, err)
	}
	_, _, err = b.Host.OpenOutBlob("out-1", "none")
	wantError(t, "a missing file", err, mailbox.ErrNotExist)
	must(t, b.Host.RemoveOutBlobs("out-1"))
	must(t, b.Host.RemoveOutBlobs("out-1"))
	wantGone(t, folder)
}

// liveness: heartbeat and container state are data of the mailbox (M8).
func liveness(t *testing.T, b *Box) {
	if s, err := b.Host.State(t.Context()); err != nil || !s.Heartbeat.IsZero() || s.Container.Turn != "" {
		t.Errorf("state before any runner: %+v, error %v", s, err)
	}
	r := b.Runner(Incarnation)
	must(t, r.Beat())
	b.Clock.Add(time.Minute)
	must(t, r.Beat())
	c := mailbox.ContainerState{
		Turn: mailbox.TurnWorking, CurrentTool: "Bash", ToolTimeout: 90 * time.Second, ToolStartedAt: b.Clock.Now(), UpdatedAt: b.Clock.Now(), Queued: 3,
	}
	must(t, r.SetContainer(t.Context(), c))
	s, err := b.Host.State(t.Context())
	must(t, err)
	if s.Container != c || !s.Heartbeat.Equal(b.Clock.Now()) {
		t.Errorf("state %+v, heartbeat %s", s.Container, s.Heartbeat)
	}
	must(t, r.SetContainer(t.Context(), mailbox.ContainerState{}))
	if s, err := b.Host.State(t.Context()); err != nil || s.Container.Turn != mailbox.TurnWorking || s.Container.CurrentTool != "" || s.Container.Queued != 0 {
		t.Errorf("state after the tool: %+v, error %v", s.Container, err)
	}
}

// lifecycle: looking for a mailbox creates nothing, destroying it may be repeated (M10).
func lifecycle(t *testing.T, b *Box) {
	none := filepath.Join(b.Dir, "..", "other")
	if ok, err := sqlite.Exists(none); err != nil || ok {
		t.Errorf("exists: %v, error %v", ok, err)
	}
	_, err := sqlite.Open(t.Context(), none, b.HostOptions())
	wantError(t, "open without a mailbox", err, mailbox.ErrNotExist)
	_, err = sqlite.OpenRunner(t.Context(), none, sqlite.RunnerOptions{})
	wantError(t, "runner without a mailbox", err, mailbox.ErrNotExist)
	wantGone(t, none)

	ids := b.Put(Chat("kept"))
	h, err := sqlite.Create(t.Context(), b.Dir, b.HostOptions())
	must(t, err)
	if row, err := h.Row(t.Context(), ids[0]); err != nil || row.ID != ids[0] {
		t.Errorf("after a second create: %+v, error %v", row, err)
	}
	must(t, h.Close())
	if ok, err := sqlite.Exists(b.Dir); err != nil || !ok {
		t.Errorf("exists: %v, error %v", ok, err)
	}
	wantGone(t, filepath.Join(b.Dir, "out", "outbound.db")) // the runner makes it
	must(t, sqlite.Destroy(b.Dir))
	must(t, sqlite.Destroy(b.Dir))
	if ok, err := sqlite.Exists(b.Dir); err != nil || ok {
		t.Errorf("exists after destroy: %v, error %v", ok, err)
	}
}

// retention: final rows of the past go with what belongs to them, and their numbers are never given again (M11).
func retention(t *testing.T, b *Box) {
	var rows []mailbox.InRow
	for range 1200 {
		rows = append(rows, Chat("old"))
	}
	ids := b.Put(rows...)
	_, err := b.Host.PutBlob(t.Context(), ids[0], "a.txt", strings.NewReader("x"), 10)
	must(t, err)
	var acks []mailbox.Ack
	for _, id := range ids[:len(ids)-1] {
		acks = append(acks, mailbox.Ack{MessageID: id, Status: mailbox.AckCompleted})
	}
	must(t, b.Host.Settle(t.Context(), acks...))
	must(t, b.Host.MarkDelivered(t.Context(), mailbox.Delivered{MessageOutID: "out-old", Status: "delivered"}))
	b.Clock.Add(time.Hour)
	fresh := b.Put(Chat("fresh"))
	must(t, b.Host.Settle(t.Context(), mailbox.Ack{MessageID: fresh[0], Status: mailbox.AckCompleted}))
	n, err := b.Host.Prune(t.Context(), b.Clock.Now())
	must(t, err)
	if n != len(ids)-1 {
		t.Errorf("%d rows went, want %d", n, len(ids)-1)
	}
	wantGone(t, filepath.Join(b.Dir, "in", "inbox", ids[0]))
	_, err = b.Host.Row(t.Context(), ids[0])
	wantError(t, "a pruned row", err, mailbox.ErrNotExist)
	for _, kept := range []string{ids[len(ids)-1], fresh[0]} {
		if _, err := b.Host.Row(t.Context(), kept); err != nil {
			t.Errorf("a row that is pending or fresh: %v", err)
		}
	}
	r := b.Runner(Incarnation)
	if _, ok, err := r.Delivered(t.Context(), "out-old"); err != nil || ok {
		t.Errorf("an old outcome is there: %v, error %v", ok, err)
	}
	must(t, b.Host.Settle(t.Context(), mailbox.Ack{MessageID: ids[len(ids)-1], Status: mailbox.AckFailed}))
	b.Clock.Add(time.Hour)
	if n, err := b.Host.Prune(t.Context(), b.Clock.Now()); err != nil || n != 2 {
		t.Errorf("%d rows went at last, error %v", n, err)
	}
	p, err := b.Host.Put(t.Context(), Chat("new"))
	must(t, err)
	if want := int64(2 * (len(ids) + 2)); p[0].Seq != want {
		t.Errorf("seq %d, want %d: a pruned number came again", p[0].Seq, want)
	}
}

// bells: news reach the other side; whether a bell rings or not is a matter of speed only (M12).
func bells(t *testing.T, b *Box) {
	r := b.Runner(Incarnation)
	var mine *sqlite.Bell
	if b.bell != nil {
		mine = sqlite.DialBell(t.Context(), filepath.Join(b.Dir, "run"), Incarnation, nil)
		t.Cleanup(func() { _ = mine.Close() })
		Until(t, nil, func() bool { return mine.Connected() && b.bell.Connected() })
	}
	const rounds = 20
	answered := make(chan error, 1)
	go func() {
		for n := 0; n < rounds; {
			batch, err := r.Fetch(t.Context(), 10)
			if err != nil {
				answered <- err
				return
			}
			for _, row := range batch.Rows {
				if _, err := r.Finish(t.Context(), mailbox.Finish{Completed: []string{row.ID}, Out: []mailbox.OutRow{Say("re", "ex-"+row.ID)}}); err != nil {
					answered <- err
					return
				}
				n++
				if mine != nil {
					mine.Ring()
				}
			}
			if mine != nil && len(batch.Rows) == 0 {
				<-mine.Rung()
			}
		}
		answered <- nil
	}()
	last := int64(0)
	for range rounds {
		b.Put(Chat("ping"))
		if b.bell != nil {
			b.bell.Ring()
		}
		Until(t, b.bell, func() bool {
			out, err := b.Host.Outbound(t.Context(), last, 10)
			must(t, err)
			for _, o := range out {
				last = o.Row.Seq
			}
			return len(out) > 0
		})
	}
	must(t, <-answered)
}
