package sqlite

import (
	"context"
	"database/sql"
	"time"

	"nanoclaw/internal/mailbox"
)

const (
	sqlSettle = `UPDATE messages_in SET status = ? WHERE id = ? AND status = 'pending'`
	sqlTries  = `SELECT tries, tried_incarnation FROM messages_in WHERE id = ? AND status = 'pending'`
	sqlGone   = `SELECT tries FROM messages_in WHERE id = ? AND status = 'failed' AND tried_incarnation IS NOT NULL`
	sqlRetry  = `UPDATE messages_in SET tries = ?, tried_incarnation = ?, process_after = ? WHERE id = ?`
	sqlGiveUp = `UPDATE messages_in SET tries = ?, tried_incarnation = ?, status = 'failed' WHERE id = ?`
)

// Due counts the rows that may wake the agent and are due by the mailbox's clock, and gives the earliest moment at which
// another one becomes due (zero: none). Rows of kind system wake nobody and are not counted. A row that the agent has
// claimed or answered counts until Settle has copied its ack.
func (h *Host) Due(ctx context.Context) (count int, next time.Time, err error) {
	err = h.look(ctx, "count due rows", func(k *conn) error {
		var ready, timed int
		if _, err := k.one(sqlDueReady, nil, &ready); err != nil {
			return err
		}
		now := h.now()
		if _, err := k.one(sqlDueTimed, []any{now}, &timed); err != nil {
			return err
		}
		count = ready + timed
		var err error
		next, err = nextDue(k, now)
		return err
	})
	return count, next, err
}

// nextDue is the earliest process_after later than now of a row that may wake.
func nextDue(k *conn, now string) (time.Time, error) {
	var at sql.NullString
	if _, err := k.one(sqlNextDue, []any{now}, &at); err != nil {
		return time.Time{}, err
	}
	return mailbox.ParseTime(at.String)
}

// Settle copies final acks into the rows' status: completed, or failed for every other final ack. Acks that are not final,
// of unknown rows and of rows that are final already change nothing, so it may be repeated at will.
func (h *Host) Settle(ctx context.Context, acks ...mailbox.Ack) error {
	return h.Project(ctx, acks, nil)
}

func settle(k *conn, acks []mailbox.Ack) error {
	for _, a := range acks {
		status := mailbox.StatusFailed
		if a.Status == mailbox.AckCompleted {
			status = mailbox.StatusCompleted
		}
		if _, err := k.exec(sqlSettle, string(status), a.MessageID); err != nil {
			return err
		}
	}
	return nil
}

// Tried is a row whose claim died with its incarnation.
type Tried struct {
	ID          string
	Tries       int  // with this one
	Failed      bool // given up: the row is failed now
	Again       bool // it was given up by an earlier call
	Incarnation int64
	Exchange    string
}

// CountTries counts every claim of an incarnation other than live as one try of its row, once per row and incarnation.
// retry is given the number of tries, this one included, and says when the row may be tried again or that it is given up.
// Rows that are no longer pending are left alone; those that were given up are returned each time, since their caller may have
// died before it told anybody. Call it when an incarnation is known to have ended.
func (h *Host) CountTries(ctx context.Context, live int64, retry func(tries int) (after time.Duration, giveUp bool)) ([]Tried, error) {
	claims, err := h.Claims(ctx)
	if err != nil {
		return nil, err
	}
	dead := claims[:0]
	for _, c := range claims {
		if c.Incarnation != live {
			dead = append(dead, c)
		}
	}
	if len(dead) == 0 {
		return nil, nil
	}
	var out []Tried
	err = h.change(ctx, "count tries", func(k *conn) error {
		out = out[:0]
		for _, c := range dead {
			var tries int
			var counted sql.NullInt64
			found, err := k.one(sqlTries, []any{c.MessageID}, &tries, &counted)
			if err != nil {
				return err
			}
			if !found {
				if found, err = k.one(sqlGone, []any{c.MessageID}, &tries); err != nil {
					return err
				}
				if found {
					out = append(out, Tried{ID: c.MessageID, Tries: tries, Failed: true, Again: true, Incarnation: c.Incarnation, Exchange: c.Exchange})
				}
				continue
			}
			if counted.Valid && counted.Int64 >= c.Incarnation {
				continue
			}
			t := Tried{ID: c.MessageID, Tries: tries + 1, Incarnation: c.Incarnation, Exchange: c.Exchange}
			var after time.Duration
			after, t.Failed = retry(t.Tries)
			if t.Failed {
				_, err = k.exec(sqlGiveUp, t.Tries, c.Incarnation, t.ID)
			} else {
				_, err = k.exec(sqlRetry, t.Tries, c.Incarnation, mailbox.FormatTime(h.opt.Now().Add(after)), t.ID)
			}
			if err != nil {
				return err
			}
			out = append(out, t)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}
