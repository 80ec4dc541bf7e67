package store

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"

	"nanoclaw/internal/id"
	"nanoclaw/internal/mailbox"
)

// Wiring says that an agent listens in a chat, and how.
type Wiring struct {
	ID                   id.Wiring
	MessagingGroupID     id.MessagingGroup
	AgentGroupID         id.AgentGroup
	EngageMode           EngageMode
	EngagePattern        string // RE2; empty or "." is every message; {name} is the agent's name
	SenderScope          SenderScope
	IgnoredMessagePolicy IgnoredPolicy
	SessionMode          SessionMode
	Threads              *bool // nil: as the channel has it
	Priority             int
}

const wiringColumns = `w.id, w.messaging_group_id, w.agent_group_id, w.engage_mode, w.engage_pattern, w.sender_scope, w.ignored_message_policy,
	w.session_mode, w.threads, w.priority`

func (w *Wiring) fields() []any {
	return []any{&w.ID, &w.MessagingGroupID, &w.AgentGroupID, &w.EngageMode, &w.EngagePattern, &w.SenderScope, &w.IgnoredMessagePolicy,
		&w.SessionMode, &w.Threads, &w.Priority}
}

// Wirings of a chat, highest priority first; an empty chat is all of them.
func (s *Store) Wirings(ctx context.Context, chat id.MessagingGroup) ([]Wiring, error) {
	where := ` WHERE w.messaging_group_id = ?`
	if chat == "" {
		where = ` WHERE ? = ''`
	}
	rows, err := s.r.QueryContext(ctx, `SELECT `+wiringColumns+` FROM wirings w`+where+` ORDER BY w.messaging_group_id, w.priority DESC, w.id`, chat)
	if err != nil {
		return nil, fmt.Errorf("list wirings: %w", err)
	}
	return collect(rows, "list wirings", (*Wiring).fields)
}

// Wiring by id; ErrNotFound.
func (s *Store) Wiring(ctx context.Context, wiring id.Wiring) (Wiring, error) {
	var w Wiring
	err := s.r.QueryRowContext(ctx, `SELECT `+wiringColumns+` FROM wirings w WHERE w.id = ?`, wiring).Scan(w.fields()...)
	return w, found(err, "wiring "+string(wiring))
}

func (w Wiring) check() error {
	for _, err := range []error{checkWord("engage_mode", w.EngageMode), checkWord("sender_scope", w.SenderScope),
		checkWord("ignored_message_policy", w.IgnoredMessagePolicy), checkWord("session_mode", w.SessionMode)} {
		if err != nil {
			return err
		}
	}
	_, err := CompilePattern(w.EngagePattern, "x")
	return err
}

func (w Wiring) detail() map[string]string {
	threads := "as the channel"
	if w.Threads != nil {
		threads = strconv.FormatBool(*w.Threads)
	}
	return map[string]string{"chat": string(w.MessagingGroupID), "agent_group": string(w.AgentGroupID), "engage_mode": string(w.EngageMode),
		"engage_pattern": w.EngagePattern, "sender_scope": string(w.SenderScope), "ignored_message_policy": string(w.IgnoredMessagePolicy),
		"session_mode": string(w.SessionMode), "threads": threads, "priority": strconv.Itoa(w.Priority)}
}

// AddWiring makes an agent listen in a chat, with a destination for its answers unless it has one, in one transaction
// (spec/operator.md section 5.3). A pair that is wired already is left as it is. It returns the wiring as it is stored; the
// error is a *FieldError, or ErrNotFound for a chat or agent that does not exist.
func (s *Store) AddWiring(ctx context.Context, actor string, w Wiring) (stored Wiring, changed bool, err error) {
	if err := w.check(); err != nil {
		return w, false, err
	}
	err = s.tx(ctx, "add wiring", func(tx *txn) error {
		w.ID = id.Wiring(id.New(id.PrefixWiring))
		stored, changed, err = s.wireIn(ctx, tx, actor, w)
		return err
	})
	if err == nil {
		s.moved(w.AgentGroupID)
	}
	return stored, changed, err
}

// wireIn adds a wiring that has an id.
func (s *Store) wireIn(ctx context.Context, tx *txn, actor string, w Wiring) (stored Wiring, changed bool, err error) {
	var chat MessagingGroup
	if err := found(tx.QueryRowContext(ctx, `SELECT `+chatColumns+` FROM messaging_groups WHERE id = ?`, w.MessagingGroupID).Scan(chat.fields()...), "chat "+string(w.MessagingGroupID)); err != nil {
		return w, false, err
	}
	if err := groupExists(ctx, tx, w.AgentGroupID); err != nil {
		return w, false, err
	}
	changed, err = touched(tx.ExecContext(ctx, `INSERT INTO wirings (id, messaging_group_id, agent_group_id, engage_mode, engage_pattern, sender_scope,
		ignored_message_policy, session_mode, threads, priority, created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (messaging_group_id, agent_group_id) DO NOTHING`, w.ID, w.MessagingGroupID, w.AgentGroupID, w.EngageMode, w.EngagePattern,
		w.SenderScope, w.IgnoredMessagePolicy, w.SessionMode, w.Threads, w.Priority, s.stampNow()))
	if err != nil {
		return w, false, err
	}
	if err := tx.QueryRowContext(ctx, `SELECT `+wiringColumns+` FROM wirings w WHERE w.messaging_group_id = ? AND w.agent_group_id = ?`,
		w.MessagingGroupID, w.AgentGroupID).Scan(stored.fields()...); err != nil {
		return w, false, err
	}
	if _, err := s.destinationTo(ctx, tx, w.AgentGroupID, chat); err != nil || !changed {
		return stored, changed, err
	}
	return stored, true, s.auditIn(ctx, tx, actor, "wiring.add", string(w.ID), w.detail())
}

// UpdateWiring stores new values of a wiring; its chat and agent stay. It reports whether anything changed; ErrNotFound, or a
// *FieldError.
func (s *Store) UpdateWiring(ctx context.Context, actor string, w Wiring) (changed bool, err error) {
	if err := w.check(); err != nil {
		return false, err
	}
	err = s.tx(ctx, "change wiring", func(tx *txn) error {
		var before Wiring
		if err := found(tx.QueryRowContext(ctx, `SELECT `+wiringColumns+` FROM wirings w WHERE w.id = ?`, w.ID).Scan(before.fields()...), "wiring "+string(w.ID)); err != nil {
			return err
		}
		w.MessagingGroupID, w.AgentGroupID = before.MessagingGroupID, before.AgentGroupID
		was, is := before.detail(), w.detail()
		for k, v := range is {
			if was[k] != v {
				is[k], changed = was[k]+" -> "+v, true
			}
		}
		if !changed {
			return nil
		}
		if _, err := tx.ExecContext(ctx, `UPDATE wirings SET engage_mode = ?, engage_pattern = ?, sender_scope = ?, ignored_message_policy = ?, session_mode = ?,
			threads = ?, priority = ? WHERE id = ?`, w.EngageMode, w.EngagePattern, w.SenderScope, w.IgnoredMessagePolicy, w.SessionMode, w.Threads, w.Priority, w.ID); err != nil {
			return err
		}
		return s.auditIn(ctx, tx, actor, "wiring.update", string(w.ID), is)
	})
	return changed, err
}

// RemoveWiring has an agent listen no more in a chat; ErrNotFound. Its conversations and its destination stay.
func (s *Store) RemoveWiring(ctx context.Context, actor string, wiring id.Wiring) error {
	return s.tx(ctx, "remove wiring", func(tx *txn) error {
		var w Wiring
		if err := found(tx.QueryRowContext(ctx, `SELECT `+wiringColumns+` FROM wirings w WHERE w.id = ?`, wiring).Scan(w.fields()...), "wiring "+string(wiring)); err != nil {
			return err
		}
		for _, q := range []string{`DELETE FROM engagements WHERE messaging_group_id = ? AND agent_group_id = ?`, `DELETE FROM wirings WHERE messaging_group_id = ? AND agent_group_id = ?`} {
			if _, err := tx.ExecContext(ctx, q, w.MessagingGroupID, w.AgentGroupID); err != nil {
				return err
			}
		}
		return s.auditIn(ctx, tx, actor, "wiring.remove", string(wiring), w.detail())
	})
}

// OnDestinations names a function that is called after an agent's destinations may have changed (I11, W66). It must not block.
// Call it before the store is used by others.
func (s *Store) OnDestinations(f func(group id.AgentGroup)) { s.onDestinations = f }

func (s *Store) moved(group id.AgentGroup) {
	if s.onDestinations != nil {
		s.onDestinations(group)
	}
}

// Target of a destination: exactly one of the two.
type Target struct {
	Chat  id.MessagingGroup
	Agent id.AgentGroup
}

// AddDestination lets an agent write to a target under a local name. The same name for the same target changes nothing; for
// another one it is a *ConflictError. ErrNotFound for an agent or target that does not exist; a *FieldError for a name.
func (s *Store) AddDestination(ctx context.Context, actor string, group id.AgentGroup, name string, to Target) (changed bool, err error) {
	if name == "" || len(name) > 64 || name != LocalName(name) {
		return false, &FieldError{"name", fmt.Sprintf("%q is not usable: at most 64 of a-z 0-9 and single dashes, for example %q", name, LocalName(name))}
	}
	err = s.tx(ctx, "add destination", func(tx *txn) error {
		for _, g := range []id.AgentGroup{group, to.Agent} {
			if err := groupExists(ctx, tx, g); err != nil {
				return err
			}
		}
		display := ""
		if to.Chat != "" {
			if err := found(tx.QueryRowContext(ctx, `SELECT name FROM messaging_groups WHERE id = ?`, to.Chat).Scan(&display), "chat "+string(to.Chat)); err != nil {
				return err
			}
		}
		changed, err = touched(tx.ExecContext(ctx, `INSERT INTO destinations (agent_group_id, name, display_name, messaging_group_id, target_group_id, created_at)
			VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`, group, name, display, null(string(to.Chat)), null(string(to.Agent)), s.stampNow()))
		if err != nil {
			return err
		}
		var there Target
		if err := tx.QueryRowContext(ctx, `SELECT COALESCE(messaging_group_id, ''), COALESCE(target_group_id, '') FROM destinations WHERE agent_group_id = ? AND name = ?`,
			group, name).Scan(&there.Chat, &there.Agent); err != nil {
			return err
		}
		if there != to {
			return &ConflictError{fmt.Sprintf("the name %s is taken by another destination of this agent", name)}
		}
		if !changed {
			return nil
		}
		return s.auditIn(ctx, tx, actor, "destination.add", string(group), map[string]string{"name": name, "chat": string(to.Chat), "agent": string(to.Agent)})
	})
	if err == nil {
		s.moved(group)
	}
	return changed, err
}

// ConflictError: something else is there already.
type ConflictError struct{ Reason string }

func (e *ConflictError) Error() string { return e.Reason }

// RemoveDestination takes a name away from an agent, and with it the right to write there; ErrNotFound.
func (s *Store) RemoveDestination(ctx context.Context, actor string, group id.AgentGroup, name string) error {
	err := s.tx(ctx, "remove destination", func(tx *txn) error {
		gone, err := touched(tx.ExecContext(ctx, `DELETE FROM destinations WHERE agent_group_id = ? AND name = ?`, group, name))
		if err != nil {
			return err
		}
		if !gone {
			return fmt.Errorf("destination %s: %w", name, ErrNotFound)
		}
		return s.auditIn(ctx, tx, actor, "destination.remove", string(group), map[string]string{"name": name})
	})
	if err == nil {
		s.moved(group)
	}
	return err
}

// destinationTo gives an agent a destination for a chat unless it has one (spec/host.md section 2.5).
func (s *Store) destinationTo(ctx context.Context, tx *txn, group id.AgentGroup, chat MessagingGroup) (bool, error) {
	var name string
	err := tx.QueryRowContext(ctx, `SELECT name FROM destinations WHERE agent_group_id = ? AND messaging_group_id = ? LIMIT 1`, group, chat.ID).Scan(&name)
	if err != sql.ErrNoRows {
		return false, err
	}
	base := LocalName(chat.Name)
	if chat.Name == "" {
		_, rest, _ := strings.Cut(string(chat.ID), "-")
		base = LocalName(chat.ChannelType + "-" + rest[:min(8, len(rest))])
	}
	for n := 1; n <= 1000; n++ {
		name := base
		if n > 1 {
			name += "-" + strconv.Itoa(n)
		}
		added, err := touched(tx.ExecContext(ctx, `INSERT INTO destinations (agent_group_id, name, display_name, messaging_group_id, created_at) VALUES (?, ?, ?, ?, ?)
			ON CONFLICT DO NOTHING`, group, name, chat.Name, chat.ID, s.stampNow()))
		if err != nil || added {
			return added, err
		}
	}
	return false, &ConflictError{"no free name for the chat among the agent's destinations"}
}

// LocalName is a text as a name of a destination: lower case, every run of other characters one dash, none at the ends.
func LocalName(s string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(s) {
		switch {
		case r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
			b.WriteRune(r)
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "-"):
			b.WriteByte('-')
		}
		if b.Len() >= 48 {
			break
		}
	}
	if name := strings.Trim(b.String(), "-"); name != "" {
		return name
	}
	return "unnamed"
}

// Destinations of an agent group, resolved to addresses; rows whose target is gone are left out.
func (s *Store) Destinations(ctx context.Context, group id.AgentGroup) ([]mailbox.Destination, error) {
	rows, err := s.r.QueryContext(ctx, `SELECT d.name, d.display_name, CASE WHEN d.target_group_id IS NULL THEN 'channel' ELSE 'agent' END,
		COALESCE(m.channel_type, ''), COALESCE(m.platform_id, ''), COALESCE(d.target_group_id, '')
		FROM destinations d LEFT JOIN messaging_groups m ON m.id = d.messaging_group_id WHERE d.agent_group_id = ? ORDER BY d.name`, group)
	if err != nil {
		return nil, fmt.Errorf("list destinations: %w", err)
	}
	return collect(rows, "list destinations", func(d *mailbox.Destination) []any {
		return []any{&d.Name, &d.DisplayName, &d.Type, &d.ChannelType, &d.PlatformID, &d.AgentGroupID}
	})
}

// MaySend reports whether the agent group has a destination row for the chat.
func (s *Store) MaySend(ctx context.Context, group id.AgentGroup, chat id.MessagingGroup) (bool, error) {
	var n int
	err := s.r.QueryRowContext(ctx, `SELECT COUNT(*) FROM destinations WHERE agent_group_id = ? AND messaging_group_id = ?`, group, chat).Scan(&n)
	if err != nil {
		return false, fmt.Errorf("read destinations of %s: %w", group, err)
	}
	return n > 0, nil
}
