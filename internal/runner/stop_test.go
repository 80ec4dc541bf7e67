package runner_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/mailbox/sqlite"
	"nanoclaw/internal/provider"
	"nanoclaw/internal/runner"
	"nanoclaw/internal/runner/tool"
)

func openRunner(t *testing.T, dir string, incarnation int64) (*sqlite.Runner, error) {
	return sqlite.OpenRunner(t.Context(), dir, sqlite.RunnerOptions{Incarnation: incarnation})
}

var interrupted = provider.Event{Kind: provider.Result, IsError: true, Interrupted: true}

func (r *rig) interrupted(q *scripted) {
	r.t.Helper()
	select {
	case <-q.interrupts:
	case <-time.After(patience):
		r.t.Fatal("not interrupted")
	}
}

func TestStopEndsTheTurnAndKeepsTheSession(t *testing.T) {
	t.Parallel()
	for name, caps := range map[string]provider.Caps{"receipts": all, "plain": plain} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, caps).start()
			r.put(chat("m1", me, "count to a million"))
			a := r.prompted("[m1]")
			a.query.emit(t, initial("c1"), text(block("me", "1")))
			r.put(chat("s1", me, " /STOP "))
			r.interrupted(a.query)
			r.acked(mailbox.AckCompleted, "s1")
			r.acked(mailbox.AckProcessing, "m1")
			a.query.emit(t, text("bare words"), interrupted)
			r.acked(mailbox.AckCompleted, "m1")
			r.saidExactly("me:1")
			r.quiet()
			r.put(chat("m2", me, "hi"))
			if b := r.prompted("[m2]"); b.query != a.query {
				t.Fatal("the session was not kept")
			}
		})
	}
}

func TestStopIsOneWordFromAPerson(t *testing.T) {
	t.Parallel()
	r := newRig(t, plain).start()
	r.put(chat("m1", me, "hi"))
	a := r.prompted("[m1]")
	agent := chat("x1", mailbox.Address{ChannelType: mailbox.ChannelAgent, PlatformID: "ag-2"}, "/stop")
	context := chat("x2", me, "/stop")
	context.Trigger = false
	odd := chat("x5", me, "")
	odd.Content = []byte(`{"text":["/stop"]}`)
	r.put(agent, context, chat("x3", me, "/stop it"), chat("x4", me, "/stopx"), odd)
	r.quiet()
	a.query.emit(t, text(block("me", "one")), result(""))
	r.prompted("[x1][x2][x3][x4][x5]")
	select {
	case <-a.query.interrupts:
		t.Fatal("interrupted")
	default:
	}
}

func TestStopBehindAFullWindow(t *testing.T) {
	t.Parallel()
	r := newRig(t, plain, func(o *runner.Options) { o.Limit = 2 }).start()
	r.put(chat("m1", me, "hi"))
	a := r.prompted("[m1]")
	var rows []mailbox.InRow
	for i := range 5 {
		rows = append(rows, chat(fmt.Sprintf("n%d", i), me, "x"))
	}
	r.put(append(rows, chat("s1", me, "/stop"))...)
	r.interrupted(a.query)
	a.query.emit(t, interrupted)
	r.acked(mailbox.AckCompleted, "m1", "s1")
	r.prompted("[n0][n1]") // what was said before the stop and not yet asked is no part of the turn
}

func TestStopWithNothingRunning(t *testing.T) {
	t.Parallel()
	r := newRig(t, all)
	r.put(chat("m1", me, "wrong"), chat("f1", family, "other chat"), chat("s1", me, "/stop"), chat("m2", me, "right"))
	r.start()
	r.prompted("[f1][m2]")
	r.acked(mailbox.AckCompleted, "m1", "s1")
	r.saidExactly()
}

func TestStopDuringARetryPause(t *testing.T) {
	t.Parallel()
	r := newRig(t, all, func(o *runner.Options) { o.Pauses = []time.Duration{time.Hour} }).start()
	r.put(chat("m1", me, "hi"))
	a := r.prompted("[m1]")
	a.query.emit(t, failed(provider.ClassOverloaded, true))
	r.put(chat("s1", me, "/stop"))
	r.until("stopped", func() bool { return r.ack("m1").Status == mailbox.AckCompleted })
	r.saidExactly()
}

func TestNewMessagesWaitForTheRetry(t *testing.T) {
	t.Parallel()
	r := newRig(t, all).start()
	r.put(chat("m1", me, "hi"))
	a := r.prompted("[m1]")
	a.query.emit(t, failed(provider.ClassOverloaded, true))
	r.put(chat("m2", me, "more"))
	b := r.prompted("[m1]")
	c := r.prompted("[m2]")
	b.query.emit(t, taken(b), taken(c), text(block("me", "both")), result(""))
	r.acked(mailbox.AckCompleted, "m1", "m2")
	r.saidExactly("me:both")
}

// An interrupt may swallow what waits in the query, so it is asked again in a new one.
func TestStopWithAWaitingFollowUp(t *testing.T) {
	t.Parallel()
	r := newRig(t, all).start()
	r.put(chat("m1", me, "hi"))
	a := r.prompted("[m1]")
	a.query.emit(t, initial("c1"), taken(a))
	r.put(chat("m2", me, "next"))
	r.prompted("[m2]")
	r.put(chat("s1", me, "/stop"))
	r.interrupted(a.query)
	a.query.emit(t, interrupted)
	b := r.prompted("[m2]")
	if !b.first || b.continuation != "c1" {
		t.Fatalf("asked %+v", b)
	}
	b.query.emit(t, text(block("me", "two")), result(""))
	r.acked(mailbox.AckCompleted, "m1", "m2", "s1")
	r.saidExactly("me:two")
}

// The answer was faster than the stop: it stands, and there is no nudge any more.
func TestStopTooLate(t *testing.T) {
	t.Parallel()
	r := newRig(t, all).start()
	r.put(chat("m1", me, "hi"))
	a := r.prompted("[m1]")
	r.put(chat("s1", me, "/stop"))
	r.interrupted(a.query)
	a.query.emit(t, text("bare"), result("bare"))
	r.acked(mailbox.AckCompleted, "m1")
	r.saidExactly()
	r.quiet()
	// The interrupt hits the next turn: it is asked again.
	r.put(chat("m2", me, "next"))
	b := r.prompted("[m2]")
	b.query.emit(t, taken(b), interrupted)
	c := r.prompted("[m2]")
	c.query.emit(t, taken(c), text(block("me", "two")), result(""))
	r.saidExactly("me:two")
}

func TestTurnThatDiesWhenItIsStopped(t *testing.T) {
	t.Parallel()
	r := newRig(t, all).start()
	r.put(chat("m1", me, "hi"))
	a := r.prompted("[m1]")
	r.put(chat("s1", me, "/stop"))
	r.interrupted(a.query)
	a.query.die(nil)
	r.until("stopped", func() bool { return r.ack("m1").Status == mailbox.AckCompleted })
	r.saidExactly()
}

// A turn that does not end when it is interrupted is aborted; the clock is the test's.
func TestTurnThatDoesNotStop(t *testing.T) {
	t.Parallel()
	clock := newClock()
	r := newRig(t, all, func(o *runner.Options) { o.Now = clock.now }).start()
	r.put(chat("m1", me, "hi"))
	a := r.prompted("[m1]")
	r.put(chat("s1", me, "/stop"))
	r.interrupted(a.query)
	r.sync()
	clock.add(time.Minute)
	a.query.emit(t, provider.Event{Kind: provider.Activity}) // the loop looks at the clock again
	r.until("aborted", func() bool { return r.ack("m1").Status == mailbox.AckCompleted })
	<-a.query.dead
}

func TestSendFromOutsideATurn(t *testing.T) {
	t.Parallel()
	r := newRig(t, all).start()
	_, err := r.run.Send(t.Context(), tool.Message{To: "family", Text: "hello"})
	r.must(err)
	r.saidExactly("42:hello")
	if row := r.out()[0]; row.Exchange != "" {
		t.Fatalf("row %+v", row)
	}
}

func TestSendAfterTheEnd(t *testing.T) {
	t.Parallel()
	r := newRig(t, all).start()
	r.must(r.end())
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := r.run.Send(ctx, tool.Message{To: "me", Text: "x"}); err == nil || ctx.Err() != nil {
		t.Fatalf("error %v", err)
	}
}

// A tool call that an abort interrupts does not hold the loop.
func TestSendDuringShutdown(t *testing.T) {
	t.Parallel()
	r := newRig(t, all).start()
	r.put(chat("m1", me, "hi"))
	r.prompted("[m1]")
	done := make(chan error, 1)
	go func() {
		for {
			if _, err := r.run.Send(t.Context(), tool.Message{To: "me", Text: "again"}); err != nil {
				done <- err
				return
			}
		}
	}()
	r.until("a first send", func() bool { return len(r.out()) > 0 })
	r.must(r.end())
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatal("the tool hangs")
	}
}

func TestStateOfTools(t *testing.T) {
	t.Parallel()
	clock := newClock()
	r := newRig(t, all, func(o *runner.Options) { o.Now = clock.now }).start()
	r.put(chat("m1", me, "hi"))
	a := r.prompted("[m1]")
	state := func() mailbox.ContainerState {
		st, err := r.host.State(t.Context())
		r.must(err)
		return st.Container
	}
	long := toolStart
	long.Timeout = 5 * time.Minute
	a.query.emit(t, toolStart, toolEnd, long)
	r.sync()
	if st := state(); st.Turn != mailbox.TurnWorking || st.CurrentTool != "" {
		t.Fatalf("written on the hot path: %+v", st)
	}
	clock.add(2 * time.Second)
	a.query.emit(t, provider.Event{Kind: provider.Activity})
	r.until("the tool is shown", func() bool { return state().CurrentTool == "Bash" })
	if st := state(); st.ToolTimeout != 5*time.Minute || st.Turn != mailbox.TurnWorking {
		t.Fatalf("state %+v", st)
	}
	a.query.emit(t, toolEnd, text(block("me", "x")), result(""))
	r.sync()
	clock.add(2 * time.Second)
	r.put(chat("m2", me, "hi"))
	b := r.prompted("[m2]")
	b.query.emit(t, provider.Event{Kind: provider.Activity})
	r.until("the tool is gone", func() bool { return state().CurrentTool == "" })
}
