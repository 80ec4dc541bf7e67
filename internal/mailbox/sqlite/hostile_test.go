package sqlite

import (
	"bytes"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"nanoclaw/internal/mailbox"
)

// A sandbox may do anything to its own folder. Each case spoils a file of three good rows; the host must refuse it with the
// named error, leave the folder as it is, go on serving its own side, and read the good file again once it is back.
func TestW21HostileFolder(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		spoil func(t *testing.T, s *session, db string)
		want  error
	}{
		"extra trigger": {func(t *testing.T, s *session, db string) {
			raw(t, db, `CREATE TRIGGER evil AFTER INSERT ON messages_out BEGIN DELETE FROM messages_out; END`)
		}, mailbox.ErrHostile},
		"extra view": {func(t *testing.T, s *session, db string) {
			raw(t, db, `CREATE VIEW evil AS SELECT * FROM messages_out`)
		}, mailbox.ErrHostile},
		"extra table": {func(t *testing.T, s *session, db string) { raw(t, db, `CREATE TABLE evil (x)`) }, mailbox.ErrHostile},
		"extra index": {func(t *testing.T, s *session, db string) { raw(t, db, `CREATE INDEX evil ON messages_out (kind)`) }, mailbox.ErrHostile},
		"table replaced by a view": {func(t *testing.T, s *session, db string) {
			raw(t, db, `DROP TABLE messages_out`, `CREATE VIEW messages_out AS SELECT 1 AS seq, randomblob(1000000000) AS content`)
		}, mailbox.ErrHostile},
		"wrong column types": {func(t *testing.T, s *session, db string) {
			raw(t, db, `DROP TABLE session_state`, `CREATE TABLE session_state (key BLOB PRIMARY KEY, value REAL, updated_at INTEGER)`)
		}, mailbox.ErrHostile},
		"a thousand tables": {func(t *testing.T, s *session, db string) {
			var all []string
			for i := range 1000 {
				all = append(all, fmt.Sprintf(`CREATE TABLE t%d (x)`, i))
			}
			raw(t, db, "BEGIN", strings.Join(all, ";"), "COMMIT")
		}, mailbox.ErrHostile},
		"unknown version": {func(t *testing.T, s *session, db string) { raw(t, db, `PRAGMA user_version = 99`) }, mailbox.ErrHostile},
		"WAL mode": {func(t *testing.T, s *session, db string) {
			raw(t, db, `PRAGMA journal_mode = WAL`, `INSERT INTO session_state VALUES ('a', 'b', 'c')`)
		}, mailbox.ErrHostile},
		"truncated in the middle": {func(t *testing.T, s *session, db string) { must(t, os.Truncate(db, 3*pageSize+100)) }, mailbox.ErrHostile},
		"truncated to a header":   {func(t *testing.T, s *session, db string) { must(t, os.Truncate(db, 100)) }, mailbox.ErrHostile},
		"not a database": {func(t *testing.T, s *session, db string) {
			must(t, os.WriteFile(db, bytes.Repeat([]byte("no"), 9999), 0o600))
		}, mailbox.ErrHostile},
		"too large": {func(t *testing.T, s *session, db string) { must(t, os.Truncate(db, defaultMaxBytes+1)) }, mailbox.ErrHostile},
		"a FIFO": {func(t *testing.T, s *session, db string) {
			must(t, os.Remove(db))
			must(t, unix.Mkfifo(db, 0o600))
		}, mailbox.ErrHostile},
		"a FIFO as journal": {func(t *testing.T, s *session, db string) { must(t, unix.Mkfifo(db+journalSuffix, 0o600)) }, mailbox.ErrHostile},
		"a folder": {func(t *testing.T, s *session, db string) {
			must(t, os.Remove(db))
			must(t, os.Mkdir(db, 0o700))
		}, mailbox.ErrHostile},
		"a symbolic link": {func(t *testing.T, s *session, db string) {
			must(t, os.Rename(db, db+".real"))
			must(t, os.Symlink(outboundFile+".real", db))
		}, mailbox.ErrHostile},
		"a symbolic link as journal": {func(t *testing.T, s *session, db string) {
			must(t, os.WriteFile(db+".j", []byte("xxxxxxxxxxxx"), 0o600))
			must(t, os.Symlink(outboundFile+".j", db+journalSuffix))
		}, mailbox.ErrHostile},
		"a hard link": {func(t *testing.T, s *session, db string) { must(t, os.Link(db, db+".second")) }, mailbox.ErrHostile},
		"a journal that names another file": {func(t *testing.T, s *session, db string) {
			hotJournal(t, db)
			victim := filepath.Join(s.dir, "victim")
			must(t, os.WriteFile(victim, nil, 0o600))
			f, err := os.OpenFile(db+journalSuffix, os.O_APPEND|os.O_WRONLY, 0)
			must(t, err)
			sum := uint32(0)
			for _, c := range []byte(victim) {
				sum += uint32(c)
			}
			tail := append(make([]byte, 4), victim...)
			tail = binary.BigEndian.AppendUint32(tail, uint32(len(victim)))
			tail = binary.BigEndian.AppendUint32(tail, sum)
			_, err = f.Write(append(tail, superMark...))
			must(t, errors.Join(err, f.Close()))
			t.Cleanup(func() {
				if _, err := os.Lstat(victim); err != nil {
					t.Errorf("the file named by the journal: %v", err)
				}
			})
		}, mailbox.ErrHostile},
		"missing": {func(t *testing.T, s *session, db string) { must(t, os.Remove(db)) }, nil},
		"empty":   {func(t *testing.T, s *session, db string) { must(t, os.Truncate(db, 0)) }, nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSession(t)
			s.wrote(3)
			db := s.outbound()
			good := filepath.Join(s.dir, "good.db")
			copyFile(t, db, good)
			c.spoil(t, s, db)
			before := listing(t, filepath.Dir(db))
			for range 2 { // the second time with whatever is kept
				rows, err := s.h.Outbound(t.Context(), 0, 100)
				if !errors.Is(err, c.want) {
					t.Errorf("got %d rows and error %v, want %v", len(rows), err, c.want)
				}
				for _, r := range rows {
					if r.Row.Seq > 5 && r.Err == nil {
						t.Errorf("row believed: %+v", r.Row)
					}
				}
				if _, err := s.h.State(t.Context()); !errors.Is(err, c.want) {
					t.Errorf("state: error %v, want %v", err, c.want)
				}
			}
			if after := listing(t, filepath.Dir(db)); after != before {
				t.Errorf("the host changed the sandbox's folder:\n%s\nwas:\n%s", after, before)
			}
			s.put(inRow("still here"))
			must(t, os.RemoveAll(filepath.Dir(db)+"/"+outboundFile+journalSuffix))
			must(t, os.RemoveAll(db))
			must(t, os.Rename(good, db))
			if rows, err := s.h.Outbound(t.Context(), 0, 100); err != nil || len(rows) != 3 {
				t.Errorf("the good file again: %d rows, error %v", len(rows), err)
			}
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// listing is what a folder holds: names, types, sizes and times of change.
func listing(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		st, err := d.Info()
		if err == nil {
			fmt.Fprintln(&b, path, st.Mode(), st.Size(), st.ModTime())
		}
		return err
	}))
	return b.String()
}

// A row whose content claims 134 MB in a file of 3: the file is refused without making room for it, and what is not in that
// table is read.
func TestTextThatClaimsMore(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.wrote(3)
	big := strings.Repeat("x", 3<<20)
	raw(t, s.outbound(), `INSERT INTO messages_out (seq, id, timestamp, kind, content, incarnation) VALUES (99, 'msg-big', '', 'chat', '`+big+`', 1)`)
	b, err := os.ReadFile(s.outbound())
	must(t, err)
	claim := varint4(13 + 2*uint32(len(big)))
	if n := bytes.Count(b, claim); n != 1 {
		t.Fatalf("the length stands %d times in the file", n)
	}
	must(t, os.WriteFile(s.outbound(), bytes.Replace(b, claim, []byte{0xff, 0xff, 0xff, 0x7f}, 1), 0o600))
	if rows, err := s.h.Outbound(t.Context(), 0, 100); !errors.Is(err, mailbox.ErrHostile) {
		t.Errorf("got %d rows and error %v", len(rows), err)
	}
	if rows, err := s.h.Outbound(t.Context(), 0, 3); err != nil || len(rows) != 3 {
		t.Errorf("the rows before it: %d, error %v", len(rows), err)
	}
	if _, err := s.h.State(t.Context()); err != nil {
		t.Errorf("state: %v", err)
	}
}

func varint4(v uint32) []byte {
	return []byte{byte(v>>21) | 0x80, byte(v>>14) | 0x80, byte(v>>7) | 0x80, byte(v & 0x7f)}
}

// hotJournal leaves db as a writer does that died in mid-commit: pages of an unfinished transaction in the file, what they
// were before in the journal.
func hotJournal(t *testing.T, db string) {
	t.Helper()
	conn, err := sql.Open("sqlite", dsn(db, "rw", "cache_size(2)", "cache_spill(1)"))
	must(t, err)
	conn.SetMaxOpenConns(1)
	defer func() { must(t, conn.Close()) }()
	filler := strings.Repeat("y", 3000)
	for _, s := range []string{"BEGIN IMMEDIATE", "UPDATE messages_out SET content = '{\"text\":\"never committed\"}'"} {
		_, err := conn.Exec(s)
		must(t, err)
	}
	for i := range 50 {
		_, err := conn.Exec(`INSERT INTO session_state VALUES (?, ?, '')`, fmt.Sprint("key", i), filler)
		must(t, err)
	}
	for _, name := range []string{db, db + journalSuffix} {
		copyFile(t, name, name+".kept")
	}
	_, err = conn.Exec("ROLLBACK")
	must(t, err)
	must(t, os.Rename(db+".kept", db))
	must(t, os.Rename(db+journalSuffix+".kept", db+journalSuffix))
}

func TestHotJournalIsRecoveredInACopy(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.wrote(3)
	hotJournal(t, s.outbound())
	before := listing(t, filepath.Join(s.dir, outDir))
	for range 3 {
		rows, err := s.h.Outbound(t.Context(), 0, 100)
		must(t, err)
		if len(rows) != 3 || string(rows[0].Row.Content) != `{"text":"row 0"}` {
			t.Fatalf("rows %+v", rows)
		}
	}
	if after := listing(t, filepath.Join(s.dir, outDir)); after != before {
		t.Errorf("the host changed the sandbox's folder:\n%s\nwas:\n%s", after, before)
	}
	if left, err := filepath.Glob(filepath.Join(s.dir, ".recover-*")); err != nil || len(left) > 0 {
		t.Errorf("private copies left: %v, error %v", left, err)
	}
	r := s.runner(2) // rolls back for good
	_, err := r.Write(t.Context(), outRow(3))
	must(t, err)
	if rows, err := s.h.Outbound(t.Context(), 0, 100); err != nil || len(rows) != 4 || string(rows[0].Row.Content) != `{"text":"row 0"}` {
		t.Errorf("after the runner's own recovery: %d rows, error %v", len(rows), err)
	}
}

// The runner cannot roll back its host's journal: it waits, and goes on once the host has opened its side again.
func TestHotInboundJournalIsTheHostsToRecover(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.put(inRow("committed"))
	r := s.runner(1)
	in := filepath.Join(s.dir, inDir, inboundFile)
	must(t, s.h.Close())
	conn, err := sql.Open("sqlite", dsn(in, "rw", "cache_size(2)", "cache_spill(1)"))
	must(t, err)
	conn.SetMaxOpenConns(1)
	for _, q := range []string{"BEGIN IMMEDIATE", "UPDATE messages_in SET content = '{}'"} {
		_, err := conn.Exec(q)
		must(t, err)
	}
	for i := range 50 {
		_, err := conn.Exec(`INSERT INTO destinations (name, type) VALUES (?, ?)`, fmt.Sprint("name", i), strings.Repeat("z", 3000))
		must(t, err)
	}
	copyFile(t, in, in+".kept")
	copyFile(t, in+journalSuffix, in+journalSuffix+".kept")
	_, err = conn.Exec("ROLLBACK")
	must(t, errors.Join(err, conn.Close()))
	kept, err := os.ReadFile(in + ".kept")
	must(t, err)
	must(t, os.WriteFile(in, kept, 0o600)) // the same inode: the runner has it open
	must(t, os.Remove(in+".kept"))
	must(t, os.Rename(in+journalSuffix+".kept", in+journalSuffix))

	fetched := make(chan error, 1)
	go func() {
		batch, err := r.Fetch(t.Context(), 10)
		if err == nil && (len(batch.Rows) != 1 || string(batch.Rows[0].Content) != `{"text":"committed"}`) {
			err = fmt.Errorf("fetched %+v", batch.Rows)
		}
		fetched <- err
	}()
	select {
	case err := <-fetched:
		t.Fatalf("the runner did not wait: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	h, err := Open(t.Context(), s.dir, HostOptions{OutUID: -1, SandboxGID: -1})
	must(t, err)
	s.h = h
	t.Cleanup(func() { _ = h.Close() })
	must(t, <-fetched)
}

// Rows of the right table with the wrong values: each is reported with its number, the good ones beside it are read.
func TestBadRowsAreReportedOneByOne(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.wrote(1)
	insert := func(seq int, id, stamp, kind, content, rest string) string {
		return fmt.Sprintf(`INSERT INTO messages_out (seq, id, timestamp, kind, content, incarnation, deliver_after) VALUES (%d, %s, %s, %s, %s, %s)`,
			seq, id, stamp, kind, content, rest)
	}
	const now = `'2026-01-02T03:04:05.000Z'`
	raw(t, s.outbound(),
		insert(3, `'out-3'`, now, `'nonsense'`, `'{}'`, `1, NULL`),
		insert(5, `'../../etc'`, now, `'chat'`, `'{}'`, `1, NULL`),
		insert(7, `'out-7'`, now, `'chat'`, `'{"text":'`, `1, NULL`),
		insert(9, `'out-9'`, now, `'chat'`, `'["list"]'`, `1, NULL`),
		insert(11, `'out-11'`, now, `'chat'`, `'{"text":"`+strings.Repeat("x", mailbox.MaxContent)+`"}'`, `1, NULL`),
		insert(13, `'out-13'`, `'yesterday'`, `'chat'`, `'{}'`, `1, NULL`),
		insert(15, `'out-15'`, now, `'chat'`, `'{}'`, `1, 'soon'`),
		insert(17, `x'00ff'`, now, `'chat'`, `'{}'`, `1, NULL`),
		insert(19, `'out-19'`, now, `'chat'`, `x'7b7d'`, `1, NULL`),
		insert(20, `'out-20'`, now, `'chat'`, `'{}'`, `1, NULL`),
		insert(21, `'out-21'`, now, `'chat'`, `'{}'`, `'one', NULL`),
		insert(23, `'out-23'`, now, `'chat'`, `'{"text":"`+strings.Repeat("x", 3<<20)+`"}'`, `1, NULL`),
		insert(25, `'out-25'`, now, `'chat'`, `'{}'`, `1, NULL`),
	)
	rows, err := s.h.Outbound(t.Context(), 0, 100)
	must(t, err)
	fields := map[int64]string{
		3: "kind", 5: "id", 7: "content", 9: "content", 11: "content", 13: "timestamp", 15: "deliver_after", 17: "id", 19: "content", 20: "seq",
		21: "incarnation", 23: "content",
	}
	if len(rows) != len(fields)+2 {
		t.Errorf("%d rows, want %d", len(rows), len(fields)+2)
	}
	for _, r := range rows {
		var bad *mailbox.FieldError
		field := ""
		if errors.As(r.Err, &bad) {
			field = bad.Field
		}
		if field != fields[r.Row.Seq] {
			t.Errorf("row %d: error %v, want one of field %q", r.Row.Seq, r.Err, fields[r.Row.Seq])
		}
	}
	if page, err := s.h.Outbound(t.Context(), 5, 2); err != nil || len(page) != 2 || page[0].Row.Seq != 7 {
		t.Errorf("a page of two: %+v, error %v", page, err)
	}
}

// The sandbox swaps the file while the host reads: other databases, links to them, FIFOs. The host gets its rows or an
// error, never another file's rows, and never blocks.
func TestSwapsBetweenCheckAndOpen(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.wrote(3)
	other := newSession(t)
	other.wrote(5)
	out := filepath.Join(s.dir, outDir)
	copyFile(t, s.outbound(), filepath.Join(s.dir, "good"))
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			next := filepath.Join(out, "next")
			var err error
			switch i % 4 {
			case 0, 2:
				var b []byte
				if b, err = os.ReadFile(filepath.Join(s.dir, "good")); err == nil {
					err = os.WriteFile(next, b, 0o600)
				}
			case 1:
				err = os.Symlink(other.outbound(), next)
			case 3:
				err = unix.Mkfifo(next, 0o600)
			}
			if err != nil {
				t.Error(err)
			}
			name := filepath.Join(out, outboundFile)
			if i/4%2 == 1 {
				name += journalSuffix
			}
			if err := os.Rename(next, name); err != nil {
				t.Error(err)
			}
			if i/4%2 == 1 && i%4 == 3 {
				if err := os.Remove(name); err != nil {
					t.Error(err)
				}
			}
		}
	})
	good := 0
	for range 300 {
		rows, err := s.h.Outbound(t.Context(), 0, 10)
		if err == nil && len(rows) == 3 {
			good++
		} else if err == nil && len(rows) != 0 {
			t.Fatalf("%d rows of another file", len(rows))
		}
	}
	close(stop)
	wg.Wait()
	t.Logf("%d of 300 reads saw the good file", good)
}

func TestLockHeldForEver(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.wrote(1)
	f, err := os.OpenFile(s.outbound(), os.O_RDWR, 0)
	must(t, err)
	defer func() { _ = f.Close() }()
	must(t, setLock(f, unix.F_WRLCK, sharedFirst, sharedSize))
	began := time.Now()
	read := make(chan error, 1)
	go func() { _, err := s.h.Outbound(t.Context(), 0, 1); read <- err }()
	s.put(inRow("the inbound side is not held up"))
	if _, _, err := s.h.Due(t.Context()); err != nil || time.Since(began) > patience/2 {
		t.Errorf("own side took %s, error %v", time.Since(began), err)
	}
	if err := <-read; !errors.Is(err, mailbox.ErrBusy) {
		t.Errorf("got %v, want busy", err)
	}
	if took := time.Since(began); took < patience || took > 2*patience {
		t.Errorf("gave up after %s, want about %s", took, patience)
	}
	setErr := setLock(f, unix.F_UNLCK, sharedFirst, sharedSize)
	must(t, setErr)
	if rows, err := s.h.Outbound(t.Context(), 0, 1); err != nil || len(rows) != 1 {
		t.Errorf("after the lock is gone: %d rows, error %v", len(rows), err)
	}
}

func TestOutboundMustBelongToTheSandbox(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root to change owners")
	}
	s := newSession(t, func(o *HostOptions) { o.OutUID = 12345 })
	must(t, os.WriteFile(s.outbound(), nil, 0o600))
	if _, err := s.h.Outbound(t.Context(), 0, 1); !errors.Is(err, mailbox.ErrHostile) {
		t.Errorf("a file of another uid: got %v", err)
	}
	must(t, os.Chown(s.outbound(), 12345, -1))
	if _, err := s.h.Outbound(t.Context(), 0, 1); err != nil {
		t.Errorf("a file of the sandbox's uid: %v", err)
	}
}

func TestHostileBlobs(t *testing.T) {
	t.Parallel()
	s := newSession(t, func(o *HostOptions) { o.MaxBytes = 100 })
	box := filepath.Join(s.dir, outDir, outboxDir)
	must(t, os.MkdirAll(filepath.Join(box, "row"), 0o700))
	secret := filepath.Join(s.dir, "secret")
	must(t, os.WriteFile(secret, []byte("secret"), 0o600))
	must(t, os.Symlink(secret, filepath.Join(box, "row", "link")))
	must(t, os.Symlink(s.dir, filepath.Join(box, "linked")))
	must(t, os.Link(secret, filepath.Join(box, "row", "hard")))
	must(t, unix.Mkfifo(filepath.Join(box, "row", "fifo"), 0o600))
	must(t, os.Mkdir(filepath.Join(box, "row", "folder"), 0o700))
	must(t, os.WriteFile(filepath.Join(box, "row", "large"), make([]byte, 101), 0o600))
	for _, c := range []struct {
		row, name string
		want      error
	}{
		{"row", "link", mailbox.ErrHostile}, {"linked", "secret", mailbox.ErrHostile}, {"row", "hard", mailbox.ErrHostile},
		{"row", "fifo", mailbox.ErrHostile}, {"row", "folder", mailbox.ErrHostile}, {"row", "large", mailbox.ErrHostile},
		{"row", "../../../secret", mailbox.ErrInvalid}, {"..", "secret", mailbox.ErrInvalid}, {"row", "..", mailbox.ErrInvalid},
		{"row", "", mailbox.ErrInvalid}, {"row", "a\x00b", mailbox.ErrInvalid}, {"row", "none", mailbox.ErrNotExist}, {"none", "x", mailbox.ErrNotExist},
	} {
		f, _, err := s.h.OpenOutBlob(c.row, c.name)
		if !errors.Is(err, c.want) {
			t.Errorf("%s/%q: got %v, want %v", c.row, c.name, err, c.want)
		}
		if f != nil {
			_ = f.Close()
		}
	}
	must(t, s.h.RemoveOutBlobs("linked"))
	must(t, s.h.RemoveOutBlobs("row"))
	if b, err := os.ReadFile(secret); err != nil || string(b) != "secret" {
		t.Errorf("removing followed a link: %q, error %v", b, err)
	}
	for _, name := range []string{"", ".", "..", ".hidden", "a/b", `a\b`, "a\nb", "\xff", strings.Repeat("x", 256)} {
		if _, err := s.h.PutBlob(t.Context(), "msg-1", name, strings.NewReader("x"), 10); !errors.Is(err, mailbox.ErrInvalid) {
			t.Errorf("stored under %q: %v", name, err)
		}
	}
	if _, err := s.h.PutBlob(t.Context(), "../msg", "x", strings.NewReader("x"), 10); !errors.Is(err, mailbox.ErrInvalid) {
		t.Errorf("stored for an unsafe row: %v", err)
	}
	if left, err := os.ReadDir(filepath.Join(s.dir, inDir, inboxDir)); err != nil || len(left) > 0 {
		t.Errorf("left in the inbox: %v, error %v", left, err)
	}
}

// W32: what was never delivered does not lie in the outbox for ever, whatever a sandbox has made of the folder.
func TestW32OutboxIsPruned(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	now := time.Now()
	if n, err := s.h.PruneOutBlobs(now); n != 0 || err != nil {
		t.Errorf("without an outbox: %d, %v", n, err)
	}
	box := filepath.Join(s.dir, outDir, outboxDir)
	secret := filepath.Join(s.dir, "secret")
	must(t, os.MkdirAll(secret, 0o700))
	must(t, os.WriteFile(filepath.Join(secret, "kept"), nil, 0o600))
	for _, name := range []string{"old", "young", ".odd name\n"} {
		must(t, os.MkdirAll(filepath.Join(box, name), 0o700))
		must(t, os.WriteFile(filepath.Join(box, name, "a.txt"), []byte("x"), 0o600))
		must(t, os.Symlink(secret, filepath.Join(box, name, "link")))
	}
	must(t, os.Symlink(secret, filepath.Join(box, "linked")))
	past := now.Add(-48 * time.Hour)
	for _, name := range []string{"old", ".odd name\n"} {
		must(t, os.Chtimes(filepath.Join(box, name), past, past))
	}
	must(t, unix.Lutimes(filepath.Join(box, "linked"), []unix.Timeval{unix.NsecToTimeval(past.UnixNano()), unix.NsecToTimeval(past.UnixNano())}))
	if n, err := s.h.PruneOutBlobs(now.Add(-24 * time.Hour)); n != 3 || err != nil {
		t.Errorf("went %d, error %v", n, err)
	}
	left, err := os.ReadDir(box)
	must(t, err)
	if len(left) != 1 || left[0].Name() != "young" {
		t.Errorf("left: %v", left)
	}
	if _, err := os.Stat(filepath.Join(secret, "kept")); err != nil {
		t.Errorf("a link was followed: %v", err)
	}
	must(t, os.RemoveAll(box))
	must(t, os.Symlink(secret, box))
	if n, err := s.h.PruneOutBlobs(now.Add(time.Hour)); n != 0 || err != nil {
		t.Errorf("a link in place of the outbox: %d, %v", n, err)
	}
	if _, err := os.Stat(filepath.Join(secret, "kept")); err != nil {
		t.Errorf("a link in place of the outbox was followed: %v", err)
	}
}
