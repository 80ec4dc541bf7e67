package delivery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"nanoclaw/internal/channel"
	"nanoclaw/internal/crashpoint"
	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/obs"
	"nanoclaw/internal/store"
)

// deliver brings one row to a final state, or leaves it open when ctx ends: rows behind it wait (P5).
func (s *Service) deliver(ctx context.Context, row *store.Ledger) {
	adapter, ok := s.opt.Adapters[row.Instance]
	if !ok {
		s.finish(ctx, row, store.NoRoute, "no channel named "+row.Instance+" is configured")
		return
	}
	out, err := s.outgoing(ctx, row, adapter.Info().Caps)
	switch {
	case errors.Is(err, errNothing):
		s.finish(ctx, row, store.Sent, "")
		return
	case err != nil && ctx.Err() != nil:
		return
	case err != nil:
		s.finish(ctx, row, store.Refused, err.Error())
		return
	}
	if row.State == store.Unknown && !s.again(ctx, row, adapter.Info().Caps.Idempotent, "the host ended while the message was on its way") {
		return
	}
	b := s.breakers[row.Instance]
	for !row.State.Final() {
		if !s.waitUntil(ctx, row.NotBefore) || !b.admit(ctx, s.opt.Now, row.CreatedAt.Add(patience)) {
			return
		}
		on := s.attempt(ctx, adapter, row, out)
		b.release()
		if !on {
			return
		}
	}
}

// attempt makes one try. It returns false when the row must be left as it is.
func (s *Service) attempt(ctx context.Context, adapter channel.Adapter, row *store.Ledger, o outgoing) bool {
	op := o.op
	op.Marked, op.Part = row.Marked, row.Part
	if row.Part > 0 {
		o.files = nil
	}
	had, err := s.aim(ctx, row, &op)
	if err != nil {
		return s.failed(ctx, adapter, row, &channel.Outcome{Kind: channel.Transient, Err: err})
	}
	files, release, err := s.attach(ctx, row, o.files)
	if err != nil {
		if refusal := fileRefusal(err); refusal != "" {
			s.finish(ctx, row, store.Refused, refusal)
			return true
		}
		return s.failed(ctx, adapter, row, &channel.Outcome{Kind: channel.Transient, Err: err})
	}
	defer release()
	op.Files = files
	crashpoint.Hit("host.sending.before")
	row.State = store.Sending
	if err := s.opt.Store.UpdateLedger(ctx, *row); err != nil {
		s.log.Error("a delivery waits: its state cannot be written", obs.KeyLedger, string(row.ID), obs.Error(err))
		row.NotBefore = s.opt.Now().Add(offlinePause)
		return ctx.Err() == nil
	}
	crashpoint.Hit("host.sending")
	sending, cancel := context.WithTimeout(context.WithoutCancel(ctx), deliverTimeout)
	receipt, err := adapter.Deliver(sending, channel.Address{PlatformID: row.PlatformID, ThreadID: row.ThreadID}, op, partKey(row))
	cancel()
	crashpoint.Hit("host.delivered")
	if err == nil {
		s.breakers[row.Instance].note(s.opt.Now(), "", "")
		if partSent(row, op, receipt) {
			return ctx.Err() == nil
		}
		if err := s.keepParts(ctx, adapter.Info().Caps, row, had); err != nil {
			s.log.Error("the parts of a message are not noted; an edit will reach the first one only", obs.KeyLedger, string(row.ID), obs.Error(err))
		}
		s.tellUnsent(ctx, row, o.unsent)
		s.opt.Observe.Tried(row.Instance, string(store.Sent))
		s.finish(ctx, row, store.Sent, "")
		return true
	}
	outcome := &channel.Outcome{Kind: channel.Ambiguous, Err: err}
	errors.As(err, &outcome)
	s.breakers[row.Instance].note(s.opt.Now(), outcome.Kind, outcome.Error())
	return s.failed(ctx, adapter, row, err)
}

// failed applies the reaction to each outcome (spec/channels.md section 2.4). It returns false to leave the row.
func (s *Service) failed(ctx context.Context, adapter channel.Adapter, row *store.Ledger, err error) bool {
	outcome := &channel.Outcome{Kind: channel.Ambiguous, Err: err}
	errors.As(err, &outcome)
	s.opt.Observe.Tried(row.Instance, string(outcome.Kind))
	now := s.opt.Now()
	switch outcome.Kind {
	case channel.Permanent:
		s.finish(ctx, row, store.Refused, outcome.Error())
		return true
	case channel.Offline, channel.RateLimited:
		if now.Sub(row.CreatedAt) > patience {
			s.finish(ctx, row, store.Dead, fmt.Sprintf("not delivered within %v: %v", patience, outcome))
			return true
		}
		wait := max(outcome.After, min(max(now.Sub(row.CreatedAt)/20, offlinePause), offlineMost))
		return s.retry(ctx, row, now.Add(jitter(wait)), outcome.Error())
	case channel.Transient:
		if row.Tries++; row.Tries >= maxTries {
			s.finish(ctx, row, store.Dead, fmt.Sprintf("gave up after %d tries: %v", row.Tries, outcome))
			return true
		}
		return s.retry(ctx, row, now.Add(jitter(max(pause(row.Tries), outcome.After))), outcome.Error())
	default:
		row.State = store.Unknown
		return s.again(ctx, row, adapter.Info().Caps.Idempotent, outcome.Error())
	}
}

// again decides about a row that may or may not have arrived: with an idempotency key it is simply sent again; without, it
// is sent again exactly once, marked, and a second doubt ends it.
func (s *Service) again(ctx context.Context, row *store.Ledger, idempotent bool, why string) bool {
	row.Unknowns++
	if idempotent {
		if row.Tries++; row.Tries >= maxTries {
			s.finish(ctx, row, store.Dead, fmt.Sprintf("gave up after %d tries: %s", row.Tries, why))
			return true
		}
		return s.retry(ctx, row, s.opt.Now(), why)
	}
	if row.Unknowns > 1 {
		s.finish(ctx, row, store.Dead, "twice it could not be known whether it arrived: "+why)
		return true
	}
	row.Marked = true
	return s.retry(ctx, row, s.opt.Now(), why)
}

func (s *Service) retry(ctx context.Context, row *store.Ledger, at time.Time, why string) bool {
	row.State, row.NotBefore, row.Reason = store.Retry, at, why
	if err := s.opt.Store.UpdateLedger(context.WithoutCancel(ctx), *row); err != nil {
		s.log.Error("could not note a retry", obs.KeyLedger, string(row.ID), obs.Error(err))
	}
	s.log.Warn("delivery is tried again", obs.KeyLedger, string(row.ID), obs.KeyDestination, row.PlatformID, obs.KeyCount, row.Tries, obs.KeyReason, why)
	return ctx.Err() == nil
}

// finish writes a final state and tells who has to know. A state that cannot be written keeps its destination waiting: the row would be
// sent again by the next host.
func (s *Service) finish(ctx context.Context, row *store.Ledger, state store.LedgerState, reason string) {
	row.State, row.Reason = state, reason
	if !s.durable(ctx, slog.String(obs.KeyLedger, string(row.ID)), func(ctx context.Context) error { return s.opt.Store.UpdateLedger(ctx, *row) }) {
		return
	}
	crashpoint.Hit("host.sent")
	if row.SessionID != "" {
		s.opt.Closed(row.SessionID)
	}
	if state == store.Sent {
		s.opt.Observe.Delivered(row.Instance, string(state), s.opt.Now().Sub(row.CreatedAt))
	} else {
		s.report(ctx, row)
	}
	s.dropFiles(ctx, row)
}

// durable repeats a write until it is made. It returns false when ctx ended first; one try is made whatever ctx says.
func (s *Service) durable(ctx context.Context, what slog.Attr, write func(context.Context) error) bool {
	for wait := offlinePause; ; wait = min(2*wait, offlineMost) {
		err := write(context.WithoutCancel(ctx))
		if err == nil {
			return true
		}
		s.log.Error("the outcome of a delivery cannot be written; it is tried again", what, obs.Error(err))
		if !s.waitUntil(ctx, s.opt.Now().Add(wait)) {
			return false
		}
	}
}

// report tells the agent that its words were not delivered, and the owner when that was the host's own word or the agent
// cannot be told. Notices about notices are not sent. What ctx ends before is told by the next host.
func (s *Service) report(ctx context.Context, row *store.Ledger) {
	s.log.Warn("not delivered", obs.KeyLedger, string(row.ID), obs.KeySession, string(row.SessionID), obs.KeyDestination, row.PlatformID,
		obs.KeyState, string(row.State), obs.KeyReason, row.Reason)
	s.opt.Observe.Delivered(row.Instance, string(row.State), s.opt.Now().Sub(row.CreatedAt))
	if row.Kind == kindNotice {
		return
	}
	s.durable(ctx, slog.String(obs.KeyLedger, string(row.ID)), func(ctx context.Context) error {
		if err := s.tellFailure(ctx, row); err != nil {
			return err
		}
		return s.opt.Store.FailureTold(ctx, row.ID)
	})
}

// tellFailure is idempotent.
func (s *Service) tellFailure(ctx context.Context, row *store.Ledger) error {
	err := s.opt.Tell(ctx, row.SessionID, "undelivered:"+string(row.ID), failureText(row))
	if err == nil {
		return nil
	}
	owner, ok := s.opt.Owner(ctx)
	if !ok {
		return err
	}
	s.log.Error("could not tell the agent", obs.KeyLedger, string(row.ID), obs.Error(err))
	return s.Say(ctx, owner, "undelivered-owner:"+string(row.ID), "An agent's message to "+orNothing(row.PlatformID)+" was not delivered: "+row.Reason)
}

func orNothing(s string) string {
	if s == "" {
		return "nowhere"
	}
	return s
}

// waitUntil returns false when ctx ended first.
func (s *Service) waitUntil(ctx context.Context, at time.Time) bool {
	d := at.Sub(s.opt.Now())
	if at.IsZero() || d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// jitter spreads a pause by a fifth either way.
func jitter(d time.Duration) time.Duration {
	return d - d/5 + rand.N(2*d/5+1)
}

func notice(text string) (json.RawMessage, error) {
	return mailbox.EncodeContent(mailbox.ChatOut{Text: text, Notice: true})
}
