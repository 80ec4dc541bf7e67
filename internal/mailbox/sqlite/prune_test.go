package sqlite

import (
	"fmt"
	"testing"
	"time"

	"nanoclaw/internal/mailbox"
)

// spec/runner.md W2: the outbox does not grow for ever, numbers never go back, and nothing goes that the host has not done with.
func TestW2RunnerPrunes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	clock := func() time.Time { return now }
	h, err := Create(t.Context(), dir, HostOptions{OutUID: -1, SandboxGID: -1, Now: clock})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = h.Close() }()
	r, err := OpenRunner(t.Context(), dir, RunnerOptions{Incarnation: 1, Now: clock})
	if err != nil {
		t.Fatal(err)
	}
	const n = keptOut + 300
	var in []mailbox.InRow
	var f mailbox.Finish
	var outcomes []mailbox.Delivered
	for i := range n {
		id := fmt.Sprintf("m%d", i)
		in = append(in, mailbox.InRow{ID: id, Kind: mailbox.KindChat, Content: []byte(`{"text":"x"}`), Timestamp: now})
		f.Completed = append(f.Completed, id)
		f.Out = append(f.Out, mailbox.OutRow{ID: "o" + id, Kind: mailbox.KindChat, Content: []byte(`{"text":"y"}`)})
		if i != 7 { // one that the host has not delivered yet
			outcomes = append(outcomes, mailbox.Delivered{MessageOutID: "o" + id, Status: "delivered"})
		}
	}
	if _, err := h.Put(t.Context(), in...); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Finish(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	if err := h.MarkDelivered(t.Context(), outcomes...); err != nil {
		t.Fatal(err)
	}
	var acks []mailbox.Ack
	for i := range n {
		if i != 9 { // one that the host has not settled yet
			acks = append(acks, mailbox.Ack{MessageID: fmt.Sprintf("m%d", i), Status: mailbox.AckCompleted})
		}
	}
	if err := h.Settle(t.Context(), acks...); err != nil {
		t.Fatal(err)
	}
	if gone, err := r.Prune(t.Context(), now); err != nil || gone != 0 {
		t.Fatalf("%d fresh ones went, %v", gone, err)
	}
	now = now.Add(time.Hour)
	if gone, err := r.Prune(t.Context(), now); err != nil || gone != 2*299 {
		t.Fatalf("%d went, want %d; %v", gone, 2*299, err)
	}
	if _, ok, err := r.OutBySeq(t.Context(), 0); err != nil || ok {
		t.Errorf("%v, %v", ok, err)
	}
	left, err := h.Outbound(t.Context(), 0, 3)
	if err != nil || left[0].Row.ID != "om7" {
		t.Errorf("the first one left is %+v, %v", left[0].Row, err)
	}
	all, _, err := h.Acks(t.Context(), 0)
	if err != nil || all[0].MessageID != "m9" {
		t.Errorf("the first ack left is %+v, %v", all[0], err)
	}
	highest := int64(0)
	for after := int64(0); ; {
		page, err := h.Outbound(t.Context(), after, 1000)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			break
		}
		after = page[len(page)-1].Row.Seq
		highest = after
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if r, err = OpenRunner(t.Context(), dir, RunnerOptions{Incarnation: 2, Now: clock}); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	row, err := r.Write(t.Context(), mailbox.OutRow{Kind: mailbox.KindChat, Content: []byte(`{"text":"z"}`)})
	if err != nil || row.Seq <= highest {
		t.Errorf("seq %d after %d, %v", row.Seq, highest, err)
	}
}
