package store

import (
	"errors"
	"strings"
	"testing"
	"time"

	"nanoclaw/internal/id"
	"nanoclaw/internal/mailbox"
)

// A question comes with its row, once; it goes when it is closed, told and old.
func TestQuestionLife(t *testing.T) {
	t.Parallel()
	f := setup(t)
	ctx := t.Context()
	row := f.row(1)
	row.Exchange = "ex-1"
	row.Question = &Question{QuestionID: row.OutboundID, Asked: "cli:ann", Title: "Deploy", Text: "Now?", Options: []mailbox.Option{{Label: "<Yes>", SelectedLabel: "Y", Value: "y"}},
		ExpiresAt: time.Now().Add(time.Hour)}
	for range 2 { // a replay, which has another id
		if _, err := f.Ingest(ctx, Ingest{Session: f.session.ID, OutboundSeq: 1, Rows: []Ledger{row}}); err != nil {
			t.Fatal(err)
		}
		row.ID = id.Ledger(id.New(id.PrefixLedger))
	}
	all, err := f.QuestionsAt(ctx, row.Instance, row.PlatformID, "")
	if err != nil || len(all) != 1 {
		t.Fatalf("%d questions, %v", len(all), err)
	}
	q := all[0]
	if q.State != Queued || q.Asked != "cli:ann" || q.Options[0].Label != "<Yes>" || !q.Open(time.Now()) || q.Open(time.Now().Add(2*time.Hour)) {
		t.Errorf("%+v", q)
	}
	for i := range 2 {
		q.Value, q.By, q.MessageID = "y", "cli:ann", "m1"
		if first, err := f.AnswerQuestion(ctx, q); err != nil || first != (i == 0) {
			t.Errorf("answer %d was first: %v, %v", i, first, err)
		}
	}
	if all, err := f.QuestionsAt(ctx, row.Instance, row.PlatformID, "m1"); err != nil || len(all) != 1 || all[0].Value != "y" || all[0].Answered.IsZero() {
		t.Errorf("by its answer: %+v, %v", all, err)
	}
	if all, err := f.QuestionsAt(ctx, row.Instance, row.PlatformID, ""); err != nil || len(all) != 0 {
		t.Errorf("still open: %+v, %v", all, err)
	}
	untold, err := f.UntoldQuestions(ctx, 10)
	if err != nil || len(untold) != 1 {
		t.Errorf("untold: %+v, %v", untold, err)
	}
	later := time.Now().Add(time.Hour)
	if _, err := f.Prune(ctx, later); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Question(ctx, q.ID); err != nil {
		t.Errorf("pruned before everybody knew: %v", err)
	}
	if err := f.QuestionTold(ctx, q.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Prune(ctx, later); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Question(ctx, q.ID); !errors.Is(err, ErrNotFound) {
		t.Errorf("after retention: %v", err)
	}
}

// What every message and every look at an outbox asks for must not read tables from end to end.
func TestQuestionPlans(t *testing.T) {
	t.Parallel()
	f := setup(t)
	for name, c := range map[string]struct {
		query string
		args  []any
	}{
		"at a chat": {`SELECT ` + questionColumns + ` WHERE q.instance = ? AND q.platform_id = ?
			AND (q.closed_at IS NULL OR q.answer_message <> '' AND q.answer_message = ?) ORDER BY q.asked_at, q.id`, []any{"cli", "cli:local", "m"}},
		"untold":     {`SELECT ` + questionColumns + ` WHERE q.closed_at IS NOT NULL AND q.told = 0 ORDER BY q.closed_at LIMIT ?`, []any{1}},
		"left files": {`SELECT id FROM ledger WHERE files = 1 AND state IN ('sent', 'refused', 'no-route', 'dead') ORDER BY ord LIMIT ?`, []any{1}},
		"expired":    {`SELECT id FROM pending_questions WHERE closed_at IS NULL AND expires_at <= ?`, []any{"x"}},
		"exchange":   {`SELECT id FROM pending_questions WHERE session_id = ? AND exchange = ? AND closed_at IS NULL`, []any{"s", "e"}},
	} {
		rows, err := f.r.DB.QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+c.query, c.args...)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for rows.Next() {
			var a, b, d int
			var detail string
			if err := rows.Scan(&a, &b, &d, &detail); err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(detail, "SCAN") && !strings.Contains(detail, "INDEX") {
				t.Errorf("%s: %s", name, detail)
			}
		}
		_ = rows.Close()
	}
}
