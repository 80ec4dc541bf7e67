package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"nanoclaw/internal/channel"
	"nanoclaw/internal/id"
)

func (f *first) message(n string, trigger bool) Message {
	return Message{Instance: "cli", PlatformID: "cli:local", PlatformMessageID: n, AgentGroupID: f.group, RowID: id.Inbound("cli", "cli:local", n, f.group),
		SessionID: f.session.ID, Trigger: trigger}
}

func (f *first) row(n int) Ledger {
	return Ledger{ID: id.Ledger(fmt.Sprintf("led-%06d", n)), SessionID: f.session.ID, OutboundID: fmt.Sprintf("out-%d", n), Seq: int64(n),
		Destination: Destination{"cli", "cli:local", ""}, Kind: "chat", Content: json.RawMessage(`{"text":"hello"}`), Exchange: "ex-1", State: Queued}
}

func TestAcceptOnce(t *testing.T) {
	t.Parallel()
	f := setup(t)
	m := f.message("1", true)
	if seen, err := f.Seen(t.Context(), "cli", "cli:local", "1", f.group); seen || err != nil {
		t.Errorf("seen before: %v %v", seen, err)
	}
	for i := range 2 {
		f.now = func() time.Time { return base.Add(time.Duration(i) * time.Hour) }
		if _, err := f.Accept(t.Context(), []Message{m, f.message("2", false)}); err != nil {
			t.Fatal(err)
		}
	}
	if seen, err := f.Seen(t.Context(), "cli", "cli:local", "1", f.group); !seen || err != nil {
		t.Errorf("not seen: %v %v", seen, err)
	}
	if due, _, err := f.Due(t.Context(), base, 10); err != nil || len(due) != 1 {
		t.Errorf("a later replay moved the due time: %v %v", due, err)
	}
	pending, err := f.PendingMessages(t.Context(), f.session.ID)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := f.Pending(t.Context()); err != nil || len(n) != 1 || n[f.session.ID] != 1 {
		t.Errorf("pending %v %v", n, err)
	}
	m.Trigger, m.State, m.Received = false, "pending", base // Trigger is not kept
	if d := cmp.Diff([]Message{m}, pending); d != "" {
		t.Errorf("only what wakes is pending:\n%s", d)
	}
	if list, err := f.Unsettled(t.Context(), 10); err != nil || len(list) != 0 {
		t.Errorf("context has to be told to nobody: %v %v", list, err)
	}
	// Unknown session: nothing of the whole call is stored.
	bad := f.message("3", true)
	bad.SessionID = "sess-nobody"
	if _, err := f.Accept(t.Context(), []Message{f.message("4", true), bad}); err == nil {
		t.Error("a message for no session was taken")
	}
	if seen, err := f.Seen(t.Context(), "cli", "cli:local", "4", f.group); seen || err != nil {
		t.Errorf("half a call was stored: %v %v", seen, err)
	}
}

func TestIngestOnce(t *testing.T) {
	t.Parallel()
	f := setup(t)
	m := f.message("1", true)
	if _, err := f.Accept(t.Context(), []Message{m}); err != nil {
		t.Fatal(err)
	}
	in := Ingest{Session: f.session.ID, OutboundSeq: 5, AckChange: 7, Rows: []Ledger{f.row(1), f.row(2)}, Ends: []End{{m.RowID, channel.Answered, ""}, {"msg-other", channel.Dead, ""}}}
	fresh, err := f.Ingest(t.Context(), in)
	if err != nil || len(fresh) != 2 || !fresh[0].CreatedAt.Equal(base) {
		t.Fatalf("fresh %+v %v", fresh, err)
	}
	again := in
	again.OutboundSeq, again.AckChange = 3, 3
	again.Ends = []End{{m.RowID, channel.Failed, "late"}}
	again.Rows = []Ledger{f.row(1), f.row(2), f.row(3)}
	again.Rows[0].ID, again.Rows[0].Content = "led-other", json.RawMessage(`{"text":"changed"}`)
	if fresh, err = f.Ingest(t.Context(), again); err != nil || len(fresh) != 1 || fresh[0].OutboundID != "out-3" {
		t.Errorf("fresh again %+v %v", fresh, err)
	}
	if s, err := f.Session(t.Context(), f.session.ID); err != nil || s.OutboundSeq != 5 || s.AckChange != 7 {
		t.Errorf("cursors went back: %+v %v", s, err)
	}
	if got, err := f.MessageByRow(t.Context(), m.RowID); err != nil || got.State != channel.Answered {
		t.Errorf("an end was changed: %+v %v", got, err)
	}
	rows, err := f.Ledgers(t.Context(), f.session.ID, 10)
	if err != nil || len(rows) != 3 || string(rows[0].Content) != `{"text":"hello"}` {
		t.Errorf("ledger %+v %v", rows, err)
	}
	if ok, err := f.Answered(t.Context(), f.session.ID, "ex-1"); !ok || err != nil {
		t.Errorf("answered: %v %v", ok, err)
	}
	if ok, err := f.Answered(t.Context(), f.session.ID, ""); ok || err != nil {
		t.Errorf("the exchange without a name is answered: %v %v", ok, err)
	}
	list, err := f.Unsettled(t.Context(), 10)
	if err != nil || len(list) != 1 {
		t.Fatalf("unsettled %+v %v", list, err)
	}
	if err := f.MarkSettled(t.Context(), m.RowID); err != nil {
		t.Fatal(err)
	}
	if list, err := f.Unsettled(t.Context(), 10); err != nil || len(list) != 0 {
		t.Errorf("still unsettled: %+v %v", list, err)
	}
	// One bad row: neither cursors nor rows nor ends of the call are there.
	bad := Ingest{Session: f.session.ID, OutboundSeq: 50, Rows: []Ledger{f.row(8), {ID: "led-bad", SessionID: f.session.ID, OutboundID: "bad", Kind: "evil", State: Queued}}}
	if _, err := f.Ingest(t.Context(), bad); err == nil {
		t.Error("an unknown kind was taken")
	}
	if s, err := f.Session(t.Context(), f.session.ID); err != nil || s.OutboundSeq != 5 {
		t.Errorf("half a call was stored: %+v %v", s, err)
	}
}

func TestLedgerStates(t *testing.T) {
	t.Parallel()
	f := setup(t)
	other := f.row(3)
	other.Destination.ThreadID = "t"
	words := Ledger{ID: "led-host", OutboundID: "notice-1", Destination: Destination{"cli", "cli:local", ""}, Kind: "notice", Content: json.RawMessage(`{}`), State: Queued}
	if _, err := f.Ingest(t.Context(), Ingest{Rows: []Ledger{f.row(2), other, f.row(1), words}}); err != nil {
		t.Fatal(err)
	}
	if fresh, err := f.Ingest(t.Context(), Ingest{Rows: []Ledger{words}}); err != nil || len(fresh) != 0 {
		t.Errorf("the host's own words twice: %v %v", fresh, err)
	}
	open, err := f.OpenLedger(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var order []id.Ledger
	for _, v := range open {
		order = append(order, v.ID)
	}
	// Per destination in the order they were taken over.
	if d := cmp.Diff([]id.Ledger{"led-000002", "led-000001", "led-host", "led-000003"}, order); d != "" {
		t.Error(d)
	}
	v := open[0]
	v.State, v.Tries, v.Unknowns, v.Marked, v.NotBefore, v.Reason = Retry, 2, 1, true, base.Add(time.Minute), "slow"
	if err := f.UpdateLedger(t.Context(), v); err != nil {
		t.Fatal(err)
	}
	if open, err = f.OpenLedger(t.Context()); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(v, open[0]); d != "" {
		t.Error(d)
	}
	if c, err := f.Counts(t.Context()); err != nil || c.QueuedLedger != 3 || c.RetryLedger != 1 || c.UnknownLedger != 0 {
		t.Errorf("counts %+v %v", c, err)
	}
	v.State, v.PlatformMessageID = Sent, "p1"
	if err := f.UpdateLedger(t.Context(), v); err != nil {
		t.Fatal(err)
	}
	late := v
	late.State, late.PlatformMessageID = Dead, ""
	if err := f.UpdateLedger(t.Context(), late); err != nil {
		t.Fatal(err)
	}
	closed, err := f.Unprojected(t.Context(), f.session.ID, 10)
	if err != nil || len(closed) != 1 || closed[0].State != Sent || closed[0].PlatformMessageID != "p1" {
		t.Errorf("a final row changed: %+v %v", closed, err)
	}
	if err := f.MarkProjected(t.Context(), closed); err != nil {
		t.Fatal(err)
	}
	if closed, err := f.Unprojected(t.Context(), f.session.ID, 10); err != nil || len(closed) != 0 {
		t.Errorf("still to project: %+v %v", closed, err)
	}
	c, err := f.Counts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(Counts{Sessions: 1, QueuedLedger: 3}, c); d != "" {
		t.Error(d)
	}
}

func TestPruneKeepsWhatIsNotDone(t *testing.T) {
	t.Parallel()
	f := setup(t)
	const n = pruned + 20
	var rows []Ledger
	var messages []Message
	for i := range n {
		r := f.row(i)
		r.State = Sent
		rows = append(rows, r)
		messages = append(messages, f.message(fmt.Sprint(i), false))
	}
	queued, unprojected := f.row(n), f.row(n+1)
	unprojected.State = Sent
	pending := f.message("pending", true)
	done := f.message("done", true)
	_, err := f.Accept(t.Context(), append(messages, pending, done))
	err = errors.Join(err,
		func() error {
			_, err := f.Ingest(t.Context(), Ingest{Rows: append(rows, queued, unprojected), Ends: []End{{done.RowID, channel.Silent, ""}}})
			return err
		}(),
		f.MarkSettled(t.Context(), done.RowID),
		f.MarkProjected(t.Context(), rows),
		f.Audit(t.Context(), AuditEntry{Action: "old"}),
	)
	if err != nil {
		t.Fatal(err)
	}
	if total, err := f.Prune(t.Context(), base); err != nil || total != 0 {
		t.Errorf("nothing is old, but %d went, %v", total, err)
	}
	if total, err := f.Prune(t.Context(), base.Add(time.Second)); err != nil || total != 2*n+2 {
		t.Errorf("%d went, %v; want %d", total, err, 2*n+2)
	}
	if left, err := f.Ledgers(t.Context(), f.session.ID, 10); err != nil || len(left) != 2 {
		t.Errorf("ledger rows left %+v %v", left, err)
	}
	if left, err := f.PendingMessages(t.Context(), f.session.ID); err != nil || len(left) != 1 {
		t.Errorf("pending messages left %+v %v", left, err)
	}
}

func TestReadersDoNotWaitForTheWriter(t *testing.T) {
	t.Parallel()
	f := setup(t)
	tx, err := f.w.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.ExecContext(t.Context(), `UPDATE sessions SET incarnation = 42`); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 3 * readers {
		wg.Go(func() {
			if s, err := f.Session(t.Context(), f.session.ID); err != nil || s.Incarnation != 0 {
				t.Errorf("while somebody writes: %+v %v", s, err)
			}
		})
	}
	wg.Wait()
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if s, err := f.Session(t.Context(), f.session.ID); err != nil || s.Incarnation != 42 {
		t.Errorf("after the commit: %+v %v", s, err)
	}
}

func BenchmarkAccept(b *testing.B) {
	f := setup(b)
	for i := 0; b.Loop(); i++ {
		if _, err := f.Accept(b.Context(), []Message{f.message(fmt.Sprint(i), true)}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkIngest(b *testing.B) {
	f := setup(b)
	for i := 1; b.Loop(); i++ {
		if _, err := f.Ingest(b.Context(), Ingest{Session: f.session.ID, OutboundSeq: int64(i), AckChange: int64(i), Rows: []Ledger{f.row(i)}}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkUpdateLedger(b *testing.B) {
	f := setup(b)
	v := f.row(1)
	if _, err := f.Ingest(b.Context(), Ingest{Rows: []Ledger{v}}); err != nil {
		b.Fatal(err)
	}
	v.State = Sending
	for b.Loop() {
		if err := f.UpdateLedger(b.Context(), v); err != nil {
			b.Fatal(err)
		}
	}
}

// Found by the simulation of the host: what was begun when a host died is before what was stored earlier and not begun.
func TestBegunRowIsFirst(t *testing.T) {
	t.Parallel()
	f := setup(t)
	if _, err := f.Ingest(t.Context(), Ingest{Session: f.session.ID, Rows: []Ledger{f.row(1), f.row(2), f.row(3)}}); err != nil {
		t.Fatal(err)
	}
	begun := f.row(2)
	begun.State = Sending
	if err := f.UpdateLedger(t.Context(), begun); err != nil {
		t.Fatal(err)
	}
	open, err := f.OpenLedger(t.Context())
	if err != nil || len(open) != 3 || open[0].OutboundID != "out-2" || open[1].OutboundID != "out-1" {
		t.Errorf("%+v, %v", open, err)
	}
}
