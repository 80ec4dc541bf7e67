package operate

import (
	"context"
	"fmt"
	"slices"

	"nanoclaw/internal/control"
	"nanoclaw/internal/id"
	"nanoclaw/internal/store"
)

// Reviver puts dead deliveries on their way again.
type Reviver interface {
	Revive(ctx context.Context, actor string, row id.Ledger) (changed bool, err error)
}

// Deliveries is the commands about what is on its way and what did not arrive. They are the operator's, whose user id is actor.
func Deliveries(st *store.Store, r Reviver, actor func() string) []Command {
	target := "id of the delivery"
	get := func(ctx context.Context, a Args) (store.Ledger, error) {
		wanted, err := named(a, "id")
		if err != nil {
			return store.Ledger{}, err
		}
		row, err := st.Delivery(ctx, id.Ledger(wanted))
		return row, refused(err, "ncl deliveries list")
	}
	return []Command{
		{Name: "deliveries list", Short: "List what is on its way and what did not arrive", Flags: []string{"state", "limit"},
			Run: func(ctx context.Context, _ Caller, a Args) (Result, error) { return deliveries(ctx, st, a) }},
		{Name: "deliveries retry", Short: "Try a dead delivery again", Target: target, Flags: []string{"id"},
			Run: func(ctx context.Context, _ Caller, a Args) (Result, error) {
				row, err := get(ctx, a)
				if err != nil {
					return Result{}, err
				}
				if row.State.Final() && row.State != store.Dead {
					return Result{}, notDead(row)
				}
				changed, err := r.Revive(ctx, actor(), row.ID)
				if err != nil {
					return Result{}, err
				}
				return done(changed, fmt.Sprintf("%s is on its way to %s", row.ID, row.PlatformID))
			}},
		{Name: "deliveries drop", Short: "Give a dead delivery up for good", Target: target, Flags: []string{"id"},
			Run: func(ctx context.Context, _ Caller, a Args) (Result, error) {
				row, err := get(ctx, a)
				if err != nil {
					return Result{}, err
				}
				if row.State != store.Dead && row.State != store.Refused {
					return Result{}, notDead(row)
				}
				changed, err := st.Drop(ctx, actor(), row.ID)
				if err != nil {
					return Result{}, err
				}
				return done(changed, string(row.ID)+" is given up")
			}},
	}
}

func notDead(row store.Ledger) error {
	return &control.Error{Code: control.CodeConflict, Message: fmt.Sprintf("delivery %s is not dead but %s", row.ID, row.State),
		Hint: "ncl deliveries list --state dead"}
}

type deliveryRow struct {
	ID      string       `json:"id"`
	State   string       `json:"state"`
	To      string       `json:"to"`
	Thread  string       `json:"thread,omitempty"`
	Session string       `json:"session,omitempty"`
	Tries   int          `json:"tries"`
	Since   control.Time `json:"since"`
	Reason  string       `json:"reason,omitempty"`
}

func deliveries(ctx context.Context, st *store.Store, a Args) (Result, error) {
	word, err := a.Text("state")
	if err != nil {
		return Result{}, err
	}
	state := store.LedgerState(word)
	known := []store.LedgerState{"", store.Queued, store.Sending, store.Sent, store.Retry, store.Refused, store.NoRoute, store.Unknown, store.Dead}
	if !slices.Contains(known, state) {
		e := control.Invalid("state", fmt.Sprintf("%q is no state", word))
		e.Hint = "queued, sending, sent, retry, refused, no-route, unknown or dead"
		return Result{}, e
	}
	limit, err := a.Number("limit", 50, 1, 1000)
	if err != nil {
		return Result{}, err
	}
	all, err := st.Deliveries(ctx, state, limit)
	if err != nil {
		return Result{}, err
	}
	rows := make([]deliveryRow, 0, len(all))
	for _, v := range all {
		rows = append(rows, deliveryRow{string(v.ID), string(v.State), v.PlatformID, v.ThreadID, string(v.SessionID), v.Tries, control.At(v.CreatedAt), v.Reason})
	}
	return result(rows)
}
