package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/obs"
)

// RunnerOptions of a session's runner half.
type RunnerOptions struct {
	Incarnation int64
	Now         func() time.Time // nil: time.Now
	Log         *slog.Logger     // nil: discard
}

func (o RunnerOptions) filled() RunnerOptions {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = obs.Discard()
	}
	return o
}

// Runner is the runner's half of one session's mailbox: it alone writes outbound.db and reads inbound.db. Writes are durable
// on return. Once a later incarnation has opened the file every write returns mailbox.ErrFenced and changes nothing.
// mailbox.ErrCorrupt means that this process cannot use a file any more.
type Runner struct {
	root string
	opt  RunnerOptions
	acks ackReader

	// out is locked before in where both are.
	out struct {
		sync.Mutex
		*conn
		change int64 // last change number given
		seq    int64 // last seq given
	}
	in struct {
		sync.Mutex
		*conn
		file  *os.File // the same file, for its change counter
		names *names
	}
	seenIn  atomic.Int64 // highest inbound seq known
	outside *outside     // of a read-only runner
}

const (
	sqlMaxOut      = `SELECT max(seq) FROM messages_out`
	sqlMaxChange   = `SELECT max(change) FROM processing_ack`
	sqlDisownStale = `UPDATE processing_ack SET incarnation = incarnation - 1 WHERE status = 'processing' AND incarnation = ?`
	sqlHasClaim    = `SELECT 1 FROM processing_ack WHERE status = 'processing' AND incarnation = ? LIMIT 1`
)

// OpenRunner opens the mailbox below root (in/ and out/), creates or upgrades outbound.db and records the incarnation: from
// then on older ones are fenced. An incarnation older than the recorded one gets mailbox.ErrFenced. Claims that a process of
// the same incarnation left behind count as dead. mailbox.ErrNotExist: there is no inbound side.
func OpenRunner(ctx context.Context, root string, opt RunnerOptions) (*Runner, error) {
	r := &Runner{root: root, opt: opt.filled()}
	if err := r.openIn(ctx); err != nil {
		return nil, err
	}
	if err := r.openOut(ctx); err != nil {
		_ = r.closeIn()
		return nil, err
	}
	r.acks = ownAcks{r: r, done: map[int64]bool{}}
	return r, nil
}

// OpenReadOnly opens the same mailbox to look at it: nothing is created, claimed or recorded, and the outbound side, which
// may be missing, is read as a host reads it. Every write of such a Runner fails.
func OpenReadOnly(ctx context.Context, root string, opt RunnerOptions, as HostOptions) (*Runner, error) {
	r := &Runner{root: root, opt: opt.filled()}
	if err := r.openIn(ctx); err != nil {
		return nil, err
	}
	out, err := openOutside(root, as.filled())
	if err != nil {
		_ = r.closeIn()
		return nil, err
	}
	r.outside, r.acks = out, foreignAcks{out}
	return r, nil
}

func (r *Runner) openIn(ctx context.Context) error {
	path := filepath.Join(r.root, inDir, inboundFile)
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("open mailbox %s: %w", r.root, mailbox.ErrNotExist)
	}
	if err != nil {
		return fmt.Errorf("open inbound side: %w", err)
	}
	k, err := dial(ctx, dsn(path, "ro", smallCache))
	if err != nil {
		_ = file.Close()
		return failure("open inbound side", err)
	}
	err = retry(ctx, func() error {
		var version int64
		if _, err := k.one("PRAGMA user_version", nil, &version); err != nil {
			return err
		}
		if version != inboundVersion {
			return fmt.Errorf("%w: the inbound side has schema %d, this program reads %d", mailbox.ErrInvalid, version, inboundVersion)
		}
		seq, err := highestSeq(k, sqlMaxIn)
		r.seenIn.Store(seq)
		return err
	})
	if err != nil {
		_ = k.close()
		_ = file.Close()
		return failure("read inbound side", err)
	}
	r.in.conn, r.in.file = k, file
	return nil
}

func (r *Runner) closeIn() error { return errors.Join(r.in.close(), r.in.file.Close()) }

func (r *Runner) openOut(ctx context.Context) error {
	dir := filepath.Join(r.root, outDir)
	if err := os.MkdirAll(filepath.Join(dir, outboxDir), privateMode); err != nil {
		return fmt.Errorf("open outbound side: %w", err)
	}
	k, err := dial(ctx, dsn(filepath.Join(dir, outboundFile), "rwc", writerPragmas()...))
	if err != nil {
		return failure("open outbound side", err)
	}
	k.before, k.after = "outbound.commit", "outbound.committed"
	r.out.conn = k
	err = k.migrate(ctx, outboundVersion, outboundSchema())
	if err == nil {
		err = r.takeOver(ctx)
	}
	if err != nil {
		_ = k.close()
		return failure("prepare outbound side", err)
	}
	return nil
}

// takeOver records the incarnation and reads where the numbers stand.
func (r *Runner) takeOver(ctx context.Context) error {
	k, mine := r.out.conn, r.opt.Incarnation
	recorded, stale := false, false
	look := func() error {
		var stored, change sql.NullInt64
		var one int
		var err error
		if recorded, err = k.one(sqlCounter, []any{counterIncarnation}, &stored); err != nil {
			return err
		}
		if recorded && stored.Int64 > mine {
			return fmt.Errorf("%w: incarnation %d has taken over from %d", mailbox.ErrFenced, stored.Int64, mine)
		}
		recorded = recorded && stored.Int64 == mine
		if stale, err = k.one(sqlHasClaim, []any{mine}, &one); err != nil {
			return err
		}
		if _, err := k.one(sqlMaxChange, nil, &change); err != nil {
			return err
		}
		r.out.change = change.Int64
		if _, err := k.one(sqlCounter, []any{counterChange}, &change); err != nil {
			return err
		}
		r.out.change = max(r.out.change, change.Int64)
		r.out.seq, err = highestSeq(k, sqlMaxOut)
		return err
	}
	if err := retry(ctx, look); err != nil || recorded && !stale {
		return err
	}
	return k.write(ctx, func() error {
		if err := look(); err != nil {
			return err
		}
		if _, err := k.exec(sqlDisownStale, mine); err != nil {
			return err
		}
		if _, err := k.exec(sqlSetCounter, counterIncarnation, mine); err != nil {
			return err
		}
		// A file made anew starts above every change number of a lost one, so that a host's cursor misses nothing.
		if r.out.change == 0 {
			r.out.change = max(r.opt.Now().UnixMilli(), 0)
			if _, err := k.exec(sqlSetCounter, counterChange, r.out.change); err != nil {
				return err
			}
		}
		return nil
	})
}

// Close releases all files. A closed Runner must not be used.
func (r *Runner) Close() error {
	r.out.Lock()
	defer r.out.Unlock()
	r.in.Lock()
	defer r.in.Unlock()
	err := r.closeIn()
	if r.out.conn != nil {
		err = errors.Join(err, r.out.close())
	}
	if r.outside != nil {
		err = errors.Join(err, r.outside.close())
	}
	return err
}

// change runs f in one transaction on the outbound side, behind the fence. The numbers it gives count only once committed.
func (r *Runner) change(ctx context.Context, what string, f func(t *transaction) error) error {
	r.out.Lock()
	defer r.out.Unlock()
	if r.out.conn == nil {
		return fmt.Errorf("%s: opened for reading only", what)
	}
	var t transaction
	err := r.out.write(ctx, func() error {
		t = transaction{conn: r.out.conn, mine: r.opt.Incarnation, now: mailbox.FormatTime(r.opt.Now()), lastChange: r.out.change, lastSeq: r.out.seq}
		if err := t.fence(); err != nil {
			return err
		}
		return f(&t)
	})
	if err != nil {
		return failure(what, err)
	}
	r.out.change, r.out.seq = t.lastChange, t.lastSeq
	return nil
}

// transaction is one write of the runner.
type transaction struct {
	*conn
	mine                int64
	now                 string
	lastChange, lastSeq int64
}

func (t *transaction) fence() error {
	var stored int64
	if _, err := t.one(sqlCounter, []any{counterIncarnation}, &stored); err != nil {
		return err
	}
	if stored != t.mine {
		return fmt.Errorf("%w: incarnation %d has taken over from %d", mailbox.ErrFenced, stored, t.mine)
	}
	return nil
}

// nextChange numbers a change of an ack.
func (t *transaction) nextChange() int64 {
	t.lastChange++
	return t.lastChange
}

// nextSeq is the next odd number above both sides.
func (t *transaction) nextSeq(seenIn int64) int64 {
	highest := max(t.lastSeq, seenIn)
	t.lastSeq = highest + 1 + highest%2
	return t.lastSeq
}
