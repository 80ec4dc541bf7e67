package runner

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/obs"
	"nanoclaw/internal/runner/turn"
)

// fatal reports errors after which this process must not write any more.
func fatal(err error) bool {
	return errors.Is(err, mailbox.ErrFenced) || errors.Is(err, mailbox.ErrCorrupt)
}

// close ends everything: the query (in order if nothing is under way, else at once), and the claims. An exchange that has sent
// something keeps its claim, which dies with this incarnation: the next one runs it again under its id and repeats nothing.
func (r *Runner) close(ctx context.Context, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortPatience+closePatience)
	defer cancel()
	defer r.side.Wait()
	var err error
	if r.q != nil && cause == nil && r.idle() {
		err = r.drain(ctx)
	}
	left := r.backlog
	r.backlog = nil
	var under []*turn.Exchange
	if r.running != nil {
		under = append(under, r.running)
	}
	for _, w := range r.waiting {
		under = append(under, w.exchange)
	}
	for _, b := range left {
		under = append(under, b.exchange)
	}
	r.running, r.waiting = nil, nil
	r.turnOver()
	r.endScripts()
	if dropErr := r.drop(); dropErr != nil {
		err = errors.Join(err, dropErr)
	}
	if fatal(cause) {
		return nil
	}
	var ids []string
	for _, id := range slices.Sorted(maps.Keys(r.gated)) {
		if !r.gated[id] { // else its exchange may have sent something, and is to be known again
			ids = append(ids, id)
		}
	}
	for _, ex := range under {
		if ex.Acted() || ex.Nudged() {
			r.log.Info("an exchange is left to the next incarnation", obs.KeyExchange, ex.ID())
		} else {
			ids = append(ids, ex.IDs()...)
		}
		err = errors.Join(err, ex.Step(turn.Release))
	}
	if len(ids) > 0 {
		if releaseErr := r.opt.Mailbox.Release(ctx, ids); releaseErr != nil {
			return errors.Join(err, fmt.Errorf("release claims: %w", releaseErr))
		}
		r.log.Info("claims given back", obs.KeyCount, len(ids))
	}
	if len(r.spent) > 0 {
		if _, spendErr := r.opt.Mailbox.Finish(ctx, mailbox.Finish{Usage: r.takeSpent()}); spendErr != nil {
			err = errors.Join(err, fmt.Errorf("write usage: %w", spendErr))
		}
	}
	if now := r.opt.Now(); !r.board.flushAt.IsZero() {
		err = errors.Join(err, r.show(ctx, now))
	}
	r.opt.Bell.Ring()
	return err
}

// drain lets an idle query end in order, and handles what it still says.
func (r *Runner) drain(ctx context.Context) error {
	r.q.End()
	patience := time.NewTimer(stopPatience)
	defer patience.Stop()
	for r.q != nil {
		select {
		case ev, ok := <-r.q.Events():
			if !ok {
				return nil
			}
			if err := r.handle(ctx, ev); err != nil {
				return err
			}
		case e := <-r.errands:
			if err := r.serve(ctx, e); err != nil {
				return err
			}
		case <-patience.C:
			return nil
		}
	}
	return nil
}
