package runner_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"nanoclaw/internal/control"
	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/provider"
	"nanoclaw/internal/runner"
	"nanoclaw/internal/runner/tool"
)

func file(name, content string) tool.File {
	return tool.File{Name: name, Size: 1 << 20, Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(content)), nil }}
}

func (r *rig) outboxFiles() (names []string) {
	r.t.Helper()
	all, err := filepath.Glob(filepath.Join(r.dir, "out", "outbox", "*", "*"))
	r.must(err)
	for _, p := range all {
		names = append(names, filepath.Base(p))
	}
	return names
}

func TestSendFile(t *testing.T) {
	t.Parallel()
	r := newRig(t, all).start()
	r.put(chat("m1", me, "the report, please"))
	a := r.prompted("[m1]")
	a.query.emit(t, taken(a), text(block("me", "here")))
	sent, err := r.run.Send(t.Context(), tool.Message{To: "me", Text: "the report", Files: []tool.File{file("re port.pdf", "bytes")}})
	if err != nil || sent.Seq == 0 {
		t.Fatalf("%+v, %v", sent, err)
	}
	r.saidExactly("me:here", "me:the report")
	row := r.out()[1]
	var c mailbox.ChatOut
	if err := json.Unmarshal(row.Content, &c); err != nil || !slices.Equal(c.Files, []string{"re port.pdf"}) {
		t.Fatalf("content %s", row.Content)
	}
	f, size, err := r.host.OpenOutBlob(row.ID, "re port.pdf")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if b, err := io.ReadAll(io.LimitReader(f, size)); err != nil || string(b) != "bytes" {
		t.Fatalf("%q, %v", b, err)
	}
	// What is refused leaves nothing behind, no matter when.
	for name, m := range map[string]tool.Message{
		"unknown name": {To: "nosuch", Files: []tool.File{file("a", "x")}},
		"too large":    {To: "me", Files: []tool.File{{Name: "b", Size: 1, Open: file("b", "xy").Open}}},
		"odd name":     {To: "me", Files: []tool.File{file("a/b", "x")}},
		"broken":       {To: "me", Files: []tool.File{file("a", "x"), {Name: "c", Size: 1, Open: func() (io.ReadCloser, error) { return nil, os.ErrPermission }}}},
	} {
		if _, err := r.run.Send(t.Context(), m); err == nil {
			t.Errorf("%s was sent", name)
		}
	}
	if got := r.outboxFiles(); !slices.Equal(got, []string{"re port.pdf"}) {
		t.Errorf("files left: %q", got)
	}
	a.query.emit(t, result(""))
	r.acked(mailbox.AckCompleted, "m1")
	r.quiet() // a file is an answer
}

// What a tool asks for again after a crash, in the exchange that is run again, is not done twice.
func TestToolsRepeatNothingAfterACrash(t *testing.T) {
	t.Parallel()
	r := newRig(t, all).start()
	r.put(chat("m1", me, "go"))
	do := func(a asking) {
		t.Helper()
		if _, err := r.run.Send(t.Context(), tool.Message{To: "me", Text: "f", Files: []tool.File{file("a", "x")}}); err != nil {
			t.Fatal(err)
		}
		if _, err := r.run.Show(t.Context(), tool.Card{Card: json.RawMessage(`{"title":"T"}`)}); err != nil {
			t.Fatal(err)
		}
		if _, err := r.run.Request(t.Context(), json.RawMessage(`{"action":"create_agent","name":"x"}`)); err != nil {
			t.Fatal(err)
		}
	}
	a := r.asked()
	a.query.emit(t, taken(a))
	do(a)
	before := len(r.out())
	crash(r)
	r.start()
	b := r.asked()
	b.query.emit(t, taken(b))
	do(b)
	if after := len(r.out()); after != before {
		t.Fatalf("%d rows became %d: %q", before, after, r.said())
	}
	if got := r.outboxFiles(); len(got) != 1 {
		t.Fatalf("files %q", got)
	}
}

// spec/runner.md W22: only own, delivered messages can be edited; a reaction goes to any message of a chat.
func TestW22Change(t *testing.T) {
	t.Parallel()
	r := newRig(t, all)
	m := chat("m1", me, "hi")
	m.PlatformMessageID = "p-1"
	stranger := chat("f1", mailbox.Address{ChannelType: "telegram", PlatformID: "99"}, "hi")
	stranger.PlatformMessageID = "p-2"
	nameless := chat("n1", me, "hi")
	res, err := r.host.Put(t.Context(), m, stranger, nameless)
	if err != nil {
		t.Fatal(err)
	}
	r.start()
	a := r.prompted("[m1][f1][n1]")
	a.query.emit(t, taken(a))
	sent, err := r.run.Send(t.Context(), tool.Message{To: "me", Text: "working"})
	if err != nil {
		t.Fatal(err)
	}
	r.must(r.host.MarkDelivered(t.Context(), mailbox.Delivered{MessageOutID: r.out()[0].ID, PlatformMessageID: "p-3", Status: "delivered"}))
	if _, err := r.run.Change(t.Context(), tool.Change{Message: sent.Seq, Text: "done"}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.run.Change(t.Context(), tool.Change{Message: res[0].Seq, Emoji: "👍"}); err != nil {
		t.Fatal(err)
	}
	lost, err := r.run.Send(t.Context(), tool.Message{To: "me", Text: "lost"})
	if err != nil {
		t.Fatal(err)
	}
	r.must(r.host.MarkDelivered(t.Context(), mailbox.Delivered{MessageOutID: r.out()[3].ID, Status: "refused"}))
	for name, c := range map[string]tool.Change{
		"somebody else's":  {Message: res[0].Seq, Text: "x"},
		"no destination":   {Message: res[1].Seq, Emoji: "x"},
		"without a name":   {Message: res[2].Seq, Emoji: "x"},
		"not delivered":    {Message: lost.Seq, Text: "x"},
		"there is no such": {Message: 9999, Text: "x"},
	} {
		if _, err := r.run.Change(t.Context(), c); err == nil {
			t.Errorf("%s: changed", name)
		}
	}
	var got []string
	for _, row := range r.out()[1:3] {
		got = append(got, string(row.Content))
	}
	want := []string{`{"text":"done","operation":"edit","messageId":"p-3"}`, `{"operation":"reaction","messageId":"p-1","emoji":"👍"}`}
	if !slices.Equal(got, want) {
		t.Fatalf("rows %q", got)
	}
	a.query.emit(t, text("Done."), result("Done."))
	r.saidExactly("me:working", "me:done", "me:", "me:lost")
}

// An edit right behind the message waits until the platform has named it.
func TestChangeWaitsForDelivery(t *testing.T) {
	t.Parallel()
	r := newRig(t, all).start()
	sent, err := r.run.Send(t.Context(), tool.Message{To: "me", Text: "one"})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := r.run.Change(t.Context(), tool.Change{Message: sent.Seq, Text: "two"})
		done <- err
	}()
	r.sync()
	r.must(r.host.MarkDelivered(t.Context(), mailbox.Delivered{MessageOutID: r.out()[0].ID, PlatformMessageID: "p-3", Status: "delivered"}))
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

var yesNo = tool.Question{Title: "T", Text: "Go?", Options: []tool.Option{{Label: "Yes", SelectedLabel: "Yes!", Value: "y"}, {Label: "No", Value: "n"}}, Timeout: time.Hour}

type answered struct {
	value string
	err   error
}

func (r *rig) ask(ctx context.Context, q tool.Question) chan answered {
	c := make(chan answered, 1)
	go func() {
		v, err := r.run.Ask(ctx, q)
		c <- answered{v, err}
	}()
	return c
}

func (r *rig) question() string {
	r.t.Helper()
	var q mailbox.QuestionOut
	r.until("a question", func() bool {
		for _, row := range r.out() {
			if json.Unmarshal(row.Content, &q) == nil && q.Type == mailbox.TypeQuestion {
				if row.ID != q.QuestionID {
					r.t.Fatalf("row %s asks %s", row.ID, q.QuestionID)
				}
				return true
			}
		}
		return false
	})
	return q.QuestionID
}

func reply(question, value string) mailbox.InRow {
	content, _ := mailbox.EncodeContent(mailbox.AnswerIn{Type: mailbox.TypeAnswer, QuestionID: question, SelectedOption: value, UserID: "cli:ann"})
	return mailbox.InRow{ID: mailbox.AnswerPrefix + question, Kind: mailbox.KindSystem, Content: content, Timestamp: time.Now()}
}

func TestAsk(t *testing.T) {
	t.Parallel()
	r := newRig(t, all).start()
	r.put(chat("m1", family, "deploy"))
	a := r.prompted("[m1]")
	a.query.emit(t, taken(a), toolStart)
	c := r.ask(t.Context(), yesNo)
	q := r.question()
	if to := r.out()[0].Address; to.PlatformID != "42" {
		t.Errorf("asked at %+v, not where the person is", to)
	}
	r.put(reply(q, "y"))
	if got := <-c; got.value != "y" || got.err != nil {
		t.Fatalf("%+v", got)
	}
	r.acked(mailbox.AckCompleted, mailbox.AnswerPrefix+q)
	a.query.emit(t, toolEnd, result(""))
	r.acked(mailbox.AckCompleted, "m1")
	r.quiet() // a question counts as an answer
}

// A question ends with the turn, the timeout, a cancel, and with an answer that is none of the options; a late answer wakes
// nobody, fills no batch and is finished (spec/runner.md W15, W23).
func TestW23AskEnds(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"turn", "cancel", "shutdown", "odd answer"} {
		t.Run(end, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, all).start()
			r.put(chat("m1", me, "deploy"))
			a := r.prompted("[m1]")
			a.query.emit(t, taken(a))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			c := r.ask(ctx, yesNo)
			q := r.question()
			switch end {
			case "turn":
				a.query.emit(t, result(""))
			case "cancel":
				cancel()
			case "shutdown":
				r.must(r.end())
			case "odd answer":
				r.put(reply(q, "maybe"))
			}
			if got := <-c; got.err == nil {
				t.Fatalf("answered %q", got.value)
			} else if end == "cancel" && !errors.Is(got.err, context.Canceled) {
				t.Fatal(got.err)
			}
			if end == "shutdown" || end == "odd answer" {
				return
			}
			r.put(reply(q, "y"))
			r.becomes(mailbox.AckFailed, mailbox.AnswerPrefix+q)
			r.quiet()
		})
	}
}

func TestAskTimesOut(t *testing.T) {
	t.Parallel()
	r := newRig(t, all).start()
	q := yesNo
	q.Timeout = 20 * time.Millisecond
	if _, err := r.run.Ask(t.Context(), q); err == nil || !strings.Contains(err.Error(), "timed out") {
		t.Fatal(err)
	}
}

// A question that was put before a crash is not put again: its answer counts, whenever it came.
func TestAskAfterACrash(t *testing.T) {
	t.Parallel()
	for _, when := range []string{"before", "after"} {
		t.Run(when, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, all).start()
			r.put(chat("m1", me, "deploy"))
			a := r.prompted("[m1]")
			a.query.emit(t, taken(a))
			c := r.ask(t.Context(), yesNo)
			q := r.question()
			crash(r)
			<-c
			if when == "before" {
				r.put(reply(q, "n"))
			}
			r.start()
			b := r.asked()
			b.query.emit(t, taken(b))
			c = r.ask(t.Context(), yesNo)
			r.sync()
			if when == "after" {
				r.put(reply(q, "n"))
			}
			if got := <-c; got.value != "n" || got.err != nil {
				t.Fatalf("%+v", got)
			}
			if n := len(r.out()); n != 1 {
				t.Fatalf("%d questions", n)
			}
		})
	}
}

func TestAdmin(t *testing.T) {
	t.Parallel()
	r := newRig(t, all).start()
	type framed struct {
		frame control.Frame
		err   error
	}
	c := make(chan framed, 1)
	go func() {
		f, err := r.run.Admin(t.Context(), "tasks-list", map[string]json.RawMessage{"status": json.RawMessage(`"<all>"`)})
		c <- framed{f, err}
	}()
	var out mailbox.AdminOut
	r.until("a request", func() bool {
		rows := r.out()
		return len(rows) == 1 && json.Unmarshal(rows[0].Content, &out) == nil
	})
	if row := r.out()[0]; row.Kind != mailbox.KindSystem || out.Action != mailbox.ActionAdmin || out.Command != "tasks-list" || !bytes.Contains(row.Content, []byte("<all>")) {
		t.Fatalf("%s", row.Content)
	}
	frame, _ := mailbox.EncodeContent(control.Frame{ID: out.RequestID, Error: &control.Error{Code: control.CodeNotFound, Message: "unknown command"}})
	content, _ := mailbox.EncodeContent(mailbox.ResponseIn{Type: mailbox.TypeResponse, RequestID: out.RequestID, Frame: frame})
	r.put(mailbox.InRow{ID: mailbox.ResponsePrefix + out.RequestID, Kind: mailbox.KindSystem, Content: content, Timestamp: time.Now()})
	got := <-c
	if got.err != nil || got.frame.OK || got.frame.Error == nil || got.frame.Error.Code != control.CodeNotFound {
		t.Fatalf("%+v", got)
	}
	r.acked(mailbox.AckCompleted, mailbox.ResponsePrefix+out.RequestID)
}

// spec/runner.md W25: a live conversation learns of new destinations with its next prompt; a new one is told them anyway.
func TestW25Moved(t *testing.T) {
	t.Parallel()
	r := newRig(t, all).start()
	r.put(chat("m1", me, "hi"))
	a := r.prompted("[m1]")
	a.query.emit(t, taken(a), initial("c1"), text(block("me", "x")), result(""))
	r.must(r.host.SetDestinations(t.Context(), []mailbox.Destination{{Name: "me", Type: mailbox.DestinationChannel, ChannelType: "cli", PlatformID: "me"}}))
	r.put(chat("m2", me, "hi"))
	b := r.prompted("MOVED 3 to 1\n\n[m2]")
	b.query.emit(t, taken(b), text(block("me", "x")), result(""))
	r.put(chat("m3", me, "hi"))
	c := r.prompted("[m3]")
	c.query.emit(t, taken(c), text(block("me", "x")), result(""))
}

// rotating is a provider that gives conversations up.
type rotating struct {
	*fakeProvider
	full string
}

func (p rotating) Rotate(_ context.Context, continuation, _ string) (string, error) {
	if continuation == p.full {
		return "it is full", nil
	}
	return "", nil
}

// spec/runner.md W24: the conversation of a warm runner is looked at between turns.
func TestW24RotationBetweenTurns(t *testing.T) {
	t.Parallel()
	r := newRig(t, all, func(o *runner.Options) { o.Provider = rotating{o.Provider.(*fakeProvider), "c2"} }).start()
	r.put(chat("m1", me, "hi"))
	a := r.prompted("[m1]")
	a.query.emit(t, taken(a), initial("c1"), text(block("me", "x")), result(""))
	r.put(chat("m2", me, "hi"))
	b := r.prompted("[m2]")
	b.query.emit(t, taken(b), initial("c2"), text(block("me", "x")), result(""))
	r.put(chat("m3", me, "hi"))
	c := r.prompted("[m3]")
	if !c.first || c.continuation != "" || b.first {
		t.Fatalf("first %v, continuation %q", c.first, c.continuation)
	}
}

// Tokens and money of every result are in the usage log, once, in the transaction that ends the exchange.
func TestUsageIsLogged(t *testing.T) {
	t.Parallel()
	r := newRig(t, all, func(o *runner.Options) { o.Model = "big" }).start()
	r.put(chat("m1", me, "hi"))
	a := r.prompted("[m1]")
	u := provider.Usage{InputTokens: 1, OutputTokens: 2, CacheReadTokens: 3, CacheCreationTokens: 4, CostUSD: 0.5}
	a.query.emit(t, text("bare"), provider.Event{Kind: provider.Result, Usage: &u})
	n := r.asked()
	n.query.emit(t, taken(n), text(block("me", "x")), provider.Event{Kind: provider.Result, Usage: &u})
	r.acked(mailbox.AckCompleted, "m1")
	got, err := r.host.Usage(t.Context(), 0, 10)
	if err != nil || len(got) != 2 {
		t.Fatalf("%+v, %v", got, err)
	}
	for _, g := range got {
		if g.InputTokens != 1 || g.OutputTokens != 2 || g.CacheReadTokens != 3 || g.CacheCreationTokens != 4 || g.CostUSD != 0.5 || g.Model != "big" || g.Provider != "fake" || g.Exchange == "" || g.Failed {
			t.Errorf("%+v", g)
		}
	}
	if next, err := r.host.Usage(t.Context(), got[1].ID, 10); err != nil || len(next) != 0 {
		t.Errorf("%+v, %v", next, err)
	}
}

// spec/runner.md W28: an exchange has one nudge, whatever crashes.
func TestW28OneNudgeOverACrash(t *testing.T) {
	t.Parallel()
	r := newRig(t, all).start()
	r.put(chat("m1", me, "hi"))
	a := r.prompted("[m1]")
	a.query.emit(t, taken(a), text("bare"), result(""))
	if n := r.asked(); !strings.HasPrefix(n.Text, "NUDGE") {
		t.Fatal(n.Text)
	}
	crash(r)
	r.start()
	b := r.prompted("[m1]")
	b.query.emit(t, taken(b), text("still bare"), result(""))
	r.acked(mailbox.AckCompleted, "m1")
	r.saidExactly("me:still bare")
	st, err := r.host.State(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for key := range st.Session {
		if strings.HasPrefix(key, "nudged:") {
			t.Errorf("%s stays", key)
		}
	}
}

// The command of a program that went away leaves nobody waiting.
func TestAdminCancelled(t *testing.T) {
	t.Parallel()
	r := newRig(t, all).start()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := r.run.Admin(ctx, "status", nil)
		done <- err
	}()
	r.until("a request", func() bool { return len(r.out()) == 1 })
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}
