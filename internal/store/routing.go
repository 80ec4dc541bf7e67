package store

import (
	"context"
	"fmt"

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
}

// Candidates of a chat, highest priority first: one statement of index look-ups, whatever the number of sessions and the length
// of history.
func (s *Store) Candidates(ctx context.Context, l Lookup) ([]Candidate, error) {
	rows, err := s.r.QueryContext(ctx, sqlCandidates, l.Sender, l.Chat.ID, l.ThreadID, l.Chat.Instance, l.Chat.PlatformID, l.MessageID)
	if err != nil {
		return nil, fmt.Errorf("list wirings: %w", err)
	}
	return collect(rows, "list wirings", func(c *Candidate) []any {
		return append(c.Wiring.fields(), &c.AgentName, &c.Standing, &c.Engaged, &c.Seen)
	})
}

const sqlCandidates = `SELECT ` + wiringColumns + `, COALESCE(NULLIF(c.assistant_name, ''), g.name), ` + standing1 + "w.agent_group_id" + standing2 + "w.agent_group_id" + standing3 + `,
	EXISTS (SELECT 1 FROM engagements e WHERE e.messaging_group_id = w.messaging_group_id AND e.agent_group_id = w.agent_group_id AND e.thread_id = ?3),
	COALESCE((SELECT i.state FROM inbound_messages i WHERE i.instance = ?4 AND i.platform_id = ?5 AND i.platform_message_id = ?6
		AND i.agent_group_id = w.agent_group_id), '')
	FROM wirings w JOIN agent_groups g ON g.id = w.agent_group_id LEFT JOIN container_configs c ON c.agent_group_id = g.id
	WHERE w.messaging_group_id = ?2 ORDER BY w.priority DESC, w.id`
