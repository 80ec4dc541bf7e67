package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
)

// Parts are the platform ids of all parts of a message that was sent in several, by the id of its first one; nil if it has one part, or
// was sent too long ago.
func (s *Store) Parts(ctx context.Context, d Destination, messageID string) ([]string, error) {
	var list string
	err := s.r.QueryRowContext(ctx, `SELECT part_ids FROM message_parts WHERE instance = ? AND platform_id = ? AND message_id = ?`, d.Instance, d.PlatformID, messageID).Scan(&list)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for the parts of message %s: %w", messageID, err)
	}
	return splitIDs(list)
}

// KeepParts notes the parts of a message, by the id of its first one.
func (s *Store) KeepParts(ctx context.Context, d Destination, ids []string) error {
	_, err := s.w.ExecContext(ctx, `INSERT INTO message_parts (instance, platform_id, message_id, part_ids, updated_at) VALUES (?, ?, ?, ?, ?)
		ON CONFLICT DO UPDATE SET part_ids = excluded.part_ids, updated_at = excluded.updated_at`, d.Instance, d.PlatformID, ids[0], joinIDs(ids), s.stampNow())
	if err != nil {
		return fmt.Errorf("note the parts of message %s: %w", ids[0], err)
	}
	return nil
}

func joinIDs(ids []string) string {
	if len(ids) == 0 {
		return ""
	}
	b, err := json.Marshal(ids)
	if err != nil {
		panic(err) // strings cannot fail
	}
	return string(b)
}

func splitIDs(list string) (ids []string, err error) {
	if list == "" {
		return nil, nil
	}
	err = json.Unmarshal([]byte(list), &ids)
	return ids, err
}
