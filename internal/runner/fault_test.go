package runner_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"sync"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"nanoclaw/internal/mailbox/sqlite"
	"nanoclaw/internal/runner"
)

// cutBell is one that nobody connected.
type cutBell struct{ *fakeBell }

func (*cutBell) Connected() bool { return false }

// flaky is a mailbox whose first reads fail.
type flaky struct {
	runner.Mailbox
	err   error
	times int
}

func (f *flaky) Fetch(ctx context.Context, limit int) (sqlite.Batch, error) {
	if f.times > 0 {
		f.times--
		return sqlite.Batch{}, f.err
	}
	return f.Mailbox.Fetch(ctx, limit)
}

func runFlaky(t *testing.T, r *rig, box *flaky) error {
	t.Helper()
	own, err := sqlite.OpenRunner(t.Context(), r.dir, sqlite.RunnerOptions{Incarnation: r.live})
	r.must(err)
	defer func() { _ = own.Close() }()
	box.Mailbox = own
	opt := r.opt
	opt.Mailbox = box
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	return runner.New(opt).Run(ctx)
}

// breakRow makes the content of a row something no host writes.
func breakRow(t *testing.T, dir, id string) {
	t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(dir, "in", "inbound.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	if _, err := db.ExecContext(t.Context(), `UPDATE messages_in SET content = 'not json' WHERE id = ?`, id); err != nil {
		t.Fatal(err)
	}
}

// clock is one that the test moves.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func newClock() *clock { return &clock{at: time.Now()} }

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}
