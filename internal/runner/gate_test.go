package runner_test

import (
	"strings"
	"testing"

	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/provider"
	"nanoclaw/internal/runner/tool"
)

// answer plays one exchange over a single message and returns the rig for checks.
func answer(t *testing.T, caps provider.Caps, events ...provider.Event) *rig {
	t.Helper()
	r := newRig(t, caps).start()
	r.put(chat("m1", me, "hi"))
	a := r.prompted("[m1]")
	a.query.emit(t, events...)
	r.sync()
	return r
}

// nudged expects the one nudge and returns it.
func (r *rig) nudged(parts ...string) asking {
	r.t.Helper()
	a := r.asked()
	if !strings.HasPrefix(a.Text, "NUDGE") {
		r.t.Fatalf("no nudge but %q", a.Text)
	}
	for _, p := range parts {
		if !strings.Contains(a.Text, p) {
			r.t.Fatalf("the nudge %q does not say %q", a.Text, p)
		}
	}
	return a
}

// GATE-3: a block before a tool call is delivered, before the tool ends, and the bare summary after it needs no nudge.
func TestGATE3BlockBeforeAToolCall(t *testing.T) {
	t.Parallel()
	r := answer(t, all, text(block("family", "Dinner is ready")), toolStart)
	r.saidExactly("42:Dinner is ready")
	r.acked(mailbox.AckProcessing, "m1")
	r2 := answer(t, all, text(block("family", "Dinner is ready")), toolStart, toolEnd, text("Done, I told them."), result("Done, I told them."))
	r2.saidExactly("42:Dinner is ready")
	r2.acked(mailbox.AckCompleted, "m1")
	r2.quiet()
}

// GATE-9.
func TestGATE9TagSplitAcrossEvents(t *testing.T) {
	t.Parallel()
	r := answer(t, all, text(`so <mess`), text(`age to="family">Hi</mess`), toolStart, toolEnd, text(`age> there`), result(""))
	r.saidExactly("42:Hi")
	r.quiet()
}

// GATE-4 and the rows of the echo guard.
func TestGATE4EchoGuard(t *testing.T) {
	t.Parallel()
	hi := block("me", "hi")
	tests := []struct {
		name   string
		events []provider.Event
		want   []string
	}{
		{"repeated in a later segment", []provider.Event{text(hi), toolStart, toolEnd, text(hi)}, []string{"me:hi"}},
		{"twice in one segment", []provider.Event{text(hi + hi)}, []string{"me:hi", "me:hi"}},
		{"twice in one segment, two texts", []provider.Event{text(hi), text(hi)}, []string{"me:hi", "me:hi"}},
		{"other destination", []provider.Event{text(hi), toolStart, toolEnd, text(block("family", "hi"))}, []string{"me:hi", "42:hi"}},
		{"one character different", []provider.Event{text(hi), toolStart, toolEnd, text(block("me", "hi!"))}, []string{"me:hi", "me:hi!"}},
		{"assembled, then whole", []provider.Event{text(`<message to="me">h`), text(`i</message>`), toolStart, toolEnd, text(hi)}, []string{"me:hi"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := answer(t, all, append(tt.events, result("hi"))...)
			r.saidExactly(tt.want...)
			r.quiet()
		})
	}
	t.Run("same words in the next turn", func(t *testing.T) {
		t.Parallel()
		r := answer(t, all, text(hi), result("hi"))
		r.put(chat("m2", me, "again"))
		a := r.prompted("[m2]")
		a.query.emit(t, taken(a), text(hi), result("hi"))
		r.saidExactly("me:hi", "me:hi")
	})
	t.Run("other thread of the same chat", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, all).start()
		one, two := chat("m1", me, "a"), chat("m2", me, "b")
		one.ThreadID, two.ThreadID = "t1", "t2"
		r.put(one)
		a := r.prompted("[m1]")
		a.query.emit(t, text(hi), toolStart)
		r.sync()
		r.put(two)
		b := r.prompted("[m2]")
		a.query.emit(t, toolEnd, taken(b), text(hi), result("hi"))
		r.saidExactly("me:hi", "me:hi")
	})
}

func TestToolAndBlock(t *testing.T) {
	t.Parallel()
	r := answer(t, all, text("let me"), toolStart)
	sent, err := r.run.Send(t.Context(), tool.Message{To: "me", Text: "done"})
	r.must(err)
	if sent.Seq != 3 || sent.To != "me" {
		t.Fatalf("sent %+v", sent)
	}
	a := r.ack("m1")
	if row := r.out()[0]; row.Exchange != a.Exchange || row.InReplyTo != "m1" || row.Segment != 0 {
		t.Fatalf("row %+v of exchange %s", row, a.Exchange)
	}
	// Not every provider reports the end of its tools: the tool's own write is a boundary as well.
	q := queryOf(t, r)
	q.emit(t, text(block("me", "done")+"All sent."), result("All sent."))
	r.saidExactly("me:done")
	r.acked(mailbox.AckCompleted, "m1")
	r.quiet()
}

// queryOf pushes nothing: it finds the open query by a follow-up that is never taken.
func queryOf(t *testing.T, r *rig) *scripted {
	t.Helper()
	r.put(chat("probe", me, "probe"))
	return r.prompted("[probe]").query
}

func TestToolTwiceIsSentTwice(t *testing.T) {
	t.Parallel()
	r := answer(t, all, toolStart)
	for range 2 {
		_, err := r.run.Send(t.Context(), tool.Message{To: "me", Text: "ping"})
		r.must(err)
	}
	r.saidExactly("me:ping", "me:ping")
}

// The words before a tool call leave before what the tool sends, also if their event is still under way.
func TestWordsLeaveBeforeTheTool(t *testing.T) {
	t.Parallel()
	r := newRig(t, all).start()
	r.put(chat("m1", me, "hi"))
	a := r.prompted("[m1]")
	go func() {
		a.query.emit(t, text(block("me", "first")))
		_, _ = r.run.Send(t.Context(), tool.Message{To: "me", Text: "second"})
		a.query.emit(t, result(""))
	}()
	r.until("both", func() bool { return len(r.out()) == 2 })
	r.saidExactly("me:first", "me:second")
}

// GATE-14: an empty final text after a send is a normal end.
func TestGATE14SilenceAfterToolSend(t *testing.T) {
	t.Parallel()
	r := answer(t, all, toolStart)
	_, err := r.run.Send(t.Context(), tool.Message{To: "family", Text: "hello"})
	r.must(err)
	q := queryOf(t, r)
	q.emit(t, toolEnd, result(""))
	r.acked(mailbox.AckCompleted, "m1")
	r.saidExactly("42:hello")
}

// GATE-11: the good name is served, the bad one is told.
func TestGATE11UnknownDestination(t *testing.T) {
	t.Parallel()
	r := answer(t, all, text(block("nosuch", "a")+block("family", "b")), result(""))
	r.saidExactly("42:b")
	n := r.nudged("nosuch:unknown destination", "known=family,helper,me")
	if strings.Contains(n.Text, "bare") {
		t.Fatalf("nudge %q", n.Text)
	}
	r.acked(mailbox.AckProcessing, "m1")
	n.query.emit(t, text(block("me", "a")), result(""))
	r.saidExactly("42:b", "me:a")
	r.acked(mailbox.AckCompleted, "m1")
	r.quiet()
}

func TestUnknownDestinationTwiceStaysInside(t *testing.T) {
	t.Parallel()
	r := answer(t, all, text(block("nosuch", "a")), result(""))
	n := r.nudged()
	n.query.emit(t, text(block("nosuch", "a")), result(""))
	r.saidExactly()
	r.acked(mailbox.AckCompleted, "m1")
	r.quiet()
}

func TestBareAnswer(t *testing.T) {
	t.Parallel()
	t.Run("nudged, then addressed", func(t *testing.T) {
		t.Parallel()
		r := answer(t, all, text("Hello!"), result("Hello!"))
		n := r.nudged("bare")
		n.query.emit(t, text(block("me", "Hello!")), result(""))
		r.saidExactly("me:Hello!")
		r.acked(mailbox.AckCompleted, "m1")
	})
	t.Run("twice bare goes to the person who waits", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, all).start()
		in := chat("m1", family, "hi")
		in.ThreadID = "t9"
		task := mailbox.InRow{ID: "x1", Kind: mailbox.KindTask, Trigger: true, Address: me, Content: []byte(`{"prompt":"p"}`)}
		ctx := chat("c1", me, "context")
		ctx.Trigger = false
		agent := chat("a1", mailbox.Address{ChannelType: mailbox.ChannelAgent, PlatformID: "ag-2"}, "psst")
		r.put(in, task, agent, ctx)
		a := r.asked()
		a.query.emit(t, text("Hello!"), result("Hello!"))
		n := r.nudged()
		n.query.emit(t, text("Hello <internal>they do not see</internal>again!"), result(""))
		r.saidExactly("42:Hello again!")
		row := r.out()[0]
		if !row.Fallback || row.ThreadID != "t9" || row.InReplyTo != "m1" || row.ChannelType != "telegram" {
			t.Fatalf("row %+v", row)
		}
		r.acked(mailbox.AckCompleted, "m1", "x1", "a1", "c1")
		r.quiet()
	})
	t.Run("nobody waits", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, all).start()
		r.put(mailbox.InRow{ID: "x1", Kind: mailbox.KindWebhook, Trigger: true, Content: []byte(`{"payload":1}`)})
		a := r.asked()
		a.query.emit(t, text("noted"), result(""))
		n := r.nudged()
		n.query.emit(t, text("noted"), result(""))
		r.saidExactly()
		r.acked(mailbox.AckCompleted, "x1")
	})
	t.Run("silence after the nudge", func(t *testing.T) {
		t.Parallel()
		r := answer(t, all, text("thinking aloud"), result(""))
		n := r.nudged()
		n.query.emit(t, text("<internal>it was nothing</internal>"), result(""))
		r.saidExactly()
		r.acked(mailbox.AckCompleted, "m1")
		r.quiet()
	})
	t.Run("only internal is silence", func(t *testing.T) {
		t.Parallel()
		r := answer(t, all, text("<internal>not for me</internal>"), result(""))
		r.saidExactly()
		r.acked(mailbox.AckCompleted, "m1")
		r.quiet()
	})
	t.Run("empty", func(t *testing.T) {
		t.Parallel()
		r := answer(t, all, result(""))
		r.acked(mailbox.AckCompleted, "m1")
		r.quiet()
	})
	t.Run("very long fallback is cut to what a row holds", func(t *testing.T) {
		t.Parallel()
		r := answer(t, all, text("x"), result(""))
		n := r.nudged()
		n.query.emit(t, text(strings.Repeat("\"é", 120_000)), result(""))
		r.sync()
		rows := r.out()
		if len(rows) != 1 || len(rows[0].Content) > mailbox.MaxContent || len(rows[0].Content) < mailbox.MaxContent*8/10 || !strings.HasSuffix(textOf(rows[0]), "…") {
			t.Fatalf("%d rows", len(rows))
		}
	})
}

func TestUnclosedBlock(t *testing.T) {
	t.Parallel()
	open := `<message to="family">Hello`
	t.Run("nudged, resent", func(t *testing.T) {
		t.Parallel()
		r := answer(t, all, text(open), result(""))
		n := r.nudged("family:not closed")
		n.query.emit(t, text(block("family", "Hello")), result(""))
		r.saidExactly("42:Hello")
		r.quiet()
	})
	t.Run("open again: its text goes to its name", func(t *testing.T) {
		t.Parallel()
		r := answer(t, all, text(open), result(""))
		n := r.nudged()
		n.query.emit(t, text("sorry: "+open+" there"), result(""))
		r.saidExactly("42:Hello there")
		if row := r.out()[0]; row.Fallback {
			t.Fatal("a named block is no fallback")
		}
		r.acked(mailbox.AckCompleted, "m1")
	})
	t.Run("a second open closes nothing", func(t *testing.T) {
		t.Parallel()
		r := answer(t, all, text(open+" "+block("me", "second")), result(""))
		r.saidExactly("me:second")
		n := r.nudged("family:not closed")
		n.query.emit(t, result(""))
		r.saidExactly("me:second")
		r.acked(mailbox.AckCompleted, "m1")
	})
	t.Run("balanced is text of the outer one", func(t *testing.T) {
		t.Parallel()
		inner := block("family", "x")
		r := answer(t, all, text(block("me", "say "+inner+" please")), result(""))
		r.saidExactly("me:say " + inner + " please")
		r.quiet()
	})
}

func TestResultIsTheOnlyDoorWithoutMidTurnText(t *testing.T) {
	t.Parallel()
	r := answer(t, quiet, text(block("me", "no")), result(block("me", "yes")))
	r.saidExactly("me:yes")
	r.acked(mailbox.AckCompleted, "m1")
	r.quiet()
	r2 := answer(t, quiet, result("bare"))
	n := r2.nudged("bare")
	n.query.emit(t, result(block("me", "bare")))
	r2.saidExactly("me:bare")
}

func TestResultTextIsNeverDeliveredBesideTheStream(t *testing.T) {
	t.Parallel()
	r := answer(t, all, text(block("me", "one")), result(block("me", "other")))
	r.saidExactly("me:one")
	r.quiet()
	r2 := answer(t, all, result(block("me", "unstreamed")))
	n := r2.nudged("me:only in the final result")
	r2.saidExactly()
	n.query.emit(t, text(block("me", "streamed")), result(""))
	r2.saidExactly("me:streamed")
}

func TestW17ThreadOfTheNewestMessageThere(t *testing.T) {
	t.Parallel()
	r := newRig(t, all).start()
	old, latest := chat("f1", family, "a"), chat("f2", family, "b")
	old.ThreadID, latest.ThreadID, old.Trigger, latest.Trigger = "t1", "t2", false, false
	r.put(old, latest, chat("m1", me, "tell them"))
	a := r.asked()
	a.query.emit(t, text(block("family", "hi")+block("helper", "task")), result(""))
	r.sync()
	rows := r.out()
	if rows[0].ThreadID != "t2" || rows[0].InReplyTo != "f2" {
		t.Fatalf("row %+v", rows[0])
	}
	if rows[1].ChannelType != mailbox.ChannelAgent || rows[1].PlatformID != "ag-2" || rows[1].ThreadID != "" || rows[1].InReplyTo != "" {
		t.Fatalf("row %+v", rows[1])
	}
}

func TestW17AnsweredMessageBeatsTheNewestOne(t *testing.T) {
	t.Parallel()
	r := newRig(t, plain).start() // W17
	first, second := chat("m1", me, "a"), chat("m2", me, "b")
	first.ThreadID, second.ThreadID = "t1", "t2"
	r.put(first)
	a := r.prompted("[m1]")
	r.put(second)
	r.sync()
	a.query.emit(t, text(block("me", "to the first")), result(""))
	r.prompted("[m2]")
	if row := r.out()[0]; row.ThreadID != "t1" || row.InReplyTo != "m1" {
		t.Fatalf("hijacked: %+v", row)
	}
}

func TestDestinationsAreLookedUpLive(t *testing.T) {
	t.Parallel()
	r := newRig(t, all).start()
	r.put(chat("m1", me, "hi"))
	a := r.prompted("[m1]")
	r.must(r.host.SetDestinations(t.Context(), []mailbox.Destination{{Name: "new", Type: mailbox.DestinationChannel, ChannelType: "cli", PlatformID: "new"}}))
	a.query.emit(t, text(block("new", "a")+block("me", "b")), result(""))
	r.saidExactly("new:a")
	r.nudged("me:unknown destination", "known=new")
}

// W34: the encoder leaves < > & alone.
func TestW34ContentIsNotEscaped(t *testing.T) {
	t.Parallel()
	r := answer(t, all, text(block("me", "a < b && c > d")), result(""))
	if got := string(r.out()[0].Content); got != `{"text":"a < b && c > d"}` {
		t.Fatal(got)
	}
}
