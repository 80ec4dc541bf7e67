package runner_test

import (
	"errors"
	"strings"
	"testing"

	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/provider"
	"nanoclaw/internal/runner"
)

func failed(class provider.Class, retryable bool) provider.Event {
	return provider.Event{Kind: provider.Result, IsError: true, Class: class, Retryable: retryable, Message: "API Error: 403 {raw}", Text: "raw " + block("me", "raw")}
}

// GATE-6: one notice in plain words where the question came from, no nudge, no retry, nothing raw.
func TestGATE6ErrorThatStays(t *testing.T) {
	t.Parallel()
	r := newRig(t, all).start()
	in := chat("m1", family, "hi")
	in.ThreadID = "t1"
	r.put(in)
	a := r.prompted("[m1]")
	a.query.emit(t, text("let me see"), failed(provider.ClassQuota, false))
	r.acked(mailbox.AckFailed, "m1")
	r.saidExactly("42:notice quota")
	row := r.out()[0]
	if row.ThreadID != "t1" || row.InReplyTo != "m1" || !strings.Contains(string(row.Content), `"notice":true`) {
		t.Fatalf("row %+v", row)
	}
	if a := r.ack("m1"); a.Reason != "notice quota" {
		t.Fatalf("reason %q", a.Reason)
	}
	r.quiet()
	// The query lives on.
	r.put(chat("m2", me, "hi"))
	if b := r.prompted("[m2]"); b.query != a.query {
		t.Fatal("another query")
	}
}

func TestWordsOfTheProviderForPeople(t *testing.T) {
	t.Parallel()
	ev := failed(provider.ClassQuota, false)
	ev.Notice = "Your limit resets at 5."
	r := answer(t, all, ev)
	r.saidExactly("me:Your limit resets at 5.")
}

func TestNoticeOncePerAddress(t *testing.T) {
	t.Parallel()
	r := newRig(t, all).start()
	other := mailbox.Address{ChannelType: mailbox.ChannelAgent, PlatformID: "ag-2"}
	bounced := chat("a2", mailbox.Address{ChannelType: mailbox.ChannelAgent, PlatformID: "ag-3"}, "failed")
	bounced.Content = []byte(`{"text":"I failed","notice":true}`)
	context := chat("c1", mailbox.Address{ChannelType: "cli", PlatformID: "other"}, "context")
	context.Trigger = false
	r.put(chat("m1", me, "a"), chat("m2", me, "b"), chat("m3", family, "c"), chat("a1", other, "d"), bounced, context)
	a := r.asked()
	a.query.emit(t, failed(provider.ClassAuth, false))
	r.acked(mailbox.AckFailed, "m1", "m2", "m3", "a1", "a2", "c1")
	r.saidExactly("ag-2:notice auth", "42:notice auth", "me:notice auth")
}

func TestPartialAnswerIsKept(t *testing.T) {
	t.Parallel()
	r := answer(t, all, text(block("me", "half")), failed(provider.ClassOther, false))
	r.saidExactly("me:half", "me:notice other")
	r.acked(mailbox.AckFailed, "m1")
}

// W4: a failure that may pass is tried again, in the same exchange, and given up after the budget.
func TestW4RetryBudget(t *testing.T) {
	t.Parallel()
	r := newRig(t, all).start()
	r.put(chat("m1", me, "hi"))
	a := r.prompted("[m1]")
	exchange := r.ack("m1").Exchange
	a.query.emit(t, text(block("me", "half")), failed(provider.ClassOverloaded, true))
	for range 2 {
		b := r.prompted("[m1]{sent half}")
		b.query.emit(t, taken(b), text(block("me", "half")), failed(provider.ClassOverloaded, true))
	}
	c := r.prompted("[m1]{sent half}")
	c.query.emit(t, taken(c), failed(provider.ClassOverloaded, true))
	r.acked(mailbox.AckFailed, "m1")
	r.saidExactly("me:half", "me:notice overloaded")
	if got := r.ack("m1").Exchange; got != exchange {
		t.Fatalf("exchange %s became %s", exchange, got)
	}
	r.quiet()
}

func TestRetrySucceeds(t *testing.T) {
	t.Parallel()
	r := newRig(t, all).start()
	r.put(chat("m1", me, "hi"))
	a := r.prompted("[m1]")
	a.query.die(&provider.QueryError{Op: "talk", Class: provider.ClassNetwork, Retryable: true})
	b := r.prompted("[m1]")
	if !b.first {
		t.Fatal("pushed into a dead query")
	}
	b.query.emit(t, text(block("me", "ok")), result(""))
	r.acked(mailbox.AckCompleted, "m1")
	r.saidExactly("me:ok")
}

// A provider that dies without a word has crashed; what was pushed into it is not lost.
func TestCrashInMidTurn(t *testing.T) {
	t.Parallel()
	r := newRig(t, all).start()
	r.put(chat("m1", me, "hi"))
	a := r.prompted("[m1]")
	r.put(chat("m2", me, "more"))
	r.prompted("[m2]")
	r.sync()
	a.query.die(nil)
	b := r.prompted("[m1]")
	b.query.emit(t, taken(b), text(block("me", "one")), result(""))
	c := r.prompted("[m2]")
	c.query.emit(t, taken(c), text(block("me", "two")), result(""))
	r.acked(mailbox.AckCompleted, "m1", "m2")
	r.saidExactly("me:one", "me:two")
}

func TestCrashBeforeAWaitingTurnIsBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t, all).start()
	r.put(chat("m1", me, "hi"))
	a := r.prompted("[m1]")
	a.query.emit(t, taken(a), text(block("me", "one")), result(""))
	r.acked(mailbox.AckCompleted, "m1")
	r.put(chat("m2", me, "poison"))
	q := r.prompted("[m2]").query
	for range 3 {
		q.die(nil)
		q = r.prompted("[m2]").query
	}
	q.die(nil)
	r.until("it is given up", func() bool { return r.ack("m2").Status == mailbox.AckFailed })
	r.saidExactly("me:one", "me:notice other")
}

func TestProviderThatCannotStart(t *testing.T) {
	t.Parallel()
	r := newRig(t, all, func(o *runner.Options) {})
	r.prov.refuse = func(int) error { return errors.New("exec: not found") }
	r.put(chat("m1", me, "hi"))
	r.start()
	r.until("failed", func() bool { return r.ack("m1").Status == mailbox.AckFailed })
	r.saidExactly("me:notice other")
}

// RUN-10: an unknown conversation is forgotten and the exchange tried once in a new one.
func TestRUN10UnknownConversation(t *testing.T) {
	t.Parallel()
	r := answer(t, all, initial("old"), text(block("me", "one")), result(""))
	r.must(r.end())
	r.prov.refuse = func(n int) error {
		if n == 2 {
			return errUnknownSession
		}
		return nil
	}
	r.put(chat("m2", me, "hi"))
	r.start()
	b := r.prompted("[m2]")
	if b.continuation != "" {
		t.Fatalf("resumed %q", b.continuation)
	}
	b.query.emit(t, initial("new"), text(block("me", "two")), result(""))
	r.acked(mailbox.AckCompleted, "m2")
	st, err := r.host.State(t.Context())
	r.must(err)
	if st.Session["continuation:fake"] != "new" {
		t.Fatalf("state %v", st.Session)
	}
}

func TestUnknownConversationTwiceIsReported(t *testing.T) {
	t.Parallel()
	r := answer(t, all, initial("old"), text(block("me", "one")), result(""))
	r.must(r.end())
	r.put(chat("m2", me, "hi"))
	r.start()
	b := r.prompted("[m2]")
	if b.continuation != "old" {
		t.Fatalf("resumed %q", b.continuation)
	}
	b.query.die(errUnknownSession)
	c := r.prompted("[m2]")
	if c.continuation != "" {
		t.Fatalf("resumed %q", c.continuation)
	}
	c.query.die(errUnknownSession)
	r.until("reported", func() bool { return r.ack("m2").Status == mailbox.AckFailed })
	r.saidExactly("me:one", "me:notice other")
	r.quiet()
}

// RUN-12: any other failure keeps the conversation.
func TestRUN12OtherFailuresKeepTheConversation(t *testing.T) {
	t.Parallel()
	r := answer(t, all, initial("c1"), text(block("me", "one")), result(""))
	r.put(chat("m2", me, "hi"))
	b := r.prompted("[m2]")
	b.query.die(&provider.QueryError{Op: "log in", Class: provider.ClassAuth})
	r.until("failed", func() bool { return r.ack("m2").Status == mailbox.AckFailed })
	r.put(chat("m3", me, "hi"))
	if c := r.prompted("[m3]"); c.continuation != "c1" {
		t.Fatalf("resumed %q", c.continuation)
	}
}

// RUN-13: the id of a turn that never finished is not kept.
func TestRUN13ConversationOfAnUnfinishedTurn(t *testing.T) {
	t.Parallel()
	r := newRig(t, all).start()
	r.put(chat("m1", me, "hi"))
	a := r.prompted("[m1]")
	a.query.emit(t, initial("half"), text("hm"))
	r.sync()
	a.query.die(nil)
	b := r.prompted("[m1]")
	if b.continuation != "" {
		t.Fatalf("resumed %q", b.continuation)
	}
	b.query.emit(t, initial("half2"), failed(provider.ClassOther, false))
	r.acked(mailbox.AckFailed, "m1")
	st, err := r.host.State(t.Context())
	r.must(err)
	if len(st.Session) != 0 {
		t.Fatalf("state %v", st.Session)
	}
}

func TestErrorNobodyAskedFor(t *testing.T) {
	t.Parallel()
	r := newRig(t, all).start()
	r.put(chat("m1", me, "hi"))
	a := r.prompted("[m1]")
	a.query.emit(t, taken(a), text(block("me", "one")), result(""))
	a.query.emit(t, failed(provider.ClassQuota, false))
	r.saidExactly("me:one", "me:notice quota") // the session's chat
	a.query.emit(t, failed(provider.ClassOverloaded, true))
	r.saidExactly("me:one", "me:notice quota") // it passes by itself
	r.put(chat("m2", me, "hi"))
	r.prompted("[m2]")
}

func TestAnOlderIncarnationIsFencedOff(t *testing.T) {
	t.Parallel()
	r := newRig(t, all).start()
	r.put(chat("m1", me, "hi"))
	a := r.prompted("[m1]")
	next, err := openRunner(t, r.dir, r.live+1)
	r.must(err)
	defer func() { _ = next.Close() }()
	a.query.emit(t, text(block("me", "late")))
	if err := r.wait(); !errors.Is(err, mailbox.ErrFenced) {
		t.Fatalf("error %v", err)
	}
	if rows := r.out(); len(rows) != 0 {
		t.Fatalf("rows %v", rows)
	}
	<-a.query.dead
}
