// Package turn is the state machine of an exchange: what one provider result answers (design.md section 6). It holds an
// exchange's rows, routing, nudge, and the fate of its blocks. It does no input or output; the loop in package runner does
// what it decides. The diagram is in state.md.
package turn

import "fmt"

// State of an exchange.
type State string

// States. The last five are final.
const (
	Claimed  State = "claimed"  // its rows are durably claimed; no prompt is out
	Waiting  State = "waiting"  // its prompt is with the provider, whose turn for it has not begun
	Running  State = "running"  // the provider works on it
	Done     State = "done"     // answered, or silent on purpose; rows completed
	Failed   State = "failed"   // given up with a reason; rows failed
	Stopped  State = "stopped"  // ended by /stop; rows completed without an answer
	Joined   State = "joined"   // taken into the running exchange, which answers for its rows
	Released State = "released" // claims given back, or left to the next incarnation
)

// Event moves an exchange from one state to the next.
type Event string

// Events.
const (
	Prompt   Event = "prompt"   // the prompt was handed to the provider
	Begin    Event = "begin"    // the provider's turn for it has begun
	Nudge    Event = "nudge"    // the model is asked, once, to send again
	Again    Event = "again"    // the prompt is to be sent again: a retry
	Complete Event = "complete" // the provider's result stands, or nothing was to be asked
	Fail     Event = "fail"     // it is given up
	Stop     Event = "stop"     // a person stopped it
	Join     Event = "join"     // the running turn took its prompt
	Release  Event = "release"  // its rows are to be fetched again
)

// Rule is one legal transition.
type Rule struct {
	From State
	On   Event
	To   State
}

// Rules are all legal transitions; whatever is not here is a fault in the program.
func Rules() []Rule {
	return []Rule{
		{Claimed, Prompt, Waiting},
		{Claimed, Complete, Done},
		{Claimed, Fail, Failed},
		{Claimed, Stop, Stopped},
		{Claimed, Release, Released},

		{Waiting, Begin, Running},
		{Waiting, Join, Joined},
		{Waiting, Again, Claimed},
		{Waiting, Release, Released},

		{Running, Nudge, Waiting},
		{Running, Again, Claimed},
		{Running, Complete, Done},
		{Running, Fail, Failed},
		{Running, Stop, Stopped},
		{Running, Release, Released},
	}
}

// Final reports whether nothing can follow s.
func (s State) Final() bool {
	switch s {
	case Done, Failed, Stopped, Joined, Released:
		return true
	}
	return false
}

// next is the state after e in state s.
func next(s State, e Event) (State, error) {
	for _, r := range Rules() {
		if r.From == s && r.On == e {
			return r.To, nil
		}
	}
	return s, fmt.Errorf("an exchange that is %s cannot %s", s, e)
}
