package runner_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/provider"
	"nanoclaw/internal/runner"
	"nanoclaw/internal/runner/tool"
)

func task(id, script string) mailbox.InRow {
	content, _ := mailbox.EncodeContent(map[string]string{"prompt": "look at it", "script": script})
	return mailbox.InRow{ID: id, Kind: mailbox.KindTask, Trigger: true, SeriesID: "series-1", Content: content, Timestamp: time.Now()}
}

// logs are the entries of the run log.
func (r *rig) logs() []string {
	r.t.Helper()
	var out []string
	for _, row := range r.out() {
		if row.Kind == mailbox.KindTaskLog {
			out = append(out, textOf(row))
			if !row.Address.Zero() {
				r.t.Errorf("the run log is addressed: %+v", row.Address)
			}
		}
	}
	return out
}

// spec/bugs.md GATE-8, spec/runner.md section 4.7 rows 7 to 10: in a task only tools send; the final text is the run log's, and
// the model is asked once about blocks.
func TestGATE8TaskSendsByToolsOnly(t *testing.T) {
	t.Parallel()
	for name, caps := range map[string]provider.Caps{"streaming": all, "plain": plain, "quiet": quiet} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, caps).start()
			r.put(task("t1", ""))
			a := r.prompted("[t1]")
			words := "No row for today. " + block("me", "No row.") + block("family", "told")
			if _, err := r.run.Send(t.Context(), tool.Message{To: "family", Text: "told"}); err != nil {
				t.Fatal(err)
			}
			if caps.MidTurnText {
				a.query.emit(t, text(words))
			}
			a.query.emit(t, result(words))
			b := r.prompted("NUDGE known=family,helper,me me:a task sends with tools only task")
			if caps.MidTurnText {
				b.query.emit(t, text("fine "+block("me", "No row.")))
			}
			b.query.emit(t, result("fine "+block("me", "No row.")))
			r.acked(mailbox.AckCompleted, "t1")
			if got := r.logs(); !slices.Equal(got, []string{"log: " + words}) {
				t.Errorf("run log %q", got)
			}
			r.saidExactly("42:told", ":log: "+words)
			r.quiet()
		})
	}
}

// Row 9: an error in a task is in the run log and nowhere else.
func TestTaskErrorIsLogged(t *testing.T) {
	t.Parallel()
	r := newRig(t, all).start()
	r.must(r.host.SetRouting(t.Context(), me))
	r.put(task("t1", ""))
	a := r.prompted("[t1]")
	a.query.emit(t, failed(provider.ClassAuth, false))
	r.acked(mailbox.AckFailed, "t1")
	r.saidExactly(":log: failed: notice auth")
	r.quiet()
}

// The session of a series has no chat: whatever comes in, only tools send, and nobody hears of a failure that nobody asked for.
func TestTaskSession(t *testing.T) {
	t.Parallel()
	r := newRig(t, all)
	r.must(r.host.SetRouting(t.Context(), mailbox.Address{ThreadID: mailbox.TaskThread + "series-1"}))
	r.start()
	r.put(chat("x1", mailbox.Address{ChannelType: mailbox.ChannelAgent, PlatformID: "ag-2"}, "the answer you wanted"))
	a := r.prompted("[x1]")
	if _, err := r.run.Ask(t.Context(), tool.Question{Title: "T", Text: "?", Options: []tool.Option{{Label: "a", Value: "a"}}, Timeout: time.Hour}); err == nil {
		t.Error("W23: a question in a session without a chat")
	}
	if _, err := r.run.Show(t.Context(), tool.Card{Card: json.RawMessage(`{}`)}); err == nil {
		t.Error("a card for nobody")
	}
	a.query.emit(t, taken(a), text("noted"), result("noted"))
	r.acked(mailbox.AckCompleted, "x1")
	r.saidExactly(":log: noted")
	a.query.emit(t, failed(provider.ClassAuth, false)) // nobody asked for this
	r.saidExactly(":log: noted", ":log: failed: notice auth")
}

// spec/runner.md section 4.11: a person's message that is taken into a task's turn is gated as chat.
func TestFollowUpInATaskIsGatedAsChat(t *testing.T) {
	t.Parallel()
	r := newRig(t, all).start()
	r.put(task("t1", ""))
	a := r.prompted("[t1]")
	a.query.emit(t, taken(a))
	r.put(chat("m1", me, "what are you doing?"))
	b := r.prompted("[m1]")
	a.query.emit(t, taken(b), text(block("me", "a task")), result(""))
	r.acked(mailbox.AckCompleted, "t1", "m1")
	r.saidExactly("me:a task")
}

// scripting is a rig whose scripts the test ends.
type scripting struct {
	*rig
	begun chan string
	ends  map[string]chan func() (bool, json.RawMessage, error)
}

func newScripting(t *testing.T, caps provider.Caps, ids ...string) *scripting {
	s := &scripting{begun: make(chan string, 16), ends: map[string]chan func() (bool, json.RawMessage, error){}}
	for _, id := range ids {
		s.ends[id] = make(chan func() (bool, json.RawMessage, error), 1)
	}
	s.rig = newRig(t, caps, func(o *runner.Options) {
		o.Script = func(ctx context.Context, rowID, script string) (bool, json.RawMessage, error) {
			s.begun <- rowID + ":" + script
			select {
			case f := <-s.ends[rowID]:
				return f()
			case <-ctx.Done():
				return false, nil, ctx.Err()
			}
		}
	})
	return s
}

func (s *scripting) begins() string {
	s.t.Helper()
	select {
	case v := <-s.begun:
		return v
	case <-time.After(patience):
		s.t.Fatal("no script was run")
		return ""
	}
}

func (s *scripting) end(id string, wake bool, data string, err error) {
	s.ends[id] <- func() (bool, json.RawMessage, error) { return wake, json.RawMessage(data), err }
}

// spec/bugs.md RUN-5, spec/runner.md section 3.7 and W30: no task reaches the model by any way before its script has said
// so; scripts run beside the conversation.
func TestRUN5ScriptsGateTasks(t *testing.T) {
	t.Parallel()
	for name, caps := range map[string]provider.Caps{"idle": plain, "mid-turn": all} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScripting(t, caps, "t1", "t2", "t3").withPrompts()
			s.start()
			var a asking
			if name == "mid-turn" {
				s.put(chat("m0", me, "hi"))
				a = s.prompted("[m0]")
				a.query.emit(t, taken(a))
			}
			s.put(task("t1", "exit 1"), task("t2", "no"), task("t3", "yes"))
			for range 3 {
				s.begins()
			}
			s.quiet()
			s.put(chat("m1", me, "are you there?")) // scripts hold nobody up
			b := s.prompted("[m1]")
			s.end("t1", false, "", errors.New("it broke"))
			s.becomes(mailbox.AckScriptError, "t1")
			if got := s.ack("t1").Reason; !strings.Contains(got, "it broke") {
				t.Errorf("reason %q", got)
			}
			s.end("t2", false, "", nil)
			s.becomes(mailbox.AckCompleted, "t2")
			s.end("t3", true, `{"rows":3}`, nil)
			if name == "mid-turn" {
				a.query.emit(t, taken(b), text(block("me", "yes")), result(""))
			} else {
				b.query.emit(t, text(block("me", "yes")), result(""))
			}
			c := s.prompted(`[t3 {"rows":3}]`)
			c.query.emit(t, taken(c), result("done"))
			s.becomes(mailbox.AckCompleted, "t3", "m1")
			s.quiet()
		})
	}
}

// withPrompts shows the output of scripts in prompts.
func (s *scripting) withPrompts() *scripting {
	s.opt.Words = outputWords{}
	return s
}

type outputWords struct{ fakeWords }

func (outputWords) Prompt(_ context.Context, rows []mailbox.InRow, _ []mailbox.OutRow) (runner.Prompt, error) {
	var b strings.Builder
	for _, r := range rows {
		var c struct {
			Output json.RawMessage `json:"scriptOutput"`
			Script *string         `json:"script"`
		}
		_ = json.Unmarshal(r.Content, &c)
		if c.Output == nil {
			fmt.Fprintf(&b, "[%s]", r.ID)
		} else {
			fmt.Fprintf(&b, "[%s %s]", r.ID, c.Output)
		}
	}
	return runner.Prompt{Text: b.String()}, nil
}

// A script that runs when the runner is stopped is stopped too, and the task is fetched again by the next one.
func TestScriptAtShutdown(t *testing.T) {
	t.Parallel()
	s := newScripting(t, plain, "t1")
	s.start()
	s.put(task("t1", "sleep"))
	s.begins()
	if err := s.rig.end(); err != nil {
		t.Fatal(err)
	}
	if got := s.ack("t1").Status; got != "" {
		t.Fatalf("the claim stays: %q", got)
	}
	s.start()
	s.begins()
	s.rig.must(nil)
}

// At most three scripts run at a time.
func TestScriptsAreFew(t *testing.T) {
	t.Parallel()
	ids := []string{"t1", "t2", "t3", "t4"}
	s := newScripting(t, plain, ids...)
	s.start()
	for _, id := range ids {
		s.put(task(id, "x"))
	}
	running := map[string]bool{}
	for range 3 {
		id, _, _ := strings.Cut(s.begins(), ":")
		running[id] = true
	}
	s.sync()
	select {
	case v := <-s.begun:
		t.Fatalf("a fourth one runs: %s", v)
	default:
	}
	for id := range running {
		s.end(id, false, "", nil)
		break
	}
	s.begins()
}

// Without anything to run scripts, a task that has one never reaches the model.
func TestNoScriptsHere(t *testing.T) {
	t.Parallel()
	r := newRig(t, plain).start()
	r.put(task("t1", "echo"))
	r.becomes(mailbox.AckScriptError, "t1")
	r.quiet()
}
