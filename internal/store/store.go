// Package store is the central database: who exists, which chat goes to which agent, which sessions there are, what has
// been received and what must be delivered. Portable SQL; what is particular to SQLite stands in this file.
//
// Writes go through one connection, reads through a small pool. Every method is atomic: it happens whole or not at all.
package store

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"time"

	_ "modernc.org/sqlite" // the driver

	"nanoclaw/internal/id"
	"nanoclaw/internal/mailbox"
)

//go:embed migration/*.sql
var migrations embed.FS

// FileName of the database below the home folder.
const FileName = "db/nanoclaw.db"

// Readers of the pool, beside the writer.
const readers = 4

// ErrNotFound: there is no such row.
var ErrNotFound = errors.New("not found")

// NewerError: the database was written by a newer program.
type NewerError struct{ Have, Known int }

func (e *NewerError) Error() string {
	return fmt.Sprintf("open database: its schema is version %d and this program knows %d (use the newer program, or restore a backup from before the upgrade)", e.Have, e.Known)
}

// Store is the open database.
type Store struct {
	w, r *pool
	now  func() time.Time

	onDestinations func(id.AgentGroup)
}

// Open opens the database of a home, creates it when it is missing and migrates it. The caller holds the home's lock.
func Open(ctx context.Context, home string) (*Store, error) {
	path := filepath.Join(home, FileName)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	if f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	} else if err := f.Close(); err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	s := &Store{now: time.Now}
	w, err := connect(path, 1, "_txlock=immediate")
	if err != nil {
		return nil, err
	}
	if err := migrate(ctx, w); err != nil {
		_ = w.Close()
		return nil, err
	}
	r, err := connect(path, readers, "_pragma=query_only(1)")
	if err != nil {
		_ = w.Close()
		return nil, err
	}
	s.w, s.r = newPool(w), newPool(r)
	return s, nil
}

func connect(path string, conns int, more string) (*sql.DB, error) {
	dsn := "file:" + (&url.URL{Path: path}).EscapedPath() +
		"?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)&_pragma=foreign_keys(1)" +
		"&_pragma=trusted_schema(0)&" + more
	db, err := sql.Open("sqlite", dsn)
	if err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	return db, nil
}

// Close ends all work; it waits for running statements.
func (s *Store) Close() error { return errors.Join(s.r.Close(), s.w.Close()) }

// Fault has every write ask f, before it is durable and after: an error is the write's own. It is for simulations and is set before
// anything is written.
func (s *Store) Fault(f func(durable bool) error) { s.w.fault = f }

// Check runs SQLite's own integrity check; the error says what it found.
func (s *Store) Check(ctx context.Context) error {
	var word string
	if err := s.r.QueryRowContext(ctx, "PRAGMA quick_check").Scan(&word); err != nil {
		return fmt.Errorf("check database: %w", err)
	}
	if word != "ok" {
		return fmt.Errorf("check database: %s", word)
	}
	return nil
}

// migrate brings the schema to the newest version, one transaction per step.
func migrate(ctx context.Context, db *sql.DB) error {
	steps, err := migrationSteps()
	if err != nil {
		return err
	}
	var have int
	if err := db.QueryRowContext(ctx, "PRAGMA user_version").Scan(&have); err != nil {
		return fmt.Errorf("open database: read schema version: %w", err)
	}
	if have > len(steps) {
		return &NewerError{Have: have, Known: len(steps)}
	}
	for i := have; i < len(steps); i++ {
		if err := apply(ctx, db, i+1, steps[i]); err != nil {
			return fmt.Errorf("migrate database to version %d: %w", i+1, err)
		}
	}
	return nil
}

func apply(ctx context.Context, db *sql.DB, version int, text string) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(ctx, text); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, "PRAGMA user_version = "+strconv.Itoa(version)); err != nil {
		return err
	}
	return tx.Commit()
}

// migrationSteps are the numbered files in order; a gap is an error.
func migrationSteps() ([]string, error) {
	names, err := fs.Glob(migrations, "migration/0*.sql")
	if err != nil {
		return nil, err
	}
	sort.Strings(names)
	steps := make([]string, 0, len(names))
	for i, name := range names {
		if !strings.HasPrefix(filepath.Base(name), fmt.Sprintf("%04d_", i+1)) {
			return nil, fmt.Errorf("migration %s: number %d expected", name, i+1)
		}
		b, err := migrations.ReadFile(name)
		if err != nil {
			return nil, err
		}
		steps = append(steps, string(b))
	}
	return steps, nil
}

// tx runs f in one write transaction.
func (s *Store) tx(ctx context.Context, what string, f func(*txn) error) error {
	begun, err := s.w.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	t := &txn{Tx: begun, p: s.w}
	defer func() { _ = t.Rollback() }()
	if err := f(t); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if err := s.w.strike(t.Commit); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	for _, q := range t.missed {
		s.w.compile(ctx, q)
	}
	return nil
}

// stamp renders a time for the database; the zero time is NULL.
func stamp(t time.Time) sql.NullString {
	return sql.NullString{String: mailbox.FormatTime(t), Valid: !t.IsZero()}
}

func (s *Store) stampNow() string { return mailbox.FormatTime(s.now()) }

// instant reads a time column.
func instant(v sql.NullString) time.Time {
	t, err := mailbox.ParseTime(v.String)
	if err != nil {
		return time.Time{}
	}
	return t
}

func null(s string) sql.NullString { return sql.NullString{String: s, Valid: s != ""} }
