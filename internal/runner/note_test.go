package runner_test

import (
	"testing"

	"nanoclaw/internal/mailbox"
)

// noted is the note of the exchange that a row was in.
func (r *rig) noted(row string) *mailbox.ExchangeNote {
	r.t.Helper()
	ex := r.ack(row).Exchange
	s, _, err := r.box.StateValue(r.t.Context(), mailbox.NoteKey(ex))
	if err != nil {
		r.t.Fatal(err)
	}
	return mailbox.DecodeNote(ex, s)
}

// What an exchange took beside words is kept for `ncl trace`: tools, blocks that did not leave, the nudge; of words alone nothing.
func TestNotes(t *testing.T) {
	t.Parallel()
	r := answer(t, all, text(block("me", "hi")), result(""))
	r.acked(mailbox.AckCompleted, "m1")
	if n := r.noted("m1"); n != nil {
		t.Errorf("words alone left %+v", n)
	}
	r = answer(t, all, toolStart, toolEnd, text(block("nobody", "secret words")), result(""))
	r.nudged("nobody").query.emit(t, text(block("me", "hi")), result(""))
	r.becomes(mailbox.AckCompleted, "m1")
	n := r.noted("m1")
	if n == nil || len(n.Tools) != 1 || n.Tools[0].Name == "" || n.Tools[0].At.IsZero() || len(n.Lost) != 1 || n.Lost[0] != (mailbox.LostNote{To: "nobody", Why: "unknown destination"}) || !n.Nudged {
		t.Errorf("%+v", n)
	}
}
