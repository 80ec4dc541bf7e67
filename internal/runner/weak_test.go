package runner_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/mailbox/sqlite"
	"nanoclaw/internal/provider"
	"nanoclaw/internal/runner"
	"nanoclaw/internal/runner/tool"
)

// spec/bugs.md RUN-6: a loop that is stopped while a stream is open takes no row any more.
func TestRUN6StoppedLoopTakesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, all).start()
	r.put(chat("m1", me, "hi"))
	a := r.prompted("[m1]")
	r.must(r.end())
	<-a.query.dead
	r.put(chat("m2", me, "later"))
	if st := r.ack("m2"); st.Status != "" {
		t.Fatalf("the stopped loop has taken m2: %s", st.Status)
	}
	r.start()
	r.prompted("[m1][m2]")
}

// spec/runner.md W5: what was claimed for a query that ends is answered by the next one, whatever way it ended.
func TestW5ClaimsOutliveTheirQuery(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{"in order": nil, "broken": &provider.QueryError{Op: "talk", Class: provider.ClassNetwork, Retryable: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, all).start()
			r.put(chat("m1", me, "hi"))
			a := r.prompted("[m1]")
			a.query.emit(t, taken(a))
			r.put(chat("m2", me, "more"))
			b := r.prompted("[m2]")
			a.query.emit(t, text(block("me", "one")), result("")) // m2 is claimed, and its turn has not begun
			b.query.die(err)
			c := r.prompted("[m2]")
			c.query.emit(t, taken(c), text(block("me", "two")), result(""))
			r.acked(mailbox.AckCompleted, "m1", "m2")
			r.saidExactly("me:one", "me:two")
		})
	}
}

// spec/runner.md W18: the echo guard compares what was said and where, thread included, not the bytes of the row; the tool that
// repeats a block of the same answer is a wish of its own.
func TestW18EchoIsTextAndPlace(t *testing.T) {
	t.Parallel()
	r := newRig(t, all).start()
	m := chat("m1", me, "hi")
	m.ThreadID = "t1"
	r.put(m)
	a := r.prompted("[m1]")
	a.query.emit(t, taken(a), text(block("me", "a < b & c")), toolStart, toolEnd, text(block("me", "a < b & c")), result(""))
	r.saidExactly("me:a < b & c")
	if row := r.out()[0]; row.ThreadID != "t1" {
		t.Errorf("thread %q", row.ThreadID)
	}
}

// spec/runner.md W20: a row for the next start is no matter of the first look. It is taken by whatever look finds it, of a
// later incarnation only.
func TestW20RowForTheNextStart(t *testing.T) {
	t.Parallel()
	r := newRig(t, all, func(o *runner.Options) { o.Limit = 1 }).start()
	wake := chat("w1", me, "you were restarted")
	wake.AfterIncarnation = r.live
	r.put(wake)
	r.quiet() // spec/bugs.md RUN-15: the dying one does not take it
	r.must(r.end())
	r.put(chat("m0", me, "first"))
	r.start()
	a := r.prompted("[w1]")
	a.query.emit(t, taken(a), text(block("me", "back")), result(""))
	r.prompted("[m0]")
}

// spec/runner.md W29: the sign of life is there from the claim on, during scripts, and while the provider says nothing.
func TestW29Heartbeat(t *testing.T) {
	t.Parallel()
	clock := newClock()
	end := make(chan struct{})
	r := newRig(t, all, func(o *runner.Options) {
		o.Now = clock.now
		o.Script = func(ctx context.Context, _, _ string) (bool, json.RawMessage, error) {
			select {
			case <-end:
			case <-ctx.Done():
			}
			return false, nil, nil
		}
	}).start()
	beat := func() time.Time {
		info, err := os.Stat(filepath.Join(r.dir, "out", "heartbeat"))
		if err != nil {
			return time.Time{}
		}
		return info.ModTime()
	}
	r.put(chat("m1", me, "hi"))
	a := r.prompted("[m1]")
	r.sync()
	first := beat()
	if first.IsZero() {
		t.Fatal("no sign of life at the claim")
	}
	clock.add(2 * time.Second)
	a.query.emit(t, provider.Event{Kind: provider.Activity})
	r.sync()
	if !beat().After(first) {
		t.Error("no sign of life at an event")
	}
	a.query.emit(t, text(block("me", "x")), result(""))
	r.becomes(mailbox.AckCompleted, "m1")
	r.put(task("t1", "sleep"))
	for r.ack("t1").Status != mailbox.AckProcessing {
		r.sync()
	}
	before := beat()
	for !beat().After(before) {
		clock.add(10 * time.Second)
		r.sync() // the loop looks at its deadlines again
	}
	close(end)
	r.becomes(mailbox.AckCompleted, "t1")
}

// counted counts the looks at the inbox.
type counted struct {
	runner.Mailbox
	fetches atomic.Int64
}

func (c *counted) Fetch(ctx context.Context, limit int) (sqlite.Batch, error) {
	c.fetches.Add(1)
	return c.Mailbox.Fetch(ctx, limit)
}

// spec/runner.md W1: while the bell works nothing is polled, however long nothing happens.
func TestW1NothingIsPolled(t *testing.T) {
	t.Parallel()
	clock := newClock()
	r := newRig(t, all, func(o *runner.Options) { o.Now = clock.now })
	var err error
	r.box, err = openRunner(t, r.dir, r.live)
	r.must(err)
	box := &counted{Mailbox: r.box}
	r.opt.Mailbox = box
	r.run = runner.New(r.opt)
	ctx, cancel := context.WithCancel(t.Context())
	r.cancel, r.done = cancel, make(chan error, 1)
	go func() { r.done <- r.run.Run(ctx) }()
	r.put(chat("m1", me, "hi"))
	a := r.prompted("[m1]")
	a.query.emit(t, taken(a), text(block("me", "x")), result(""))
	r.becomes(mailbox.AckCompleted, "m1")
	r.sync()
	before := box.fetches.Load()
	for range 100 {
		clock.add(time.Minute)
		r.sync()
	}
	if n := box.fetches.Load() - before; n > 0 {
		t.Errorf("%d looks at the inbox while nothing happened", n)
	}
}

// design.md section 7: an unclosed block goes to its name at last; if that stands for nobody, the person who waits gets the words.
func TestRescueToNobodyFallsBack(t *testing.T) {
	t.Parallel()
	r := newRig(t, all).start()
	r.put(chat("m1", me, "hi"))
	a := r.prompted("[m1]")
	a.query.emit(t, taken(a), text("bare"), result(""))
	n := r.asked()
	n.query.emit(t, taken(n), text(`the answer <message to="nosuch">open`), result(""))
	r.acked(mailbox.AckCompleted, "m1")
	r.saidExactly("me:the answer")
}

// A call of a tool that arrives behind the result of its own turn belongs to the exchange that is asked again, and is not done twice.
func TestLateToolCallBelongsToItsExchange(t *testing.T) {
	t.Parallel()
	r := newRig(t, all, func(o *runner.Options) { o.Pauses = []time.Duration{time.Hour} }).start()
	r.put(chat("m1", me, "hi"))
	a := r.prompted("[m1]")
	a.query.emit(t, taken(a), failed(provider.ClassOverloaded, true))
	r.sync()
	if _, err := r.run.Send(t.Context(), tool.Message{To: "me", Text: "late"}); err != nil {
		t.Fatal(err)
	}
	if row := r.out()[0]; row.Exchange == "" || row.Exchange != r.ack("m1").Exchange {
		t.Errorf("exchange %q, want %q", row.Exchange, r.ack("m1").Exchange)
	}
	crash(r)
	r.opt.Pauses = []time.Duration{time.Millisecond}
	r.start()
	b := r.prompted("[m1]{sent late}")
	b.query.emit(t, taken(b), failed(provider.ClassOverloaded, true))
	r.sync()
	if _, err := r.run.Send(t.Context(), tool.Message{To: "me", Text: "later"}); err != nil {
		t.Fatal(err)
	}
	c := r.asked()
	c.query.emit(t, taken(c))
	for _, words := range []string{"late", "later"} {
		if _, err := r.run.Send(t.Context(), tool.Message{To: "me", Text: words}); err != nil {
			t.Fatal(err)
		}
	}
	r.saidExactly("me:late", "me:later")
}
