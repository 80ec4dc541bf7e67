package store

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"nanoclaw/internal/channel"
	"nanoclaw/internal/id"
	"nanoclaw/internal/mailbox"
)

func TestMain(m *testing.M) {
	if home := os.Getenv(writerHome); home != "" {
		os.Exit(writeForEver(home))
	}
	goleak.VerifyTestMain(m)
}

var base = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

// first is a home after its first run, with one session.
type first struct {
	*Store
	home    string
	group   id.AgentGroup
	chat    MessagingGroup
	session Session
}

func firstRun() First {
	return First{Owner: "cli:local", OwnerName: "Owner", AgentName: "Nano", Folder: "main", Provider: "mock", Offline: "mock",
		ChannelType: "cli", Instance: "cli", PlatformID: "cli:local", DestinationAs: "terminal"}
}

func setup(t testing.TB) *first {
	t.Helper()
	f := &first{home: t.TempDir()}
	var err error
	if f.Store, err = Open(t.Context(), f.home); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	f.now = func() time.Time { return base }
	f.fill(t)
	return f
}

func (f *first) fill(t testing.TB) {
	t.Helper()
	var err error
	if f.group, err = f.Bootstrap(t.Context(), firstRun()); err != nil {
		t.Fatal(err)
	}
	if f.chat, err = f.MessagingGroup(t.Context(), "cli", "cli:local"); err != nil {
		t.Fatal(err)
	}
	if f.session, err = f.ResolveSession(t.Context(), "key", f.group, f.chat.ID, ""); err != nil {
		t.Fatal(err)
	}
}

func TestMigrationsMakeTheLatestSchema(t *testing.T) {
	t.Parallel()
	schema := func(db *sql.DB) map[string]string {
		rows, err := db.QueryContext(t.Context(), `SELECT type || ' ' || name, COALESCE(sql, '') FROM sqlite_schema`)
		if err != nil {
			t.Fatal(err)
		}
		type entry struct{ name, sql string }
		all, err := collect(rows, "read schema", func(e *entry) []any { return []any{&e.name, &e.sql} })
		if err != nil {
			t.Fatal(err)
		}
		m := map[string]string{}
		for _, e := range all {
			m[e.name] = strings.Join(strings.Fields(e.sql), " ")
		}
		return m
	}
	f := setup(t)
	latest, err := migrations.ReadFile("migration/latest.sql")
	if err != nil {
		t.Fatal(err)
	}
	db, err := connect(filepath.Join(t.TempDir(), "latest.db"), 1, "_txlock=immediate")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	if _, err := db.ExecContext(t.Context(), string(latest)); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(schema(db), schema(f.w.DB)); d != "" {
		t.Errorf("latest.sql and the migrations differ (-latest +migrations):\n%s", d)
	}
}

func TestOpenModesAndReopen(t *testing.T) {
	t.Parallel()
	f := setup(t)
	for path, want := range map[string]os.FileMode{FileName: 0o600, FileName + "-wal": 0o600, filepath.Dir(FileName): 0o700} {
		info, err := os.Stat(filepath.Join(f.home, path))
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v; want %v", path, info, err, want)
		}
	}
	again, err := Open(t.Context(), f.home)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = again.Close() }()
	if s, err := again.Session(t.Context(), f.session.ID); err != nil || s.Key != "key" {
		t.Errorf("%+v %v", s, err)
	}
	if _, err := again.r.ExecContext(t.Context(), `DELETE FROM users`); err == nil {
		t.Error("the readers can write")
	}
	for pragma, want := range map[string]string{"journal_mode": "wal", "synchronous": "1", "foreign_keys": "1"} {
		var got string
		if err := again.w.QueryRowContext(t.Context(), "PRAGMA "+pragma).Scan(&got); err != nil || got != want {
			t.Errorf("%s = %s, %v; want %s", pragma, got, err, want)
		}
	}
}

func TestNewerAndDamagedDatabasesAreLeftAlone(t *testing.T) {
	t.Parallel()
	f := setup(t)
	if _, err := f.w.ExecContext(t.Context(), "PRAGMA user_version = 99"); err != nil {
		t.Fatal(err)
	}
	var newer *NewerError
	if _, err := Open(t.Context(), f.home); !errors.As(err, &newer) || newer.Have != 99 || !strings.Contains(err.Error(), "newer program") {
		t.Errorf("a newer schema: %v", err)
	}
	home := t.TempDir()
	path := filepath.Join(home, FileName)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(strings.Repeat("no database ", 1000)), 0o600)); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if s, err := Open(t.Context(), home); err == nil {
		_ = s.Close()
		t.Error("a file that is no database was opened")
	}
	if after, err := os.ReadFile(path); err != nil || string(after) != string(before) {
		t.Errorf("it was changed, %v", err)
	}
}

func TestBootstrapIsIdempotent(t *testing.T) {
	t.Parallel()
	f := setup(t)
	claude := firstRun()
	claude.Provider = "claude"
	for _, run := range []First{firstRun(), claude, firstRun()} {
		if g, err := f.Bootstrap(t.Context(), run); err != nil || g != f.group {
			t.Errorf("again: %s %v", g, err)
		}
	}
	groups, err := f.AgentGroups(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := []AgentGroup{{ID: f.group, Name: "Nano", Folder: "main", Provider: "claude", AssistantName: "Nano", MaxMessages: 10, Fallbacks: []Fallback{}}}
	if d := cmp.Diff(want, groups); d != "" {
		t.Error(d)
	}
	if u, err := f.Owner(t.Context()); err != nil || u != "cli:local" {
		t.Errorf("owner %s %v", u, err)
	}
	wirings, err := f.Wirings(t.Context(), f.chat.ID)
	if err != nil || len(wirings) != 1 || wirings[0].AgentGroupID != f.group || wirings[0].EngageMode != "pattern" {
		t.Errorf("wirings %+v %v", wirings, err)
	}
	dests, err := f.Destinations(t.Context(), f.group)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]mailbox.Destination{{Name: "terminal", DisplayName: "Owner", Type: "channel", ChannelType: "cli", PlatformID: "cli:local"}}, dests); d != "" {
		t.Error(d)
	}
	for user, want := range map[id.User]bool{"cli:local": true, "cli:other": false, "": false} {
		if ok, err := f.HasAccess(t.Context(), user, f.group); err != nil || ok != want {
			t.Errorf("access of %q: %v %v", user, ok, err)
		}
	}
	if ok, err := f.MaySend(t.Context(), f.group, f.chat.ID); err != nil || !ok {
		t.Errorf("may send: %v %v", ok, err)
	}
	if ok, err := f.MaySend(t.Context(), f.group, "mg-other"); err != nil || ok {
		t.Errorf("may send elsewhere: %v %v", ok, err)
	}
	if c, err := f.ChatByAddress(t.Context(), "cli", "cli:local", "other"); err != nil || c.ID != f.chat.ID {
		t.Errorf("by address: %+v %v", c, err)
	}
	if _, err := f.MessagingGroup(t.Context(), "cli", "cli:nobody"); !errors.Is(err, ErrNotFound) {
		t.Errorf("a chat that does not exist: %v", err)
	}
}

func TestResolveSessionMakesOne(t *testing.T) {
	t.Parallel()
	f := setup(t)
	var wg sync.WaitGroup
	ids := make([]id.Session, 20)
	for i := range ids {
		wg.Go(func() {
			s, err := f.ResolveSession(t.Context(), "shared", f.group, f.chat.ID, "")
			if err != nil {
				t.Error(err)
			}
			ids[i] = s.ID
		})
	}
	wg.Wait()
	for _, s := range ids {
		if s != ids[0] || s == "" || s == f.session.ID {
			t.Errorf("sessions %v", ids)
			break
		}
	}
	if _, err := f.ResolveSession(t.Context(), "x", "ag-nobody", "", ""); err == nil {
		t.Error("a session of no agent was made")
	}
	if s, err := f.ResolveSession(t.Context(), "task", f.group, "", ""); err != nil || s.MessagingGroupID != "" {
		t.Errorf("a session without a chat: %+v %v", s, err)
	}
	var walked []id.Session
	for after := id.Session(""); ; {
		page, err := f.Sessions(t.Context(), after, 2)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			break
		}
		for _, s := range page {
			walked = append(walked, s.ID)
		}
		after = walked[len(walked)-1]
	}
	if len(walked) != 3 {
		t.Errorf("walked %v", walked)
	}
	for want := int64(1); want < 4; want++ {
		if n, err := f.NextIncarnation(t.Context(), f.session.ID); err != nil || n != want {
			t.Errorf("incarnation %d %v, want %d", n, err, want)
		}
	}
	if _, err := f.NextIncarnation(t.Context(), "sess-nobody"); !errors.Is(err, ErrNotFound) {
		t.Errorf("incarnation of nobody: %v", err)
	}
}

func TestDueSessions(t *testing.T) {
	t.Parallel()
	f := setup(t)
	var all []id.Session
	for i, key := range []string{"a", "b", "c"} {
		s, err := f.ResolveSession(t.Context(), key, f.group, f.chat.ID, "")
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, s.ID)
		if err := f.Projected(t.Context(), s.ID, int64(i), base.Add(time.Duration(2-i)*time.Minute)); err != nil {
			t.Fatal(err)
		}
	}
	due, next, err := f.Due(t.Context(), base.Add(time.Minute), 10)
	if err != nil || !next.Equal(base.Add(2*time.Minute)) {
		t.Errorf("next %v %v", next, err)
	}
	if d := cmp.Diff([]id.Session{all[2], all[1]}, due); d != "" {
		t.Error(d)
	}
	for _, s := range all {
		if err := f.Projected(t.Context(), s, 0, time.Time{}); err != nil {
			t.Fatal(err)
		}
	}
	if due, next, err := f.Due(t.Context(), base.Add(time.Hour), 10); err != nil || len(due) > 0 || !next.IsZero() {
		t.Errorf("after all are done: %v %v %v", due, next, err)
	}
	if s, err := f.Session(t.Context(), all[2]); err != nil || s.AckProjected != 2 {
		t.Errorf("a cursor went back: %+v %v", s, err)
	}
}

func TestChecksRefuseUnknownWords(t *testing.T) {
	t.Parallel()
	f := setup(t)
	for _, q := range []string{
		`UPDATE wirings SET engage_mode = 'always'`, `UPDATE wirings SET sender_scope = ''`, `UPDATE wirings SET ignored_message_policy = 'keep'`,
		`UPDATE wirings SET session_mode = 'x'`, `UPDATE messaging_groups SET unknown_sender_policy = 'x'`, `UPDATE messaging_groups SET is_group = 2`,
		`UPDATE sessions SET status = 'open'`, `UPDATE container_configs SET effort = 'huge'`, `UPDATE container_configs SET max_messages = 0`,
		`INSERT INTO user_roles (user_id, role, created_at) VALUES ('cli:local', 'god', 'x')`,
		`INSERT INTO user_roles (user_id, role, agent_group_id, created_at) VALUES ('cli:local', 'owner', 'ag-1', 'x')`,
		`INSERT INTO user_roles (user_id, role, created_at) VALUES ('cli:nobody', 'admin', 'x')`,
		`INSERT INTO users (id, created_at) VALUES ('no-prefix', 'x')`,
		`INSERT INTO destinations (agent_group_id, name, created_at) SELECT id, 'nowhere', 'x' FROM agent_groups`,
		`INSERT INTO session_due (session_id, due_at) VALUES ('sess-nobody', 'x')`,
	} {
		if _, err := f.w.ExecContext(t.Context(), q); err == nil {
			t.Errorf("taken: %s", q)
		}
	}
	for _, v := range []Ledger{{Kind: "evil", State: Queued}, {Kind: "chat", State: "lost"}, {Kind: "chat", State: Queued, SessionID: "sess-nobody"}} {
		v.ID, v.Content = "led-1", []byte("{}")
		if _, err := f.Ingest(t.Context(), Ingest{Rows: []Ledger{v}}); err == nil {
			t.Errorf("taken: %+v", v)
		}
	}
}

func TestKV(t *testing.T) {
	t.Parallel()
	f := setup(t)
	a, b := f.KV("a"), f.KV("b")
	write := func(kv channel.KV, pairs ...channel.Pair) error { return kv.Update(t.Context(), pairs...) }
	if err := errors.Join(write(a, channel.Pair{Key: "1", Value: "x"}, channel.Pair{Key: "2", Value: "y", IfAbsent: true}, channel.Pair{Key: "3", Value: "z"}),
		write(b, channel.Pair{Key: "1", Value: "other"}), write(a, channel.Pair{Key: "3", Delete: true}, channel.Pair{Key: "none", Delete: true})); err != nil {
		t.Fatal(err)
	}
	// One key that exists makes the whole call do nothing, whatever stood before it.
	err := write(a, channel.Pair{Key: "1", Value: "changed"}, channel.Pair{Key: "2", Delete: true}, channel.Pair{Key: "1", Value: "n", IfAbsent: true})
	if !errors.Is(err, channel.ErrExists) {
		t.Errorf("want ErrExists, got %v", err)
	}
	got, err := a.List(t.Context(), "1", "3", 10)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]channel.Pair{{Key: "1", Value: "x"}, {Key: "2", Value: "y"}}, got); d != "" {
		t.Error(d)
	}
	if got, err := a.List(t.Context(), "1", "2", 10); err != nil || len(got) != 1 {
		t.Errorf("the upper bound counts: %v %v", got, err)
	}
	if got, err := a.List(t.Context(), "1", "9", 1); err != nil || len(got) != 1 {
		t.Errorf("limit: %v %v", got, err)
	}
	if _, ok, err := a.Get(t.Context(), "3"); ok || err != nil {
		t.Errorf("deleted: %v %v", ok, err)
	}
	if v, ok, err := b.Get(t.Context(), "1"); v != "other" || !ok || err != nil {
		t.Errorf("scopes mix: %q %v", v, err)
	}
}

func TestAuditLog(t *testing.T) {
	t.Parallel()
	f := setup(t)
	for i, action := range []string{"a", "b", "c"} {
		if err := f.Audit(t.Context(), AuditEntry{At: mailbox.FormatTime(base.Add(time.Duration(i) * time.Second)), Actor: "cli:local", Action: action}); err != nil {
			t.Fatal(err)
		}
	}
	got, err := f.AuditTail(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	var actions []string
	for _, e := range got {
		actions = append(actions, e.Action)
		if string(e.Detail) != "{}" {
			t.Errorf("detail %s", e.Detail)
		}
	}
	if d := cmp.Diff([]string{"b", "c"}, actions); d != "" {
		t.Error(d)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := f.Audit(ctx, AuditEntry{Action: "late"}); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled write: %v", err)
	}
}
