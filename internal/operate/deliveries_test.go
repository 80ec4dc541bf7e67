package operate

import (
	"context"
	"encoding/json"
	"testing"

	"nanoclaw/internal/control"
	"nanoclaw/internal/id"
	"nanoclaw/internal/store"
)

type revives struct{ st *store.Store }

func (r revives) Revive(ctx context.Context, actor string, row id.Ledger) (bool, error) {
	return r.st.Requeue(ctx, actor, row)
}

func TestDeliveries(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	st, err := store.Open(ctx, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	var rows []store.Ledger
	for _, v := range []string{"led-1", "led-2"} {
		rows = append(rows, store.Ledger{ID: id.Ledger(v), OutboundID: v, Kind: "notice", Content: []byte(`{}`), State: store.Queued,
			Destination: store.Destination{Instance: "x", PlatformID: "x:1"}})
	}
	if _, err := st.Ingest(ctx, store.Ingest{Rows: rows}); err != nil {
		t.Fatal(err)
	}
	rows[0].State, rows[0].Reason = store.Dead, "too late"
	if err := st.UpdateLedger(ctx, rows[0]); err != nil {
		t.Fatal(err)
	}
	d := New(Deliveries(st, revives{st}, func() string { return "cli:ann" })...)
	list := func(state string) int {
		t.Helper()
		args := map[string]json.RawMessage{}
		if state != "" {
			args["state"] = json.RawMessage(`"` + state + `"`)
		}
		got := d.Do(ctx, Caller{}, "r", control.AdminRequest{Command: "deliveries-list", Args: args})
		var out []deliveryRow
		if err := json.Unmarshal(got.Data, &out); err != nil || !got.OK {
			t.Fatalf("%+v, %v", got, err)
		}
		return len(out)
	}
	if all, dead, sent := list(""), list("dead"), list("sent"); all != 2 || dead != 1 || sent != 0 {
		t.Errorf("%d, %d dead, %d sent", all, dead, sent)
	}
	for _, c := range []struct {
		command string
		agent   bool
		code    control.Code // of the error
		human   string
	}{
		{"deliveries-retry-led-1", true, control.CodeForbidden, ""},
		{"deliveries-drop-led-2", false, control.CodeConflict, ""},
		{"deliveries-drop-led-9", false, control.CodeNotFound, ""},
		{"deliveries-retry", false, control.CodeInvalid, ""},
		{"deliveries-retry-led-1", false, "", "led-1 is on its way to x:1"},
		{"deliveries-retry-led-1", false, "", "led-1 is on its way to x:1 (it was so before)"},
	} {
		caller := Caller{}
		if c.agent {
			caller.Session.ID = "sess-1"
		}
		got := d.Do(ctx, caller, "r", control.AdminRequest{Command: c.command})
		switch {
		case c.code == "" && (!got.OK || got.Human != c.human), c.code != "" && (got.OK || got.Error.Code != c.code):
			t.Errorf("%s: %+v, %+v", c.command, got, got.Error)
		}
	}
}
