package runner_test

import (
	"testing"

	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/provider"
	"nanoclaw/internal/runner"
)

func TestW3TakenFollowUpJoinsTheExchange(t *testing.T) {
	t.Parallel()
	r := newRig(t, all).start()
	r.put(chat("m1", me, "hi"))
	a := r.prompted("[m1]")
	a.query.emit(t, toolStart)
	r.put(chat("m2", family, "wait"))
	b := r.prompted("[m2]")
	if r.ack("m2").Exchange == r.ack("m1").Exchange {
		t.Fatal("joined before it was taken")
	}
	r.acked(mailbox.AckProcessing, "m2") // W3: acked with the exchange, not when it is pushed
	a.query.emit(t, toolEnd, taken(b))
	r.sync()
	if r.ack("m2").Exchange != r.ack("m1").Exchange {
		t.Fatal("not joined")
	}
	a.query.emit(t, text(block("me", "yes")+block("family", "you too")), result(""))
	r.acked(mailbox.AckCompleted, "m1", "m2")
	r.saidExactly("me:yes", "42:you too")
	rows := r.out()
	if rows[1].InReplyTo != "m2" || rows[1].Exchange != r.ack("m2").Exchange {
		t.Fatalf("row %+v", rows[1])
	}
	r.quiet()
}

func TestFollowUpNotTakenOpensTheNextExchange(t *testing.T) {
	t.Parallel()
	r := newRig(t, all).start()
	r.put(chat("m1", me, "hi"))
	a := r.prompted("[m1]")
	r.put(chat("m2", family, "next"))
	b := r.prompted("[m2]")
	a.query.emit(t, text("bare one"), result("bare one"))
	n := r.nudged()
	r.acked(mailbox.AckProcessing, "m1", "m2")
	// The turn of m2 comes first, then the answer to the nudge; each has its own nudge.
	a.query.emit(t, taken(b), text("bare two"), result(""))
	n2 := r.nudged()
	a.query.emit(t, taken(n), text(block("me", "one")), result(""))
	r.acked(mailbox.AckCompleted, "m1")
	r.acked(mailbox.AckProcessing, "m2")
	a.query.emit(t, taken(n2), text("bare two"), result(""))
	r.acked(mailbox.AckCompleted, "m2")
	r.saidExactly("me:one", "42:bare two")
	if !r.out()[1].Fallback {
		t.Fatal("not marked")
	}
	r.quiet()
}

// W28: a follow-up between nudge and answer resets nothing.
func TestNudgeTakenIntoTheNextTurn(t *testing.T) {
	t.Parallel()
	r := newRig(t, all).start()
	r.put(chat("m1", me, "hi"))
	a := r.prompted("[m1]")
	r.put(chat("m2", me, "next"))
	b := r.prompted("[m2]")
	a.query.emit(t, text("bare"), result(""))
	n := r.nudged()
	a.query.emit(t, taken(b), taken(n), text("bare again"), result(""))
	r.acked(mailbox.AckCompleted, "m1", "m2")
	r.saidExactly("me:bare again")
	r.quiet()
}

func TestTurnsWithoutReceiptForOpening(t *testing.T) {
	t.Parallel()
	r := newRig(t, all).start()
	r.put(chat("m1", me, "1"))
	a := r.prompted("[m1]")
	r.put(chat("m2", me, "2"))
	r.prompted("[m2]")
	r.put(chat("m3", me, "3"))
	r.prompted("[m3]")
	for _, s := range []string{"one", "two", "three"} {
		a.query.emit(t, text(block("me", s)), result(s))
	}
	r.acked(mailbox.AckCompleted, "m1", "m2", "m3")
	rows := r.out()
	for i, want := range []string{"m1", "m2", "m3"} {
		if rows[i].InReplyTo != want || rows[i].Exchange != r.ack(want).Exchange {
			t.Fatalf("row %d: %+v", i, rows[i])
		}
	}
}

// Results are never counted against prompts: a turn nobody asked for takes nobody's place.
func TestResultNobodyAskedFor(t *testing.T) {
	t.Parallel()
	r := newRig(t, all).start()
	r.put(chat("m1", me, "hi"))
	a := r.prompted("[m1]")
	a.query.emit(t, taken(a), text(block("me", "started")), result(""))
	r.put(chat("m2", me, "and?"))
	b := r.prompted("[m2]")
	a.query.emit(t, text(block("me", "the background job is done")), result(""))
	r.acked(mailbox.AckCompleted, "m1")
	r.acked(mailbox.AckProcessing, "m2")
	a.query.emit(t, taken(b), text(block("me", "as I said")), result(""))
	r.acked(mailbox.AckCompleted, "m2")
	r.saidExactly("me:started", "me:the background job is done", "me:as I said")
	rows := r.out()
	if rows[1].Exchange == "" || rows[1].Exchange == rows[0].Exchange || rows[1].Exchange == rows[2].Exchange {
		t.Fatalf("exchanges %s %s %s", rows[0].Exchange, rows[1].Exchange, rows[2].Exchange)
	}
}

func TestBareResultNobodyAskedFor(t *testing.T) {
	t.Parallel()
	r := newRig(t, all).start()
	r.put(chat("m1", me, "hi"))
	a := r.prompted("[m1]")
	a.query.emit(t, taken(a), result(""))
	a.query.emit(t, text("job done"), result(""))
	n := r.nudged()
	a.query.emit(t, taken(n), text("job done"), result(""))
	r.saidExactly() // nobody waits: it stays inside
	r.quiet()
}

func TestFollowUpsWaitWithoutReceipts(t *testing.T) {
	t.Parallel()
	for name, caps := range map[string]provider.Caps{
		"no input in mid-turn": plain, "no receipts": {MidTurnText: true, MidTurnInput: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, caps).start()
			r.put(chat("m1", me, "hi"))
			a := r.prompted("[m1]")
			r.put(chat("m2", me, "next"), chat("m3", me, "next"))
			r.quiet()
			r.acked("", "m2", "m3")
			a.query.emit(t, text(block("me", "one")), result(""))
			b := r.prompted("[m2][m3]")
			if b.first {
				t.Fatal("a new query was opened")
			}
			a.query.emit(t, text(block("me", "two")), result(""))
			r.acked(mailbox.AckCompleted, "m1", "m2", "m3")
		})
	}
}

// RUN-2: a full window of claimed rows hides nothing.
func TestRUN2ClaimedRowsHideNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, all, func(o *runner.Options) { o.Limit = 2 })
	r.put(chat("m1", me, "1"), chat("m2", me, "2"), chat("m3", me, "3"))
	r.start()
	r.prompted("[m1][m2]")
	r.prompted("[m3]")
	r.put(chat("m4", me, "4"))
	r.prompted("[m4]")
}

// RUN-7: a push into a query that has ended loses nothing.
func TestRUN7PushIntoAnEndedQuery(t *testing.T) {
	t.Parallel()
	r := newRig(t, all).start()
	r.put(chat("m1", me, "hi"))
	a := r.prompted("[m1]")
	a.query.noMore()
	r.put(chat("m2", me, "next"))
	r.quiet()
	r.acked("", "m2") // the claim was given back
	a.query.emit(t, initial("c1"), text(block("me", "one")), result(""))
	b := r.prompted("[m2]")
	if !b.first || b.continuation != "c1" {
		t.Fatalf("asked %+v", b)
	}
	b.query.emit(t, text(block("me", "two")), result(""))
	r.acked(mailbox.AckCompleted, "m1", "m2")
	r.saidExactly("me:one", "me:two")
}

func (q *scripted) noMore() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.noInput = true
}

func TestNudgeIntoAnEndedQuery(t *testing.T) {
	t.Parallel()
	r := newRig(t, all).start()
	r.put(chat("m1", me, "hi"))
	a := r.prompted("[m1]")
	a.query.noMore()
	a.query.emit(t, initial("c1"), text("bare"), result(""))
	n := r.nudged()
	if !n.first || n.continuation != "c1" {
		t.Fatalf("asked %+v", n)
	}
	n.query.emit(t, initial("c1"), text(block("me", "addressed")), result(""))
	r.acked(mailbox.AckCompleted, "m1")
	r.saidExactly("me:addressed")
	st, err := r.host.State(t.Context())
	r.must(err)
	if st.Session["continuation:fake"] != "c1" {
		t.Fatalf("state %v", st.Session)
	}
}

func TestQueryThatEndsBetweenTurns(t *testing.T) {
	t.Parallel()
	r := answer(t, all, initial("c1"), text(block("me", "one")), result(""))
	r.put(chat("m2", me, "x"))
	b := r.prompted("[m2]")
	b.query.emit(t, text(block("me", "two")), result(""))
	r.acked(mailbox.AckCompleted, "m2")
	b.query.die(nil)
	r.sync()
	r.put(chat("m3", me, "x"))
	c := r.prompted("[m3]")
	if !c.first || c.continuation != "c1" {
		t.Fatalf("asked %+v", c)
	}
}

func TestBacklogKeepsItsOrder(t *testing.T) {
	t.Parallel()
	r := newRig(t, plain, func(o *runner.Options) { o.Limit = 1 })
	var rows []mailbox.InRow
	for i := range 20 {
		rows = append(rows, chat("m"+string(rune('a'+i)), me, "x"))
	}
	r.put(rows...)
	r.start()
	for _, row := range rows {
		a := r.prompted("[" + row.ID + "]")
		a.query.emit(t, text(block("me", row.ID)), result(""))
	}
	r.sync()
	for i, s := range r.said() {
		if s != "me:"+rows[i].ID {
			t.Fatalf("%d is %s", i, s)
		}
	}
}
