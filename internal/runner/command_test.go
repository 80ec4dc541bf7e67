package runner_test

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/provider"
	"nanoclaw/internal/runner"
)

// claudelike is a provider with commands of its own.
var claudelike = provider.Caps{MidTurnText: true, MidTurnInput: true, Receipts: true, ToolEvents: true, Commands: []string{"/compact", "/context", "/review"}}

func TestClearBeginsANewConversation(t *testing.T) {
	t.Parallel()
	r := newRig(t, claudelike).start()
	r.put(chat("m1", me, "hi"))
	a := r.prompted("[m1]")
	a.query.emit(t, initial("c1"), text(block("me", "hello")), result(""))
	r.put(chat("c1", me, " /CLEAR "))
	r.becomes(mailbox.AckCompleted, "m1", "c1")
	r.put(chat("m2", me, "again"))
	b := r.prompted("[m2]")
	if !b.first || b.continuation != "" {
		t.Fatalf("the conversation goes on: first %v, continuation %q", b.first, b.continuation)
	}
	if got := r.said(); len(got) != 2 || !strings.HasPrefix(got[1], "me:The conversation is cleared") {
		t.Fatalf("left %q", got)
	}
	b.query.emit(t, initial("c2"), text(block("me", "x")), result(""))
	r.acked(mailbox.AckCompleted, "m2")
	if v, _, err := r.box.StateValue(t.Context(), "continuation:fake"); err != nil || v != "c2" {
		t.Fatalf("stored continuation %q, %v", v, err)
	}
}

// spec/bugs.md RUN-16, spec/runner.md W4: a command in mid-turn runs at once, and what the turn left unanswered is asked again.
func TestRUN16CommandInMidTurn(t *testing.T) {
	t.Parallel()
	r := newRig(t, claudelike).start()
	r.put(chat("m1", me, "long work"))
	a := r.prompted("[m1]")
	a.query.emit(t, initial("c1"), text(block("me", "half")))
	r.put(chat("c1", me, "/compact keep the names"))
	b := r.prompted("/compact keep the names")
	select {
	case <-a.query.dead:
	case <-time.After(patience):
		t.Fatal("the turn was not aborted")
	}
	if !b.first {
		t.Fatal("the command must open a query")
	}
	b.query.emit(t, taken(b), provider.Event{Kind: provider.Result, Text: "compacted to 12 lines"})
	c := r.prompted("[m1]{sent half}")
	c.query.emit(t, taken(c), text(block("me", "half")), text(block("me", "whole")), result(""))
	r.acked(mailbox.AckCompleted, "m1", "c1")
	r.saidExactly("me:half", "me:compacted to 12 lines", "me:whole")
}

// The output of a command is its answer: no block is needed and no nudge follows.
func TestCommandOutput(t *testing.T) {
	t.Parallel()
	r := newRig(t, claudelike).start()
	r.put(chat("c1", family, "/context"))
	a := r.prompted("/context")
	a.query.emit(t, text("## Context"), result("## Context\n12 %"))
	r.saidExactly("42:## Context\n12 %")
	r.acked(mailbox.AckCompleted, "c1")
	r.put(chat("c2", me, "/review the change"))
	b := r.prompted("/review the change")
	b.query.emit(t, taken(b), result(""))
	r.saidExactly("42:## Context\n12 %", "me:/review is done.")
	r.quiet()
}

// spec/runner.md W7: only commands that this provider knows are commands; a path is a text, and aborts nothing.
func TestW7OnlyKnownCommands(t *testing.T) {
	t.Parallel()
	r := newRig(t, plain).start()
	r.put(chat("m1", me, "/compact"))
	a := r.prompted("[m1]")
	r.put(chat("m2", me, "/etc/passwd is what?"), chat("m3", me, "/context"), chat("m4", me, "/clearx"), chat("m5", me, "/help"))
	r.quiet()
	a.query.emit(t, text(block("me", "no")), result(""))
	b := r.prompted("[m2][m3][m4][m5]")
	if b.query != a.query {
		t.Fatal("the query was aborted")
	}
}

// spec/runner.md W8: a batch is split at its commands, which run in order.
func TestW8BatchIsSplitAtCommands(t *testing.T) {
	t.Parallel()
	r := newRig(t, claudelike)
	r.put(chat("m1", me, "one"), chat("c1", me, "/clear"), chat("m2", me, "two"), chat("c2", me, "/context"), chat("m3", me, "three"))
	r.start()
	a := r.prompted("[m1]")
	r.put(chat("m4", me, "four")) // the loop looks again: the commands still wait for their turn
	r.quiet()
	a.query.emit(t, initial("c1"), taken(a), text(block("me", "1")), result(""))
	b := r.prompted("[m2]")
	if !b.first || b.continuation != "" {
		t.Fatalf("two was not asked in a new conversation (%q)", b.continuation)
	}
	b.query.emit(t, taken(b), text(block("me", "2")), result(""))
	c := r.prompted("/context")
	c.query.emit(t, taken(c), result("ctx"))
	d := r.prompted("[m3][m4]")
	d.query.emit(t, taken(d), text(block("me", "3")), result(""))
	r.acked(mailbox.AckCompleted, "m1", "c1", "m2", "c2", "m3", "m4")
	got := r.said()
	if len(got) != 5 || got[0] != "me:1" || got[2] != "me:2" || got[3] != "me:ctx" || got[4] != "me:3" {
		t.Fatalf("left %q", got)
	}
}

// Commands of the runner that stop nothing are answered beside the running turn.
func TestCostAndFilesBesideATurn(t *testing.T) {
	t.Parallel()
	r := newRig(t, claudelike)
	agent := t.TempDir()
	r.opt.Cwd = agent
	if err := os.WriteFile(filepath.Join(agent, "no`tes.md"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.start()
	r.put(chat("m1", me, "work"))
	a := r.prompted("[m1]")
	usage := &provider.Usage{InputTokens: 7, OutputTokens: 3, CostUSD: 0.25}
	a.query.emit(t, provider.Event{Kind: provider.Result, IsError: true, Class: provider.ClassAuth, Usage: usage})
	r.acked(mailbox.AckFailed, "m1")
	r.put(chat("m2", me, "more"))
	b := r.prompted("[m2]")
	r.put(chat("c1", me, "/cost"), chat("c2", me, "/files"), chat("c3", me, "/upload-trace"))
	r.becomes(mailbox.AckCompleted, "c1", "c2", "c3")
	r.acked(mailbox.AckProcessing, "m2")
	said := strings.Join(r.said(), "\n")
	for _, want := range []string{"1 answers", "1 of them failed", "7 in, 3 out", "$0.2500", "`no?tes.md`, 1 bytes", "switched off"} {
		if !strings.Contains(said, want) {
			t.Errorf("%q is missing in\n%s", want, said)
		}
	}
	b.query.emit(t, taken(b), text(block("me", "done")), result(""))
	r.acked(mailbox.AckCompleted, "m2")
}

// Commands come from people: an agent's, a copy's or a context row's is a text.
func TestCommandsAreFromPeople(t *testing.T) {
	t.Parallel()
	r := newRig(t, claudelike)
	agent := chat("x1", mailbox.Address{ChannelType: mailbox.ChannelAgent, PlatformID: "ag-2"}, "/clear")
	echo := chat("x2", mailbox.Address{ChannelType: mailbox.ChannelEcho, PlatformID: "1"}, "/clear")
	echo.Trigger = false
	r.put(agent, echo)
	r.start()
	r.prompted("[x1][x2]")
}

// A command that an earlier process has begun is run once more, by the same exchange.
func TestCommandAfterACrash(t *testing.T) {
	t.Parallel()
	r := newRig(t, claudelike)
	r.put(chat("c1", me, "/compact"))
	r.start()
	r.prompted("/compact")
	crash(r)
	r.start()
	b := r.prompted("/compact")
	b.query.emit(t, result("done"))
	r.acked(mailbox.AckCompleted, "c1")
	r.saidExactly("me:done")
}

// crash ends the loop as SIGKILL would: its claims stay.
func crash(r *rig) {
	r.t.Helper()
	dead, err := openRunner(r.t.(*testing.T), r.dir, r.live+1)
	r.must(err)
	r.must(dead.Close())
	_ = r.end() // fenced: it can give nothing back
	r.live++
}

// kept is a provider with a transcript.
type kept struct{ *fakeProvider }

func (kept) OpenTranscript(continuation string) (io.ReadCloser, string, error) {
	return io.NopCloser(strings.NewReader("lines of " + continuation)), continuation + ".jsonl", nil
}

func TestUploadTraceWhereAllowed(t *testing.T) {
	t.Parallel()
	r := newRig(t, claudelike, func(o *runner.Options) {
		o.Provider = kept{o.Provider.(*fakeProvider)}
		o.UploadTrace = func(_ context.Context, name string, transcript io.Reader) (string, error) {
			b, err := io.ReadAll(transcript)
			return "uploaded " + name + ": " + string(b), err
		}
	}).start()
	r.put(chat("c0", me, "/upload-trace"))
	r.becomes(mailbox.AckCompleted, "c0")
	r.put(chat("m1", me, "hi"))
	a := r.prompted("[m1]")
	a.query.emit(t, initial("c9"), text(block("me", "x")), result(""))
	r.put(chat("c1", me, "/upload-trace"))
	r.becomes(mailbox.AckCompleted, "c1")
	r.saidExactly("me:There is no conversation yet.", "me:x", "me:uploaded c9.jsonl: lines of c9")
}
