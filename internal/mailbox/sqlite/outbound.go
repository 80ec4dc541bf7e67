package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"time"

	"nanoclaw/internal/id"
	"nanoclaw/internal/mailbox"
)

// Bounds of one read, whatever the caller asks for: rows, and bytes of content.
const (
	maxOutRows  = 1000
	maxOutBytes = 16 << 20
)

// Columns of a hostile file: a value longer than its bound (mailbox.MaxField, mailbox.MaxContent) arrives as an empty blob,
// without being read.
const (
	outColumns = `seq, iif(octet_length(id) > 1024, x'', id), iif(octet_length(in_reply_to) > 1024, x'', in_reply_to),
iif(octet_length(timestamp) > 1024, x'', timestamp), iif(octet_length(deliver_after) > 1024, x'', deliver_after),
iif(octet_length(kind) > 1024, x'', kind), iif(octet_length(channel_type) > 1024, x'', channel_type),
iif(octet_length(platform_id) > 1024, x'', platform_id), iif(octet_length(thread_id) > 1024, x'', thread_id),
iif(octet_length(content) > 262144, x'', content), iif(octet_length(incarnation) > 1024, x'', incarnation),
iif(octet_length(exchange) > 1024, x'', exchange), iif(octet_length(segment) > 1024, x'', segment),
iif(octet_length(fallback) > 1024, x'', fallback)`
	ackColumns = `change, iif(octet_length(message_id) > 1024, x'', message_id), iif(octet_length(status) > 1024, x'', status),
iif(octet_length(status_changed) > 1024, x'', status_changed), iif(octet_length(incarnation) > 1024, x'', incarnation),
iif(octet_length(exchange) > 1024, x'', exchange), iif(octet_length(reason) > 262144, x'', reason)`

	sqlOutAfter     = `SELECT ` + outColumns + ` FROM messages_out WHERE seq > ? ORDER BY seq LIMIT ?`
	sqlAcksAfter    = `SELECT ` + ackColumns + ` FROM processing_ack WHERE change > ? ORDER BY change LIMIT 1000`
	sqlAcksNewest   = `SELECT ` + ackColumns + ` FROM processing_ack ORDER BY change DESC LIMIT 1000`
	sqlClaims       = `SELECT ` + ackColumns + ` FROM processing_ack WHERE status = 'processing' LIMIT 10000`
	sqlSessionState = `SELECT iif(octet_length(key) > 1024, x'', key), iif(octet_length(value) > 262144, x'', value)
FROM session_state WHERE key < 'trace:' OR key >= 'trace;' LIMIT 1000` // notes are read one at a time
	sqlContainerState = `SELECT iif(octet_length(turn) > 1024, x'', turn), iif(octet_length(current_tool) > 1024, x'', current_tool),
iif(octet_length(tool_declared_timeout_ms) > 1024, x'', tool_declared_timeout_ms),
iif(octet_length(tool_started_at) > 1024, x'', tool_started_at), iif(octet_length(updated_at) > 1024, x'', updated_at),
iif(octet_length(queued) > 1024, x'', queued)
FROM container_state WHERE id = 1`
)

// OutResult is one outbound row. With Err set the row is one no runner writes (Err is a *mailbox.FieldError): Row then holds
// only its seq and, where it can be read, its id, for the record; the caller sets it aside and goes on.
type OutResult struct {
	Row mailbox.OutRow
	Err error
}

// Outbound returns the rows after a seq in order of seq: at most limit, at most 1,000, and at most about 16 MiB of content;
// none means that there is nothing newer. It returns mailbox.ErrHostile when the file as a whole is not what a runner
// writes, and mailbox.ErrBusy when its lock is held for too long. Nothing is ever written below out/.
func (h *Host) Outbound(ctx context.Context, afterSeq int64, limit int) ([]OutResult, error) {
	var out []OutResult
	err := h.outside(ctx, "read outbound rows", func(ctx context.Context, k *conn) error {
		out = out[:0]
		last, bytes := afterSeq, 0
		err := k.rows(ctx, sqlOutAfter, []any{afterSeq, min(max(limit, 0), maxOutRows)}, func(r *sql.Rows) error {
			raw, err := scanRaw(r)
			if err != nil {
				return err
			}
			if raw.Seq <= last {
				return fmt.Errorf("%w: rows out of order", mailbox.ErrHostile)
			}
			last = raw.Seq
			row, err := DecodeOut(raw)
			out = append(out, OutResult{Row: row, Err: err})
			if bytes += len(row.Content); bytes > maxOutBytes {
				return errEnough
			}
			return nil
		})
		if errors.Is(err, errEnough) {
			return nil
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// errEnough ends a read whose answer is large enough.
var errEnough = errors.New("enough")

// outside runs f on a consistent state of the outbound file, see outside.read.
func (h *Host) outside(ctx context.Context, what string, f func(ctx context.Context, k *conn) error) error {
	h.out.Lock()
	defer h.out.Unlock()
	return h.out.read(ctx, what, f)
}

// Acks returns the acks that changed since a cursor, oldest change first, and the next cursor; start with 0. A call returns at
// most 1,000 of them: call again until the cursor stays the same. An ack that changed twice appears once, with its last state;
// a claim that was given back does not appear. Rows that no runner writes are left out.
func (h *Host) Acks(ctx context.Context, afterChange int64) ([]mailbox.Ack, int64, error) {
	next := afterChange
	var out []mailbox.Ack
	err := h.outside(ctx, "read acks", func(ctx context.Context, k *conn) (err error) {
		next = afterChange
		out, err = scanAcks(ctx, k, sqlAcksAfter, []any{afterChange}, &next)
		return err
	})
	if err != nil {
		return nil, afterChange, err
	}
	return out, next, nil
}

// Claims returns the rows that are claimed and not finished, of any incarnation, oldest change first.
func (h *Host) Claims(ctx context.Context) ([]mailbox.Ack, error) {
	var out []mailbox.Ack
	err := h.outside(ctx, "read claims", func(ctx context.Context, k *conn) (err error) {
		out, err = scanAcks(ctx, k, sqlClaims, nil, nil)
		return err
	})
	return out, err
}

func scanAcks(ctx context.Context, k *conn, query string, args []any, highest *int64) ([]mailbox.Ack, error) {
	var out []mailbox.Ack
	err := k.rows(ctx, query, args, func(r *sql.Rows) error {
		var change int64
		var message, status, at, incarnation, exchange, reason any
		if err := r.Scan(&change, &message, &status, &at, &incarnation, &exchange, &reason); err != nil {
			return err
		}
		if highest != nil {
			*highest = max(*highest, change)
		}
		var f field
		a := mailbox.Ack{
			MessageID: f.text("message_id", message, false), Status: mailbox.AckStatus(f.text("status", status, false)),
			Incarnation: f.number("incarnation", incarnation), Exchange: f.text("exchange", exchange, true), Reason: f.text("reason", reason, true),
		}
		changed, err := mailbox.ParseTime(f.text("status_changed", at, false))
		if f.err != nil || err != nil || !id.Safe(a.MessageID) || a.Exchange != "" && !id.Safe(a.Exchange) ||
			a.Status != mailbox.AckProcessing && !a.Status.Final() {
			return nil
		}
		a.StatusChanged = changed
		out = append(out, a)
		return nil
	})
	return out, err
}

// State returns what the runner says of itself: session state, container state, heartbeat, and acks: all claims and the 1,000
// newest others, oldest change first. Fields that no runner writes so are left empty.
func (h *Host) State(ctx context.Context) (mailbox.State, error) {
	var s mailbox.State
	err := h.outside(ctx, "read state", func(ctx context.Context, k *conn) error {
		s = mailbox.State{Session: map[string]string{}}
		claims, err := scanAcks(ctx, k, sqlClaims, nil, nil)
		if err != nil {
			return err
		}
		newest, err := scanAcks(ctx, k, sqlAcksNewest, nil, nil)
		if err != nil {
			return err
		}
		s.Acks = claims
		for i := len(newest) - 1; i >= 0; i-- {
			if newest[i].Status.Final() {
				s.Acks = append(s.Acks, newest[i])
			}
		}
		if err := k.rows(ctx, sqlSessionState, nil, func(r *sql.Rows) error {
			var key, value any
			if err := r.Scan(&key, &value); err != nil {
				return err
			}
			var f field
			if k, v := f.text("key", key, false), f.text("value", value, false); f.err == nil {
				s.Session[k] = v
			}
			return nil
		}); err != nil {
			return err
		}
		s.Container, err = containerState(ctx, k)
		return err
	})
	if err != nil {
		return mailbox.State{}, err
	}
	if s.Session == nil {
		s.Session = map[string]string{}
	}
	h.out.Lock()
	defer h.out.Unlock()
	s.Heartbeat = h.out.heartbeat(h.opt.Now())
	return s, nil
}

func containerState(ctx context.Context, k *conn) (mailbox.ContainerState, error) {
	var c mailbox.ContainerState
	err := k.rows(ctx, sqlContainerState, nil, func(r *sql.Rows) error {
		var turn, tool, timeout, started, updated, queued any
		if err := r.Scan(&turn, &tool, &timeout, &started, &updated, &queued); err != nil {
			return err
		}
		var f field
		c.Turn = mailbox.Turn(f.text("turn", turn, true))
		if c.Turn != mailbox.TurnWorking && c.Turn != mailbox.TurnIdle {
			c.Turn = ""
		}
		c.CurrentTool = f.text("current_tool", tool, true)
		if ms, ok := timeout.(int64); ok && ms > 0 && ms < math.MaxInt64/int64(time.Millisecond) {
			c.ToolTimeout = time.Duration(ms) * time.Millisecond
		}
		c.ToolStartedAt, _ = mailbox.ParseTime(f.text("tool_started_at", started, true))
		c.UpdatedAt, _ = mailbox.ParseTime(f.text("updated_at", updated, false))
		if n, ok := queued.(int64); ok && n > 0 && n < math.MaxInt32 {
			c.Queued = int(n)
		}
		return nil
	})
	return c, err
}
