package sqlite

import (
	"fmt"
	"path/filepath"
	"testing"

	"nanoclaw/internal/mailbox"
)

func benchSession(b *testing.B) (*Host, *Runner) {
	b.Helper()
	dir := filepath.Join(b.TempDir(), "sess")
	h, err := Create(b.Context(), dir, HostOptions{OutUID: -1, SandboxGID: -1})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = h.Close() })
	r, err := OpenRunner(b.Context(), dir, RunnerOptions{Incarnation: 1})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = r.Close() })
	return h, r
}

// BenchmarkCommit is the smallest durable write of each half.
func BenchmarkCommit(b *testing.B) {
	h, r := benchSession(b)
	b.Run("put", func(b *testing.B) {
		for b.Loop() {
			if _, err := h.Put(b.Context(), inRow("x")); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("write", func(b *testing.B) {
		for b.Loop() {
			if _, err := r.Write(b.Context(), outRow(1)); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// history fills a mailbox with n answered and settled messages.
func history(b *testing.B, h *Host, r *Runner, n int) {
	b.Helper()
	const page = 5000
	for done := 0; done < n; done += page {
		rows := make([]mailbox.InRow, min(page, n-done))
		for i := range rows {
			rows[i] = inRow(fmt.Sprint(done + i))
		}
		p, err := h.Put(b.Context(), rows...)
		if err != nil {
			b.Fatal(err)
		}
		var f mailbox.Finish
		var acks []mailbox.Ack
		for i, result := range p {
			out := outRow(i)
			out.Exchange = "ex-" + result.ID
			f.Out, f.Completed = append(f.Out, out), append(f.Completed, result.ID)
			acks = append(acks, mailbox.Ack{MessageID: result.ID, Status: mailbox.AckCompleted})
		}
		if _, err := r.Finish(b.Context(), f); err != nil {
			b.Fatal(err)
		}
		if err := h.Settle(b.Context(), acks...); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkFetch is one look of the runner with ten rows due.
func BenchmarkFetch(b *testing.B) {
	for _, c := range []struct{ past, pending int }{{0, 10}, {100_000, 10}, {0, 100_000}} {
		b.Run(fmt.Sprintf("past=%d/pending=%d", c.past, c.pending), func(b *testing.B) {
			h, r := benchSession(b)
			history(b, h, r, c.past)
			rows := make([]mailbox.InRow, c.pending)
			for i := range rows {
				rows[i] = inRow("due")
			}
			if _, err := h.Put(b.Context(), rows...); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if batch, err := r.Fetch(b.Context(), 10); err != nil || len(batch.Rows) != 10 {
					b.Fatal(len(batch.Rows), err)
				}
			}
		})
	}
}

// BenchmarkMessage is all that one message costs both halves: put, fetch, claim, finish with an answer, reading answer and ack,
// settling and marking it delivered.
func BenchmarkMessage(b *testing.B) {
	for _, past := range []int{1_000, 100_000} {
		b.Run(fmt.Sprintf("past=%d", past), func(b *testing.B) {
			h, r := benchSession(b)
			history(b, h, r, past)
			var seq, change int64
			for out, err := h.Outbound(b.Context(), 0, 1000); len(out) > 0; out, err = h.Outbound(b.Context(), seq, 1000) {
				if err != nil {
					b.Fatal(err)
				}
				seq = out[len(out)-1].Row.Seq
			}
			for {
				_, next, err := h.Acks(b.Context(), change)
				if err != nil {
					b.Fatal(err)
				}
				if next == change {
					break
				}
				change = next
			}
			n := 0
			for b.Loop() {
				n++
				if err := message(b, h, r, n, &seq, &change); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func message(b *testing.B, h *Host, r *Runner, n int, seq, change *int64) error {
	ctx := b.Context()
	if _, err := h.Put(ctx, inRow("x")); err != nil {
		return err
	}
	batch, err := r.Fetch(ctx, 10)
	if err != nil || len(batch.Rows) != 1 {
		return fmt.Errorf("fetched %d rows, error %w", len(batch.Rows), err)
	}
	rowID, exchange := batch.Rows[0].ID, fmt.Sprintf("ex-%d", n)
	if err := r.Claim(ctx, exchange, []string{rowID}); err != nil {
		return err
	}
	out := outRow(n)
	out.Exchange = exchange
	if _, err := r.Finish(ctx, mailbox.Finish{Completed: []string{rowID}, Out: []mailbox.OutRow{out}}); err != nil {
		return err
	}
	rows, err := h.Outbound(ctx, *seq, 10)
	if err != nil || len(rows) != 1 {
		return fmt.Errorf("read %d rows, error %w", len(rows), err)
	}
	*seq = rows[0].Row.Seq
	acks, next, err := h.Acks(ctx, *change)
	if err != nil {
		return err
	}
	*change = next
	if err := h.Settle(ctx, acks...); err != nil {
		return err
	}
	return h.MarkDelivered(ctx, mailbox.Delivered{MessageOutID: rows[0].Row.ID, Status: "delivered"})
}
