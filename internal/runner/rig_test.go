package runner_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/mailbox/sqlite"
	"nanoclaw/internal/provider"
	"nanoclaw/internal/runner"
	"nanoclaw/internal/runner/tool"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 20 * time.Second

// asking is a prompt that the loop gave to the provider.
type asking struct {
	provider.Input
	query        *scripted
	first        bool // by Query, not by Push
	continuation string
}

// fakeProvider lets a test play the provider.
type fakeProvider struct {
	caps    provider.Caps
	asked   chan asking
	refuse  func(n int) error // of the n-th query
	mu      sync.Mutex
	queries int
}

var errUnknownSession = errors.New("no conversation found")

func (p *fakeProvider) Name() string                    { return "fake" }
func (p *fakeProvider) Caps() provider.Caps             { return p.caps }
func (p *fakeProvider) IsSessionInvalid(err error) bool { return errors.Is(err, errUnknownSession) }

func (p *fakeProvider) Query(ctx context.Context, in provider.QueryInput) (provider.Query, error) {
	p.mu.Lock()
	p.queries++
	n := p.queries
	p.mu.Unlock()
	if p.refuse != nil {
		if err := p.refuse(n); err != nil {
			return nil, err
		}
	}
	q := &scripted{p: p, feed: make(chan provider.Event), events: make(chan provider.Event), dead: make(chan struct{}), interrupts: make(chan struct{}, 8), ends: make(chan struct{}, 8)}
	context.AfterFunc(ctx, q.Abort)
	go q.pump()
	p.asked <- asking{Input: in.Input, query: q, first: true, continuation: in.Continuation}
	return q, nil
}

// scripted is a query whose events the test emits.
type scripted struct {
	p          *fakeProvider
	feed       chan provider.Event // from the test
	events     chan provider.Event // to the loop
	dead       chan struct{}
	interrupts chan struct{}
	ends       chan struct{}

	mu      sync.Mutex
	closed  bool
	noInput bool
	err     error
}

func (q *scripted) Push(_ context.Context, in provider.Input) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || q.noInput {
		return provider.ErrEnded
	}
	q.p.asked <- asking{Input: in, query: q}
	return nil
}

func (q *scripted) Interrupt(context.Context) error { q.interrupts <- struct{}{}; return nil }
func (q *scripted) End()                            { q.ends <- struct{}{}; q.die(nil) }
func (q *scripted) Abort()                          { q.die(nil) }
func (q *scripted) Events() <-chan provider.Event   { return q.events }

func (q *scripted) Err() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.err
}

// die ends the query as its process would.
func (q *scripted) die(err error) {
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		return
	}
	q.closed, q.err = true, err
	close(q.dead)
	q.mu.Unlock()
}

func (q *scripted) pump() {
	defer close(q.events)
	for {
		select {
		case ev := <-q.feed:
			select {
			case q.events <- ev:
			case <-q.dead:
				return
			}
			select {
			case q.feed <- ev: // received
			case <-q.dead:
				return
			}
		case <-q.dead:
			return
		}
	}
}

// emit gives events to the loop; it returns when the last one was received.
func (q *scripted) emit(t testing.TB, all ...provider.Event) {
	t.Helper()
	for _, ev := range all {
		select {
		case q.feed <- ev:
		case <-q.dead:
			t.Fatalf("the query was aborted before %s", ev.Kind)
		case <-time.After(patience):
			t.Fatalf("nobody took the event %s", ev.Kind)
		}
		select {
		case <-q.feed:
		case <-q.dead:
		case <-time.After(patience):
			t.Fatalf("nobody took the event %s", ev.Kind)
		}
	}
}

func text(s string) provider.Event { return provider.Event{Kind: provider.Text, Text: s} }
func result(s string) provider.Event {
	return provider.Event{Kind: provider.Result, Text: s}
}
func taken(in asking) provider.Event { return provider.Event{Kind: provider.Taken, InputID: in.ID} }
func initial(c string) provider.Event {
	return provider.Event{Kind: provider.Init, Continuation: c}
}
func block(to, body string) string { return `<message to="` + to + `">` + body + `</message>` }

var (
	toolStart = provider.Event{Kind: provider.ToolStart, Tool: "Bash"}
	toolEnd   = provider.Event{Kind: provider.ToolEnd, Tool: "Bash"}
)

// fakeWords makes prompts a test can read.
type fakeWords struct{}

func (fakeWords) Prompt(_ context.Context, rows []mailbox.InRow, sent []mailbox.OutRow) (runner.Prompt, error) {
	var b strings.Builder
	for _, r := range rows {
		fmt.Fprintf(&b, "[%s]", r.ID)
	}
	for _, r := range sent {
		fmt.Fprintf(&b, "{sent %s}", textOf(r))
	}
	return runner.Prompt{Text: b.String()}, nil
}

func (fakeWords) Moved(before, after []mailbox.Destination) string {
	return fmt.Sprintf("MOVED %d to %d", len(before), len(after))
}

func (fakeWords) StandIn(instead, answers string, class provider.Class, _ time.Time) string {
	return fmt.Sprintf("%s for %s: %s", answers, instead, class)
}

func (fakeWords) RunLog(text string) string { return "log: " + text }

func (fakeWords) Instructions(context.Context) (string, error) { return "be good", nil }

func (fakeWords) Nudge(n runner.Nudge) string {
	s := "NUDGE known=" + strings.Join(n.Known, ",")
	for _, l := range n.Lost {
		s += fmt.Sprintf(" %s:%s", l.To, l.Why)
	}
	if n.Bare {
		s += " bare"
	}
	if n.Task {
		s += " task"
	}
	return s
}

func (fakeWords) Notice(c provider.Class, _ time.Time) string { return "notice " + string(c) }

func textOf(r mailbox.OutRow) string {
	var c mailbox.ChatOut
	_ = json.Unmarshal(r.Content, &c)
	return c.Text
}

// fakeBell counts rings of the runner and lets the test ring.
type fakeBell struct {
	rung, changed, heard chan struct{}
}

func newBell() *fakeBell {
	return &fakeBell{rung: make(chan struct{}, 1), changed: make(chan struct{}, 1), heard: make(chan struct{}, 1)}
}

func (b *fakeBell) Ring() {
	select {
	case b.heard <- struct{}{}:
	default:
	}
}
func (b *fakeBell) Rung() <-chan struct{}    { return b.rung }
func (b *fakeBell) Connected() bool          { return true }
func (b *fakeBell) Changed() <-chan struct{} { return b.changed }

// rig is a loop over a real mailbox and a provider that the test plays.
type rig struct {
	t       testing.TB
	dir     string
	host    *sqlite.Host
	box     *sqlite.Runner
	bell    *fakeBell
	prov    *fakeProvider
	opt     runner.Options
	run     *runner.Runner
	cancel  context.CancelFunc
	done    chan error
	stopped bool
	live    int64
}

// all is a provider like the claude CLI; plain one that takes nothing in mid-turn.
var (
	all   = provider.Caps{MidTurnText: true, MidTurnInput: true, Receipts: true, ToolEvents: true}
	plain = provider.Caps{MidTurnText: true, ToolEvents: true}
	quiet = provider.Caps{}
)

var (
	me     = mailbox.Address{ChannelType: "cli", PlatformID: "me"}
	family = mailbox.Address{ChannelType: "telegram", PlatformID: "42"}
)

func newRig(t testing.TB, caps provider.Caps, change ...func(*runner.Options)) *rig {
	t.Helper()
	r := &rig{t: t, dir: t.TempDir(), bell: newBell(), prov: &fakeProvider{caps: caps, asked: make(chan asking, 64)}, live: 1}
	var err error
	if r.host, err = sqlite.Create(t.Context(), r.dir, sqlite.HostOptions{OutUID: -1, SandboxGID: -1}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.host.Close() })
	r.must(r.host.SetDestinations(t.Context(), []mailbox.Destination{
		{Name: "me", Type: mailbox.DestinationChannel, ChannelType: "cli", PlatformID: "me"},
		{Name: "family", Type: mailbox.DestinationChannel, ChannelType: "telegram", PlatformID: "42"},
		{Name: "helper", Type: mailbox.DestinationAgent, AgentGroupID: "ag-2"},
	}))
	r.must(r.host.SetRouting(t.Context(), me))
	r.opt = runner.Options{
		Bell: r.bell, Provider: r.prov, Words: fakeWords{}, Limit: 10, Cwd: r.dir,
		Pauses: []time.Duration{time.Millisecond, 2 * time.Millisecond, 3 * time.Millisecond},
	}
	for _, f := range change {
		f(&r.opt)
	}
	t.Cleanup(func() { r.end() })
	return r
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// start runs an incarnation of the loop.
func (r *rig) start() *rig {
	r.t.Helper()
	var err error
	r.box, err = sqlite.OpenRunner(r.t.Context(), r.dir, sqlite.RunnerOptions{Incarnation: r.live})
	r.must(err)
	r.opt.Mailbox = r.box
	r.run = runner.New(r.opt)
	var ctx context.Context
	ctx, r.cancel = context.WithCancel(r.t.Context())
	r.done, r.stopped = make(chan error, 1), false
	go func() { r.done <- r.run.Run(ctx) }()
	return r
}

// end is SIGTERM: it waits for the loop and returns its error.
func (r *rig) end() error {
	r.t.Helper()
	if r.cancel == nil || r.stopped {
		return nil
	}
	r.cancel()
	return r.wait()
}

func (r *rig) wait() error {
	r.t.Helper()
	r.stopped = true
	defer r.cancel()
	select {
	case err := <-r.done:
		_ = r.box.Close()
		r.live++
		return err
	case <-time.After(patience):
		r.t.Fatal("the loop does not end")
		return nil
	}
}

// chat is an inbound row that may wake.
func chat(id string, from mailbox.Address, words string) mailbox.InRow {
	content, _ := mailbox.EncodeContent(mailbox.ChatIn{Text: words, Sender: "Ann"})
	return mailbox.InRow{ID: id, Kind: mailbox.KindChat, Trigger: true, Address: from, Content: content, Timestamp: time.Now()}
}

func (r *rig) put(rows ...mailbox.InRow) {
	r.t.Helper()
	_, err := r.host.Put(r.t.Context(), rows...)
	r.must(err)
	select {
	case r.bell.rung <- struct{}{}:
	default:
	}
}

func (r *rig) asked() asking {
	r.t.Helper()
	select {
	case a := <-r.prov.asked:
		return a
	case err := <-r.done:
		r.done <- err
		r.t.Fatalf("the loop ended instead of asking: %v", err)
	case <-time.After(patience):
		r.t.Fatal("the provider was not asked")
	}
	return asking{}
}

// prompted expects a prompt with exactly that text.
func (r *rig) prompted(want string) asking {
	r.t.Helper()
	a := r.asked()
	if a.Text != want {
		r.t.Fatalf("prompt %q, want %q", a.Text, want)
	}
	return a
}

// sync returns when the loop has dealt with everything that was emitted before.
func (r *rig) sync() {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	if _, err := r.run.Send(ctx, tool.Message{To: "nobody", Text: "x"}); err == nil || ctx.Err() != nil {
		r.t.Fatalf("the loop does not answer: %v", err)
	}
}

func (r *rig) quiet() {
	r.t.Helper()
	r.sync()
	select {
	case a := <-r.prov.asked:
		r.t.Fatalf("unexpected prompt %q", a.Text)
	default:
	}
}

func (r *rig) out() []mailbox.OutRow {
	r.t.Helper()
	all, err := r.host.Outbound(r.t.Context(), 0, 1000)
	r.must(err)
	var rows []mailbox.OutRow
	for _, o := range all {
		r.must(o.Err)
		rows = append(rows, o.Row)
	}
	return rows
}

// said is what left, as destination:text.
func (r *rig) said() []string {
	r.t.Helper()
	var s []string
	for _, row := range r.out() {
		s = append(s, row.PlatformID+":"+textOf(row))
	}
	return s
}

func (r *rig) saidExactly(want ...string) {
	r.t.Helper()
	r.sync()
	if got := r.said(); !slices.Equal(got, want) {
		r.t.Fatalf("left:\n %s\nwant:\n %s", strings.Join(got, "\n "), strings.Join(want, "\n "))
	}
}

func (r *rig) ack(id string) mailbox.Ack {
	r.t.Helper()
	st, err := r.host.State(r.t.Context())
	r.must(err)
	for _, a := range st.Acks {
		if a.MessageID == id {
			return a
		}
	}
	return mailbox.Ack{}
}

func (r *rig) acked(want mailbox.AckStatus, ids ...string) {
	r.t.Helper()
	r.sync()
	for _, id := range ids {
		if got := r.ack(id); got.Status != want {
			r.t.Fatalf("row %s is %q, want %q", id, got.Status, want)
		}
	}
}

// until waits for something that the loop does by itself.
func (r *rig) until(what string, cond func() bool) {
	r.t.Helper()
	deadline := time.After(patience)
	for !cond() {
		select {
		case <-r.bell.heard:
		case err := <-r.done:
			r.done <- err
			if cond() {
				return
			}
			r.t.Fatalf("the loop ended (%v) before: %s", err, what)
		case <-deadline:
			r.t.Fatalf("did not happen: %s", what)
		}
	}
}

// becomes waits until rows have an ack.
func (r *rig) becomes(want mailbox.AckStatus, ids ...string) {
	r.t.Helper()
	for _, id := range ids {
		r.until(id+" is "+string(want), func() bool { return r.ack(id).Status == want })
	}
}
