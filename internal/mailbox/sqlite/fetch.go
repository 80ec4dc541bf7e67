package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"time"

	"nanoclaw/internal/mailbox"
)

// Batch is what an agent is asked next.
type Batch struct {
	// Rows in order of seq; at least one of them may wake. Nil: nothing to do.
	Rows []mailbox.InRow
	// System are rows that answer somebody inside: a question, a command. At most 100; finish each one.
	System []mailbox.InRow
	// Broken rows are due but no host writes them so. Fail them with their reason (Finish.Failed); they are never in Rows.
	Broken []mailbox.Failure
	// Next is when another row becomes due; zero: none is planned.
	Next time.Time
}

// SQLite plans a statement anew when another value is bound to its LIMIT or compared with a column of a partial index:
// the trigger is no parameter, and most pages have one size.
const (
	sqlReadyOldest = `SELECT seq, id FROM messages_in WHERE trigger = 1 AND status = 'pending' AND process_after IS NULL AND kind <> 'system'
AND after_incarnation < ? AND seq > ? ORDER BY seq LIMIT ?`
	sqlReadyNewest = `SELECT seq, id FROM messages_in WHERE trigger = 0 AND status = 'pending' AND process_after IS NULL AND kind <> 'system'
AND after_incarnation < ? AND seq < ? ORDER BY seq DESC LIMIT ?`
	sqlTimedOldest = `SELECT seq, id FROM messages_in WHERE trigger = 1 AND status = 'pending' AND process_after IS NOT NULL AND process_after <= ?
AND kind <> 'system' AND after_incarnation < ? ORDER BY seq`
	sqlTimedNewest = `SELECT seq, id FROM messages_in WHERE trigger = 0 AND status = 'pending' AND process_after IS NOT NULL AND process_after <= ?
AND kind <> 'system' AND after_incarnation < ? ORDER BY seq DESC`
	sqlClaimedRow = `SELECT seq, trigger, process_after FROM messages_in WHERE id = ? AND status = 'pending' AND kind <> 'system' AND after_incarnation < ?`
	sqlSystem     = `SELECT seq, id FROM messages_in WHERE status = 'pending' AND kind = 'system' ORDER BY seq LIMIT 100`
	sqlInBySeq    = `SELECT ` + inColumns + ` FROM messages_in WHERE seq = ?`
)

// Candidates are looked at by pages that grow while most of them turn out to be taken.
const (
	firstPage = 16
	lastPage  = 1024
)

// candidate is a due row that may still be claimed or finished.
type candidate struct {
	seq int64
	id  string
}

// Fetch returns the rows that the agent is to be asked about, and claims nothing (spec/runner.md section 3.3). Rows that this
// incarnation has claimed and rows with a final ack are left out first. If an earlier incarnation left an exchange
// unfinished, the batch is exactly the pending rows of the oldest such exchange, each with Exchange set, as soon as all of
// them are due. Otherwise: rows that may wake, oldest first, up to limit; then the newest context rows in the room that is
// left. Without a row that may wake there are no Rows. The cost depends on what is pending, not on history.
func (r *Runner) Fetch(ctx context.Context, limit int) (Batch, error) {
	r.out.Lock()
	defer r.out.Unlock()
	r.in.Lock()
	defer r.in.Unlock()
	f := fetch{ctx: ctx, in: r.in.conn, acks: r.acks, mine: r.opt.Incarnation, level: max(r.opt.Incarnation, 1), limit: max(limit, 1)}
	err := retry(ctx, func() error {
		f.now, f.batch, f.held = mailbox.FormatTime(r.opt.Now()), Batch{}, map[string]bool{}
		return r.in.snapshot(func() error {
			if r.out.conn == nil {
				return f.run()
			}
			return r.out.snapshot(f.run)
		})
	})
	if err != nil {
		return Batch{}, failure("fetch", err)
	}
	for _, row := range f.batch.Rows {
		r.seen(row.Seq)
	}
	return f.batch, nil
}

func (r *Runner) seen(seq int64) {
	for {
		known := r.seenIn.Load()
		if seq <= known || r.seenIn.CompareAndSwap(known, seq) {
			return
		}
	}
}

// fetch is one run of Fetch.
type fetch struct {
	ctx   context.Context
	in    *conn
	acks  ackReader
	mine  int64 // own incarnation
	level int64 // rows for starts after a lower one may be taken; a runner without an incarnation takes those for any start
	limit int
	now   string
	held  map[string]bool // ids that are not to be had now
	batch Batch
}

func (f *fetch) run() error {
	again, err := f.unfinished()
	if err != nil {
		return err
	}
	if err := f.system(); err != nil {
		return err
	}
	next, err := nextDue(f.in, f.now)
	if err != nil {
		return err
	}
	if f.batch.Next.IsZero() || !next.IsZero() && next.Before(f.batch.Next) {
		f.batch.Next = next
	}
	if len(again) > 0 {
		return f.load(again)
	}
	wake, err := f.pick(sqlReadyOldest, sqlTimedOldest, 0, f.limit)
	if err != nil || len(wake) == 0 {
		return err
	}
	if room := f.limit - len(wake); room > 0 {
		background, err := f.pick(sqlReadyNewest, sqlTimedNewest, 1<<62, room)
		if err != nil {
			return err
		}
		wake = append(wake, background...)
	}
	rows := make(map[int64]string, len(wake))
	for _, c := range wake {
		rows[c.seq] = ""
	}
	return f.load(rows)
}

// system reads the rows of kind system that are not finished. One that cannot be read is broken.
func (f *fetch) system() error {
	all, err := f.candidates(sqlSystem)
	if err != nil || len(all) == 0 {
		return err
	}
	if all, err = f.free(all); err != nil {
		return err
	}
	for _, c := range all {
		row, ok, err := f.row(c.seq)
		if err != nil {
			return err
		}
		if ok {
			f.batch.System = append(f.batch.System, row)
		}
	}
	return nil
}

// row reads one row. A row that cannot be read is put aside as broken, and one that is gone passed over: ok is then false.
func (f *fetch) row(seq int64) (row mailbox.InRow, ok bool, err error) {
	err = f.in.rows(context.Background(), sqlInBySeq, []any{seq}, func(r *sql.Rows) (err error) {
		row, err = scanIn(r)
		return err
	})
	if errors.Is(err, mailbox.ErrInvalid) {
		f.batch.Broken = append(f.batch.Broken, mailbox.Failure{ID: row.ID, Reason: err.Error()})
		return row, false, nil
	}
	return row, row.ID != "", err
}

// unfinished looks at the claims. It holds back what this incarnation works on and exchanges that are not due as a whole, and
// returns the rows (seq to exchange) of the oldest exchange to be run again.
func (f *fetch) unfinished() (map[int64]string, error) {
	claims, err := f.acks.claims(f.ctx)
	if err != nil {
		return nil, err
	}
	type exchange struct {
		id   string
		rows map[int64]string
		ids  []string
		min  int64
		wake bool
		due  string // when the last of its rows is due
	}
	all := map[string]*exchange{}
	for _, c := range claims {
		if c.Incarnation >= f.mine {
			f.held[c.MessageID] = true
			continue
		}
		if c.Exchange == "" {
			continue
		}
		var seq int64
		var trigger bool
		var after sql.NullString
		found, err := f.in.one(sqlClaimedRow, []any{c.MessageID, f.level}, &seq, &trigger, &after)
		if err != nil {
			return nil, err
		}
		if !found {
			continue
		}
		e := all[c.Exchange]
		if e == nil {
			e = &exchange{id: c.Exchange, rows: map[int64]string{}, min: seq}
			all[c.Exchange] = e
		}
		e.rows[seq], e.ids = c.Exchange, append(e.ids, c.MessageID)
		e.min, e.wake, e.due = min(e.min, seq), e.wake || trigger, max(e.due, after.String)
	}
	var oldest *exchange
	for _, e := range all {
		switch {
		case !e.wake: // only context is left of it: ordinary rows again
		case e.due > f.now:
			for _, message := range e.ids {
				f.held[message] = true
			}
			if at, err := mailbox.ParseTime(e.due); err == nil && (f.batch.Next.IsZero() || at.Before(f.batch.Next)) {
				f.batch.Next = at
			}
		case oldest == nil || e.min < oldest.min:
			oldest = e
		}
	}
	if oldest == nil {
		return nil, nil
	}
	return oldest.rows, nil
}

// pick returns up to room free rows: for waking rows the oldest, for context the newest, among those without a due time and
// those whose time has come.
func (f *fetch) pick(readyQuery, timedQuery string, from int64, room int) ([]candidate, error) {
	var ready []candidate
	for size := firstPage; len(ready) < room; size = min(4*size, lastPage) {
		page, err := f.candidates(readyQuery, f.level, from, size)
		if err != nil {
			return nil, err
		}
		if len(page) > 0 {
			from = page[len(page)-1].seq
		}
		last := len(page) < size
		if page, err = f.free(page); err != nil {
			return nil, err
		}
		ready = append(ready, page...)
		if last {
			break
		}
	}
	timed, err := f.candidates(timedQuery, f.now, f.level)
	if err != nil {
		return nil, err
	}
	if timed, err = f.free(timed); err != nil {
		return nil, err
	}
	if len(timed) > 0 {
		ready = append(ready, timed...)
		slices.SortFunc(ready, func(a, b candidate) int {
			if timedQuery == sqlTimedNewest {
				a, b = b, a
			}
			return int(min(max(a.seq-b.seq, -1), 1))
		})
	}
	return ready[:min(len(ready), room)], nil
}

func (f *fetch) candidates(query string, args ...any) ([]candidate, error) {
	var out []candidate
	err := f.in.rows(context.Background(), query, args, func(r *sql.Rows) error {
		var c candidate
		if err := r.Scan(&c.seq, &c.id); err != nil {
			return err
		}
		out = append(out, c)
		return nil
	})
	return out, err
}

// free leaves out rows that are held back or have a final ack.
func (f *fetch) free(rows []candidate) ([]candidate, error) {
	rows = slices.DeleteFunc(rows, func(c candidate) bool { return f.held[c.id] })
	if len(rows) == 0 {
		return nil, nil
	}
	done, err := f.acks.finished(f.ctx, rows)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(rows, func(c candidate) bool { return done[c.id] }), nil
}

// load reads the chosen rows and sets aside what cannot be used.
func (f *fetch) load(chosen map[int64]string) error {
	wake := false
	var rows []mailbox.InRow
	for seq, exchange := range chosen {
		row, ok, err := f.row(seq)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		row.Exchange = exchange
		wake = wake || row.Trigger
		rows = append(rows, row)
	}
	slices.SortFunc(rows, func(a, b mailbox.InRow) int { return int(min(max(a.Seq-b.Seq, -1), 1)) })
	if wake {
		f.batch.Rows = rows
	}
	return nil
}
