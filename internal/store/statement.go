package store

import (
	"context"
	"database/sql"
	"sync"
)

// pool is a database that compiles each statement once per connection: compiling costs as much as a small commit. The
// texts are the constants of this package, so the cache is bounded.
type pool struct {
	*sql.DB
	mu         sync.RWMutex
	statements map[string]*sql.Stmt
	fault      func(durable bool) error // of the writer; nil: none
}

func newPool(db *sql.DB) *pool { return &pool{DB: db, statements: map[string]*sql.Stmt{}} }

func (p *pool) compiled(q string) *sql.Stmt {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.statements[q]
}

// compile returns nil for what cannot be compiled; running the text says why.
func (p *pool) compile(ctx context.Context, q string) *sql.Stmt {
	if st := p.compiled(q); st != nil {
		return st
	}
	st, err := p.PrepareContext(ctx, q)
	if err != nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if other := p.statements[q]; other != nil {
		_ = st.Close()
		return other
	}
	p.statements[q] = st
	return st
}

func (p *pool) ExecContext(ctx context.Context, q string, args ...any) (r sql.Result, err error) {
	err = p.strike(func() error {
		if st := p.compile(ctx, q); st != nil {
			r, err = st.ExecContext(ctx, args...)
		} else {
			r, err = p.DB.ExecContext(ctx, q, args...)
		}
		return err
	})
	return r, err
}

// strike runs a write between its faults.
func (p *pool) strike(write func() error) error {
	if p.fault == nil {
		return write()
	}
	if err := p.fault(false); err != nil {
		return err
	}
	if err := write(); err != nil {
		return err
	}
	return p.fault(true)
}

func (p *pool) QueryContext(ctx context.Context, q string, args ...any) (*sql.Rows, error) {
	if st := p.compile(ctx, q); st != nil {
		return st.QueryContext(ctx, args...)
	}
	return p.DB.QueryContext(ctx, q, args...)
}

func (p *pool) QueryRowContext(ctx context.Context, q string, args ...any) *sql.Row {
	if st := p.compile(ctx, q); st != nil {
		return st.QueryRowContext(ctx, args...)
	}
	return p.DB.QueryRowContext(ctx, q, args...)
}

// txn is a write transaction that uses what is compiled. What is not is compiled behind it, since the pool's one connection
// is taken.
type txn struct {
	*sql.Tx
	p      *pool
	missed []string
}

func (t *txn) ExecContext(ctx context.Context, q string, args ...any) (sql.Result, error) {
	if st := t.p.compiled(q); st != nil {
		return t.StmtContext(ctx, st).ExecContext(ctx, args...)
	}
	t.missed = append(t.missed, q)
	return t.Tx.ExecContext(ctx, q, args...)
}

func (t *txn) QueryRowContext(ctx context.Context, q string, args ...any) *sql.Row {
	if st := t.p.compiled(q); st != nil {
		return t.StmtContext(ctx, st).QueryRowContext(ctx, args...)
	}
	t.missed = append(t.missed, q)
	return t.Tx.QueryRowContext(ctx, q, args...)
}
