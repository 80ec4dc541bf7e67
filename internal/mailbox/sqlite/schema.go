package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"sort"
	"strings"

	"nanoclaw/internal/mailbox"
)

// Names below a session's folder.
const (
	inDir         = "in"
	outDir        = "out"
	homeDir       = "home"
	runDir        = "run"
	inboxDir      = "inbox"
	outboxDir     = "outbox"
	inboundFile   = "inbound.db"
	outboundFile  = "outbound.db"
	heartbeatFile = "heartbeat"
)

// inboundVersion and outboundVersion are the newest user_version of each file.
const (
	inboundVersion  = 1
	outboundVersion = 1
)

// The indexes of due rows leave out rows of kind system, which have their own: such a row is an answer to somebody inside, is
// never part of a prompt, and wakes nobody. Fetch and the due count walk only what is still pending, whatever the history.
func inboundSchema() []string {
	return []string{
		`CREATE TABLE messages_in (
  seq INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,
  kind TEXT NOT NULL,
  timestamp TEXT NOT NULL,
  status TEXT NOT NULL DEFAULT 'pending',
  process_after TEXT,
  recurrence TEXT,
  series_id TEXT,
  tries INTEGER NOT NULL DEFAULT 0,
  tried_incarnation INTEGER,
  trigger INTEGER NOT NULL DEFAULT 1,
  channel_type TEXT,
  platform_id TEXT,
  thread_id TEXT,
  content TEXT NOT NULL,
  platform_message_id TEXT,
  source_session_id TEXT,
  after_incarnation INTEGER NOT NULL DEFAULT 0
)`,
		`CREATE INDEX messages_in_ready ON messages_in (trigger, seq) WHERE status = 'pending' AND process_after IS NULL AND kind <> 'system'`,
		`CREATE INDEX messages_in_timed ON messages_in (trigger, process_after) WHERE status = 'pending' AND process_after IS NOT NULL AND kind <> 'system'`,
		`CREATE INDEX messages_in_system ON messages_in (seq) WHERE status = 'pending' AND kind = 'system'`,
		`CREATE INDEX messages_in_from ON messages_in (channel_type, platform_id, seq) WHERE channel_type IS NOT NULL`,
		`CREATE INDEX messages_in_series ON messages_in (series_id) WHERE series_id IS NOT NULL`,
		`CREATE TABLE delivered (
  message_out_id TEXT PRIMARY KEY,
  platform_message_id TEXT,
  status TEXT NOT NULL DEFAULT 'delivered',
  delivered_at TEXT NOT NULL
) WITHOUT ROWID`,
		`CREATE TABLE destinations (
  name TEXT PRIMARY KEY,
  display_name TEXT,
  type TEXT NOT NULL,
  channel_type TEXT,
  platform_id TEXT,
  agent_group_id TEXT
) WITHOUT ROWID`,
		`CREATE TABLE session_routing (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  channel_type TEXT,
  platform_id TEXT,
  thread_id TEXT
)`,
		`CREATE TABLE counter (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID`,
	}
}

func outboundSchema() []string {
	return []string{
		`CREATE TABLE messages_out (
  seq INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,
  in_reply_to TEXT,
  timestamp TEXT NOT NULL,
  deliver_after TEXT,
  kind TEXT NOT NULL,
  channel_type TEXT,
  platform_id TEXT,
  thread_id TEXT,
  content TEXT NOT NULL,
  incarnation INTEGER NOT NULL,
  exchange TEXT,
  segment INTEGER NOT NULL DEFAULT 0,
  fallback INTEGER NOT NULL DEFAULT 0
)`,
		`CREATE INDEX messages_out_exchange ON messages_out (exchange, seq) WHERE exchange IS NOT NULL`,
		`CREATE TABLE processing_ack (
  change INTEGER PRIMARY KEY,
  message_id TEXT NOT NULL UNIQUE,
  status TEXT NOT NULL,
  status_changed TEXT NOT NULL,
  incarnation INTEGER NOT NULL,
  exchange TEXT,
  reason TEXT
)`,
		`CREATE INDEX processing_ack_claims ON processing_ack (message_id) WHERE status = 'processing'`,
		`CREATE TABLE session_state (
  key TEXT PRIMARY KEY,
  value TEXT NOT NULL,
  updated_at TEXT NOT NULL
) WITHOUT ROWID`,
		`CREATE TABLE container_state (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  turn TEXT,
  current_tool TEXT,
  tool_declared_timeout_ms INTEGER,
  tool_started_at TEXT,
  updated_at TEXT NOT NULL,
  queued INTEGER NOT NULL DEFAULT 0
)`,
		`CREATE TABLE usage_log (
  id INTEGER PRIMARY KEY,
  timestamp TEXT NOT NULL,
  exchange TEXT,
  series_id TEXT,
  provider TEXT NOT NULL,
  model TEXT,
  failed INTEGER NOT NULL DEFAULT 0,
  input_tokens INTEGER NOT NULL,
  output_tokens INTEGER NOT NULL,
  cache_read_tokens INTEGER NOT NULL,
  cache_creation_tokens INTEGER NOT NULL,
  cost_usd REAL NOT NULL
)`,
		`CREATE TABLE counter (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID`,
	}
}

// outboundReleased lists the exact schema of every released user_version of outbound.db: what a host accepts.
func outboundReleased(version int64) ([]string, bool) {
	if version == outboundVersion {
		return outboundSchema(), true
	}
	return nil, false
}

// migrate creates the tables of an empty file. A file of a newer version is refused: an older program must not write it.
func (k *conn) migrate(ctx context.Context, version int64, schema []string) error {
	var have int64
	look := func() error {
		_, err := k.one("PRAGMA user_version", nil, &have)
		return err
	}
	if err := retry(ctx, look); err != nil {
		return err
	}
	if have == version {
		return nil
	}
	return k.write(ctx, func() error {
		if err := look(); err != nil || have == version {
			return err
		}
		if have != 0 {
			return fmt.Errorf("%w: the file has schema %d and this program knows %d; use the newer program", mailbox.ErrInvalid, have, version)
		}
		for _, s := range schema {
			if _, err := k.exec(s); err != nil {
				return err
			}
		}
		_, err := k.exec(fmt.Sprintf("PRAGMA user_version = %d", version))
		return err
	})
}

// verify compares the schema of an outbound file with the released one: every object and its exact text, no trigger, no
// view, nothing more and nothing less. It returns the schema cookie it saw.
func (k *conn) verify(ctx context.Context) (cookie int64, err error) {
	var version int64
	if err := k.rows(ctx, "PRAGMA user_version", nil, func(r *sql.Rows) error { return r.Scan(&version) }); err != nil {
		return 0, err
	}
	if err := k.rows(ctx, "PRAGMA schema_version", nil, func(r *sql.Rows) error { return r.Scan(&cookie) }); err != nil {
		return 0, err
	}
	want, ok := outboundReleased(version)
	if !ok {
		return 0, fmt.Errorf("%w: user_version %d is not one a runner writes", mailbox.ErrHostile, version)
	}
	var have []string
	err = k.rows(ctx, `SELECT coalesce(substr(type, 1, 20), ''), coalesce(substr(name, 1, 80), ''), coalesce(substr(sql, 1, 2000), '')
FROM sqlite_schema LIMIT 100`, nil, func(r *sql.Rows) error {
		var kind, name, text string
		if err := r.Scan(&kind, &name, &text); err != nil {
			return err
		}
		if kind == "index" && strings.HasPrefix(name, "sqlite_autoindex_") && text == "" {
			return nil
		}
		have = append(have, text)
		return nil
	})
	if err != nil {
		return 0, err
	}
	sort.Strings(want)
	sort.Strings(have)
	if len(want) != len(have) {
		return 0, fmt.Errorf("%w: %d tables and indexes, want %d", mailbox.ErrHostile, len(have), len(want))
	}
	for i := range want {
		if want[i] != have[i] {
			return 0, fmt.Errorf("%w: the schema differs at %.60q", mailbox.ErrHostile, have[i])
		}
	}
	return cookie, nil
}
