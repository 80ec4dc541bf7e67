package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"

	"nanoclaw/internal/id"
	"nanoclaw/internal/mailbox"
)

const (
	sqlClearDestinations = `DELETE FROM destinations`
	sqlInsertDestination = `INSERT INTO destinations (name, display_name, type, channel_type, platform_id, agent_group_id) VALUES (?, ?, ?, ?, ?, ?)`
	sqlSetRouting        = `INSERT INTO session_routing (id, channel_type, platform_id, thread_id) VALUES (1, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET channel_type = excluded.channel_type, platform_id = excluded.platform_id, thread_id = excluded.thread_id`
	sqlMarkDelivered = `INSERT INTO delivered (message_out_id, platform_message_id, status, delivered_at) VALUES (?, ?, ?, ?)
ON CONFLICT (message_out_id) DO NOTHING`
	sqlPruneList      = `SELECT seq, id, status, timestamp FROM messages_in WHERE seq > ? ORDER BY seq LIMIT 500`
	sqlPruneRow       = `DELETE FROM messages_in WHERE seq = ? AND status <> 'pending' AND status <> 'paused'`
	sqlPruneDelivered = `DELETE FROM delivered WHERE delivered_at < ?`
)

// SetDestinations replaces all names the agent may send to, at once. A name must be unique and not empty.
func (h *Host) SetDestinations(ctx context.Context, all []mailbox.Destination) error {
	for i, d := range all {
		if d.Name == "" || d.Type != mailbox.DestinationChannel && d.Type != mailbox.DestinationAgent || d.Address().PlatformID == "" {
			return fmt.Errorf("set destinations: %w: number %d (%q) needs a name, a type of channel or agent, and what it stands for",
				mailbox.ErrInvalid, i+1, d.Name)
		}
		for _, e := range all[:i] {
			if e.Name == d.Name {
				return fmt.Errorf("set destinations: %w: the name %q stands there twice", mailbox.ErrInvalid, d.Name)
			}
		}
	}
	return h.change(ctx, "set destinations", func(k *conn) error {
		if _, err := k.exec(sqlClearDestinations); err != nil {
			return err
		}
		for _, d := range all {
			if _, err := k.exec(sqlInsertDestination, d.Name, null(d.DisplayName), string(d.Type), null(d.ChannelType), null(d.PlatformID),
				null(d.AgentGroupID)); err != nil {
				return err
			}
		}
		return nil
	})
}

// SetRouting sets where a reply without any other address goes. The zero address is a session without a chat.
func (h *Host) SetRouting(ctx context.Context, a mailbox.Address) error {
	return h.change(ctx, "set routing", func(k *conn) error {
		_, err := k.exec(sqlSetRouting, null(a.ChannelType), null(a.PlatformID), null(a.ThreadID))
		return err
	})
}

// MarkDelivered records what became of outbound rows. The first outcome of a row wins; a zero time is now.
func (h *Host) MarkDelivered(ctx context.Context, outcomes ...mailbox.Delivered) error {
	return h.Project(ctx, nil, outcomes)
}

// Project is Settle and MarkDelivered in one transaction: one wait for the disk.
func (h *Host) Project(ctx context.Context, acks []mailbox.Ack, outcomes []mailbox.Delivered) error {
	acks = slices.DeleteFunc(slices.Clone(acks), func(a mailbox.Ack) bool { return !a.Status.Final() })
	if len(acks)+len(outcomes) == 0 {
		return nil
	}
	return h.change(ctx, "settle acks and mark delivered", func(k *conn) error {
		if err := settle(k, acks); err != nil {
			return err
		}
		return h.markDelivered(k, outcomes)
	})
}

func (h *Host) markDelivered(k *conn, outcomes []mailbox.Delivered) error {
	for _, d := range outcomes {
		at := mailbox.FormatTime(d.DeliveredAt)
		if at == "" {
			at = h.now()
		}
		if d.Status == "" {
			d.Status = "delivered"
		}
		if _, err := k.exec(sqlMarkDelivered, d.MessageOutID, null(d.PlatformMessageID), d.Status, at); err != nil {
			return err
		}
	}
	return nil
}

// Prune removes inbound rows that are final and older than before, with their attachments, and delivery outcomes older than
// that. Numbers of removed rows are never given again. It returns how many rows went, and works in short transactions so
// that the agent's reads are not held up.
func (h *Host) Prune(ctx context.Context, before time.Time) (int, error) {
	limit := mailbox.FormatTime(before)
	if err := h.change(ctx, "prune", func(k *conn) error {
		highest, err := highestSeq(k, sqlMaxIn)
		if err != nil {
			return err
		}
		if _, err := k.exec(sqlSetCounter, counterSeq, highest); err != nil {
			return err
		}
		_, err = k.exec(sqlPruneDelivered, limit)
		return err
	}); err != nil {
		return 0, err
	}
	gone, after := 0, int64(0)
	for {
		seen, old, removed, err := h.prunePage(ctx, &after, limit)
		gone += len(removed)
		if err != nil {
			return gone, err
		}
		for _, rowID := range removed {
			if err := h.removeBlobs(rowID); err != nil {
				return gone, err
			}
		}
		// Rows stand in the order they came in: a page without an old one is the end.
		if seen == 0 || old == 0 {
			return gone, nil
		}
	}
}

func (h *Host) prunePage(ctx context.Context, after *int64, limit string) (seen, old int, removed []string, err error) {
	type candidate struct {
		seq int64
		id  string
	}
	var page []candidate
	last := *after
	err = h.look(ctx, "prune", func(k *conn) error {
		seen, old, page, last = 0, 0, page[:0], *after
		return k.rows(ctx, sqlPruneList, []any{*after}, func(r *sql.Rows) error {
			var c candidate
			var status mailbox.Status
			var stamp string
			if err := r.Scan(&c.seq, &c.id, &status, &stamp); err != nil {
				return err
			}
			seen++
			last = c.seq
			if stamp >= limit {
				return nil
			}
			old++
			if status != mailbox.StatusPending && status != mailbox.StatusPaused {
				page = append(page, c)
			}
			return nil
		})
	})
	if err != nil || len(page) == 0 {
		*after = last
		return seen, old, nil, err
	}
	err = h.change(ctx, "prune", func(k *conn) error {
		removed = removed[:0]
		for _, c := range page {
			n, err := k.exec(sqlPruneRow, c.seq)
			if err != nil {
				return err
			}
			if n > 0 && id.Safe(c.id) {
				removed = append(removed, c.id)
			}
		}
		return nil
	})
	if err == nil {
		*after = last
	}
	return seen, old, removed, err
}
