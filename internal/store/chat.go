package store

import (
	"context"
	"fmt"
)

// MessagingGroups of the home, in the order they were made.
func (s *Store) MessagingGroups(ctx context.Context) ([]MessagingGroup, error) {
	rows, err := s.r.QueryContext(ctx, `SELECT id, channel_type, instance, platform_id, name, is_group, unknown_sender_policy
		FROM messaging_groups ORDER BY id`)
	if err != nil {
		return nil, fmt.Errorf("list chats: %w", err)
	}
	return collect(rows, "list chats", func(g *MessagingGroup) []any {
		return []any{&g.ID, &g.ChannelType, &g.Instance, &g.PlatformID, &g.Name, &g.IsGroup, &g.UnknownSenderPolicy}
	})
}
