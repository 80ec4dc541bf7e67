package runner

import (
	"context"
	"errors"
	"fmt"

	"nanoclaw/internal/crashpoint"
	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/obs"
	"nanoclaw/internal/runner/tool"
)

// send is a message that a tool wants out.
type send struct {
	ctx      context.Context
	to, text string
	done     chan sendResult // capacity 1
}

type sendResult struct {
	sent tool.Sent
	err  error
}

func (s *send) answer(res sendResult) { s.done <- res }

var errGone = errors.New("the runner is stopping; nothing was sent")

// Send writes a message of a tool to a named destination and returns when it is durable. It may be called from any goroutine;
// the loop does the work, behind all that the provider has said before.
func (r *Runner) Send(ctx context.Context, to, text string) (tool.Sent, error) {
	s := &send{ctx: ctx, to: to, text: text, done: make(chan sendResult, 1)}
	select {
	case r.sends <- s:
	case <-r.gone:
		return tool.Sent{}, errGone
	case <-ctx.Done():
		return tool.Sent{}, ctx.Err()
	}
	select {
	case res := <-s.done:
		return res.sent, res.err
	case <-r.gone:
		return tool.Sent{}, errGone
	case <-ctx.Done():
		return tool.Sent{}, ctx.Err()
	}
}

// send does what a tool asked for. A failure of the mailbox is told to the tool and ends the loop.
func (r *Runner) send(ctx context.Context, s *send) error {
	if err := r.catchUp(ctx); err != nil {
		s.answer(sendResult{err: errGone})
		return err
	}
	if s.ctx.Err() != nil {
		return nil
	}
	sent, err := r.sendNow(ctx, s)
	s.answer(sendResult{sent: sent, err: err})
	var unknown *tool.UnknownDestination
	if err == nil || errors.As(err, &unknown) || errors.Is(err, mailbox.ErrInvalid) {
		return nil
	}
	return err
}

// catchUp handles what the provider has said already: text before a tool call leaves before what the tool sends.
func (r *Runner) catchUp(ctx context.Context) error {
	if r.ahead != nil {
		ev := *r.ahead
		r.ahead = nil
		if err := r.handle(ctx, ev); err != nil {
			return err
		}
	}
	for r.q != nil {
		next := r.peek()
		if next == nil {
			return nil
		}
		if err := r.handle(ctx, *next); err != nil {
			return err
		}
	}
	return nil
}

func (r *Runner) sendNow(ctx context.Context, s *send) (tool.Sent, error) {
	d, ok, err := r.opt.Mailbox.Destination(ctx, s.to)
	if err != nil {
		return tool.Sent{}, fmt.Errorf("look destination up: %w", err)
	}
	if !ok {
		names, err := r.known(ctx)
		if err != nil {
			return tool.Sent{}, err
		}
		return tool.Sent{}, &tool.UnknownDestination{Name: s.to, Known: names}
	}
	ex := r.running
	if ex != nil {
		rows, err := r.gate(ctx, ex, ex.Segment())
		if err == nil {
			err = r.write(ctx, rows)
		}
		if err != nil {
			return tool.Sent{}, err
		}
	}
	row, err := r.address(ctx, ex, d)
	if err != nil {
		return tool.Sent{}, err
	}
	if ex != nil {
		if said, ok := ex.RepeatsEarlier(row.Address, s.text); ok {
			r.log.Info("a message that was sent before the restart is not sent again", obs.KeyExchange, ex.ID(), obs.KeyDestination, s.to)
			return tool.Sent{To: s.to, Seq: said.Seq}, nil
		}
	}
	if row.Content, err = encodeText(s.text); err != nil {
		return tool.Sent{}, err
	}
	if row, err = r.opt.Mailbox.Write(ctx, row); err != nil {
		return tool.Sent{}, fmt.Errorf("write message: %w", err)
	}
	crashpoint.Hit("runner.block")
	r.opt.Bell.Ring()
	if ex != nil {
		ex.Left(row, true)
	} else if r.q != nil {
		r.loose = append(r.loose, row)
	}
	return tool.Sent{To: s.to, Seq: row.Seq}, nil
}
