package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"nanoclaw/internal/id"
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
	Setup         Setup
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
	UnknownSenderPolicy UnknownSenderPolicy
	Denied              bool // the owner refused it; counts only while no agent is wired
}

const chatColumns = `id, channel_type, instance, platform_id, name, is_group, unknown_sender_policy, denied_at IS NOT NULL`

func (g *MessagingGroup) fields() []any {
	return []any{&g.ID, &g.ChannelType, &g.Instance, &g.PlatformID, &g.Name, &g.IsGroup, &g.UnknownSenderPolicy, &g.Denied}
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
	if err == nil {
		s.moved(group)
	}
	return group, err
}

// AgentGroup by id; ErrNotFound.
func (s *Store) AgentGroup(ctx context.Context, group id.AgentGroup) (AgentGroup, error) {
	g := AgentGroup{ID: group}
	err := s.r.QueryRowContext(ctx, `SELECT g.name, g.folder, c.provider, c.model, c.effort, c.assistant_name, c.max_messages, c.fallbacks, c.setup
		FROM agent_groups g JOIN container_configs c ON c.agent_group_id = g.id WHERE g.id = ?`, group).
		Scan(&g.Name, &g.Folder, &g.Provider, &g.Model, &g.Effort, &g.AssistantName, &g.MaxMessages, (*fallbacks)(&g.Fallbacks), &g.Setup)
	return g, found(err, "agent group "+string(group))
}

// AgentGroups of the home, in the order they were made.
func (s *Store) AgentGroups(ctx context.Context) ([]AgentGroup, error) {
	rows, err := s.r.QueryContext(ctx, `SELECT g.id, g.name, g.folder, c.provider, c.model, c.effort, c.assistant_name, c.max_messages, c.fallbacks, c.setup
		FROM agent_groups g JOIN container_configs c ON c.agent_group_id = g.id ORDER BY g.id`)
	if err != nil {
		return nil, fmt.Errorf("list agent groups: %w", err)
	}
	return collect(rows, "list agent groups", func(g *AgentGroup) []any {
		return []any{&g.ID, &g.Name, &g.Folder, &g.Provider, &g.Model, &g.Effort, &g.AssistantName, &g.MaxMessages, (*fallbacks)(&g.Fallbacks), &g.Setup}
	})
}

// Owner is the first owner; ErrNotFound before the first run was set up.
func (s *Store) Owner(ctx context.Context) (id.User, error) {
	var u id.User
	err := s.r.QueryRowContext(ctx, `SELECT user_id FROM user_roles WHERE role = 'owner' ORDER BY created_at, user_id LIMIT 1`).Scan(&u)
	return u, found(err, "owner")
}

// ChatByAddress finds the chat of a channel type and platform id, the given instance first (spec/host.md section 9.3).
func (s *Store) ChatByAddress(ctx context.Context, channelType, platformID, preferred string) (MessagingGroup, error) {
	var g MessagingGroup
	err := s.r.QueryRowContext(ctx, `SELECT `+chatColumns+` FROM messaging_groups
		WHERE channel_type = ? AND platform_id = ? ORDER BY instance = ? DESC, instance = channel_type DESC, instance LIMIT 1`,
		channelType, platformID, preferred).Scan(g.fields()...)
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

// touched reports whether a statement changed a row.
func touched(r sql.Result, err error) (bool, error) {
	if err != nil {
		return false, err
	}
	n, err := r.RowsAffected()
	return n > 0, err
}
