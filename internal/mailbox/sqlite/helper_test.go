package sqlite

import (
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"nanoclaw/internal/mailbox"
)

// session is a fresh mailbox; hosts and runners opened on it end with the test.
type session struct {
	*testing.T
	dir string
	h   *Host
}

func newSession(t *testing.T, opt ...func(*HostOptions)) *session {
	t.Helper()
	o := HostOptions{OutUID: -1, SandboxGID: -1}
	for _, f := range opt {
		f(&o)
	}
	s := &session{T: t, dir: filepath.Join(t.TempDir(), "odd name %?#&")}
	h, err := Create(t.Context(), s.dir, o)
	s.must(err)
	s.h = h
	t.Cleanup(func() { _ = h.Close() })
	return s
}

func (s *session) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *session) runner(incarnation int64) *Runner {
	s.Helper()
	r, err := OpenRunner(s.Context(), s.dir, RunnerOptions{Incarnation: incarnation})
	s.must(err)
	s.Cleanup(func() { _ = r.Close() })
	return r
}

// wrote lets a runner write n rows and close its file.
func (s *session) wrote(n int) {
	s.Helper()
	r, err := OpenRunner(s.Context(), s.dir, RunnerOptions{Incarnation: 1})
	s.must(err)
	for i := range n {
		_, err := r.Write(s.Context(), outRow(i))
		s.must(err)
	}
	s.must(r.Close())
}

func (s *session) put(rows ...mailbox.InRow) []mailbox.PutResult {
	s.Helper()
	p, err := s.h.Put(s.Context(), rows...)
	s.must(err)
	return p
}

func (s *session) outbound() string { return filepath.Join(s.dir, outDir, outboundFile) }

func outRow(i int) mailbox.OutRow {
	return mailbox.OutRow{Kind: mailbox.KindChat, Content: fmt.Appendf(nil, `{"text":"row %d"}`, i), Exchange: "ex-1", Segment: 1}
}

func inRow(text string) mailbox.InRow {
	return mailbox.InRow{Kind: mailbox.KindChat, Trigger: true, Content: fmt.Appendf(nil, `{"text":%q}`, text),
		Address: mailbox.Address{ChannelType: "cli", PlatformID: "cli:local"}}
}

// raw runs statements on a database file as a sandbox could: past every check of this package.
func raw(t *testing.T, path string, statements ...string) {
	t.Helper()
	db, err := sql.Open("sqlite", dsn(path, "rwc"))
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	for _, s := range statements {
		if _, err := db.Exec(s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, b, 0o600); err != nil {
		t.Fatal(err)
	}
}
