package session

import (
	"context"

	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/obs"
	"nanoclaw/internal/store"
)

// reproject repeats what show did not finish before an earlier host ended. Until it has, nothing counts as shown.
func (a *actor) reproject(ctx context.Context) error {
	for a.s.AckProjected < a.s.AckChange {
		page, err := a.box.Outbox(ctx, a.live, a.s.OutboundSeq, a.s.AckProjected)
		if err != nil {
			return err
		}
		if page.AckChange <= a.s.AckProjected {
			a.behind = page.More // rows are in the way that are still to be taken over
			return nil
		}
		if len(page.Acks) > 0 {
			if err := a.box.Project(ctx, page.Acks, nil); err != nil {
				return err
			}
		}
		a.s.AckProjected = page.AckChange
	}
	a.behind = false
	return nil
}

// show writes what may follow off the warm path: the states of finished rows and the outcomes of deliveries into the
// inbox, and the session's next due time into the central store.
func (a *actor) show(ctx context.Context) {
	a.armed = false
	a.project.Stop()
	if a.box == nil {
		return
	}
	if a.recount && a.state != Starting { // what starts may have claimed already
		a.recount = false
		a.countTries(ctx)
	}
	if a.again && !a.outage.waiting {
		a.again = false
		a.collect(ctx)
	}
	if a.state == Running {
		a.showWork(ctx)
	}
	if err := a.showAll(ctx); (err != nil || a.recount) && ctx.Err() == nil {
		if err != nil {
			a.log.Warn("an inbox cannot be brought up to date; it is tried again", obs.Error(err))
		}
		a.armed = true
		a.project.Reset(10 * projectDelay)
	}
}

func (a *actor) showAll(ctx context.Context) error {
	if a.behind && !a.outage.waiting {
		if err := a.reproject(ctx); err != nil {
			return err
		}
	}
	closed, err := a.m.opt.Store.Unprojected(ctx, a.session, projectPage)
	if err != nil {
		return err
	}
	marks := make([]mailbox.Delivered, 0, len(closed))
	for _, v := range closed {
		marks = append(marks, mailbox.Delivered{MessageOutID: v.OutboundID, PlatformMessageID: v.PlatformMessageID, Status: outcome(v.State), DeliveredAt: a.m.opt.Now()})
	}
	if err := a.box.Project(ctx, a.unshown, marks); err != nil {
		return err
	}
	if len(a.unshown) > 0 {
		a.unshown = nil
		a.m.opt.Observe.Worked(ctx, a.s, a.box)
	}
	if len(closed) > 0 {
		if err := a.m.opt.Store.MarkProjected(ctx, closed); err != nil {
			return err
		}
	}
	count, next, err := a.box.Due(ctx)
	if err != nil {
		return err
	}
	if count > 0 {
		next = a.m.opt.Now()
	}
	shown := a.s.AckChange
	if a.behind {
		if shown = a.s.AckProjected; !a.outage.waiting {
			a.arm()
		}
	}
	if err := a.m.opt.Store.Projected(ctx, a.session, shown, next); err != nil {
		return err
	}
	a.s.AckProjected = shown
	if count == 0 && !next.IsZero() {
		a.m.dueAt(next)
	}
	if count > 0 && a.state == Absent && !a.outage.waiting {
		signal(a.wake)
	}
	return nil
}

func outcome(s store.LedgerState) string {
	switch s {
	case store.Sent:
		return "delivered"
	case store.Refused, store.NoRoute:
		return "refused"
	}
	return "failed"
}
