package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"time"

	driver "modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"

	"nanoclaw/internal/crashpoint"
	"nanoclaw/internal/mailbox"
)

// patience is how long a call waits for a lock of the other side.
const patience = 5 * time.Second

// SQLite's own busy handler sleeps up to 100 ms; these pauses keep the worst wait under a steady writer near 10 ms
// (design.md section 11).
const (
	firstPause = 200 * time.Microsecond
	lastPause  = 2 * time.Millisecond
)

// conn is one connection with its kept statements. The owner serialises its use.
type conn struct {
	db    *sql.DB
	c     *sql.Conn
	stmts map[string]*sql.Stmt
	// before and after name the crash points around a commit; empty: none.
	before, after string
}

// dsn of a database file with what every connection needs: no busy handler of SQLite's, no memory map, nothing in the schema
// trusted. None of these makes SQLite read the schema.
func dsn(path, mode string, more ...string) string {
	q := url.Values{"mode": {mode}, "_defensive": {"1"}, "_dqs": {"0"}}
	for _, p := range append([]string{"trusted_schema(0)", "busy_timeout(0)", "mmap_size(0)", "cell_size_check(1)"}, more...) {
		q.Add("_pragma", p)
	}
	return "file:" + (&url.URL{Path: path}).EscapedPath() + "?" + q.Encode()
}

// smallCache since many sessions may be open at once.
const smallCache = "cache_size(-512)"

// writerPragmas: cache_spill is off since a spill in mid-transaction would want the exclusive lock there.
func writerPragmas() []string {
	return []string{smallCache, "journal_mode(DELETE)", "synchronous(FULL)", "cache_spill(0)", "foreign_keys(0)"}
}

// tuneDriver sets what the driver only knows per process: fdatasync for commits and locks that belong to the descriptor, so
// that closing some other descriptor of the same file drops none. Both calls may be repeated, and a system without one keeps
// its default.
func tuneDriver() {
	_, _ = driver.Fdatasync(true)
	_, _ = driver.OFDLocking(true)
}

func dial(ctx context.Context, dsn string) (*conn, error) {
	tuneDriver()
	connector, err := driver.NewConnector(dsn)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(1)
	k := &conn{db: db, stmts: map[string]*sql.Stmt{}}
	err = retry(ctx, func() error {
		k.c, err = db.Conn(ctx)
		return err
	})
	if err != nil {
		_ = db.Close()
		return nil, err
	}
	return k, nil
}

func (k *conn) close() error {
	for _, s := range k.stmts {
		_ = s.Close()
	}
	return errors.Join(k.c.Close(), k.db.Close())
}

// stmt prepares query once per connection.
func (k *conn) stmt(query string) (*sql.Stmt, error) {
	if s := k.stmts[query]; s != nil {
		return s, nil
	}
	s, err := k.c.PrepareContext(context.Background(), query)
	if err != nil {
		return nil, err
	}
	k.stmts[query] = s
	return s, nil
}

// exec runs one statement. It does not retry: inside a transaction only BEGIN and COMMIT meet locks.
func (k *conn) exec(query string, args ...any) (int64, error) {
	s, err := k.stmt(query)
	if err != nil {
		return 0, err
	}
	r, err := s.ExecContext(context.Background(), args...)
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

// rows runs a query and gives each row to scan. ctx with a deadline costs a goroutine; trusted files pass Background.
func (k *conn) rows(ctx context.Context, query string, args []any, scan func(*sql.Rows) error) error {
	s, err := k.stmt(query)
	if err != nil {
		return err
	}
	r, err := s.QueryContext(ctx, args...)
	if err != nil {
		return err
	}
	for r.Next() {
		if err := scan(r); err != nil {
			_ = r.Close()
			return err
		}
	}
	if err := r.Err(); err != nil {
		_ = r.Close()
		return err
	}
	return r.Close()
}

// one scans the first row into dest and reports whether there was one.
func (k *conn) one(query string, args []any, dest ...any) (bool, error) {
	found := false
	err := k.rows(context.Background(), query, args, func(r *sql.Rows) error {
		if found {
			return nil
		}
		found = true
		return r.Scan(dest...)
	})
	return found, err
}

// write runs f in an immediate transaction. Nothing of it stays when f or the commit fails.
func (k *conn) write(ctx context.Context, f func() error) error {
	begin := func() error { _, err := k.exec("BEGIN IMMEDIATE"); return err }
	if err := retry(ctx, begin); err != nil {
		return err
	}
	err := f()
	crashpoint.Hit(k.before)
	if err == nil {
		// A reader may hold the shared lock: the transaction stays open and only the commit is tried again.
		err = retry(context.WithoutCancel(ctx), func() error { _, err := k.exec("COMMIT"); return err })
	}
	if err != nil {
		_, _ = k.exec("ROLLBACK")
		return err
	}
	crashpoint.Hit(k.after)
	return nil
}

// snapshot runs f, which only reads, on one state of the file: the shared lock is taken once and not per statement.
func (k *conn) snapshot(f func() error) error {
	if _, err := k.exec("BEGIN"); err != nil {
		return err
	}
	err := f()
	if err == nil {
		_, err = k.exec("COMMIT")
	}
	if err != nil {
		_, _ = k.exec("ROLLBACK")
	}
	return err
}

// retry repeats f while the other side's lock, or its journal waiting for recovery, is in the way.
func retry(ctx context.Context, f func() error) error {
	var start time.Time
	for pause := firstPause; ; pause = min(pause+pause/8, lastPause) {
		err := f()
		if !transient(err) {
			return err
		}
		if start.IsZero() {
			start = time.Now()
		} else if time.Since(start) > patience {
			return fmt.Errorf("%w: the other side kept its lock for %s: %w", mailbox.ErrBusy, patience, err)
		}
		t := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			t.Stop()
			return fmt.Errorf("%w: %w", mailbox.ErrBusy, ctx.Err())
		case <-t.C:
		}
	}
}

// code is SQLite's extended result code in err, or 0.
func code(err error) int {
	var e *driver.Error
	if errors.As(err, &e) {
		return e.Code()
	}
	return 0
}

func transient(err error) bool {
	if err == nil {
		return false
	}
	if errors.Is(err, errLocked) {
		return true
	}
	switch c := code(err); {
	case c&0xff == lib.SQLITE_BUSY, c == lib.SQLITE_READONLY_ROLLBACK:
		return true
	}
	return false
}

// broken reports whether the file itself cannot be read any more.
func broken(err error) bool {
	switch code(err) & 0xff {
	case lib.SQLITE_CORRUPT, lib.SQLITE_NOTADB, lib.SQLITE_IOERR, lib.SQLITE_CANTOPEN:
		return true
	}
	return false
}

// failure gives err the words of what was attempted, and the sentinel of a file this process can no longer use.
func failure(what string, err error) error {
	if err == nil {
		return nil
	}
	if broken(err) {
		return fmt.Errorf("%s: %w: %w", what, mailbox.ErrCorrupt, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}
