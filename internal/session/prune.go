package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"nanoclaw/internal/id"
	"nanoclaw/internal/store"
)

// Prune removes from the mailboxes what is final and older than before, one session after the other. A session is looked at only when
// it was in use since the last time, and not before a part of the retention went by again; others cost nothing. A mailbox that fails is
// named in the error and tried again by the next call; the others go on.
func (m *Manager) Prune(ctx context.Context, before time.Time) error {
	const page = 100
	var failed []error
	for after := id.Session(""); ; {
		list, err := m.opt.Store.Prunable(ctx, before, before.Add(-pruneEvery), after, page)
		if err != nil {
			return errors.Join(append(failed, err)...)
		}
		for _, s := range list {
			after = s.ID
			if err := m.prune(ctx, s, before); err != nil {
				if errors.Is(err, ErrStopped) || ctx.Err() != nil {
					return errors.Join(append(failed, err)...)
				}
				failed = append(failed, fmt.Errorf("prune the mailbox of %s: %w", s.ID, err))
			}
		}
		if len(list) < page {
			return errors.Join(failed...)
		}
	}
}

// pruneEvery is how much older the oldest row of a mailbox in steady use may become than it should.
const pruneEvery = 7 * 24 * time.Hour

func (m *Manager) prune(ctx context.Context, s store.Session, before time.Time) error {
	a, err := m.enter(s.ID, &s)
	if err != nil {
		return err
	}
	defer m.leave(a)
	if err := a.prune(ctx, before); err != nil {
		return err
	}
	return m.opt.Store.Pruned(ctx, s.ID, before)
}

type pruneRequest struct {
	before time.Time
	reply  chan error
}

// prune has the actor prune its mailbox and waits for it.
func (a *actor) prune(ctx context.Context, before time.Time) error {
	req := pruneRequest{before, make(chan error, 1)}
	select {
	case a.prunes <- req:
	case <-a.done:
		return ErrStopped
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-req.reply:
		return err
	case <-a.done:
		return ErrStopped
	}
}

func (a *actor) onPrune(ctx context.Context, req pruneRequest) {
	err := a.boxErr
	if err == nil {
		err = a.box.Prune(ctx, req.before)
	}
	req.reply <- err
}
