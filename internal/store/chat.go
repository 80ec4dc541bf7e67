package store

import (
	"context"
	"fmt"

	"nanoclaw/internal/id"
)

// MessagingGroups of the home, in the order they were made.
func (s *Store) MessagingGroups(ctx context.Context) ([]MessagingGroup, error) {
	rows, err := s.r.QueryContext(ctx, `SELECT `+chatColumns+` FROM messaging_groups ORDER BY id`)
	if err != nil {
		return nil, fmt.Errorf("list chats: %w", err)
	}
	return collect(rows, "list chats", (*MessagingGroup).fields)
}

// MessagingGroup is the chat of an adapter instance; ErrNotFound.
func (s *Store) MessagingGroup(ctx context.Context, instance, platformID string) (MessagingGroup, error) {
	var g MessagingGroup
	err := s.r.QueryRowContext(ctx, `SELECT `+chatColumns+` FROM messaging_groups WHERE instance = ? AND platform_id = ?`, instance, platformID).Scan(g.fields()...)
	return g, found(err, "chat "+platformID+" on "+instance)
}

// MessagingGroupByID; ErrNotFound.
func (s *Store) MessagingGroupByID(ctx context.Context, chat id.MessagingGroup) (MessagingGroup, error) {
	var g MessagingGroup
	err := s.r.QueryRowContext(ctx, `SELECT `+chatColumns+` FROM messaging_groups WHERE id = ?`, chat).Scan(g.fields()...)
	return g, found(err, "chat "+string(chat))
}

// RegisterChat keeps a chat that was not known and returns it, or the one that somebody else has just made (spec/host.md section
// 7.1 step 4).
func (s *Store) RegisterChat(ctx context.Context, g MessagingGroup) (MessagingGroup, error) {
	if err := checkWord("unknown_sender_policy", g.UnknownSenderPolicy); err != nil {
		return g, fmt.Errorf("register chat: %w", err)
	}
	if g.ChannelType == "" || g.Instance == "" || g.PlatformID == "" {
		return g, fmt.Errorf("register chat: %w", &FieldError{"platform_id", "a chat has a channel type, an instance and an id"})
	}
	_, err := s.w.ExecContext(ctx, `INSERT INTO messaging_groups (id, channel_type, instance, platform_id, name, is_group, unknown_sender_policy, created_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (instance, platform_id) DO NOTHING`, id.New(id.PrefixMessagingGroup), g.ChannelType, g.Instance,
		g.PlatformID, g.Name, g.IsGroup, g.UnknownSenderPolicy, s.stampNow())
	if err != nil {
		return g, fmt.Errorf("register chat: %w", err)
	}
	return s.MessagingGroup(ctx, g.Instance, g.PlatformID)
}

// ChatChange is what is to change of a chat; nil fields stay.
type ChatChange struct {
	Name   *string
	Policy *UnknownSenderPolicy
	Denied *bool
}

// UpdateChat changes a chat and audits it. It returns the chat as it is then, and whether anything changed; ErrNotFound, or a
// *FieldError.
func (s *Store) UpdateChat(ctx context.Context, actor string, chat id.MessagingGroup, c ChatChange) (g MessagingGroup, changed bool, err error) {
	if c.Policy != nil {
		if err := checkWord("unknown_sender_policy", *c.Policy); err != nil {
			return g, false, err
		}
	}
	err = s.tx(ctx, "change chat", func(tx *txn) error {
		if err := found(tx.QueryRowContext(ctx, `SELECT `+chatColumns+` FROM messaging_groups WHERE id = ?`, chat).Scan(g.fields()...), "chat "+string(chat)); err != nil {
			return err
		}
		before := g
		if c.Name != nil {
			g.Name = *c.Name
		}
		if c.Policy != nil {
			g.UnknownSenderPolicy = *c.Policy
		}
		if c.Denied != nil {
			g.Denied = *c.Denied
		}
		if changed = g != before; !changed {
			return nil
		}
		denied := ""
		if g.Denied {
			denied = s.stampNow()
		}
		if _, err := tx.ExecContext(ctx, `UPDATE messaging_groups SET name = ?, unknown_sender_policy = ?, denied_at = ? WHERE id = ?`,
			g.Name, g.UnknownSenderPolicy, null(denied), chat); err != nil {
			return err
		}
		return s.auditIn(ctx, tx, actor, "chat.update", string(chat), map[string]string{"name": g.Name,
			"unknown_sender_policy": string(before.UnknownSenderPolicy) + " -> " + string(g.UnknownSenderPolicy), "denied": fmt.Sprint(g.Denied)})
	})
	return g, changed, err
}

// Dropped counts the messages of one sender in one chat that were not stored, for one reason.
type Dropped struct {
	Instance, PlatformID string
	User                 id.User
	Name                 string // of the sender, as the platform told it last
	Reason               string
	Count                int64
	First, Last          string
}

// maxDropped is how many rows are kept: strangers cannot fill the disk.
const maxDropped = 10_000

// NoteDropped counts one more dropped message (spec/host.md W63). Its text is not kept.
func (s *Store) NoteDropped(ctx context.Context, d Dropped) error {
	now := s.stampNow()
	return s.tx(ctx, "note dropped message", func(tx *txn) error {
		known, err := touched(tx.ExecContext(ctx, `UPDATE dropped_messages SET count = count + 1, last_seen = ?, sender_name = CASE WHEN ?2 = '' THEN sender_name ELSE ?2 END
			WHERE instance = ? AND platform_id = ? AND user_id = ? AND reason = ?`, now, d.Name, d.Instance, d.PlatformID, d.User, d.Reason))
		if err != nil || known {
			return err
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO dropped_messages (instance, platform_id, user_id, reason, sender_name, first_seen, last_seen)
			VALUES (?, ?, ?, ?, ?, ?, ?)`, d.Instance, d.PlatformID, d.User, d.Reason, d.Name, now, now); err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `DELETE FROM dropped_messages WHERE last_seen < (SELECT last_seen FROM dropped_messages ORDER BY last_seen DESC LIMIT 1 OFFSET ?)`, maxDropped)
		return err
	})
}

// DroppedMessages lists the newest first, at most limit.
func (s *Store) DroppedMessages(ctx context.Context, limit int) ([]Dropped, error) {
	rows, err := s.r.QueryContext(ctx, `SELECT instance, platform_id, user_id, sender_name, reason, count, first_seen, last_seen
		FROM dropped_messages ORDER BY last_seen DESC, instance, platform_id, user_id LIMIT ?`, limit)
	if err != nil {
		return nil, fmt.Errorf("list dropped messages: %w", err)
	}
	return collect(rows, "list dropped messages", func(d *Dropped) []any {
		return []any{&d.Instance, &d.PlatformID, &d.User, &d.Name, &d.Reason, &d.Count, &d.First, &d.Last}
	})
}

// LastTold is when somebody was told the thing called key; ErrNotFound.
func (s *Store) LastTold(ctx context.Context, key string) (at string, err error) {
	err = s.r.QueryRowContext(ctx, `SELECT at FROM told WHERE key = ?`, key).Scan(&at)
	return at, found(err, "note "+key)
}

// Told notes that somebody was told.
func (s *Store) Told(ctx context.Context, key, at string) error {
	if _, err := s.w.ExecContext(ctx, `INSERT INTO told (key, at) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET at = excluded.at WHERE excluded.at > at`, key, at); err != nil {
		return fmt.Errorf("note %s: %w", key, err)
	}
	return nil
}

// ToldSince counts what was told after a time.
func (s *Store) ToldSince(ctx context.Context, at string) (n int, err error) {
	if err := s.r.QueryRowContext(ctx, `SELECT COUNT(*) FROM told WHERE at > ?`, at).Scan(&n); err != nil {
		return 0, fmt.Errorf("count notices: %w", err)
	}
	return n, nil
}
