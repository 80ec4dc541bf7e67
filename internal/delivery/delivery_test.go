package delivery

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"nanoclaw/internal/channel"
	"nanoclaw/internal/id"
	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/obs"
	"nanoclaw/internal/store"
)

// platform is an adapter whose answers are scripted by the text it is given.
type platform struct {
	idempotent bool
	caps       channel.Caps
	mu         sync.Mutex
	script     map[string][]error // by text: the outcome of each try; none left is success
	seen       []string           // every try: text, with a mark
	settled    []channel.Settlement
	hold       chan struct{} // if set, Deliver waits for it
	deaf       int           // how many settlements fail
	limit      int           // bytes of a part; 0: no limit
	holdAt     string        // with hold: only a part with this text waits
}

func (p *platform) Info() channel.Info {
	caps := p.caps
	caps.Idempotent = p.idempotent
	return channel.Info{Type: "cli", Instance: "cli", Caps: caps}
}
func (p *platform) Run(ctx context.Context, _ channel.Host) error { <-ctx.Done(); return nil }
func (p *platform) Status() channel.Status                        { return channel.Status{State: channel.Connected} }

func (p *platform) Deliver(_ context.Context, to channel.Address, op channel.Op, key string) (channel.Receipt, error) {
	more := false
	if p.limit > 0 && (op.Kind == channel.OpText || op.Kind == channel.OpEdit) {
		rest := op.Text[op.Part*p.limit:]
		op.Text, more = rest[:min(p.limit, len(rest))], len(rest) > p.limit
	}
	if p.hold != nil && (p.holdAt == "" || p.holdAt == op.Text) {
		<-p.hold
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	entry := to.PlatformID + " " + op.Text + shown(op)
	if op.Marked {
		entry += " (repeat)"
	}
	p.seen = append(p.seen, entry)
	if rest := p.script[op.Text]; len(rest) > 0 {
		p.script[op.Text] = rest[1:]
		if rest[0] != nil {
			return channel.Receipt{}, rest[0]
		}
	}
	return channel.Receipt{IDs: []string{"p-" + key}, More: more}, nil
}

// shown is what an operation has beside its text.
func shown(op channel.Op) string {
	var b strings.Builder
	if op.Kind != channel.OpText {
		fmt.Fprintf(&b, "[%s %s%s]", op.Kind, op.Target, op.Emoji)
	}
	if op.Question != nil {
		fmt.Fprintf(&b, " ?%s/%s/%d", op.Question.Title, op.Question.Text, len(op.Question.Options))
	}
	if op.Chosen != nil {
		b.WriteString(" =" + op.Chosen.Selected)
	}
	if op.Card != nil {
		fmt.Fprintf(&b, " card:%s/%d", op.Card.Title, len(op.Card.Links))
	}
	for _, f := range op.Files {
		content := "unreadable"
		if r, err := f.Open(); err == nil {
			if all, err := io.ReadAll(r); err == nil && int64(len(all)) == f.Size {
				content = string(all)
			}
			_ = r.Close()
		}
		fmt.Fprintf(&b, " %s=%s", f.Name, content)
	}
	return b.String()
}

func (p *platform) Settled(_ context.Context, s channel.Settlement) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.deaf > 0 {
		p.deaf--
		return errors.New("not connected")
	}
	p.settled = append(p.settled, s)
	p.seen = append(p.seen, "settled "+s.MessageID+" "+string(s.State))
	return nil
}

func (p *platform) log() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.seen...)
}

type bundle struct {
	st      *store.Store
	s       *Service
	p       *platform
	session store.Session
	told    []string
	puts    []string // rows of the inbox: id, kind and content
	mu      sync.Mutex
	end     func()
}

// putErr makes puts fail while it is set.
type putErr struct {
	mu  sync.Mutex
	err error
}

func (p *putErr) set(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = err
}

func (p *putErr) get() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

const chat = "cli:local"

func setup(t *testing.T, p *platform) *bundle {
	t.Helper()
	return setupAt(t, p, t.TempDir())
}

func setupAt(t *testing.T, p *platform, home string) *bundle {
	t.Helper()
	return setupWith(t, p, home, nil, &putErr{})
}

func setupWith(t *testing.T, p *platform, home string, files Files, broken *putErr) *bundle {
	t.Helper()
	ctx := context.Background()
	st, err := store.Open(ctx, home)
	if err != nil {
		t.Fatal(err)
	}
	group, err := st.Bootstrap(ctx, store.First{Owner: "cli:ann", OwnerName: "Ann", AgentName: "Nano", Folder: "main", Provider: "mock",
		ChannelType: "cli", Instance: "cli", PlatformID: chat, DestinationAs: "terminal"})
	if err != nil {
		t.Fatal(err)
	}
	mg, err := st.MessagingGroup(ctx, "cli", chat)
	if err != nil {
		t.Fatal(err)
	}
	b := &bundle{st: st, p: p}
	if b.session, err = st.ResolveSession(ctx, "k", group, mg.ID, ""); err != nil {
		t.Fatal(err)
	}
	if p.script == nil {
		p.script = map[string][]error{}
	}
	b.s = New(Options{Store: st, Adapters: map[string]channel.Adapter{"cli": p}, Log: obs.Discard(), Closed: func(id.Session) {}, Files: files,
		Put: func(_ context.Context, _ store.Session, rows ...mailbox.InRow) error {
			b.mu.Lock()
			defer b.mu.Unlock()
			if err := broken.get(); err != nil {
				return err
			}
			for _, r := range rows {
				b.puts = append(b.puts, fmt.Sprintf("%s %s %v %s", r.ID, r.Kind, r.Trigger, r.Content))
			}
			return nil
		},
		Tell: func(_ context.Context, _ id.Session, _, text string) error {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.told = append(b.told, text)
			return nil
		},
		Owner: func(context.Context) (store.Destination, bool) {
			return store.Destination{Instance: "cli", PlatformID: chat}, true
		},
	})
	run, cancel := context.WithCancel(ctx)
	if err := b.s.Start(run); err != nil {
		t.Fatal(err)
	}
	b.end = sync.OnceFunc(func() {
		cancel()
		b.s.Wait()
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(b.end)
	return b
}

func row(seq int64, platformID, text string) mailbox.OutRow {
	return mailbox.OutRow{ID: fmt.Sprintf("out-%d", seq), Seq: seq, Kind: mailbox.KindChat, Exchange: "ex-1",
		Address: mailbox.Address{ChannelType: "cli", PlatformID: platformID}, Content: []byte(`{"text":"` + text + `"}`)}
}

func (b *bundle) take(t *testing.T, page mailbox.Page) {
	t.Helper()
	for _, r := range page.Rows {
		page.OutboundSeq = max(page.OutboundSeq, r.Seq)
	}
	if err := b.s.TakeOver(context.Background(), b.session, page); err != nil {
		t.Fatal(err)
	}
}

func (b *bundle) states(t *testing.T) map[string]store.LedgerState {
	t.Helper()
	rows, err := b.st.Ledgers(context.Background(), b.session.ID, 100)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]store.LedgerState{}
	for _, r := range rows {
		out[r.OutboundID] = r.State
	}
	return out
}

// wait lets everything happen that happens within d.
func wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func outcome(kind channel.OutcomeKind, after time.Duration) error {
	return &channel.Outcome{Kind: kind, After: after, Err: errors.New("scripted")}
}

// The reaction to every outcome (spec/channels.md section 2.4).
func TestOutcomes(t *testing.T) {
	t.Parallel()
	many := func(e error, n int) (out []error) {
		for range n {
			out = append(out, e)
		}
		return out
	}
	for name, c := range map[string]struct {
		idempotent bool
		script     []error
		within     time.Duration
		want       store.LedgerState
		tries      int
		told       bool
	}{
		"sent":                           {script: nil, within: time.Second, want: store.Sent, tries: 1},
		"offline is not a try":           {script: many(outcome(channel.Offline, 0), 20), within: time.Hour, want: store.Sent, tries: 21},
		"offline for more than a day":    {script: many(outcome(channel.Offline, 0), 50000), within: 25 * time.Hour, want: store.Dead, told: true},
		"rate limit is honoured":         {script: many(outcome(channel.RateLimited, time.Minute), 2), within: 4 * time.Minute, want: store.Sent, tries: 3},
		"transient, then sent":           {script: many(outcome(channel.Transient, 0), 3), within: 5 * time.Minute, want: store.Sent, tries: 4},
		"transient for ever":             {script: many(outcome(channel.Transient, 0), 9), within: time.Hour, want: store.Dead, tries: 6, told: true},
		"permanent":                      {script: many(outcome(channel.Permanent, 0), 1), within: time.Second, want: store.Refused, tries: 1, told: true},
		"unknown with a key: same again": {idempotent: true, script: many(outcome(channel.Ambiguous, 0), 2), within: time.Second, want: store.Sent, tries: 3},
		"unknown without a key: once":    {script: many(outcome(channel.Ambiguous, 0), 1), within: time.Second, want: store.Sent, tries: 2},
		"unknown twice":                  {script: many(outcome(channel.Ambiguous, 0), 9), within: time.Hour, want: store.Dead, tries: 2, told: true},
		"an error that is no outcome":    {script: many(errors.New("odd"), 9), within: time.Hour, want: store.Dead, tries: 2, told: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := setup(t, &platform{idempotent: c.idempotent, script: map[string][]error{"hi": c.script}})
				b.take(t, mailbox.Page{Rows: []mailbox.OutRow{row(1, chat, "hi")}})
				wait(c.within)
				if got := b.states(t)["out-1"]; got != c.want {
					t.Errorf("state %s, want %s", got, c.want)
				}
				if n := len(b.p.log()); c.tries != 0 && n != c.tries {
					t.Errorf("%d tries, want %d", n, c.tries)
				}
				if told := len(b.told) > 0; told != c.told {
					t.Errorf("agent told: %v, want %v", told, c.told)
				}
				b.end()
			})
		})
	}
}

// P5, W7: a row that is tried again holds back later rows to its destination, and no others.
func TestOrderPerDestination(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, &platform{script: map[string][]error{"one": {outcome(channel.Transient, 0), outcome(channel.Transient, 0)}}})
		rows := []mailbox.OutRow{row(1, chat, "one"), row(3, chat, "two")}
		other := row(5, chat, "three")
		other.ThreadID = "t"
		b.take(t, mailbox.Page{Rows: append(rows, other)})
		wait(10 * time.Minute)
		var main []string
		for _, s := range b.p.log() {
			if !strings.HasSuffix(s, "three") {
				main = append(main, s)
			}
		}
		want := []string{chat + " one", chat + " one", chat + " one", chat + " two"}
		if d := cmp.Diff(want, main); d != "" {
			t.Error(d)
		}
		if all := b.p.log(); all[len(all)-1] == chat+" three" {
			t.Error("another thread waited for the failing row")
		}
		b.end()
	})
}

// P4: only the session's own chat and named destinations; W2: nothing without a route counts as delivered.
func TestDestinationsAreChecked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, &platform{})
		if _, err := b.st.Bootstrap(context.Background(), store.First{Owner: "cli:ann", OwnerName: "Ann", AgentName: "Other", Folder: "other",
			Provider: "mock", ChannelType: "cli", Instance: "cli", PlatformID: "cli:private", DestinationAs: "private"}); err != nil {
			t.Fatal(err)
		}
		agent := row(5, "ag-x", "to an agent")
		agent.ChannelType = mailbox.ChannelAgent
		nowhere := row(7, "", "no address")
		system := mailbox.OutRow{ID: "out-9", Seq: 9, Kind: mailbox.KindSystem, Content: []byte(`{"action":"format_disk"}`)}
		b.take(t, mailbox.Page{Rows: []mailbox.OutRow{row(1, "cli:private", "leak"), row(3, "cli:unknown", "lost"), agent, nowhere, system},
			Bad: []mailbox.Bad{{ID: "../x", Seq: 11, Reason: "id: odd"}}})
		wait(time.Second)
		want := map[string]store.LedgerState{"out-1": store.Refused, "out-3": store.NoRoute, "out-5": store.NoRoute, "out-7": store.NoRoute,
			"out-9": store.Refused, "row-11": store.Refused}
		if d := cmp.Diff(want, b.states(t)); d != "" {
			t.Error(d)
		}
		if len(b.p.log()) != 0 {
			t.Errorf("the platform got %q", b.p.log())
		}
		if len(b.told) != 6 {
			t.Errorf("the agent was told %d times, want 6: %q", len(b.told), b.told)
		}
		b.end()
	})
}

// P2, P5: the end of a message is told after its answers, with the right name, once.
func TestSettlement(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, &platform{deaf: 3})
		var messages []store.Message
		for _, m := range []string{"answered", "silent", "failed"} {
			messages = append(messages, store.Message{Instance: "cli", PlatformID: chat, PlatformMessageID: m, AgentGroupID: b.session.AgentGroupID,
				RowID: "row-" + m, SessionID: b.session.ID, Trigger: true})
		}
		if _, err := b.st.Accept(context.Background(), messages); err != nil {
			t.Fatal(err)
		}
		page := mailbox.Page{Rows: []mailbox.OutRow{row(1, chat, "yes")}, AckChange: 3, Acks: []mailbox.Ack{
			{MessageID: "row-answered", Status: mailbox.AckCompleted, Exchange: "ex-1"},
			{MessageID: "row-silent", Status: mailbox.AckCompleted, Exchange: "ex-2"},
			{MessageID: "row-failed", Status: mailbox.AckFailed, Exchange: "ex-3", Reason: "the model is out of credit"},
			{MessageID: "row-unknown", Status: mailbox.AckCompleted},
		}}
		b.take(t, page)
		b.take(t, page) // a replay changes nothing
		wait(10 * time.Second)
		want := []string{chat + " yes", "settled answered answered", "settled silent silent", "settled failed failed"}
		got := b.p.log()
		if len(got) < 4 {
			t.Fatalf("got %q", got)
		}
		if d := cmp.Diff(want, got[:4]); d != "" {
			t.Error(d)
		}
		texts := 0
		for _, s := range got {
			if strings.HasPrefix(s, chat) {
				texts++
			}
		}
		if texts != 1 {
			t.Errorf("the answer went out %d times", texts)
		}
		if b.p.settled[2].Reason == "" {
			t.Error("the reason of the failure was lost")
		}
		b.end()
	})
}

// P3: a row that was being sent when the host died is repeated once and marked; with a key it is repeated under the same key.
func TestRestartInMidSend(t *testing.T) {
	t.Parallel()
	for _, idempotent := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			home := t.TempDir()
			first := &platform{idempotent: idempotent, hold: make(chan struct{})}
			b := setupAt(t, first, home)
			b.take(t, mailbox.Page{Rows: []mailbox.OutRow{row(1, chat, "hi"), row(3, chat, "there")}})
			synctest.Wait()
			if got := b.states(t)["out-1"]; got != store.Sending {
				t.Fatalf("state %s before the restart", got)
			}
			second := &platform{idempotent: idempotent}
			again := setupAt(t, second, home)
			wait(time.Second)
			want := []string{chat + " hi (repeat)", chat + " there"}
			if idempotent {
				want[0] = chat + " hi"
			}
			if d := cmp.Diff(want, second.log()); d != "" {
				t.Error(d)
			}
			again.end()
			close(first.hold)
			b.end()
		})
	}
}
