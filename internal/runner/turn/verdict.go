package turn

import "nanoclaw/internal/runner/block"

// Why says why a block did not leave.
type Why string

// Reasons.
const (
	UnknownDestination Why = "unknown destination"
	NotClosed          Why = "not closed"
	TooLarge           Why = "too large"
	Hidden             Why = "inside an internal span that was not closed"
	NotStreamed        Why = "only in the final result"
	TaskBlock          Why = "a task sends with tools only"
)

// Lost is a block that did not leave.
type Lost struct {
	To   string
	Why  Why
	Body string
}

// Lose notes a block that did not leave.
func (e *Exchange) Lose(l Lost) { e.lost = append(e.lost, l) }

// Lost are the blocks of the running answer that did not leave.
func (e *Exchange) Lost() []Lost { return e.lost }

// LoseItem notes an item of the parser that may not leave. It reports whether the item counts as lost: an empty block does
// not.
func (e *Exchange) LoseItem(i block.Item) bool {
	why, ok := map[block.Fate]Why{block.Unclosed: NotClosed, block.TooLarge: TooLarge, block.Withheld: Hidden}[i.Fate]
	if ok {
		e.Lose(Lost{To: i.To, Why: why, Body: i.Body})
	}
	return ok
}

// Verdict is what is to be done at the end of an answer.
type Verdict struct {
	// Nudge: ask the model to send again what did not leave.
	Nudge bool
	// Fallback: the bare text goes to the person who waits.
	Fallback bool
	// Rescue: the one open block goes to its name after all; nil: there is none.
	Rescue *Lost
	// Scratch: there was bare text and it stays inside.
	Scratch bool
	// Log: the final text goes to the run log of the task.
	Log bool
}

// Silent reports whether an answer has words of which none has reached anybody.
func (e *Exchange) Silent(bare string) bool { return bare != "" && !e.answered() }

// Judge is the table of design.md section 7 for an answer that is no error: bare is its text outside of blocks, Lost has its
// lost blocks. An exchange is nudged at most once; after that a bare answer goes to the person who waits if nothing else has
// left, and a single open block to its own name. In a task nothing of it leaves: the first answer is the run log, and the
// blocks it had are asked about once.
func (e *Exchange) Judge(bare string) Verdict {
	if e.task {
		return Verdict{Nudge: !e.nudged && len(e.lost) > 0, Log: !e.logged}
	}
	silent := e.Silent(bare)
	if !e.nudged {
		if silent || len(e.lost) > 0 {
			return Verdict{Nudge: true}
		}
		return Verdict{Scratch: bare != ""}
	}
	var v Verdict
	open := 0
	for i := range e.lost {
		if e.lost[i].Why == NotClosed {
			open++
			v.Rescue = &e.lost[i]
		}
	}
	if open != 1 || v.Rescue.Body == "" {
		v.Rescue = nil
	}
	if silent && v.Rescue == nil {
		_, v.Fallback = e.Asker()
	}
	v.Scratch = bare != "" && !v.Fallback
	return v
}
