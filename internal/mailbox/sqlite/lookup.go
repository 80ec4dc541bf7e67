package sqlite

import (
	"context"
	"database/sql"

	"nanoclaw/internal/mailbox"
)

const (
	destinationColumns = `name, display_name, type, channel_type, platform_id, agent_group_id`
	sqlDestinations    = `SELECT ` + destinationColumns + ` FROM destinations ORDER BY name`
	sqlDestination     = `SELECT ` + destinationColumns + ` FROM destinations WHERE name = ?`
	sqlDestinationFor  = `SELECT ` + destinationColumns + ` FROM destinations WHERE type = 'channel' AND channel_type = ? AND platform_id = ?
ORDER BY name LIMIT 1`
	sqlDestinationAgent = `SELECT ` + destinationColumns + ` FROM destinations WHERE type = 'agent' AND agent_group_id = ? ORDER BY name LIMIT 1`
	sqlRouting          = `SELECT channel_type, platform_id, thread_id FROM session_routing WHERE id = 1`
	sqlLatestFrom       = `SELECT ` + inColumns + ` FROM messages_in WHERE channel_type = ? AND platform_id = ? ORDER BY seq DESC LIMIT 1`
	sqlDelivered        = `SELECT message_out_id, platform_message_id, status, delivered_at FROM delivered WHERE message_out_id = ?`
)

// inbound runs f, which may run more than once, on the inbound side.
func (r *Runner) inbound(ctx context.Context, what string, f func(k *conn) error) error {
	r.in.Lock()
	defer r.in.Unlock()
	return failure(what, retry(ctx, func() error { return f(r.in.conn) }))
}

// Destinations returns all names the agent may send to now, in order of name. The host may change them at any moment: ask each time.
func (r *Runner) Destinations(ctx context.Context) ([]mailbox.Destination, error) {
	return r.destinations(ctx, sqlDestinations)
}

// Destination looks one name up.
func (r *Runner) Destination(ctx context.Context, name string) (mailbox.Destination, bool, error) {
	return first(r.destinations(ctx, sqlDestination, name))
}

// DestinationFor returns the name of an address; its thread does not count. With several names the first in order is returned.
func (r *Runner) DestinationFor(ctx context.Context, a mailbox.Address) (mailbox.Destination, bool, error) {
	if a.ChannelType == mailbox.ChannelAgent {
		return first(r.destinations(ctx, sqlDestinationAgent, a.PlatformID))
	}
	return first(r.destinations(ctx, sqlDestinationFor, a.ChannelType, a.PlatformID))
}

func first(all []mailbox.Destination, err error) (mailbox.Destination, bool, error) {
	if err != nil || len(all) == 0 {
		return mailbox.Destination{}, false, err
	}
	return all[0], true, nil
}

func (r *Runner) destinations(ctx context.Context, query string, args ...any) ([]mailbox.Destination, error) {
	var out []mailbox.Destination
	err := r.inbound(ctx, "read destinations", func(k *conn) error {
		out = out[:0]
		return k.rows(context.Background(), query, args, func(rows *sql.Rows) error {
			var d mailbox.Destination
			var display, channel, platform, group sql.NullString
			if err := rows.Scan(&d.Name, &display, &d.Type, &channel, &platform, &group); err != nil {
				return err
			}
			d.DisplayName, d.ChannelType, d.PlatformID, d.AgentGroupID = display.String, channel.String, platform.String, group.String
			out = append(out, d)
			return nil
		})
	})
	return out, err
}

// Routing is where a reply without any other address goes; zero for a session without a chat.
func (r *Runner) Routing(ctx context.Context) (mailbox.Address, error) {
	var a mailbox.Address
	err := r.inbound(ctx, "read routing", func(k *conn) (err error) {
		a, err = routing(k)
		return err
	})
	return a, err
}

func routing(k *conn) (mailbox.Address, error) {
	var channel, platform, thread sql.NullString
	_, err := k.one(sqlRouting, nil, &channel, &platform, &thread)
	return mailbox.Address{ChannelType: channel.String, PlatformID: platform.String, ThreadID: thread.String}, err
}

// LatestFrom returns the newest inbound row of a chat (channel type and platform id; any thread) and whether there is one.
func (r *Runner) LatestFrom(ctx context.Context, a mailbox.Address) (mailbox.InRow, bool, error) {
	var row mailbox.InRow
	found := false
	err := r.inbound(ctx, "read newest row of chat", func(k *conn) error {
		found = false
		return k.rows(context.Background(), sqlLatestFrom, []any{a.ChannelType, a.PlatformID}, func(rows *sql.Rows) (err error) {
			found = true
			row, err = scanIn(rows)
			return err
		})
	})
	r.seen(row.Seq)
	return row, found, err
}

// Row returns one inbound row, of any kind and state, or mailbox.ErrNotExist.
func (r *Runner) Row(ctx context.Context, id string) (mailbox.InRow, error) {
	var row mailbox.InRow
	err := r.inbound(ctx, "read inbound row", func(k *conn) (err error) {
		row, err = rowByID(k, id)
		return err
	})
	r.seen(row.Seq)
	return row, err
}

// Delivered returns what became of an outbound row and whether the host has said so yet.
func (r *Runner) Delivered(ctx context.Context, messageOutID string) (mailbox.Delivered, bool, error) {
	var d mailbox.Delivered
	found := false
	err := r.inbound(ctx, "read delivery", func(k *conn) error {
		var platform sql.NullString
		var at string
		var err error
		if found, err = k.one(sqlDelivered, []any{messageOutID}, &d.MessageOutID, &platform, &d.Status, &at); err != nil || !found {
			return err
		}
		d.PlatformMessageID = platform.String
		d.DeliveredAt, err = mailbox.ParseTime(at)
		return err
	})
	return d, found, err
}

// Routing is the address that SetRouting stored.
func (h *Host) Routing(ctx context.Context) (mailbox.Address, error) {
	var a mailbox.Address
	err := h.look(ctx, "read routing", func(k *conn) (err error) {
		a, err = routing(k)
		return err
	})
	return a, err
}
