package runner_test

import (
	"testing"

	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/provider"
)

// What the simulation has found, each by itself.

// A tool that returns after its turn has ended begins no turn: what is asked next would be taken for a follow-up of it.
func TestLateToolEndBeginsNoTurn(t *testing.T) {
	t.Parallel()
	r := newRig(t, all).start()
	r.put(chat("m1", me, "hi"))
	a := r.prompted("[m1]")
	a.query.emit(t, toolStart, result(""), toolEnd)
	r.acked(mailbox.AckCompleted, "m1")
	r.put(chat("m2", me, "and?"))
	b := r.prompted("[m2]")
	b.query.emit(t, text(block("me", "yes")), result(""))
	r.acked(mailbox.AckCompleted, "m2")
	r.saidExactly("me:yes")
}

// The turn of a command answers nothing else: a message that comes meanwhile is not pushed into it.
func TestCommandTakesNoFollowUp(t *testing.T) {
	t.Parallel()
	caps := all
	caps.Commands = []string{"/compact"}
	r := newRig(t, caps).start()
	r.put(chat("m1", me, "/compact"))
	a := r.prompted("/compact")
	r.put(chat("m2", me, "hi"))
	r.quiet()
	a.query.emit(t, result("compacted"))
	r.acked(mailbox.AckCompleted, "m1")
	r.prompted("[m2]")
}

// A task whose script runs again after a restart remembers that it was nudged.
func TestScriptedTaskIsNudgedOnceOverRestarts(t *testing.T) {
	t.Parallel()
	s := newScripting(t, all, "t1")
	s.start()
	s.put(task("t1", "go"))
	s.begins()
	s.end("t1", true, "null", nil)
	a := s.prompted("[t1]")
	words := block("me", "x")
	a.query.emit(t, text(words), result(words))
	s.asked() // the nudge
	crash(s.rig)
	s.start()
	s.begins()
	s.end("t1", true, "null", nil)
	b := s.asked()
	b.query.emit(t, text(words), provider.Event{Kind: provider.Result, Text: words})
	s.acked(mailbox.AckCompleted, "t1")
	s.quiet()
}
