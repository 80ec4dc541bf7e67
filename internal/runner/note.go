package runner

import (
	"maps"
	"time"

	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/runner/turn"
)

// notes are what is remembered of the exchanges under way for those who ask later what became of a message. An exchange that
// took words only has none, and costs nothing.
type notes map[*turn.Exchange]*mailbox.ExchangeNote

func (r *Runner) noteOf(ex *turn.Exchange) *mailbox.ExchangeNote {
	n := r.notes[ex]
	if n == nil {
		n = &mailbox.ExchangeNote{Exchange: ex.ID()}
		if r.notes == nil {
			r.notes = notes{}
		}
		r.notes[ex] = n
	}
	return n
}

func (r *Runner) noteTool(ex *turn.Exchange, name string, at time.Time) {
	n := r.noteOf(ex)
	if len(n.Tools) >= mailbox.NoteItems {
		n.More++
		return
	}
	n.Tools = append(n.Tools, mailbox.ToolNote{Name: mailbox.NoteWord(name), At: at.UTC().Truncate(time.Millisecond)})
}

// noteLost notes the blocks that did not leave with the answer that has just ended.
func (r *Runner) noteLost(ex *turn.Exchange, nudged bool) {
	for _, l := range ex.Lost() {
		if n := r.noteOf(ex); len(n.Lost) < mailbox.NoteItems {
			n.Lost = append(n.Lost, mailbox.LostNote{To: mailbox.NoteWord(l.To), Why: string(l.Why)})
		}
	}
	if nudged {
		r.noteOf(ex).Nudged = true
	}
}

func (r *Runner) noteRetry(ex *turn.Exchange, s setback) {
	if n := r.noteOf(ex); len(n.Retries) < mailbox.NoteItems {
		n.Retries = append(n.Retries, string(s.class))
	}
}

// noted adds the note of an exchange that ends to the state that is written with its end.
func (r *Runner) noted(ex *turn.Exchange, on turn.Event, state map[string]string) map[string]string {
	r.noteLost(ex, false)
	if on == turn.Stop {
		r.noteOf(ex).Stopped = true
	}
	n := r.notes[ex]
	delete(r.notes, ex)
	if n.Empty() {
		return state
	}
	value, err := mailbox.EncodeContent(n)
	if err != nil {
		return state
	}
	out := map[string]string{mailbox.NoteKey(ex.ID()): string(value)}
	maps.Copy(out, state)
	return out
}
