package runner_test

import (
	"strings"
	"testing"
	"time"

	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/provider"
	"nanoclaw/internal/runner"
)

func TestMessageIsAnsweredAndAcked(t *testing.T) {
	t.Parallel()
	r := newRig(t, all).start()
	in := chat("m1", me, "hi")
	in.ThreadID = "t1"
	r.put(in)
	a := r.prompted("[m1]")
	if st := r.ack("m1"); st.Status != mailbox.AckProcessing || st.Exchange == "" {
		t.Fatalf("the claim is not durable before the prompt: %+v", st)
	}
	a.query.emit(t, initial("c1"), text(block("me", "hello")), result("hello"))
	r.acked(mailbox.AckCompleted, "m1")
	r.saidExactly("me:hello")
	row := r.out()[0]
	if row.ThreadID != "t1" || row.InReplyTo != "m1" || row.Segment != 1 || row.Exchange != r.ack("m1").Exchange || row.Fallback {
		t.Fatalf("row %+v", row)
	}
	st, err := r.host.State(t.Context())
	r.must(err)
	if st.Container.Turn != mailbox.TurnIdle || st.Session["continuation:fake"] != "c1" || st.Heartbeat.IsZero() {
		t.Fatalf("state %+v", st)
	}
}

func TestQueryStaysOpenBetweenTurns(t *testing.T) {
	t.Parallel()
	for name, caps := range map[string]provider.Caps{"receipts": all, "plain": plain, "quiet": quiet} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, caps).start()
			r.put(chat("m1", me, "hi"))
			a := r.prompted("[m1]")
			a.query.emit(t, text(block("me", "one")), result(block("me", "one")))
			r.acked(mailbox.AckCompleted, "m1")
			r.put(chat("m2", me, "again"))
			b := r.prompted("[m2]")
			if b.first || b.query != a.query {
				t.Fatal("the second prompt opened another query")
			}
			b.query.emit(t, text(block("me", "two")), result(block("me", "two")))
			r.acked(mailbox.AckCompleted, "m2")
			r.saidExactly("me:one", "me:two")
		})
	}
}

func TestBatchIsAnsweredOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, all).start()
	r.put(chat("m1", me, "a"), chat("m2", family, "b"))
	a := r.prompted("[m1][m2]")
	a.query.emit(t, text(block("family", "to you")+block("me", "and you")), result(""))
	r.acked(mailbox.AckCompleted, "m1", "m2")
	r.saidExactly("42:to you", "me:and you")
	if rows := r.out(); rows[0].InReplyTo != "m2" || rows[1].InReplyTo != "m1" {
		t.Fatalf("replies to %s and %s", rows[0].InReplyTo, rows[1].InReplyTo)
	}
	r.quiet()
}

func TestContextDoesNotWake(t *testing.T) {
	t.Parallel()
	r := newRig(t, all).start()
	c := chat("c1", me, "by the way")
	c.Trigger = false
	r.put(c)
	r.quiet()
	r.put(chat("m1", me, "hi"))
	a := r.prompted("[c1][m1]")
	// RUN-2 and context during a turn: it waits for a row that may wake.
	d := chat("c2", me, "more")
	d.Trigger = false
	r.put(d)
	r.quiet()
	r.put(chat("m2", me, "and"))
	b := r.prompted("[c2][m2]")
	a.query.emit(t, taken(b), text(block("me", "x")), result("x"))
	r.acked(mailbox.AckCompleted, "c1", "m1", "c2", "m2")
}

// RUN-3: the rows that may wake come first, context fills the rest.
func TestRUN3ContextDoesNotCrowdOutTheTrigger(t *testing.T) {
	t.Parallel()
	r := newRig(t, all, func(o *runner.Options) { o.Limit = 3 })
	rows := []mailbox.InRow{chat("m1", me, "do it")}
	for _, id := range []string{"c1", "c2", "c3", "c4"} {
		c := chat(id, me, "noise")
		c.Trigger = false
		rows = append(rows, c)
	}
	r.put(rows...)
	r.start()
	r.prompted("[m1][c3][c4]")
}

func TestDueRowsWaitForTheirTime(t *testing.T) {
	t.Parallel()
	r := newRig(t, all).start()
	later := chat("m1", me, "later")
	later.ProcessAfter = time.Now().Add(50 * time.Millisecond)
	r.put(later)
	r.prompted("[m1]")
	if time.Now().Before(later.ProcessAfter.Truncate(time.Millisecond)) {
		t.Fatal("asked before its time")
	}
}

func TestOnceEndsWhenNothingIsLeft(t *testing.T) {
	t.Parallel()
	r := newRig(t, all, func(o *runner.Options) { o.Once = true })
	r.put(chat("m1", me, "hi"))
	r.start()
	a := r.prompted("[m1]")
	r.put(chat("m2", me, "hi"))
	b := r.prompted("[m2]")
	a.query.emit(t, text(block("me", "one")), result(""), taken(b), text(block("me", "two")), result(""))
	if err := r.wait(); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(r.said(), " "); got != "me:one me:two" {
		t.Fatalf("said %s", got)
	}
	select {
	case <-a.query.ends:
	default:
		t.Fatal("the query was not ended in order")
	}
}

func TestOnceWithNothingToDo(t *testing.T) {
	t.Parallel()
	r := newRig(t, all, func(o *runner.Options) { o.Once = true }).start()
	if err := r.wait(); err != nil {
		t.Fatal(err)
	}
}

// W31: claims are given back, the query is aborted, and nothing is left running.
func TestW31StopGivesClaimsBack(t *testing.T) {
	t.Parallel()
	r := newRig(t, all).start()
	r.put(chat("m1", me, "hi"))
	a := r.prompted("[m1]")
	r.put(chat("m2", me, "more"))
	r.prompted("[m2]")
	if err := r.end(); err != nil {
		t.Fatal(err)
	}
	<-a.query.dead
	for _, id := range []string{"m1", "m2"} {
		if st := r.ack(id); st.Status != "" {
			t.Fatalf("row %s is %s", id, st.Status)
		}
	}
	// RUN-6: the stopped loop takes nothing any more; the next one does.
	r.start()
	r.prompted("[m1][m2]")
}

func TestStopAfterWordsKeepsTheExchange(t *testing.T) {
	t.Parallel()
	r := newRig(t, all).start()
	r.put(chat("m1", me, "hi"))
	a := r.prompted("[m1]")
	a.query.emit(t, text(block("me", "working on it")))
	r.saidExactly("me:working on it")
	exchange := r.ack("m1").Exchange
	r.must(r.end())
	if st := r.ack("m1"); st.Status != mailbox.AckProcessing {
		t.Fatalf("the claim is %q: what was said could be said again", st.Status)
	}
	r.start()
	b := r.prompted("[m1]{sent working on it}")
	if st := r.ack("m1"); st.Exchange != exchange {
		t.Fatalf("exchange %s became %s", exchange, st.Exchange)
	}
	b.query.emit(t, text(block("me", "working on it")+block("me", "done")), result("done"))
	r.acked(mailbox.AckCompleted, "m1")
	r.saidExactly("me:working on it", "me:done")
}

func TestBrokenRowFailsAlone(t *testing.T) {
	t.Parallel()
	r := newRig(t, all)
	r.put(chat("m1", me, "hi"), chat("m2", me, "there"))
	breakRow(t, r.dir, "m1")
	r.start()
	r.prompted("[m2]")
	if a := r.ack("m1"); a.Status != mailbox.AckFailed || a.Reason == "" {
		t.Fatalf("broken row: %+v", a)
	}
}

func TestCorruptInboxAsksForAFreshProcess(t *testing.T) {
	t.Parallel()
	r := newRig(t, all)
	r.start()
	r.quiet()
	r.must(r.end())
	box := &flaky{Mailbox: r.opt.Mailbox, err: mailbox.ErrCorrupt, times: 1 << 30}
	err := runFlaky(t, r, box)
	if err == nil || !strings.Contains(err.Error(), "10 times") {
		t.Fatalf("error %v", err)
	}
}

func TestBusyInboxIsReadAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t, all, func(o *runner.Options) { o.Once = true })
	r.start()
	r.must(r.wait())
	for _, err := range []error{mailbox.ErrBusy, mailbox.ErrCorrupt} {
		box := &flaky{Mailbox: r.opt.Mailbox, err: err, times: 2}
		if err := runFlaky(t, r, box); err != nil {
			t.Fatal(err)
		}
		if box.times != 0 {
			t.Fatalf("the inbox was not read again after %v", err)
		}
	}
}

func TestPollWithoutBell(t *testing.T) {
	t.Parallel()
	bell := &cutBell{newBell()}
	r := newRig(t, all, func(o *runner.Options) { o.Bell = bell })
	r.start()
	r.sync()
	_, err := r.host.Put(t.Context(), chat("m1", me, "hi"))
	r.must(err)
	r.prompted("[m1]")
}
