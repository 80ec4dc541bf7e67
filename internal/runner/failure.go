package runner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/obs"
	"nanoclaw/internal/provider"
	"nanoclaw/internal/runner/turn"
)

// setback is why an exchange did not get its answer.
type setback struct {
	class     provider.Class
	retryable bool
	invalid   bool   // the conversation that was resumed is unknown
	notice    string // words of the provider that may be shown to a person
	resetsAt  time.Time
	err       error
}

// diagnose reads why a query could not be started or has ended. A query that ended in the middle of a turn without giving a
// reason is a crash, which may pass.
func (r *Runner) diagnose(err error, start bool) setback {
	s := setback{class: provider.ClassOther, retryable: !start, err: err}
	if err == nil {
		s.err = errors.New("the provider ended in the middle of a turn")
		return s
	}
	var q *provider.QueryError
	if errors.As(err, &q) {
		s.class, s.retryable = q.Class, q.Retryable
	}
	s.invalid = r.driver().Provider.IsSessionInvalid(err)
	return s
}

// failure reads an error result.
func (r *Runner) failure(ev provider.Event) setback {
	s := setback{class: ev.Class, retryable: ev.Retryable, notice: ev.Notice, resetsAt: ev.ResetsAt, err: errors.New(firstOf(ev.Message, ev.Text, "no details"))}
	s.invalid = ev.Class == provider.ClassInvalidSession || r.driver().Provider.IsSessionInvalid(s.err)
	return s
}

func firstOf(all ...string) string {
	for _, s := range all {
		if s != "" {
			return s
		}
	}
	return ""
}

// setback decides what becomes of an exchange that failed: once more in a new conversation if the resumed one is unknown; again
// after a pause if the failure may pass; else it is given up.
func (r *Runner) setback(ctx context.Context, ex *turn.Exchange, s setback, held []mailbox.OutRow) error {
	r.log.Warn("an exchange has failed", obs.KeyExchange, ex.ID(), obs.Error(s.err), slog.String(obs.KeyClass, string(s.class)), slog.Bool(obs.KeyRetryable, s.retryable))
	if r.running == ex {
		r.running, r.input = nil, ""
	}
	if ctx.Err() != nil { // not its fault: the runner is stopping
		return r.again(ctx, ex, retry{exchange: ex}, held, false)
	}
	if s.invalid && r.continuation != "" && ex.Fresh() {
		r.log.Warn("the stored conversation is unknown to the provider; a new one is begun", obs.KeyExchange, ex.ID())
		if err := r.opt.Mailbox.DeleteState(ctx, r.stateKey()); err != nil {
			return fmt.Errorf("forget the conversation: %w", err)
		}
		r.continuation, r.stored = "", ""
		return r.again(ctx, ex, retry{exchange: ex}, held, true)
	}
	if stood, err := r.standIn(ctx, ex, s, held); stood || err != nil {
		return err
	}
	if s.retryable && !s.invalid {
		if n := ex.Attempt(); n <= len(r.opt.Pauses) {
			pause := r.opt.Pauses[n-1]
			r.noteRetry(ex, s)
			r.log.Warn("it is tried again", obs.KeyExchange, ex.ID(), obs.KeyCount, n, slog.Duration(obs.KeyWait, pause))
			return r.again(ctx, ex, retry{exchange: ex, at: r.opt.Now().Add(pause)}, held, false)
		}
	}
	return r.giveUp(ctx, ex, s, held)
}

// again puts an exchange at the head of the backlog, if wanted with a new query. It keeps its claim, and with it its id: what it
// has sent is not sent again.
func (r *Runner) again(ctx context.Context, ex *turn.Exchange, next retry, held []mailbox.OutRow, anew bool) error {
	if err := r.write(ctx, held); err != nil {
		return err
	}
	if ex.State() != turn.Claimed {
		if err := ex.Step(turn.Again); err != nil {
			return err
		}
	}
	if len(ex.Rows()) == 0 { // nobody asked, so nobody is asked again
		r.board.rest(r.opt.Now(), r.idle())
		return ex.Step(turn.Fail)
	}
	r.backlog = append([]retry{next}, r.backlog...)
	r.last = ex
	if anew {
		return r.drop()
	}
	return nil
}

// giveUp fails the rows of an exchange with a reason and tells everybody who waits, in one transaction.
func (r *Runner) giveUp(ctx context.Context, ex *turn.Exchange, s setback, held []mailbox.OutRow) error {
	words := s.notice
	if words == "" {
		words = r.opt.Words.Notice(s.class, s.resetsAt)
	}
	f := mailbox.Finish{Out: held}
	for _, row := range ex.Rows() {
		f.Failed = append(f.Failed, mailbox.Failure{ID: row.ID, Reason: words})
	}
	content, err := mailbox.EncodeContent(mailbox.ChatOut{Text: words, Notice: true})
	if err != nil {
		return err
	}
	if ex.Task() {
		log, err := r.runLog(ex, "failed: "+words)
		if err != nil {
			return err
		}
		f.Out = append(f.Out, log...)
	}
	waiters := ex.Waiters()
	if len(ex.Rows()) == 0 && !r.task {
		if waiters, err = r.defaultWaiter(ctx); err != nil {
			return err
		}
	}
	for _, w := range waiters {
		f.Out = append(f.Out, mailbox.OutRow{
			Kind: mailbox.KindChat, Address: w.Address, InReplyTo: w.ID, Exchange: ex.ID(), Content: content,
		})
	}
	if ex.State() == turn.Waiting {
		if err := ex.Step(turn.Again); err != nil {
			return err
		}
	}
	return r.finish(ctx, ex, turn.Fail, f)
}

// defaultWaiter stands for who hears of a failure that nobody asked for: the session's chat.
func (r *Runner) defaultWaiter(ctx context.Context) ([]mailbox.InRow, error) {
	a, err := r.opt.Mailbox.Routing(ctx)
	if err != nil {
		return nil, fmt.Errorf("read routing: %w", err)
	}
	if a.ChannelType == "" || a.PlatformID == "" || a.ChannelType == mailbox.ChannelAgent {
		return nil, nil
	}
	return []mailbox.InRow{{Address: a}}, nil
}

// halt obeys /stop: the running turn is interrupted and ends with its result; an exchange that waits for a retry ends now.
func (r *Runner) halt(ctx context.Context) error {
	if r.running == nil && len(r.waiting) > 0 {
		if err := r.beginNext(); err != nil {
			return err
		}
	}
	switch {
	case r.running != nil && r.stop.exchange == nil:
		r.stop = stopping{exchange: r.running, deadline: r.opt.Now().Add(stopPatience)}
		q := r.q
		r.side.Go(func() {
			limited, cancel := context.WithTimeout(ctx, stopPatience)
			defer cancel()
			if err := q.Interrupt(limited); err != nil && ctx.Err() == nil {
				r.log.Warn("the turn could not be interrupted", obs.Error(err))
			}
		})
	case r.running == nil && len(r.backlog) > 0:
		next := r.backlog[0].exchange
		r.backlog = r.backlog[1:]
		return r.finish(ctx, next, turn.Stop, mailbox.Finish{})
	}
	return nil
}

// forceStop ends a turn that did not end when it was interrupted.
func (r *Runner) forceStop(ctx context.Context) error {
	ex := r.stop.exchange
	r.stop = stopping{}
	if ex == nil || ex != r.running {
		return nil
	}
	r.log.Warn("the interrupted turn did not end; the query is aborted", obs.KeyExchange, ex.ID())
	if err := r.drop(); err != nil {
		return err
	}
	return r.finish(ctx, ex, turn.Stop, mailbox.Finish{})
}
