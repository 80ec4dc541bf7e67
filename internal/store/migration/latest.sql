CREATE TABLE users (
  id           TEXT PRIMARY KEY CHECK (id LIKE '_%:_%'),
  display_name TEXT NOT NULL DEFAULT '',
  created_at   TEXT NOT NULL
);

CREATE TABLE agent_groups (
  id         TEXT PRIMARY KEY,
  name       TEXT NOT NULL,
  folder     TEXT NOT NULL UNIQUE,
  created_at TEXT NOT NULL
);

CREATE TABLE container_configs (
  agent_group_id TEXT PRIMARY KEY REFERENCES agent_groups (id),
  provider       TEXT NOT NULL,
  model          TEXT NOT NULL DEFAULT '',
  effort         TEXT NOT NULL DEFAULT '' CHECK (effort IN ('', 'low', 'medium', 'high', 'xhigh', 'max')),
  assistant_name TEXT NOT NULL DEFAULT '',
  max_messages   INTEGER NOT NULL DEFAULT 10 CHECK (max_messages BETWEEN 1 AND 100),
  fallbacks      TEXT NOT NULL DEFAULT '[]' CHECK (json_valid(fallbacks)),
  setup          TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(setup)),
  updated_at     TEXT NOT NULL
);

CREATE TABLE user_roles (
  user_id        TEXT NOT NULL REFERENCES users (id),
  role           TEXT NOT NULL CHECK (role IN ('owner', 'admin')),
  agent_group_id TEXT REFERENCES agent_groups (id),
  granted_by     TEXT NOT NULL DEFAULT '',
  created_at     TEXT NOT NULL,
  CHECK (role <> 'owner' OR agent_group_id IS NULL)
);
CREATE UNIQUE INDEX user_roles_everywhere ON user_roles (user_id, role) WHERE agent_group_id IS NULL;
CREATE UNIQUE INDEX user_roles_of_group ON user_roles (user_id, agent_group_id, role) WHERE agent_group_id IS NOT NULL;

CREATE TABLE members (
  user_id        TEXT NOT NULL REFERENCES users (id),
  agent_group_id TEXT NOT NULL REFERENCES agent_groups (id),
  added_by       TEXT NOT NULL DEFAULT '',
  created_at     TEXT NOT NULL,
  PRIMARY KEY (user_id, agent_group_id)
) WITHOUT ROWID;

CREATE TABLE messaging_groups (
  id                    TEXT PRIMARY KEY,
  channel_type          TEXT NOT NULL,
  instance              TEXT NOT NULL,
  platform_id           TEXT NOT NULL,
  name                  TEXT NOT NULL DEFAULT '',
  is_group              INTEGER NOT NULL DEFAULT 0 CHECK (is_group IN (0, 1)),
  unknown_sender_policy TEXT NOT NULL DEFAULT 'strict'
                        CHECK (unknown_sender_policy IN ('strict', 'request_approval', 'decline_notify', 'public')),
  denied_at             TEXT,
  detached_at           TEXT,
  created_at            TEXT NOT NULL,
  UNIQUE (instance, platform_id)
);

CREATE TABLE user_dms (
  user_id            TEXT NOT NULL REFERENCES users (id),
  instance           TEXT NOT NULL,
  messaging_group_id TEXT NOT NULL REFERENCES messaging_groups (id),
  resolved_at        TEXT NOT NULL,
  PRIMARY KEY (user_id, instance)
) WITHOUT ROWID;

CREATE TABLE wirings (
  id                     TEXT PRIMARY KEY,
  messaging_group_id     TEXT NOT NULL REFERENCES messaging_groups (id),
  agent_group_id         TEXT NOT NULL REFERENCES agent_groups (id),
  engage_mode            TEXT NOT NULL CHECK (engage_mode IN ('pattern', 'mention', 'mention-sticky')),
  engage_pattern         TEXT NOT NULL DEFAULT '.',
  sender_scope           TEXT NOT NULL DEFAULT 'all' CHECK (sender_scope IN ('all', 'known')),
  ignored_message_policy TEXT NOT NULL DEFAULT 'drop' CHECK (ignored_message_policy IN ('drop', 'accumulate')),
  session_mode           TEXT NOT NULL DEFAULT 'shared' CHECK (session_mode IN ('shared', 'per-thread', 'agent-shared')),
  threads                INTEGER CHECK (threads IN (0, 1)),
  priority               INTEGER NOT NULL DEFAULT 0,
  created_at             TEXT NOT NULL,
  UNIQUE (messaging_group_id, agent_group_id)
);

CREATE TABLE engagements (
  messaging_group_id TEXT NOT NULL REFERENCES messaging_groups (id),
  agent_group_id     TEXT NOT NULL REFERENCES agent_groups (id),
  thread_id          TEXT NOT NULL,
  engaged_at         TEXT NOT NULL,
  PRIMARY KEY (messaging_group_id, agent_group_id, thread_id)
) WITHOUT ROWID;
CREATE INDEX engagements_at ON engagements (engaged_at);

CREATE TABLE destinations (
  agent_group_id     TEXT NOT NULL REFERENCES agent_groups (id),
  name               TEXT NOT NULL,
  display_name       TEXT NOT NULL DEFAULT '',
  messaging_group_id TEXT REFERENCES messaging_groups (id),
  target_group_id    TEXT REFERENCES agent_groups (id),
  created_at         TEXT NOT NULL,
  PRIMARY KEY (agent_group_id, name),
  CHECK ((messaging_group_id IS NULL) <> (target_group_id IS NULL))
);
CREATE INDEX destinations_to_chat ON destinations (messaging_group_id, agent_group_id) WHERE messaging_group_id IS NOT NULL;

CREATE TABLE sessions (
  id                 TEXT PRIMARY KEY,
  session_key        TEXT NOT NULL,
  agent_group_id     TEXT NOT NULL REFERENCES agent_groups (id),
  messaging_group_id TEXT REFERENCES messaging_groups (id),
  thread_id          TEXT NOT NULL DEFAULT '',
  status             TEXT NOT NULL DEFAULT 'active' CHECK (status IN ('active', 'closed')),
  incarnation        INTEGER NOT NULL DEFAULT 0,
  outbound_seq       INTEGER NOT NULL DEFAULT 0,
  ack_change         INTEGER NOT NULL DEFAULT 0,
  ack_projected      INTEGER NOT NULL DEFAULT 0,
  created_at         TEXT NOT NULL,
  last_active        TEXT NOT NULL,
  pruned_before      TEXT NOT NULL DEFAULT ''
);
CREATE UNIQUE INDEX sessions_key ON sessions (session_key) WHERE status = 'active';

CREATE TABLE session_due (
  session_id TEXT PRIMARY KEY REFERENCES sessions (id),
  due_at     TEXT NOT NULL
);
CREATE INDEX session_due_at ON session_due (due_at);

CREATE TABLE inbound_messages (
  instance            TEXT NOT NULL,
  platform_id         TEXT NOT NULL,
  platform_message_id TEXT NOT NULL,
  agent_group_id      TEXT NOT NULL,
  row_id              TEXT NOT NULL UNIQUE,
  session_id          TEXT NOT NULL REFERENCES sessions (id),
  thread_id           TEXT NOT NULL DEFAULT '',
  sender_id           TEXT NOT NULL DEFAULT '',
  state               TEXT NOT NULL DEFAULT 'pending'
                      CHECK (state IN ('pending', 'context', 'answered', 'silent', 'failed', 'refused', 'dead')),
  reason              TEXT NOT NULL DEFAULT '',
  received_at         TEXT NOT NULL,
  final_at            TEXT,
  settled_at          TEXT, routed TEXT NOT NULL DEFAULT '',
  PRIMARY KEY (instance, platform_id, platform_message_id, agent_group_id)
);
CREATE INDEX inbound_messages_unsettled ON inbound_messages (final_at) WHERE final_at IS NOT NULL AND settled_at IS NULL;
CREATE INDEX inbound_messages_settled ON inbound_messages (settled_at) WHERE settled_at IS NOT NULL;
CREATE INDEX inbound_messages_pending ON inbound_messages (session_id) WHERE state = 'pending';

CREATE TABLE dropped_messages (
  instance    TEXT NOT NULL,
  platform_id TEXT NOT NULL,
  user_id     TEXT NOT NULL DEFAULT '',
  reason      TEXT NOT NULL,
  sender_name TEXT NOT NULL DEFAULT '',
  count       INTEGER NOT NULL DEFAULT 1,
  first_seen  TEXT NOT NULL,
  last_seen   TEXT NOT NULL,
  PRIMARY KEY (instance, platform_id, user_id, reason)
) WITHOUT ROWID;
CREATE INDEX dropped_messages_at ON dropped_messages (last_seen);

CREATE TABLE told (
  key TEXT PRIMARY KEY,
  at  TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX told_at ON told (at);

CREATE TABLE early_ends (
  row_id   TEXT PRIMARY KEY,
  state    TEXT NOT NULL CHECK (state IN ('answered', 'silent', 'failed', 'refused', 'dead')),
  reason   TEXT NOT NULL DEFAULT '',
  ended_at TEXT NOT NULL
);
CREATE INDEX early_ends_at ON early_ends (ended_at);

CREATE TABLE ledger (
  ord                 INTEGER PRIMARY KEY,
  id                  TEXT NOT NULL UNIQUE,
  session_id          TEXT REFERENCES sessions (id),
  outbound_id         TEXT NOT NULL,
  seq                 INTEGER NOT NULL,
  instance            TEXT NOT NULL,
  platform_id         TEXT NOT NULL,
  thread_id           TEXT NOT NULL DEFAULT '',
  kind                TEXT NOT NULL CHECK (kind IN ('chat', 'system', 'task_log', 'notice')),
  content             TEXT NOT NULL,
  reply_to            TEXT NOT NULL DEFAULT '',
  exchange            TEXT NOT NULL DEFAULT '',
  fallback            INTEGER NOT NULL DEFAULT 0 CHECK (fallback IN (0, 1)),
  files               INTEGER NOT NULL DEFAULT 0 CHECK (files IN (0, 1)),
  untold              INTEGER NOT NULL DEFAULT 0 CHECK (untold IN (0, 1)),
  state               TEXT NOT NULL
                      CHECK (state IN ('queued', 'sending', 'sent', 'retry', 'refused', 'no-route', 'unknown', 'dead')),
  tries               INTEGER NOT NULL DEFAULT 0,
  unknowns            INTEGER NOT NULL DEFAULT 0,
  marked              INTEGER NOT NULL DEFAULT 0 CHECK (marked IN (0, 1)),
  not_before          TEXT,
  platform_message_id TEXT NOT NULL DEFAULT '',
  part                INTEGER NOT NULL DEFAULT 0,
  part_ids            TEXT NOT NULL DEFAULT '',
  reason              TEXT NOT NULL DEFAULT '',
  projected           INTEGER NOT NULL DEFAULT 0 CHECK (projected IN (0, 1)),
  created_at          TEXT NOT NULL,
  updated_at          TEXT NOT NULL, history TEXT NOT NULL DEFAULT '',
  UNIQUE (session_id, outbound_id)
);
CREATE INDEX ledger_open ON ledger (instance, platform_id, thread_id, ord) WHERE state IN ('queued', 'sending', 'retry', 'unknown');
CREATE INDEX ledger_exchange ON ledger (session_id, exchange) WHERE exchange <> '';
CREATE INDEX ledger_unprojected ON ledger (session_id)
  WHERE projected = 0 AND state IN ('sent', 'refused', 'no-route', 'dead');
CREATE INDEX ledger_files ON ledger (ord) WHERE files = 1;
CREATE INDEX ledger_untold ON ledger (ord) WHERE untold = 1;
CREATE INDEX ledger_closed ON ledger (updated_at) WHERE state IN ('sent', 'refused', 'no-route', 'dead');

CREATE TABLE message_parts (
  instance   TEXT NOT NULL,
  platform_id TEXT NOT NULL,
  message_id TEXT NOT NULL,
  part_ids   TEXT NOT NULL,
  updated_at TEXT NOT NULL,
  PRIMARY KEY (instance, platform_id, message_id)
) WITHOUT ROWID;
CREATE INDEX message_parts_old ON message_parts (updated_at);

CREATE TABLE pending_questions (
  id             TEXT PRIMARY KEY,
  session_id     TEXT NOT NULL REFERENCES sessions (id),
  question_id    TEXT NOT NULL,
  exchange       TEXT NOT NULL DEFAULT '',
  instance       TEXT NOT NULL,
  platform_id    TEXT NOT NULL,
  thread_id      TEXT NOT NULL DEFAULT '',
  asked_user     TEXT NOT NULL DEFAULT '',
  title          TEXT NOT NULL,
  question       TEXT NOT NULL,
  options        TEXT NOT NULL,
  asked_at       TEXT NOT NULL,
  expires_at     TEXT NOT NULL,
  closed_at      TEXT,
  value          TEXT NOT NULL DEFAULT '',
  answered_by    TEXT NOT NULL DEFAULT '',
  answer_message TEXT NOT NULL DEFAULT '',
  answered_at    TEXT,
  told           INTEGER NOT NULL DEFAULT 0 CHECK (told IN (0, 1)),
  UNIQUE (session_id, question_id)
);
CREATE INDEX pending_questions_chat ON pending_questions (instance, platform_id);
CREATE INDEX pending_questions_open ON pending_questions (expires_at) WHERE closed_at IS NULL;
CREATE INDEX pending_questions_exchange ON pending_questions (session_id, exchange) WHERE closed_at IS NULL;
CREATE INDEX pending_questions_untold ON pending_questions (closed_at) WHERE closed_at IS NOT NULL AND told = 0;

CREATE TABLE approvals (
  id                 TEXT PRIMARY KEY,
  action             TEXT NOT NULL CHECK (action IN ('senders.admit', 'channels.register')),
  messaging_group_id TEXT NOT NULL REFERENCES messaging_groups (id),
  sender_id          TEXT NOT NULL,
  sender_name        TEXT NOT NULL DEFAULT '',
  agents             TEXT NOT NULL DEFAULT '[]' CHECK (json_valid(agents)),
  status             TEXT NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'approved', 'rejected', 'expired')),
  choice             TEXT NOT NULL DEFAULT '',
  decided_by         TEXT NOT NULL DEFAULT '',
  created_at         TEXT NOT NULL,
  expires_at         TEXT NOT NULL,
  decided_at         TEXT,
  done               INTEGER NOT NULL DEFAULT 0 CHECK (done IN (0, 1))
);
CREATE INDEX approvals_sender ON approvals (sender_id);
CREATE INDEX approvals_chat ON approvals (messaging_group_id);
CREATE INDEX approvals_created ON approvals (created_at);
CREATE INDEX approvals_open ON approvals (created_at) WHERE done = 0;

CREATE TABLE held_messages (
  approval_id TEXT NOT NULL REFERENCES approvals (id) ON DELETE CASCADE,
  ord         INTEGER NOT NULL,
  message_id  TEXT NOT NULL,
  event       TEXT NOT NULL,
  PRIMARY KEY (approval_id, ord),
  UNIQUE (approval_id, message_id)
);

CREATE TABLE approval_cards (
  approval_id    TEXT NOT NULL REFERENCES approvals (id) ON DELETE CASCADE,
  n              INTEGER NOT NULL,
  id             TEXT NOT NULL UNIQUE,
  user_id        TEXT NOT NULL,
  instance       TEXT NOT NULL,
  platform_id    TEXT NOT NULL,
  page           INTEGER NOT NULL DEFAULT 0,
  options        TEXT NOT NULL,
  asked_at       TEXT NOT NULL,
  closed_at      TEXT,
  outcome        TEXT NOT NULL DEFAULT '',
  answer_message TEXT NOT NULL DEFAULT '',
  told           INTEGER NOT NULL DEFAULT 0 CHECK (told IN (0, 1)),
  PRIMARY KEY (approval_id, n)
);
CREATE INDEX approval_cards_chat ON approval_cards (instance, platform_id);
CREATE INDEX approval_cards_untold ON approval_cards (closed_at) WHERE closed_at IS NOT NULL AND told = 0;

CREATE TABLE kv (
  scope TEXT NOT NULL,
  key   TEXT NOT NULL,
  value TEXT NOT NULL,
  PRIMARY KEY (scope, key)
) WITHOUT ROWID;

CREATE TABLE audit (
  ord     INTEGER PRIMARY KEY,
  at      TEXT NOT NULL,
  actor   TEXT NOT NULL,
  action  TEXT NOT NULL,
  subject TEXT NOT NULL,
  detail  TEXT NOT NULL DEFAULT '{}'
);
CREATE INDEX audit_at ON audit (at);
