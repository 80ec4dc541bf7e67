package sqlite

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"nanoclaw/internal/mailbox"
)

func (s *session) fetchSeqs(r *Runner, limit int) []int64 {
	s.Helper()
	batch, err := r.Fetch(s.Context(), limit)
	s.must(err)
	var out []int64
	for _, row := range batch.Rows {
		out = append(out, row.Seq)
	}
	return out
}

func (s *session) wantSeqs(what string, got []int64, want ...int64) {
	s.Helper()
	if !slices.Equal(got, want) {
		s.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func background(text string) mailbox.InRow {
	row := inRow(text)
	row.Trigger = false
	return row
}

// spec/bugs.md RUN-2: claimed rows leave before the window is cut.
func TestRUN2ClaimedRowsDoNotHideNewOnes(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	r := s.runner(1)
	p := s.put(inRow("1"), inRow("2"), inRow("3"), inRow("4"))
	s.must(r.Claim(t.Context(), "ex-1", []string{p[0].ID, p[1].ID, p[2].ID}))
	s.wantSeqs("beside three claims", s.fetchSeqs(r, 3), 8)
	_, err := r.Finish(t.Context(), mailbox.Finish{Completed: []string{p[0].ID, p[1].ID, p[2].ID}})
	s.must(err)
	s.wantSeqs("beside three answers not yet settled", s.fetchSeqs(r, 3), 8)
}

// spec/bugs.md RUN-3: context never crowds out what woke the agent.
func TestRUN3ContextFillsOnlyTheRoomLeft(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	r := s.runner(1)
	task := inRow("task")
	task.Kind = mailbox.KindTask
	rows := []mailbox.InRow{background("a"), background("b"), task}
	for i := range 8 {
		rows = append(rows, background(fmt.Sprint(i)))
	}
	s.put(rows...)
	s.wantSeqs("one task and the newest context", s.fetchSeqs(r, 5), 6, 16, 18, 20, 22)
	s.wantSeqs("no room", s.fetchSeqs(r, 1), 6)
}

// spec/bugs.md RUN-15 and spec/runner.md W20: a row for the next start is no matter of the first poll but of the incarnation.
func TestRUN15RowsForALaterIncarnation(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	note := inRow("note")
	note.AfterIncarnation = 4
	s.put(note, inRow("any"))
	r := s.runner(4)
	s.wantSeqs("dying incarnation", s.fetchSeqs(r, 10), 4)
	r = s.runner(5)
	s.wantSeqs("new incarnation with a full batch", s.fetchSeqs(r, 1), 2)
	s.wantSeqs("and again at its second poll", s.fetchSeqs(r, 10), 2, 4)
}

// spec/runner.md W15: rows of kind system take no slot and wake nobody, but can be looked up.
func TestW15SystemRowsStayOutOfBatches(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	r := s.runner(1)
	var rows []mailbox.InRow
	for i := range 20 {
		row := inRow("answer")
		row.Kind, row.ID = mailbox.KindSystem, fmt.Sprintf("qr-%d", i)
		rows = append(rows, row)
	}
	s.put(rows...)
	if n, _, err := s.h.Due(t.Context()); err != nil || n != 0 {
		t.Errorf("%d system rows are due, error %v", n, err)
	}
	s.wantSeqs("nothing but answers", s.fetchSeqs(r, 10))
	s.put(inRow("question"))
	s.wantSeqs("behind twenty answers", s.fetchSeqs(r, 3), 42)
	if row, err := r.Row(t.Context(), "qr-7"); err != nil || row.Kind != mailbox.KindSystem {
		t.Errorf("answer by id: %+v, error %v", row, err)
	}
}

// spec/runner.md W14: a row that is not what a host writes is handed over to be failed; the others go on.
func TestW14BrokenRowsAreSetAside(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	r := s.runner(1)
	s.put(inRow("good"))
	const insert = `INSERT INTO messages_in (seq, id, kind, timestamp, content) VALUES `
	raw(t, filepath.Join(s.dir, inDir, inboundFile),
		insert+`(4, 'msg-json', 'chat', '2026-01-02T03:04:05.000Z', '{"text":')`,
		insert+`(6, 'msg-null', 'chat', '2026-01-02T03:04:05.000Z', 'null')`,
		insert+`(8, 'msg-kind', 'rumour', '2026-01-02T03:04:05.000Z', '{}')`,
		insert+`(10, 'msg-time', 'chat', 'noon', '{}')`,
		insert+`(12, 'msg-old', 'chat-sdk', '2026-01-02 03:04:05', '{}')`)
	batch, err := r.Fetch(t.Context(), 10)
	s.must(err)
	if len(batch.Rows) != 2 || batch.Rows[0].Seq != 2 || batch.Rows[1].ID != "msg-old" {
		t.Errorf("good rows: %+v", batch.Rows)
	}
	var broken []string
	for _, b := range batch.Broken {
		broken = append(broken, b.ID)
		if b.Reason == "" {
			t.Errorf("%s has no reason", b.ID)
		}
	}
	slices.Sort(broken)
	if want := []string{"msg-json", "msg-kind", "msg-null", "msg-time"}; !slices.Equal(broken, want) {
		t.Errorf("broken %v, want %v", broken, want)
	}
	_, err = r.Finish(t.Context(), mailbox.Finish{Failed: batch.Broken})
	s.must(err)
	if batch, err := r.Fetch(t.Context(), 10); err != nil || len(batch.Broken) != 0 || len(batch.Rows) != 2 {
		t.Errorf("after failing them: %+v, error %v", batch, err)
	}
	acks, _, err := s.h.Acks(t.Context(), 0)
	s.must(err)
	s.must(s.h.Settle(t.Context(), acks...))
	if n, _, err := s.h.Due(t.Context()); err != nil || n != 2 {
		t.Errorf("%d rows due, error %v", n, err)
	}
}

// An unfinished exchange is run again with exactly its rows, the oldest first, before anything else.
func TestUnfinishedExchangesComeFirst(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	r := s.runner(1)
	p := s.put(inRow("a"), background("b"), inRow("c"), inRow("d"), background("e"))
	s.must(r.Claim(t.Context(), "ex-late", []string{p[2].ID}))
	s.must(r.Claim(t.Context(), "ex-early", []string{p[0].ID, p[1].ID, p[3].ID}))
	r = s.runner(2)
	batch, err := r.Fetch(t.Context(), 2)
	s.must(err)
	for i, want := range []int64{2, 4, 8} {
		if len(batch.Rows) != 3 || batch.Rows[i].Seq != want || batch.Rows[i].Exchange != "ex-early" {
			t.Fatalf("oldest exchange: %+v", batch.Rows)
		}
	}
	s.must(r.Claim(t.Context(), "ex-early", []string{p[0].ID, p[1].ID, p[3].ID}))
	s.wantSeqs("the other exchange", s.fetchSeqs(r, 10), 6)
	_, err = r.Finish(t.Context(), mailbox.Finish{Completed: []string{p[0].ID, p[1].ID, p[3].ID}})
	s.must(err)
	s.must(r.Claim(t.Context(), "ex-late", []string{p[2].ID}))
	s.wantSeqs("context alone", s.fetchSeqs(r, 10))
	// A process of the same incarnation that starts again takes its own claims for dead.
	s.must(r.Close())
	r = s.runner(2)
	s.wantSeqs("restarted", s.fetchSeqs(r, 10), 6)
}

func TestHeldExchangeSetsNext(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	r := s.runner(1)
	p := s.put(inRow("a"), inRow("b"))
	s.must(r.Claim(t.Context(), "ex-1", []string{p[0].ID, p[1].ID}))
	r = s.runner(2)
	_, err := s.h.CountTries(t.Context(), 2, func(int) (time.Duration, bool) { return time.Hour, false })
	s.must(err)
	batch, err := r.Fetch(t.Context(), 10)
	s.must(err)
	if len(batch.Rows) != 0 || time.Until(batch.Next) < 30*time.Minute || time.Until(batch.Next) > time.Hour {
		t.Errorf("%d rows, next in %s", len(batch.Rows), time.Until(batch.Next))
	}
}

// spec/bugs.md PERF-3: no statement has a variable per row.
func TestManyPendingRowsDrain(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	r := s.runner(1)
	n := 33_000 // above SQLite's limit of variables
	if raceDetector {
		n = 2_000
	}
	rows := make([]mailbox.InRow, n)
	for i := range rows {
		rows[i] = inRow("x")
	}
	s.put(rows...)
	seen := 0
	for {
		batch, err := r.Fetch(t.Context(), 5000)
		s.must(err)
		if len(batch.Rows) == 0 {
			break
		}
		var ids []string
		for _, row := range batch.Rows {
			ids = append(ids, row.ID)
		}
		s.must(r.Claim(t.Context(), "ex-1", ids))
		_, err = r.Finish(t.Context(), mailbox.Finish{Completed: ids})
		s.must(err)
		seen += len(ids)
		s.settle()
	}
	if n, _, err := s.h.Due(t.Context()); err != nil || n != 0 || seen != len(rows) {
		t.Errorf("fetched %d, %d left due, error %v", seen, n, err)
	}
}

// settle copies all acks as a host does.
func (s *session) settle() {
	s.Helper()
	for cursor := int64(0); ; {
		acks, next, err := s.h.Acks(s.Context(), cursor)
		s.must(err)
		if next == cursor {
			return
		}
		s.must(s.h.Settle(s.Context(), acks...))
		cursor = next
	}
}

// Whatever the order of puts, claims, answers, releases and restarts: no row is lost, no finished row comes back, no batch
// holds a row somebody works on.
func TestFetchProperty(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	incarnation := int64(0)
	rapid.Check(t, func(rt *rapid.T) {
		incarnation++
		r, err := OpenRunner(t.Context(), s.dir, RunnerOptions{Incarnation: incarnation})
		s.must(err)
		defer func() { _ = r.Close() }()
		claimed, done, exchanges := map[string]bool{}, map[string]bool{}, 0
		for range rapid.IntRange(1, 6).Draw(rt, "steps") {
			switch rapid.IntRange(0, 2).Draw(rt, "step") {
			case 0:
				row := inRow("x")
				row.Trigger = rapid.Bool().Draw(rt, "trigger")
				s.put(row)
			case 1:
				batch, err := r.Fetch(t.Context(), rapid.IntRange(1, 4).Draw(rt, "limit"))
				s.must(err)
				var ids []string
				exchanges++
				exchange := fmt.Sprintf("ex-%d-%d", incarnation, exchanges)
				for i, row := range batch.Rows {
					if claimed[row.ID] || done[row.ID] {
						rt.Fatalf("row %d comes twice", row.Seq)
					}
					if i > 0 && (row.Seq <= batch.Rows[i-1].Seq || row.Exchange != batch.Rows[0].Exchange) {
						rt.Fatalf("batch out of order or mixed: %+v", batch.Rows)
					}
					if row.Exchange != "" {
						exchange = row.Exchange
					}
					ids, claimed[row.ID] = append(ids, row.ID), true
				}
				s.must(r.Claim(t.Context(), exchange, ids))
			case 2:
				var f mailbox.Finish
				for rowID := range claimed {
					if rapid.Bool().Draw(rt, "release") {
						f.Release = append(f.Release, rowID)
					} else {
						f.Completed, done[rowID] = append(f.Completed, rowID), true
					}
					delete(claimed, rowID)
				}
				_, err := r.Finish(t.Context(), f)
				s.must(err)
			}
		}
	})
	r := s.runner(incarnation + 1)
	s.put(inRow("last"))
	for {
		batch, err := r.Fetch(t.Context(), 100)
		s.must(err)
		if len(batch.Rows) == 0 {
			break
		}
		var ids []string
		for _, row := range batch.Rows {
			ids = append(ids, row.ID)
		}
		_, err = r.Finish(t.Context(), mailbox.Finish{Completed: ids})
		s.must(err)
	}
	s.settle()
	if n, _, err := s.h.Due(t.Context()); err != nil || n != 0 {
		t.Errorf("%d rows were lost sight of, error %v", n, err)
	}
}
