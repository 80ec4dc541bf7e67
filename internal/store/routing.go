package store

import (
	"context"
	"fmt"
	"slices"

	"nanoclaw/internal/id"
)

// Candidate is one wiring of a chat with all that the central store knows for one event.
type Candidate struct {
	Wiring
	AgentName string
	Standing  Standing // of the sender
	Engaged   bool     // the agent was engaged in this thread before
	// Seen is the state in which this message is stored for the agent already; empty: it is not.
	Seen string
}

// Lookup is the key of one event.
type Lookup struct {
	Chat      MessagingGroup
	Sender    id.User
	ThreadID  string
	MessageID string // of the platform
	// Extra is a wiring of the chat that is not there yet; it counts unless its agent is wired already.
	Extra *Wiring
}

// Candidates of a chat, highest priority first: one statement of index look-ups, whatever the number of sessions and the length
// of history.
func (s *Store) Candidates(ctx context.Context, l Lookup) ([]Candidate, error) {
	args := []any{l.Sender, l.Chat.ID, l.ThreadID, l.Chat.Instance, l.Chat.PlatformID, l.MessageID}
	all, err := s.candidates(ctx, sqlCandidates, args...)
	if w := l.Extra; err == nil && w != nil && !slices.ContainsFunc(all, func(c Candidate) bool { return c.AgentGroupID == w.AgentGroupID }) {
		extra, err := s.candidates(ctx, candidatesBegin+` FROM (SELECT ?7 AS id, ?2 AS messaging_group_id, ?8 AS agent_group_id, ?9 AS engage_mode, ?10 AS engage_pattern,
			?11 AS sender_scope, ?12 AS ignored_message_policy, ?13 AS session_mode, ?14 AS threads, ?15 AS priority) w`+candidatesEnd,
			append(args, w.ID, w.AgentGroupID, w.EngageMode, w.EngagePattern, w.SenderScope, w.IgnoredMessagePolicy, w.SessionMode, w.Threads, w.Priority)...)
		return append(all, extra...), err
	}
	return all, err
}

func (s *Store) candidates(ctx context.Context, query string, args ...any) ([]Candidate, error) {
	rows, err := s.r.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, fmt.Errorf("list wirings: %w", err)
	}
	return collect(rows, "list wirings", func(c *Candidate) []any {
		return append(c.Wiring.fields(), &c.AgentName, &c.Standing, &c.Engaged, &c.Seen)
	})
}

const candidatesBegin = `SELECT ` + wiringColumns + `, COALESCE(NULLIF(c.assistant_name, ''), g.name), ` + standing1 + "w.agent_group_id" + standing2 + "w.agent_group_id" + standing3 + `,
	EXISTS (SELECT 1 FROM engagements e WHERE e.messaging_group_id = w.messaging_group_id AND e.agent_group_id = w.agent_group_id AND e.thread_id = ?3),
	COALESCE((SELECT i.state FROM inbound_messages i WHERE i.instance = ?4 AND i.platform_id = ?5 AND i.platform_message_id = ?6
		AND i.agent_group_id = w.agent_group_id), '')`

const candidatesEnd = ` JOIN agent_groups g ON g.id = w.agent_group_id LEFT JOIN container_configs c ON c.agent_group_id = g.id
	WHERE w.messaging_group_id = ?2 ORDER BY w.priority DESC, w.id`

const sqlCandidates = candidatesBegin + ` FROM wirings w` + candidatesEnd
