package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"nanoclaw/internal/id"
	"nanoclaw/internal/mailbox"
)

// AgentGroup is one agent identity with its configuration.
type AgentGroup struct {
	ID            id.AgentGroup
	Name          string
	Folder        string // below <home>/groups
	Provider      string
	Model         string
	Effort        string
	AssistantName string
	MaxMessages   int
	Fallbacks     []Fallback // providers that stand in, in this order
}

// Fallback is a provider that stands in for the one before it. An empty model is the provider's own.
type Fallback struct {
	Provider string `json:"provider"`
	Model    string `json:"model,omitempty"`
}

// MessagingGroup is one chat on one adapter instance.
type MessagingGroup struct {
	ID                  id.MessagingGroup
	ChannelType         string
	Instance            string
	PlatformID          string
	Name                string
	IsGroup             bool
	UnknownSenderPolicy string
}

// Wiring says that an agent listens in a chat, and how.
type Wiring struct {
	ID                   id.Wiring
	AgentGroupID         id.AgentGroup
	EngageMode           string
	EngagePattern        string
	SenderScope          string
	IgnoredMessagePolicy string
	SessionMode          string
	Priority             int
}

// First is what the first run creates.
type First struct {
	Owner         id.User
	OwnerName     string
	AgentName     string
	Folder        string
	Provider      string
	Offline       string // name of the offline provider
	ChannelType   string
	Instance      string
	PlatformID    string
	DestinationAs string // local name of the chat in the agent's destination table
}

// Bootstrap creates owner, agent, chat, wiring and destination of the first run. It is idempotent by folder and chat: what
// is there stays as it is, except that the offline provider gives way to f.Provider. It returns the agent's id.
func (s *Store) Bootstrap(ctx context.Context, f First) (id.AgentGroup, error) {
	var group id.AgentGroup
	err := s.tx(ctx, "create the first agent", func(tx *txn) error {
		now := s.stampNow()
		exec := func(q string, args ...any) error {
			_, err := tx.ExecContext(ctx, q, args...)
			return err
		}
		if err := exec(`INSERT INTO users (id, display_name, created_at) VALUES (?, ?, ?) ON CONFLICT DO NOTHING`, f.Owner, f.OwnerName, now); err != nil {
			return err
		}
		if err := exec(`INSERT INTO user_roles (user_id, role, created_at) VALUES (?, 'owner', ?) ON CONFLICT DO NOTHING`, f.Owner, now); err != nil {
			return err
		}
		if err := exec(`INSERT INTO agent_groups (id, name, folder, created_at) VALUES (?, ?, ?, ?) ON CONFLICT (folder) DO NOTHING`,
			id.New(id.PrefixAgentGroup), f.AgentName, f.Folder, now); err != nil {
			return err
		}
		if err := tx.QueryRowContext(ctx, `SELECT id FROM agent_groups WHERE folder = ?`, f.Folder).Scan(&group); err != nil {
			return err
		}
		if err := exec(`INSERT INTO container_configs (agent_group_id, provider, assistant_name, updated_at) VALUES (?, ?, ?, ?)
			ON CONFLICT (agent_group_id) DO UPDATE SET provider = excluded.provider, updated_at = excluded.updated_at
			WHERE provider = ? AND provider <> excluded.provider`, group, f.Provider, f.AgentName, now, f.Offline); err != nil {
			return err
		}
		if err := exec(`INSERT INTO messaging_groups (id, channel_type, instance, platform_id, name, unknown_sender_policy, created_at)
			VALUES (?, ?, ?, ?, ?, 'strict', ?) ON CONFLICT (instance, platform_id) DO NOTHING`,
			id.New(id.PrefixMessagingGroup), f.ChannelType, f.Instance, f.PlatformID, f.DestinationAs, now); err != nil {
			return err
		}
		var chat id.MessagingGroup
		if err := tx.QueryRowContext(ctx, `SELECT id FROM messaging_groups WHERE instance = ? AND platform_id = ?`, f.Instance, f.PlatformID).Scan(&chat); err != nil {
			return err
		}
		if err := exec(`INSERT INTO wirings (id, messaging_group_id, agent_group_id, engage_mode, created_at) VALUES (?, ?, ?, 'pattern', ?)
			ON CONFLICT (messaging_group_id, agent_group_id) DO NOTHING`, id.New(id.PrefixWiring), chat, group, now); err != nil {
			return err
		}
		return exec(`INSERT INTO destinations (agent_group_id, name, display_name, messaging_group_id, created_at) VALUES (?, ?, ?, ?, ?)
			ON CONFLICT (agent_group_id, name) DO NOTHING`, group, f.DestinationAs, f.OwnerName, chat, now)
	})
	return group, err
}

// AgentGroup by id; ErrNotFound.
func (s *Store) AgentGroup(ctx context.Context, group id.AgentGroup) (AgentGroup, error) {
	g := AgentGroup{ID: group}
	err := s.r.QueryRowContext(ctx, `SELECT g.name, g.folder, c.provider, c.model, c.effort, c.assistant_name, c.max_messages, c.fallbacks
		FROM agent_groups g JOIN container_configs c ON c.agent_group_id = g.id WHERE g.id = ?`, group).
		Scan(&g.Name, &g.Folder, &g.Provider, &g.Model, &g.Effort, &g.AssistantName, &g.MaxMessages, (*fallbacks)(&g.Fallbacks))
	return g, found(err, "agent group "+string(group))
}

// AgentGroups of the home, in the order they were made.
func (s *Store) AgentGroups(ctx context.Context) ([]AgentGroup, error) {
	rows, err := s.r.QueryContext(ctx, `SELECT g.id, g.name, g.folder, c.provider, c.model, c.effort, c.assistant_name, c.max_messages, c.fallbacks
		FROM agent_groups g JOIN container_configs c ON c.agent_group_id = g.id ORDER BY g.id`)
	if err != nil {
		return nil, fmt.Errorf("list agent groups: %w", err)
	}
	return collect(rows, "list agent groups", func(g *AgentGroup) []any {
		return []any{&g.ID, &g.Name, &g.Folder, &g.Provider, &g.Model, &g.Effort, &g.AssistantName, &g.MaxMessages, (*fallbacks)(&g.Fallbacks)}
	})
}

// MessagingGroup is the chat of an adapter instance; ErrNotFound.
func (s *Store) MessagingGroup(ctx context.Context, instance, platformID string) (MessagingGroup, error) {
	g := MessagingGroup{Instance: instance, PlatformID: platformID}
	err := s.r.QueryRowContext(ctx, `SELECT id, channel_type, name, is_group, unknown_sender_policy FROM messaging_groups
		WHERE instance = ? AND platform_id = ?`, instance, platformID).
		Scan(&g.ID, &g.ChannelType, &g.Name, &g.IsGroup, &g.UnknownSenderPolicy)
	return g, found(err, "chat "+platformID+" on "+instance)
}

// MessagingGroupByID; ErrNotFound.
func (s *Store) MessagingGroupByID(ctx context.Context, chat id.MessagingGroup) (MessagingGroup, error) {
	g := MessagingGroup{ID: chat}
	err := s.r.QueryRowContext(ctx, `SELECT channel_type, instance, platform_id, name, is_group, unknown_sender_policy
		FROM messaging_groups WHERE id = ?`, chat).
		Scan(&g.ChannelType, &g.Instance, &g.PlatformID, &g.Name, &g.IsGroup, &g.UnknownSenderPolicy)
	return g, found(err, "chat "+string(chat))
}

// Wirings of a chat, highest priority first.
func (s *Store) Wirings(ctx context.Context, chat id.MessagingGroup) ([]Wiring, error) {
	rows, err := s.r.QueryContext(ctx, `SELECT id, agent_group_id, engage_mode, engage_pattern, sender_scope, ignored_message_policy,
		session_mode, priority FROM wirings WHERE messaging_group_id = ? ORDER BY priority DESC, id`, chat)
	if err != nil {
		return nil, fmt.Errorf("list wirings: %w", err)
	}
	return collect(rows, "list wirings", func(w *Wiring) []any {
		return []any{&w.ID, &w.AgentGroupID, &w.EngageMode, &w.EngagePattern, &w.SenderScope, &w.IgnoredMessagePolicy, &w.SessionMode, &w.Priority}
	})
}

// HasAccess reports whether the user may talk to the agent group: owner, global admin, or admin of that group
// (spec/host.md section 2.2; members come with the people of a later version of the schema).
func (s *Store) HasAccess(ctx context.Context, user id.User, group id.AgentGroup) (bool, error) {
	var n int
	err := s.r.QueryRowContext(ctx, `SELECT COUNT(*) FROM user_roles WHERE user_id = ? AND (agent_group_id = '' OR agent_group_id = ?)`, user, group).Scan(&n)
	if err != nil {
		return false, fmt.Errorf("read roles of %s: %w", user, err)
	}
	return n > 0, nil
}

// Owner is the first owner; ErrNotFound before the first run was set up.
func (s *Store) Owner(ctx context.Context) (id.User, error) {
	var u id.User
	err := s.r.QueryRowContext(ctx, `SELECT user_id FROM user_roles WHERE role = 'owner' ORDER BY created_at, user_id LIMIT 1`).Scan(&u)
	return u, found(err, "owner")
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

// ChatByAddress finds the chat of a channel type and platform id, the given instance first (spec/host.md section 9.3).
func (s *Store) ChatByAddress(ctx context.Context, channelType, platformID, preferred string) (MessagingGroup, error) {
	var g MessagingGroup
	err := s.r.QueryRowContext(ctx, `SELECT id, channel_type, instance, platform_id, name, is_group, unknown_sender_policy FROM messaging_groups
		WHERE channel_type = ? AND platform_id = ? ORDER BY instance = ? DESC, instance = channel_type DESC, instance LIMIT 1`,
		channelType, platformID, preferred).
		Scan(&g.ID, &g.ChannelType, &g.Instance, &g.PlatformID, &g.Name, &g.IsGroup, &g.UnknownSenderPolicy)
	return g, found(err, "chat "+platformID)
}

func found(err error, what string) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, sql.ErrNoRows):
		return fmt.Errorf("%s: %w", what, ErrNotFound)
	default:
		return fmt.Errorf("read %s: %w", what, err)
	}
}

// collect reads all rows into values of T.
func collect[T any](rows *sql.Rows, what string, fields func(*T) []any) ([]T, error) {
	defer func() { _ = rows.Close() }()
	var all []T
	for rows.Next() {
		var v T
		if err := rows.Scan(fields(&v)...); err != nil {
			return nil, fmt.Errorf("%s: %w", what, err)
		}
		all = append(all, v)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return all, nil
}
