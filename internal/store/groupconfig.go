package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"nanoclaw/internal/id"
	"nanoclaw/internal/mailbox"
)

// fallbacks is the column of that name: a JSON list.
type fallbacks []Fallback

// Scan implements sql.Scanner.
func (f *fallbacks) Scan(v any) error {
	s, ok := v.(string)
	if !ok {
		return errors.New("fallbacks: not a text")
	}
	*f = nil
	return json.Unmarshal([]byte(s), (*[]Fallback)(f))
}

// GroupChange is what is to change of an agent group's configuration; nil fields stay.
type GroupChange struct {
	Provider, Model, Effort *string
	Fallbacks               *[]Fallback
	Setup                   *Setup // as a whole
}

// apply returns the configuration after the change.
func (c GroupChange) apply(g AgentGroup) AgentGroup {
	for _, f := range []struct{ from, to *string }{{c.Provider, &g.Provider}, {c.Model, &g.Model}, {c.Effort, &g.Effort}} {
		if f.from != nil {
			*f.to = *f.from
		}
	}
	if c.Fallbacks != nil {
		g.Fallbacks = *c.Fallbacks
	}
	if c.Setup != nil {
		g.Setup = *c.Setup
	}
	return g
}

// settings is the part of a configuration that GroupChange can change, as it stands in the audit log.
type settings struct {
	Provider  string     `json:"provider"`
	Model     string     `json:"model"`
	Effort    string     `json:"effort"`
	Fallbacks []Fallback `json:"fallbacks"`
	Setup     Setup      `json:"setup,omitzero"`
}

func (g AgentGroup) settings() (json.RawMessage, error) {
	return mailbox.EncodeContent(settings{g.Provider, g.Model, g.Effort, append([]Fallback{}, g.Fallbacks...), g.Setup})
}

// UpdateGroup changes the configuration of an agent group and audits it. It takes effect at the next start of a sandbox. It
// returns the configuration as it is then, and whether anything changed; ErrNotFound.
func (s *Store) UpdateGroup(ctx context.Context, actor string, group id.AgentGroup, c GroupChange) (after AgentGroup, changed bool, err error) {
	before, err := s.AgentGroup(ctx, group)
	if err != nil {
		return before, false, err
	}
	after = c.apply(before)
	was, err := before.settings()
	if err != nil {
		return before, false, err
	}
	is, err := after.settings()
	if err != nil || string(was) == string(is) {
		return after, false, err
	}
	list, err := mailbox.EncodeContent(append([]Fallback{}, after.Fallbacks...))
	if err != nil {
		return before, false, err
	}
	setup, err := mailbox.EncodeContent(after.Setup)
	if err != nil {
		return before, false, err
	}
	err = s.tx(ctx, "change agent group", func(tx *txn) error {
		_, err := tx.ExecContext(ctx, `UPDATE container_configs SET provider = ?, model = ?, effort = ?, fallbacks = ?, setup = ?, updated_at = ? WHERE agent_group_id = ?`,
			after.Provider, after.Model, after.Effort, string(list), string(setup), s.stampNow(), group)
		return err
	})
	if err != nil {
		return before, false, err
	}
	if err := s.Audit(ctx, AuditEntry{Actor: actor, Action: "group.config", Subject: string(group), Detail: is}); err != nil {
		return after, true, fmt.Errorf("audit the change: %w", err)
	}
	return after, true, nil
}
