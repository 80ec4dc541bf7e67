package runner

import (
	"context"
	"time"

	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/obs"
)

// Numbers of the signs of life.
const (
	beatEvery  = time.Second     // at most this often by events
	beatAlone  = 5 * time.Second // without events, while an exchange is under way
	silent     = 10 * time.Minute
	silentTool = time.Hour // while a tool runs
	// boardDelay keeps short tool calls off the disk; boardEvery is the most often the state is written.
	boardDelay = 200 * time.Millisecond
	boardEvery = time.Second
)

// board is what the runner shows of itself. It is written off the hot path, a moment later, and only what lasted.
type board struct {
	shown, wanted mailbox.ContainerState
	flushAt       time.Time // zero: nothing to write
	wrote         time.Time
	ringAt        time.Time // when the host is told that a turn is under way; zero: it knows, or none is

	beat  time.Time // last sign of life
	event time.Time // last event
}

func (b *board) change(now time.Time) {
	if b.wanted == b.shown {
		b.flushAt = time.Time{}
	} else if b.flushAt.IsZero() {
		b.flushAt = now.Add(boardDelay)
		if next := b.wrote.Add(boardEvery); next.After(b.flushAt) {
			b.flushAt = next
		}
	}
}

func (b *board) toolStarted(now time.Time, name string, timeout time.Duration) {
	b.wanted.CurrentTool, b.wanted.ToolTimeout, b.wanted.ToolStartedAt = name, timeout, now
	b.change(now)
}

// toolEnded: an empty name ends whatever runs.
func (b *board) toolEnded(now time.Time, name string) {
	if b.wanted.CurrentTool == "" || name != "" && name != b.wanted.CurrentTool {
		return
	}
	b.wanted.CurrentTool, b.wanted.ToolTimeout, b.wanted.ToolStartedAt = "", 0, time.Time{}
	b.change(now)
}

func (b *board) queue(n int, now time.Time) {
	b.wanted.Queued = n
	b.change(now)
}

// asked: the host looks at the state when it is rung for. A turn that is over soon costs it no look of its own.
func (b *board) asked(now time.Time) { b.ringAt = now.Add(boardDelay) }

// work and rest show a turn that no claim stands for.
func (b *board) work(now time.Time) {
	b.wanted.Turn = mailbox.TurnWorking
	b.change(now)
}

func (b *board) rest(now time.Time, idle bool) {
	b.wanted.Turn = ""
	switch {
	case b.shown.Turn == "":
	case idle:
		b.wanted.Turn = mailbox.TurnIdle
	default:
		b.shown.Turn = "" // the claims that are left stand for it
	}
	b.change(now)
}

// deadline is when something is to be written.
func (b *board) deadline(busy bool) time.Time {
	at := b.flushAt
	if !b.ringAt.IsZero() && (at.IsZero() || b.ringAt.Before(at)) {
		at = b.ringAt
	}
	if busy && b.alive(b.beat.Add(beatAlone)) {
		if next := b.beat.Add(beatAlone); at.IsZero() || next.Before(at) {
			at = next
		}
	}
	return at
}

// alive reports whether the provider may still be believed to work: a process that says nothing for long is left to the sweep.
func (b *board) alive(now time.Time) bool {
	limit := silent
	if b.wanted.CurrentTool != "" {
		limit = max(silentTool, b.wanted.ToolTimeout+silent)
	}
	return now.Before(b.event.Add(limit))
}

// beat is the sign of life at an event.
func (r *Runner) beat(now time.Time) {
	r.board.event = now
	if now.Sub(r.board.beat) >= beatEvery {
		r.beatNow(now)
	}
}

func (r *Runner) beatNow(now time.Time) {
	r.board.beat = now
	if err := r.opt.Mailbox.Beat(); err != nil {
		r.log.Warn("the heartbeat could not be written", obs.Error(err))
	}
}

// busy reports whether anything is under way that a sign of life stands for.
func (r *Runner) busy() bool { return !r.idle() || len(r.gated) > 0 }

// boardTick writes what is due. A failure is told and does not end the turn.
func (r *Runner) boardTick(ctx context.Context, now time.Time) error {
	b := &r.board
	if r.busy() && !now.Before(b.beat.Add(beatAlone)) {
		if b.alive(now) {
			r.beatNow(now)
		} else {
			b.beat = now // else the loop would come back here at once
		}
	}
	if !b.ringAt.IsZero() && !now.Before(b.ringAt) {
		b.ringAt = time.Time{}
		r.opt.Bell.Ring()
	}
	if b.flushAt.IsZero() || now.Before(b.flushAt) {
		return nil
	}
	return r.show(ctx, now)
}

func (r *Runner) show(ctx context.Context, now time.Time) error {
	b := &r.board
	b.flushAt, b.wrote = time.Time{}, now
	if err := r.opt.Mailbox.SetContainer(ctx, b.wanted); err != nil {
		if fatal(err) {
			return err
		}
		r.log.Warn("the state could not be written", obs.Error(err))
		return nil
	}
	if b.wanted.Turn == mailbox.TurnIdle {
		b.wanted.Turn = ""
	}
	b.shown = b.wanted
	r.opt.Bell.Ring()
	return nil
}
