package store

import (
	"context"
	"errors"
	"fmt"

	"nanoclaw/internal/id"
	"nanoclaw/internal/mailbox"
)

// User is one identity on one platform. One person may have several; they are never linked.
type User struct {
	ID          id.User
	DisplayName string
	CreatedAt   string
}

// Standing of a user towards an agent group. Only its methods give rights: what is not listed has none.
type Standing string

// Standings, in the order in which they are looked for (spec/host.md section 2.2).
const (
	AsOwner       Standing = "owner"
	AsGlobalAdmin Standing = "admin everywhere"
	AsGroupAdmin  Standing = "admin of this agent"
	AsMember      Standing = "member"
	NotMember     Standing = "not_member"
	UnknownUser   Standing = "unknown_user"
)

// Access reports whether the user may talk to the agent.
func (s Standing) Access() bool { return s == AsMember || s.Admin() }

// Admin reports whether the user may give an agent's admin commands. Membership never does.
func (s Standing) Admin() bool { return s == AsOwner || s == AsGlobalAdmin || s == AsGroupAdmin }

// The standing of the user of parameter ?1 towards an agent group, whose column or parameter stands between the parts.
const (
	standing1 = `CASE
	WHEN EXISTS (SELECT 1 FROM user_roles r WHERE r.user_id = ?1 AND r.role = 'owner' AND r.agent_group_id IS NULL) THEN 'owner'
	WHEN EXISTS (SELECT 1 FROM user_roles r WHERE r.user_id = ?1 AND r.role = 'admin' AND r.agent_group_id IS NULL) THEN 'admin everywhere'
	WHEN EXISTS (SELECT 1 FROM user_roles r WHERE r.user_id = ?1 AND r.role = 'admin' AND r.agent_group_id = `
	standing2 = `) THEN 'admin of this agent'
	WHEN EXISTS (SELECT 1 FROM members m WHERE m.user_id = ?1 AND m.agent_group_id = `
	standing3 = `) THEN 'member'
	WHEN EXISTS (SELECT 1 FROM users u WHERE u.id = ?1) THEN 'not_member'
	ELSE 'unknown_user' END`
)

const sqlStanding = `SELECT ` + standing1 + "?2" + standing2 + "?2" + standing3

// Standing of a user towards an agent group.
func (s *Store) Standing(ctx context.Context, user id.User, group id.AgentGroup) (Standing, error) {
	var v Standing
	if err := s.r.QueryRowContext(ctx, sqlStanding, user, group).Scan(&v); err != nil {
		return UnknownUser, fmt.Errorf("read standing of %s: %w", user, err)
	}
	return v, nil
}

// HasAccess reports whether the user may talk to the agent group.
func (s *Store) HasAccess(ctx context.Context, user id.User, group id.AgentGroup) (bool, error) {
	v, err := s.Standing(ctx, user, group)
	return v.Access(), err
}

// Users in the order of their ids, behind after, at most limit.
func (s *Store) Users(ctx context.Context, after id.User, limit int) ([]User, error) {
	rows, err := s.r.QueryContext(ctx, `SELECT id, display_name, created_at FROM users WHERE id > ? ORDER BY id LIMIT ?`, after, limit)
	if err != nil {
		return nil, fmt.Errorf("list users: %w", err)
	}
	return collect(rows, "list users", func(u *User) []any { return []any{&u.ID, &u.DisplayName, &u.CreatedAt} })
}

// User by id; ErrNotFound.
func (s *Store) User(ctx context.Context, user id.User) (User, error) {
	var u User
	err := s.r.QueryRowContext(ctx, `SELECT id, display_name, created_at FROM users WHERE id = ?`, user).Scan(&u.ID, &u.DisplayName, &u.CreatedAt)
	return u, found(err, "user "+string(user))
}

// AddUser adds a user, or gives a known one another name if name is not empty. It reports whether anything changed. The error
// is a *FieldError for an id that is none.
func (s *Store) AddUser(ctx context.Context, actor string, user id.User, name string) (changed bool, err error) {
	if _, _, err := id.ParseUser(string(user)); err != nil {
		return false, &FieldError{"user", fmt.Sprintf("%q is not usable: %v", user, err)}
	}
	err = s.tx(ctx, "add user", func(tx *txn) error {
		if changed, err = seeUser(ctx, tx, user, name, s.stampNow()); err != nil || !changed {
			return err
		}
		return s.auditIn(ctx, tx, actor, "user.add", string(user), map[string]string{"name": name})
	})
	return changed, err
}

// seeUser keeps a user and the newest name that is known.
func seeUser(ctx context.Context, tx *txn, user id.User, name, now string) (bool, error) {
	return touched(tx.ExecContext(ctx, `INSERT INTO users (id, display_name, created_at) VALUES (?, ?, ?)
		ON CONFLICT (id) DO UPDATE SET display_name = excluded.display_name WHERE excluded.display_name NOT IN ('', display_name)`, user, name, now))
}

// Grant is one role of one user. An empty group is everywhere.
type Grant struct {
	User      id.User
	Role      Role
	Group     id.AgentGroup
	By        string
	CreatedAt string
}

const grantColumns = `user_id, role, COALESCE(agent_group_id, ''), granted_by, created_at`

func (g *Grant) fields() []any { return []any{&g.User, &g.Role, &g.Group, &g.By, &g.CreatedAt} }

// Grants of all users, owners first.
func (s *Store) Grants(ctx context.Context) ([]Grant, error) {
	rows, err := s.r.QueryContext(ctx, `SELECT `+grantColumns+` FROM user_roles ORDER BY role DESC, agent_group_id IS NOT NULL, user_id, agent_group_id`)
	if err != nil {
		return nil, fmt.Errorf("list roles: %w", err)
	}
	return collect(rows, "list roles", (*Grant).fields)
}

// GrantRole gives a role; a user that is not known yet is added. It reports whether anything changed. The error is a
// *FieldError for a role that cannot be given so, ErrNotFound for an agent group that does not exist.
func (s *Store) GrantRole(ctx context.Context, actor string, g Grant) (changed bool, err error) {
	if err := checkGrant(g); err != nil {
		return false, err
	}
	err = s.tx(ctx, "grant role", func(tx *txn) error {
		now := s.stampNow()
		if err := groupExists(ctx, tx, g.Group); err != nil {
			return err
		}
		if _, err := seeUser(ctx, tx, g.User, "", now); err != nil {
			return err
		}
		changed, err = touched(tx.ExecContext(ctx, `INSERT INTO user_roles (user_id, role, agent_group_id, granted_by, created_at) VALUES (?, ?, ?, ?, ?)
			ON CONFLICT DO NOTHING`, g.User, g.Role, null(string(g.Group)), actor, now))
		if err != nil || !changed {
			return err
		}
		return s.auditIn(ctx, tx, actor, "role.grant", string(g.User), map[string]string{"role": string(g.Role), "agent_group": string(g.Group)})
	})
	return changed, err
}

// ErrLastOwner: without an owner nobody could decide anything.
var ErrLastOwner = errors.New("this is the last owner")

// RevokeRole takes a role away; ErrNotFound if it was not given, ErrLastOwner if nobody would own the home.
func (s *Store) RevokeRole(ctx context.Context, actor string, g Grant) error {
	if err := checkGrant(g); err != nil {
		return err
	}
	return s.tx(ctx, "revoke role", func(tx *txn) error {
		gone, err := touched(tx.ExecContext(ctx, `DELETE FROM user_roles WHERE user_id = ? AND role = ? AND COALESCE(agent_group_id, '') = ?`, g.User, g.Role, g.Group))
		if err != nil {
			return err
		}
		if !gone {
			return fmt.Errorf("role %s of %s: %w", g.Role, g.User, ErrNotFound)
		}
		var owners int
		if err := tx.QueryRowContext(ctx, `SELECT COUNT(*) FROM user_roles WHERE role = 'owner'`).Scan(&owners); err != nil {
			return err
		}
		if owners == 0 {
			return ErrLastOwner
		}
		return s.auditIn(ctx, tx, actor, "role.revoke", string(g.User), map[string]string{"role": string(g.Role), "agent_group": string(g.Group)})
	})
}

func checkGrant(g Grant) error {
	if _, _, err := id.ParseUser(string(g.User)); err != nil {
		return &FieldError{"user", fmt.Sprintf("%q is not usable: %v", g.User, err)}
	}
	if err := checkWord("role", g.Role); err != nil {
		return err
	}
	if g.Role == RoleOwner && g.Group != "" {
		return &FieldError{"group", "does not go with the role owner: an owner is one everywhere"}
	}
	return nil
}

// groupExists fails with ErrNotFound for an agent group that is named and not there.
func groupExists(ctx context.Context, tx *txn, group id.AgentGroup) error {
	if group == "" {
		return nil
	}
	var n int
	return found(tx.QueryRowContext(ctx, `SELECT 1 FROM agent_groups WHERE id = ?`, group).Scan(&n), "agent group "+string(group))
}

// Membership lets a user talk to an agent group, and nothing else.
type Membership struct {
	User      id.User
	Group     id.AgentGroup
	By        string
	CreatedAt string
}

// Members of one agent group; an empty one is all of them.
func (s *Store) Members(ctx context.Context, group id.AgentGroup) ([]Membership, error) {
	rows, err := s.r.QueryContext(ctx, `SELECT user_id, agent_group_id, added_by, created_at FROM members WHERE ?1 IN ('', agent_group_id) ORDER BY agent_group_id, user_id`, group)
	if err != nil {
		return nil, fmt.Errorf("list members: %w", err)
	}
	return collect(rows, "list members", func(m *Membership) []any { return []any{&m.User, &m.Group, &m.By, &m.CreatedAt} })
}

// AddMember lets a user talk to an agent group; a user that is not known yet is added. It reports whether anything changed.
func (s *Store) AddMember(ctx context.Context, actor string, user id.User, group id.AgentGroup) (changed bool, err error) {
	if _, _, err := id.ParseUser(string(user)); err != nil {
		return false, &FieldError{"user", fmt.Sprintf("%q is not usable: %v", user, err)}
	}
	err = s.tx(ctx, "add member", func(tx *txn) error {
		changed, err = s.memberIn(ctx, tx, actor, user, group)
		return err
	})
	return changed, err
}

func (s *Store) memberIn(ctx context.Context, tx *txn, actor string, user id.User, group id.AgentGroup) (changed bool, err error) {
	now := s.stampNow()
	if err := groupExists(ctx, tx, group); err != nil {
		return false, err
	}
	if _, err := seeUser(ctx, tx, user, "", now); err != nil {
		return false, err
	}
	changed, err = touched(tx.ExecContext(ctx, `INSERT INTO members (user_id, agent_group_id, added_by, created_at) VALUES (?, ?, ?, ?)
		ON CONFLICT DO NOTHING`, user, group, actor, now))
	if err != nil || !changed {
		return false, err
	}
	return true, s.auditIn(ctx, tx, actor, "member.add", string(user), map[string]string{"agent_group": string(group)})
}

// RemoveMember takes a membership away; ErrNotFound if there is none. Roles stay.
func (s *Store) RemoveMember(ctx context.Context, actor string, user id.User, group id.AgentGroup) error {
	return s.tx(ctx, "remove member", func(tx *txn) error {
		gone, err := touched(tx.ExecContext(ctx, `DELETE FROM members WHERE user_id = ? AND agent_group_id = ?`, user, group))
		if err != nil {
			return err
		}
		if !gone {
			return fmt.Errorf("membership of %s: %w", user, ErrNotFound)
		}
		return s.auditIn(ctx, tx, actor, "member.remove", string(user), map[string]string{"agent_group": string(group)})
	})
}

// DirectChat is where a user is reached on an adapter instance; ErrNotFound if that is not known.
func (s *Store) DirectChat(ctx context.Context, user id.User, instance string) (MessagingGroup, error) {
	var chat id.MessagingGroup
	err := s.r.QueryRowContext(ctx, `SELECT messaging_group_id FROM user_dms WHERE user_id = ? AND instance = ?`, user, instance).Scan(&chat)
	if err != nil {
		return MessagingGroup{}, found(err, "direct chat of "+string(user))
	}
	return s.MessagingGroupByID(ctx, chat)
}

// KeepDirectChat notes where a user is reached on the chat's instance. The user must be known.
func (s *Store) KeepDirectChat(ctx context.Context, user id.User, chat MessagingGroup) error {
	_, err := s.w.ExecContext(ctx, `INSERT INTO user_dms (user_id, instance, messaging_group_id, resolved_at) VALUES (?, ?, ?, ?)
		ON CONFLICT (user_id, instance) DO UPDATE SET messaging_group_id = excluded.messaging_group_id, resolved_at = excluded.resolved_at`,
		user, chat.Instance, chat.ID, s.stampNow())
	if err != nil {
		return fmt.Errorf("keep direct chat of %s: %w", user, err)
	}
	return nil
}

// auditIn writes an audit entry beside what it tells of.
func (s *Store) auditIn(ctx context.Context, tx *txn, actor, action, subject string, detail map[string]string) error {
	b, err := mailbox.EncodeContent(detail)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO audit (at, actor, action, subject, detail) VALUES (?, ?, ?, ?, ?)`, s.stampNow(), actor, action, subject, string(b))
	return err
}
