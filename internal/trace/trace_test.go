package trace

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"nanoclaw/internal/channel"
	"nanoclaw/internal/control"
	"nanoclaw/internal/id"
	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/mailbox/sqlite"
	"nanoclaw/internal/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	chat   = "cli:local"
	marker = "marker-text-of-a-person"
	answer = "marker-text-of-an-agent"
)

// rig is a home with one session: a real database and a real mailbox. What host and runner would do, the cases do.
type rig struct {
	*testing.T
	home    string
	st      *store.Store
	session store.Session
	wiring  store.Wiring
	box     *sqlite.Host
	runner  *sqlite.Runner
	live    Live
	ledgers int
}

func newRig(t *testing.T) *rig {
	r := &rig{T: t, home: t.TempDir(), live: Live{State: "absent"}}
	r.openStore()
	group, err := r.st.Bootstrap(t.Context(), store.First{Owner: "cli:local", OwnerName: "Owner", AgentName: "Nano", Folder: "main", Provider: "mock", Offline: "mock",
		ChannelType: "cli", Instance: "cli", PlatformID: chat, DestinationAs: "terminal"})
	r.must(err)
	g, err := r.st.MessagingGroup(t.Context(), "cli", chat)
	r.must(err)
	wirings, err := r.st.Wirings(t.Context(), g.ID)
	r.must(err)
	r.wiring = wirings[0]
	r.session, err = r.st.ResolveSession(t.Context(), "key", group, g.ID, "")
	r.must(err)
	r.box, err = sqlite.Create(t.Context(), r.dir(), sqlite.HostOptions{OutUID: -1, SandboxGID: -1})
	r.must(err)
	t.Cleanup(func() { r.close() })
	return r
}

func (r *rig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

func (r *rig) dir() string { return filepath.Join(r.home, "sessions", string(r.session.ID)) }

func (r *rig) openStore() {
	st, err := store.Open(context.Background(), r.home)
	r.must(err)
	r.st = st
}

func (r *rig) close() {
	if r.runner != nil {
		_ = r.runner.Close()
	}
	_ = r.box.Close()
	_ = r.st.Close()
	r.runner = nil
}

// restart ends the host, and with it everything that is not durable.
func (r *rig) restart() {
	r.close()
	r.openStore()
	var err error
	r.box, err = sqlite.Open(context.Background(), r.dir(), sqlite.HostOptions{OutUID: -1, SandboxGID: -1})
	r.must(err)
}

func rowID(n string) string { return "msg-" + n }

// receive is a message on disk and accepted, as route does it.
func (r *rig) receive(n, action, reason string) {
	content, err := mailbox.EncodeContent(mailbox.ChatIn{Text: marker})
	r.must(err)
	_, err = r.box.Put(r.Context(), mailbox.InRow{ID: rowID(n), Kind: mailbox.KindChat, Trigger: action == "engage", Content: content,
		Address: mailbox.Address{ChannelType: "cli", PlatformID: chat}, PlatformMessageID: n})
	r.must(err)
	_, err = r.st.Accept(r.Context(), []store.Message{{Instance: "cli", PlatformID: chat, PlatformMessageID: n, AgentGroupID: r.session.AgentGroupID, RowID: rowID(n),
		SessionID: r.session.ID, Trigger: action == "engage",
		Routed: []store.Choice{{Wiring: r.wiring.ID, Group: r.session.AgentGroupID, Action: action, Reason: reason}, {Wiring: "wir-other", Group: "ag-other", Action: "drop", Reason: "the pattern does not match"}}}})
	r.must(err)
}

// agent runs incarnation n and claims a message for exchange ex-1.
func (r *rig) agent(n int64, claim string) {
	var err error
	r.runner, err = sqlite.OpenRunner(r.Context(), r.dir(), sqlite.RunnerOptions{Incarnation: n})
	r.must(err)
	r.live = Live{State: "running", Incarnation: n}
	if claim != "" {
		r.must(r.runner.Claim(r.Context(), "ex-1", []string{rowID(claim)}))
	}
}

func (r *rig) finish(f mailbox.Finish) {
	_, err := r.runner.Finish(r.Context(), f)
	r.must(err)
}

func out(fallback bool) mailbox.OutRow {
	content, _ := mailbox.EncodeContent(mailbox.ChatOut{Text: answer})
	return mailbox.OutRow{ID: "out-1", Kind: mailbox.KindChat, Address: mailbox.Address{ChannelType: "cli", PlatformID: chat}, Content: content, Exchange: "ex-1", Segment: 1, Fallback: fallback}
}

// take is what delivery makes of a row of the outbox and of the end of message n.
func (r *rig) take(n string, state channel.SettleState, reason string, rows ...store.Ledger) {
	in := store.Ingest{Session: r.session.ID, Rows: rows}
	if n != "" {
		in.Ends = []store.End{{RowID: rowID(n), State: state, Reason: reason}}
	}
	_, err := r.st.Ingest(r.Context(), in)
	r.must(err)
}

func (r *rig) ledger(state store.LedgerState, reason string) store.Ledger {
	r.ledgers++
	return store.Ledger{ID: id.Ledger("led-" + string(rune('0'+r.ledgers))), SessionID: r.session.ID, OutboundID: "out-" + string(rune('0'+r.ledgers)), Seq: int64(r.ledgers), Kind: "chat",
		Destination: store.Destination{Instance: "cli", PlatformID: chat}, Content: out(false).Content, Exchange: "ex-1", State: state, Reason: reason}
}

func (r *rig) goes(v store.Ledger, states ...store.LedgerState) {
	for _, s := range states {
		v.State, v.Reason = s, ""
		switch s {
		case store.Sent:
			v.PlatformMessageID = "p-1"
		case store.Retry:
			v.Reason, v.NotBefore, v.Tries = "the platform is busy", time.Now().Add(time.Hour), v.Tries+1
		case store.Unknown, store.Dead, store.Refused:
			v.Reason = "the platform said so"
		}
		r.must(r.st.UpdateLedger(r.Context(), v))
	}
}

// answers is the whole way of an answer up to the ledger.
func (r *rig) answers(states ...store.LedgerState) {
	r.receive("1", "engage", "every message engages")
	r.agent(1, "1")
	r.finish(mailbox.Finish{Out: []mailbox.OutRow{out(false)}, Completed: []string{rowID("1")}, Usage: []mailbox.Usage{{Exchange: "ex-1", Provider: "claude", Model: "m", InputTokens: 7, OutputTokens: 3, CostUSD: 0.01}}})
	v := r.ledger(store.Queued, "")
	r.take("1", channel.Answered, "", v)
	r.goes(v, states...)
}

func (r *rig) drop(n, reason string) {
	detail, err := mailbox.EncodeContent(map[string]string{"platform_id": chat, "message_id": n, "reason": reason})
	r.must(err)
	r.must(r.st.Audit(r.Context(), store.AuditEntry{Actor: "cli:stranger", Action: "message.drop", Subject: "cli", Detail: detail}))
}

func (r *rig) note(n mailbox.ExchangeNote) map[string]string {
	n.Exchange = "ex-1"
	b, err := mailbox.EncodeContent(n)
	r.must(err)
	return map[string]string{mailbox.NoteKey("ex-1"): string(b)}
}

func (r *rig) tracer() *Tracer {
	return New(Options{Store: r.st, MaxTries: 5, Live: func(id.Session) Live { return r.live },
		Open: func(ctx context.Context, _ store.Session) (Box, error) {
			b, err := sqlite.Open(ctx, r.dir(), sqlite.HostOptions{OutUID: -1, SandboxGID: -1})
			if err != nil {
				return nil, err
			}
			return b, nil
		}})
}

// Wherever a message stops, the last line says where and by which rule; before and after a restart of the host.
func TestEveryEnd(t *testing.T) {
	t.Parallel()
	policies := []string{"the sender is not known here", "the wiring takes known senders only", "no agent is wired to this chat", "the agent was not addressed", "/clear is for owners and admins", "the event has no id"}
	type ending struct {
		do      func(r *rig)
		outcome string
		verdict string
		after   string // of a restart, if it then says something else
		steps   string // words that some steps have, in this order
		id      string
	}
	cases := map[string]ending{
		"context":   {func(r *rig) { r.receive("1", "accumulate", "the agent was not addressed") }, control.TraceContext, "stored as context, wakes nobody: the agent was not addressed", "", "received|kept as context|not for this agent: the pattern does not match|in the inbox", "1"},
		"not woken": {func(r *rig) { r.receive("1", "engage", "every message engages") }, control.TraceWaiting, "waiting for the host to wake its session", "", "received|for this agent: every message engages", "1"},
		"no agent can be started": {func(r *rig) {
			r.receive("1", "engage", "x")
			r.live.Problem = "start sandbox: image-unavailable"
		}, control.TraceWaiting, "waiting for a sandbox; no agent can be started: start sandbox: image-unavailable", "", "", "1"},
		"starting":             {func(r *rig) { r.receive("1", "engage", "x"); r.live = Live{State: "starting"} }, control.TraceWaiting, "waiting for the sandbox, which is starting", "", "", "1"},
		"running, not claimed": {func(r *rig) { r.receive("1", "engage", "x"); r.agent(1, "") }, control.TraceWaiting, "waiting for its turn with the running agent", "waiting for the host to wake", "", "1"},
		"claimed": {func(r *rig) {
			r.receive("1", "engage", "x")
			r.agent(1, "1")
			r.must(r.runner.SetContainer(r.Context(), mailbox.ContainerState{Turn: mailbox.TurnWorking, CurrentTool: "Bash"}))
			r.must(r.runner.Beat())
		}, control.TraceWaiting, "waiting for the agent, which has it since", "incarnation 1 took it and is gone (0 tries of 5 counted)", "claimed by incarnation 1 for exchange ex-1", "1"},
		"claimed by a dead incarnation": {func(r *rig) {
			r.receive("1", "engage", "x")
			r.agent(1, "1")
			r.live = Live{State: "absent"}
			_, err := r.box.CountTries(r.Context(), 0, func(int) (time.Duration, bool) { return time.Hour, false })
			r.must(err)
		}, control.TraceWaiting, "(1 try of 5 failed)", "", "1 try failed so far|claimed by incarnation 1 for exchange ex-1, which is gone", "1"},
		"ended, not taken over": {func(r *rig) {
			r.receive("1", "engage", "x")
			r.agent(1, "1")
			r.finish(mailbox.Finish{Out: []mailbox.OutRow{out(false)}, Completed: []string{rowID("1")}})
		}, control.TraceWaiting, "waiting for the host to take over how it ended", "", "the agent wrote a row of kind chat", "1"},
		"given up": {func(r *rig) {
			r.receive("1", "engage", "x")
			r.take("1", channel.Dead, "the agent stopped 5 times while working on it")
			_, err := r.st.Ingest(r.Context(), store.Ingest{Rows: []store.Ledger{{ID: "led-n", OutboundID: "dead:" + rowID("1"), Kind: "notice", Content: json.RawMessage("{}"), State: store.Queued, Destination: store.Destination{Instance: "cli", PlatformID: chat}}}})
			r.must(err)
		}, control.TraceDead, "stopped here: given up: the agent stopped 5 times", "", "the host's own words", "1"},
		"failed": {func(r *rig) {
			r.receive("1", "engage", "x")
			r.agent(1, "1")
			r.finish(mailbox.Finish{Failed: []mailbox.Failure{{ID: rowID("1"), Reason: "the model is out of credit"}}, State: r.note(mailbox.ExchangeNote{Retries: []string{"overloaded"}})})
			r.take("1", channel.Failed, "the model is out of credit")
		}, control.TraceFailed, "stopped here: failed: the model is out of credit", "", "ended exchange ex-1: failed: the model is out of credit|asked again: overloaded", "1"},
		"stopped by a person": {func(r *rig) {
			r.receive("1", "engage", "x")
			r.agent(1, "1")
			r.finish(mailbox.Finish{Completed: []string{rowID("1")}, State: r.note(mailbox.ExchangeNote{Stopped: true, Tools: []mailbox.ToolNote{{Name: "Bash", At: time.Now()}}})})
			r.take("1", channel.Silent, "")
		}, control.TraceStopped, "stopped here: a person stopped the agent", "", "tool Bash", "1"},
		"silent": {func(r *rig) {
			r.receive("1", "engage", "x")
			r.agent(1, "1")
			r.finish(mailbox.Finish{Completed: []string{rowID("1")}})
			r.take("1", channel.Silent, "")
		}, control.TraceSilent, "without sending anything", "", "", "1"},
		"silent, a block was lost": {func(r *rig) {
			r.receive("1", "engage", "x")
			r.agent(1, "1")
			r.finish(mailbox.Finish{Completed: []string{rowID("1")}, State: r.note(mailbox.ExchangeNote{Nudged: true, Lost: []mailbox.LostNote{{To: "bob", Why: "unknown destination"}}})})
			r.take("1", channel.Silent, "")
		}, control.TraceSilent, "a block did not leave: unknown destination", "", "a block to bob did not leave: unknown destination|asked once", "1"},
		"answered":                                     {func(r *rig) { r.answers(store.Sending, store.Sent) }, control.TraceAnswered, "answered after ", "", "claude m answered: 7 tokens in, 3 out, 0.0100 USD|delivery led-1 to cli cli:local: queued|handed to the platform|acknowledged by the platform as p-1", "1"},
		"answered, by the id of the delivery":          {func(r *rig) { r.answers(store.Sending, store.Sent) }, control.TraceAnswered, "answered after ", "", "received from cli", "led-1"},
		"answered, by the platform's id of the answer": {func(r *rig) { r.answers(store.Sending, store.Sent) }, control.TraceAnswered, "answered after ", "", "received from cli", "p-1"},
		"answered, by the row":                         {func(r *rig) { r.answers(store.Sending, store.Sent) }, control.TraceAnswered, "answered after ", "", "received from cli", "msg-1"},
		"answered after a doubt":                       {func(r *rig) { r.answers(store.Sending, store.Unknown, store.Retry, store.Sending, store.Sent) }, control.TraceAnswered, "answered after ", "", "not known whether it arrived: the platform said so|to be tried again|handed to|acknowledged", "1"},
		"delivery is tried again":                      {func(r *rig) { r.answers(store.Sending, store.Retry) }, control.TraceWaiting, "waiting for its delivery: to be tried again: the platform is busy, in 1h0m0s (1 try)", "waiting for its delivery: to be tried again", "handed to|to be tried again", "1"},
		"delivery is out":                              {func(r *rig) { r.answers(store.Sending) }, control.TraceWaiting, "waiting for its delivery: handed to the platform", "", "", "1"},
		"delivery unknown":                             {func(r *rig) { r.answers(store.Sending, store.Unknown) }, control.TraceWaiting, "waiting for its delivery: not known whether it arrived", "", "", "1"},
		"delivery dead":                                {func(r *rig) { r.answers(store.Sending, store.Unknown, store.Dead) }, control.TraceUndelivered, "stopped here: the answer was not delivered: given up: the platform said so", "", "", "1"},
		"delivery refused by the platform":             {func(r *rig) { r.answers(store.Sending, store.Refused) }, control.TraceUndelivered, "stopped here: the answer was not delivered: refused: the platform said so", "", "", "1"},
		"destination refused": {func(r *rig) {
			r.receive("1", "engage", "x")
			r.agent(1, "1")
			r.finish(mailbox.Finish{Out: []mailbox.OutRow{out(true)}, Completed: []string{rowID("1")}})
			r.take("1", channel.Answered, "", r.ledger(store.Refused, "this agent may not write to that chat"))
		}, control.TraceUndelivered, "the answer was not delivered: refused: this agent may not write to that chat", "", "without an address: to the person who waits|delivery led-1 to cli cli:local: refused: this agent may not", "1"},
		"one of two arrived": {func(r *rig) {
			r.answers(store.Sending, store.Sent)
			r.take("", "", "", r.ledger(store.NoRoute, "there is no such chat"))
		}, control.TraceAnswered, "1 of 2 messages sent, one was not: no way there: there is no such chat", "", "", "1"},
		"pruned inside": {func(r *rig) {
			r.answers(store.Sending, store.Sent)
			r.must(r.box.Settle(r.Context(), mailbox.Ack{MessageID: rowID("1"), Status: mailbox.AckCompleted}))
			_, err := r.box.Prune(r.Context(), time.Now().Add(time.Hour))
			r.must(err)
		}, control.TraceAnswered, "answered after ", "", "the row in the inbox is pruned", "1"},
		"no mailbox any more": {func(r *rig) {
			r.receive("1", "engage", "x")
			r.take("1", channel.Silent, "")
			r.must(r.box.Close())
			r.must(os.RemoveAll(filepath.Join(r.dir(), "in")))
		}, control.TraceSilent, "silent", "-", "its session has no mailbox", "1"},
		"what the agent wrote is refused": {func(r *rig) {
			r.receive("1", "engage", "x")
			r.must(os.WriteFile(filepath.Join(r.dir(), "out", "outbound.db"), []byte(strings.Repeat("no database ", 1000)), 0o600))
		}, control.TraceWaiting, "waiting for the operator: what the agent wrote was refused", "", "what the agent wrote cannot be read", "1"},
		"the host's own word": {func(r *rig) {
			r.take("", "", "", store.Ledger{ID: "led-h", OutboundID: "k", Kind: "notice", Content: json.RawMessage("{}"), State: store.Queued, Destination: store.Destination{Instance: "cli", PlatformID: chat}})
			r.goes(store.Ledger{ID: "led-h"}, store.Sending, store.Sent)
		}, control.TraceSent, "sent after", "", "the host's own words", "led-h"},
		"the newest": {func(r *rig) { r.drop("0", "x"); r.answers(store.Sending, store.Sent) }, control.TraceAnswered, "answered after", "", "", ""},
	}
	for _, p := range policies {
		cases["dropped: "+p] = ending{func(r *rig) { r.drop("9", p) }, control.TraceDropped, "stopped here: " + p, "", "sender cli:stranger; its text was not kept|dropped: " + p, "9"}
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			c.do(r)
			r.check(c.id, c.outcome, c.verdict, c.steps)
			if c.after == "-" {
				return
			}
			live := r.live
			r.restart()
			if r.live = (Live{State: "absent", Problem: live.Problem}); live.State == "starting" {
				c.after = "waiting for the host to wake"
			}
			if c.after != "" {
				c.verdict, c.steps = c.after, ""
			}
			r.check(c.id, c.outcome, c.verdict, strings.Replace(c.steps, "for exchange ex-1|", "for exchange ex-1, which is gone|", 1))
		})
	}
}

func (r *rig) check(anyID, outcome, verdict, steps string) {
	r.Helper()
	got, err := r.tracer().Trace(r.Context(), control.TraceQuery{ID: anyID, Last: anyID == ""})
	r.must(err)
	if len(got.Ways) != 1 {
		r.Fatalf("%d ways", len(got.Ways))
	}
	w := got.Ways[0]
	var all []string
	for _, s := range w.Steps {
		all = append(all, s.What)
		if s.Text != "" || strings.Contains(s.What+s.Reason, "marker-text") {
			r.Errorf("message text without --text: %+v", s)
		}
	}
	if w.Outcome != outcome || !strings.Contains(w.Verdict, verdict) {
		r.Errorf("%s: %s; want %s: %s\n%s", w.Outcome, w.Verdict, outcome, verdict, strings.Join(all, "\n"))
	}
	at := 0
	for _, words := range strings.Split(steps, "|") {
		for at < len(all) && !strings.Contains(all[at], words) {
			at++
		}
		if at == len(all) {
			r.Errorf("no step %q in its place:\n%s", words, strings.Join(all, "\n"))
			return
		}
	}
	for i := 1; i < len(w.Steps); i++ {
		if a, b := w.Steps[i-1].At, w.Steps[i].At; !a.IsZero() && !b.IsZero() && b.Before(a.Time) {
			r.Errorf("step %d is before the one above it", i)
		}
	}
}

func TestTextOnlyWhenAsked(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.answers(store.Sending, store.Sent)
	got, err := r.tracer().Trace(t.Context(), control.TraceQuery{ID: "1", Text: true})
	r.must(err)
	var texts []string
	for _, s := range got.Ways[0].Steps {
		if s.Text != "" {
			texts = append(texts, s.Text)
		}
	}
	if strings.Join(texts, " ") != marker+" "+answer {
		t.Errorf("%q", texts)
	}
}

// A row that is no chat message is found in its session; what nobody knows is not found, with a hint.
func TestOtherRows(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	_, err := r.box.Put(t.Context(), mailbox.InRow{ID: "task-1", Kind: mailbox.KindTask, Trigger: true, Content: json.RawMessage(`{"prompt":"x"}`)})
	r.must(err)
	tr := r.tracer()
	got, err := tr.Trace(t.Context(), control.TraceQuery{ID: "task-1", Session: string(r.session.ID)})
	if err != nil || got.Ways[0].Outcome != control.TraceWaiting || len(got.Ways[0].Steps) != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	for _, q := range []control.TraceQuery{{ID: "task-1"}, {ID: "nobody", Session: string(r.session.ID)}, {ID: "nobody", Session: "sess-none"}, {Last: true}} {
		var e *control.Error
		if got, err := tr.Trace(t.Context(), q); !errors.As(err, &e) || e.Code != control.CodeNotFound {
			t.Errorf("%+v: %+v, %v", q, got, err)
		}
	}
	// After the retention nothing is left.
	r.receive("1", "engage", "x")
	r.take("1", channel.Silent, "")
	r.must(r.st.MarkSettled(t.Context(), rowID("1")))
	_, err = r.st.Prune(t.Context(), time.Now().Add(time.Hour))
	r.must(err)
	if got, err := tr.Trace(t.Context(), control.TraceQuery{ID: "1"}); err == nil {
		t.Errorf("%+v", got)
	}
}
