package store

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"nanoclaw/internal/channel"
	"nanoclaw/internal/mailbox"
)

// What is asked for later is kept: how a message was routed, every state of a delivery with its time, and drops.
func TestTraceKeepsTheWay(t *testing.T) {
	t.Parallel()
	f := setup(t)
	m := f.message("1", true)
	m.Routed = []Choice{{Wiring: "wir-1", Group: f.group, Action: "engage", Reason: "the pattern matches"}, {Wiring: "wir-2", Group: "ag-2", Action: "drop", Reason: "no <b>"}}
	if _, err := f.Accept(t.Context(), []Message{m, f.message("2", false)}); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Ingest(t.Context(), Ingest{Session: f.session.ID, OutboundSeq: 1, Rows: []Ledger{f.row(1)}, Ends: []End{{RowID: m.RowID, State: channel.Answered}}}); err != nil {
		t.Fatal(err)
	}
	at := func(d time.Duration) time.Time { return base.Add(d) }
	v := f.row(1)
	for i, s := range []LedgerState{Sending, Retry, Sending, Sent} {
		f.now = func() time.Time { return at(time.Duration(i+1) * time.Second) }
		if v.State, v.Reason = s, "left over"; s == Retry {
			v.Reason = "busy\nline " + strings.Repeat("x", 300)
		}
		if s == Sent {
			v.Reason, v.PlatformMessageID = "", "p-77"
		}
		if err := f.UpdateLedger(t.Context(), v); err != nil {
			t.Fatal(err)
		}
	}
	for _, key := range []string{"1", m.RowID} {
		got, err := f.TraceMessages(t.Context(), key)
		if err != nil || len(got) != 1 {
			t.Fatalf("%s: %+v %v", key, got, err)
		}
		if d := cmp.Diff(m.Routed, got[0].Routed); d != "" {
			t.Error(d)
		}
		if got[0].State != channel.Answered || !got[0].Received.Equal(base) || !got[0].Final.Equal(base) || !got[0].Settled.IsZero() {
			t.Errorf("%+v", got[0])
		}
	}
	if last, err := f.TraceLast(t.Context(), ""); err != nil || last.RowID != m.RowID {
		t.Errorf("context is no message that is asked for: %+v %v", last, err)
	}
	if _, err := f.TraceLast(t.Context(), "sess-other"); !errors.Is(err, ErrNotFound) {
		t.Errorf("another session: %v", err)
	}
	for _, key := range []string{"led-000001", "out-1", "p-77"} {
		got, err := f.TraceDelivery(t.Context(), key)
		if err != nil || len(got) != 1 {
			t.Fatalf("%s: %+v %v", key, got, err)
		}
		want := []Change{{at(time.Second), Sending, ""}, {at(2 * time.Second), Retry, "busy line " + strings.Repeat("x", 190) + "…"}, {at(3 * time.Second), Sending, ""}, {at(4 * time.Second), Sent, ""}}
		if d := cmp.Diff(want, got[0].History); d != "" {
			t.Error(d)
		}
	}
	if got, err := f.TraceExchange(t.Context(), f.session.ID, "ex-1"); err != nil || len(got) != 1 || !got[0].Updated.Equal(at(4*time.Second)) {
		t.Errorf("%+v %v", got, err)
	}
	if got, err := f.TraceExchange(t.Context(), f.session.ID, ""); err != nil || len(got) != 0 {
		t.Errorf("rows of no exchange: %+v %v", got, err)
	}
	if n, err := f.LedgerStates(t.Context()); err != nil || n[Sent] != 1 || len(n) != 1 {
		t.Errorf("%v %v", n, err)
	}
}

// A delivery that is tried for a day does not grow without bound.
func TestHistoryIsBounded(t *testing.T) {
	t.Parallel()
	f := setup(t)
	if _, err := f.Ingest(t.Context(), Ingest{Session: f.session.ID, Rows: []Ledger{f.row(1)}}); err != nil {
		t.Fatal(err)
	}
	v := f.row(1)
	for range 500 {
		v.State, v.Reason = Retry, "the platform cannot be reached"
		if err := f.UpdateLedger(t.Context(), v); err != nil {
			t.Fatal(err)
		}
	}
	var n int
	if err := f.w.QueryRowContext(t.Context(), `SELECT length(history) FROM ledger`).Scan(&n); err != nil || n < 3000 || n > 4300 {
		t.Errorf("%d bytes of history, %v", n, err)
	}
}

func TestDrops(t *testing.T) {
	t.Parallel()
	f := setup(t)
	for i, detail := range []string{`{"platform_id":"c","message_id":"9","reason":"old"}`, `{"platform_id":"c","message_id":"9","reason":"new"}`, `{"platform_id":"c"}`, `broken`} {
		if err := f.Audit(t.Context(), AuditEntry{At: mailbox.FormatTime(base.Add(time.Duration(i) * time.Second)), Actor: "tg:7", Action: "message.drop", Subject: "tg", Detail: []byte(detail)}); err != nil {
			t.Fatal(err)
		}
	}
	got, err := f.Drops(t.Context(), "9")
	if err != nil || len(got) != 2 || got[0].Reason != "new" || got[0].Sender != "tg:7" || got[0].Instance != "tg" || !got[0].At.Equal(base.Add(time.Second)) {
		t.Errorf("%+v %v", got, err)
	}
	if got, err := f.Drops(t.Context(), "10"); err != nil || len(got) != 0 {
		t.Errorf("%+v %v", got, err)
	}
}
