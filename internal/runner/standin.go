package runner

import (
	"bytes"
	"context"
	"log/slog"
	"time"

	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/obs"
	"nanoclaw/internal/provider"
	"nanoclaw/internal/runner/turn"
)

// Driver is a provider with what belongs to it.
type Driver struct {
	Provider provider.Provider
	Model    string // for the usage log
	MCP      func(ctx context.Context) ([]provider.MCPServer, error)
}

// How long a provider that cannot answer is left alone if it does not say itself when its limit ends.
const (
	awayQuota = time.Hour
	awayAuth  = 10 * time.Minute
	awayBusy  = 2 * time.Minute
	awayGone  = 100 * 365 * 24 * time.Hour // a program that is missing does not come into a sandbox that runs
)

// driver is the provider that answers now.
func (r *Runner) driver() Driver { return r.drivers[r.at] }

// chooseDriver goes back to the first provider that may be asked again. It is called between turns. Each provider goes on with
// its own conversation: a continuation is never handed to another one.
func (r *Runner) chooseDriver(ctx context.Context) error {
	now := r.opt.Now()
	for i, until := range r.away {
		if !now.Before(until) {
			return r.drive(ctx, i)
		}
	}
	return nil // none may be asked: the one that answers says why
}

// drive makes another provider the one that answers.
func (r *Runner) drive(ctx context.Context, i int) error {
	if i == r.at {
		return nil
	}
	if err := r.drop(); err != nil {
		return err
	}
	r.log.Info("another provider answers", slog.String(obs.KeyBefore, r.driver().Provider.Name()), obs.KeyProvider, r.drivers[i].Provider.Name())
	r.at, r.caps = i, r.drivers[i].Provider.Caps()
	return r.recallConversation(ctx)
}

// awayUntil is until when a provider that failed like this is left alone; the zero time: it is not its fault.
func awayUntil(s setback, now time.Time) time.Time {
	var pause time.Duration
	switch s.class {
	case provider.ClassQuota:
		pause = awayQuota
	case provider.ClassAuth:
		pause = awayAuth
	case provider.ClassRateLimit, provider.ClassOverloaded:
		pause = awayBusy
	case provider.ClassMissing:
		pause = awayGone
	default:
		return time.Time{}
	}
	if s.resetsAt.After(now) {
		return s.resetsAt
	}
	return now.Add(pause)
}

// standIn has the next provider of the chain answer an exchange whose own one is out of credit, overloaded, locked out or not there, and tells
// those who wait, once. It reports whether there is one.
func (r *Runner) standIn(ctx context.Context, ex *turn.Exchange, s setback, held []mailbox.OutRow) (bool, error) {
	now := r.opt.Now()
	until := awayUntil(s, now)
	if until.IsZero() || ex.Command() != "" || len(ex.Rows()) == 0 {
		return false, nil
	}
	next := -1
	for i, other := range r.away {
		if i != r.at && !now.Before(other) {
			next = i
			break
		}
	}
	if next < 0 {
		return false, nil
	}
	r.away[r.at] = until
	words := r.opt.Words.StandIn(r.driver().Provider.Name(), r.drivers[next].Provider.Name(), s.class, s.resetsAt)
	content, err := mailbox.EncodeContent(mailbox.ChatOut{Text: words, Notice: true})
	if err != nil {
		return false, err
	}
	for _, w := range ex.Waiters() {
		row := mailbox.OutRow{Kind: mailbox.KindChat, Address: w.Address, InReplyTo: w.ID, Exchange: ex.ID(), Content: content}
		if _, told := ex.Earlier(func(o mailbox.OutRow) bool { return o.Address == row.Address && bytes.Equal(o.Content, content) }); !told {
			held = append(held, row)
			ex.Left(row, true)
		}
	}
	return true, r.again(ctx, ex, retry{exchange: ex}, held, true)
}
