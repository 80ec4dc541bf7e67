package sqlite

import (
	"context"
	"database/sql"
	"encoding/binary"
	"os"
	"slices"

	"nanoclaw/internal/mailbox"
)

const (
	sqlDestinations = `SELECT name, display_name, type, channel_type, platform_id, agent_group_id FROM destinations ORDER BY name`
	sqlRouting      = `SELECT channel_type, platform_id, thread_id FROM session_routing WHERE id = 1`
	sqlLatestFrom   = `SELECT ` + inColumns + ` FROM messages_in WHERE channel_type = ? AND platform_id = ? ORDER BY seq DESC LIMIT 1`
	sqlDelivered    = `SELECT message_out_id, platform_message_id, status, delivered_at FROM delivered WHERE message_out_id = ?`
)

// inbound runs f, which may run more than once, on the inbound side.
func (r *Runner) inbound(ctx context.Context, what string, f func(k *conn) error) error {
	r.in.Lock()
	defer r.in.Unlock()
	return failure(what, retry(ctx, func() error { return f(r.in.conn) }))
}

// Destinations returns all names the agent may send to now, in order of name. The host may change them at any moment: ask each time.
func (r *Runner) Destinations(ctx context.Context) ([]mailbox.Destination, error) {
	all, err := r.destinations(ctx)
	return slices.Clone(all), err
}

// Destination looks one name up.
func (r *Runner) Destination(ctx context.Context, name string) (mailbox.Destination, bool, error) {
	return r.destination(ctx, func(d mailbox.Destination) bool { return d.Name == name })
}

// DestinationFor returns the name of an address; its thread does not count. With several names the first in order is returned.
func (r *Runner) DestinationFor(ctx context.Context, a mailbox.Address) (mailbox.Destination, bool, error) {
	a.ThreadID = ""
	agent := a.ChannelType == mailbox.ChannelAgent
	return r.destination(ctx, func(d mailbox.Destination) bool {
		return (d.Type == mailbox.DestinationAgent) == agent && d.Address() == a
	})
}

func (r *Runner) destination(ctx context.Context, is func(mailbox.Destination) bool) (mailbox.Destination, bool, error) {
	all, err := r.destinations(ctx)
	if err != nil {
		return mailbox.Destination{}, false, err
	}
	for _, d := range all {
		if is(d) {
			return d, true, nil
		}
	}
	return mailbox.Destination{}, false, nil
}

// names are the destinations as of one commit of the inbound file.
type names struct {
	of  uint32 // the file's change counter
	all []mailbox.Destination
}

// changeCounter is SQLite's count of commits in the header of a file in rollback-journal mode.
func changeCounter(f *os.File) (uint32, error) {
	var b [4]byte
	_, err := f.ReadAt(b[:], 24)
	return binary.BigEndian.Uint32(b[:]), err
}

// destinations reads the table anew only after a commit of the host: they are asked for at least twice in every exchange, and
// taking the lock costs more than the look at the file's change counter. A counter that is seen in the middle of a commit,
// or that a recovery will take back, leads to a read under the lock; only what was read there is kept.
func (r *Runner) destinations(ctx context.Context) ([]mailbox.Destination, error) {
	r.in.Lock()
	defer r.in.Unlock()
	if at, err := changeCounter(r.in.file); err == nil && r.in.names != nil && r.in.names.of == at {
		return r.in.names.all, nil
	}
	var fresh *names
	err := retry(ctx, func() error {
		fresh = &names{}
		return r.in.snapshot(func() error {
			err := r.in.rows(context.Background(), sqlDestinations, nil, func(rows *sql.Rows) error {
				var d mailbox.Destination
				var display, channel, platform, group sql.NullString
				if err := rows.Scan(&d.Name, &display, &d.Type, &channel, &platform, &group); err != nil {
					return err
				}
				d.DisplayName, d.ChannelType, d.PlatformID, d.AgentGroupID = display.String, channel.String, platform.String, group.String
				fresh.all = append(fresh.all, d)
				return nil
			})
			if err == nil {
				fresh.of, err = changeCounter(r.in.file) // no commit can end before the snapshot does
			}
			return err
		})
	})
	if err != nil {
		return nil, failure("read destinations", err)
	}
	r.in.names = fresh
	return fresh.all, nil
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

// InBySeq returns the inbound row with a number, of any kind and state.
func (r *Runner) InBySeq(ctx context.Context, seq int64) (row mailbox.InRow, found bool, err error) {
	err = r.inbound(ctx, "read inbound row", func(k *conn) error {
		found = false
		return k.rows(context.Background(), sqlInBySeq, []any{seq}, func(rows *sql.Rows) (err error) {
			found = true
			row, err = scanIn(rows)
			return err
		})
	})
	return row, found, err
}

// OutBySeq returns the own row with a number.
func (r *Runner) OutBySeq(ctx context.Context, seq int64) (row mailbox.OutRow, found bool, err error) {
	err = r.own(ctx, "read outbound row", func(ctx context.Context, k *conn) error {
		all, err := scanOut(ctx, k, sqlOutBySeq, seq)
		if found = err == nil && len(all) == 1 && all[0].Err == nil; found {
			row = all[0].Row
		}
		return err
	})
	return row, found, err
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
