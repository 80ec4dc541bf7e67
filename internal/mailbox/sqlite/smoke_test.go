package sqlite

import (
	"context"
	"path/filepath"
	"testing"

	"nanoclaw/internal/mailbox"
)

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	dir := filepath.Join(t.TempDir(), "a b%?#")
	h, err := Create(ctx, dir, HostOptions{OutUID: -1, SandboxGID: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	p, err := h.Put(ctx, mailbox.InRow{Kind: mailbox.KindChat, Trigger: true, Content: []byte(`{"text":"hi"}`)})
	if err != nil {
		t.Fatal(err)
	}
	t.Log(p)
	if rows, err := h.Outbound(ctx, 0, 10); err != nil || len(rows) != 0 {
		t.Fatal(rows, err)
	}
	r, err := OpenRunner(ctx, dir, RunnerOptions{Incarnation: 3})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	b, err := r.Fetch(ctx, 10)
	if err != nil || len(b.Rows) != 1 {
		t.Fatal(b, err)
	}
	if err := r.Claim(ctx, "ex-1", []string{p[0].ID}); err != nil {
		t.Fatal(err)
	}
	if b, err := r.Fetch(ctx, 10); err != nil || len(b.Rows) != 0 {
		t.Fatal(b, err)
	}
	out, err := r.Finish(ctx, mailbox.Finish{Completed: []string{p[0].ID}, Out: []mailbox.OutRow{{Kind: mailbox.KindChat, Content: []byte(`{"text":"yo"}`), Exchange: "ex-1"}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Log(out)
	rows, err := h.Outbound(ctx, 0, 10)
	if err != nil || len(rows) != 1 || rows[0].Err != nil {
		t.Fatal(rows, err)
	}
	s, err := h.State(ctx)
	t.Logf("%+v %v", s, err)
	acks, next, err := h.Acks(ctx, 0)
	t.Log(acks, next, err)
}
