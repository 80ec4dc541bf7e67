package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"nanoclaw/internal/channel"
	"nanoclaw/internal/id"
	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/obs"
	"nanoclaw/internal/sandbox"
	"nanoclaw/internal/store"
)

// files is a mailbox in memory: what the two files of a session would hold. It survives its Close, as files do.
type files struct {
	mu        sync.Mutex
	now       func() time.Time
	rows      []mailbox.InRow
	counted   map[string]int64 // row → incarnation whose claim counted as a try
	out       []mailbox.OutRow
	acks      map[string]mailbox.Ack
	changes   []string // message ids in order of change
	delivered map[string]string
	state     mailbox.State
	outErr    error
	pruned    []time.Time // the bounds that Prune was called with
	pruneErr  error
	settleErr error
}

func newFiles() *files {
	return &files{now: time.Now, counted: map[string]int64{}, acks: map[string]mailbox.Ack{}, delivered: map[string]string{}}
}

func (f *files) Put(_ context.Context, rows ...mailbox.InRow) ([]mailbox.PutResult, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range rows {
		if f.find(r.ID) == nil {
			r.Status = mailbox.StatusPending
			f.rows = append(f.rows, r)
		}
	}
	return nil, nil
}

func (f *files) find(idv string) *mailbox.InRow {
	for i := range f.rows {
		if f.rows[i].ID == idv {
			return &f.rows[i]
		}
	}
	return nil
}

func (f *files) Due(context.Context) (n int, next time.Time, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.rows {
		switch {
		case r.Status != mailbox.StatusPending || !r.Trigger:
		case !r.ProcessAfter.After(f.now()):
			n++
		case next.IsZero() || r.ProcessAfter.Before(next):
			next = r.ProcessAfter
		}
	}
	return n, next, nil
}

func (f *files) Project(_ context.Context, acks []mailbox.Ack, delivered []mailbox.Delivered) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.settleErr != nil {
		return f.settleErr
	}
	for _, a := range acks {
		if r := f.find(a.MessageID); r != nil {
			r.Status = mailbox.StatusCompleted
		}
	}
	for _, v := range delivered {
		f.delivered[v.MessageOutID] = v.Status
	}
	return nil
}

func (f *files) Tries(_ context.Context, live int64, retry func(int) (time.Duration, bool)) (out []mailbox.Tried, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.outErr != nil {
		return nil, f.outErr
	}
	for _, a := range f.acks {
		r := f.find(a.MessageID)
		if r != nil && r.Status == mailbox.StatusFailed && f.counted[r.ID] > 0 && a.Status == mailbox.AckProcessing {
			out = append(out, mailbox.Tried{ID: r.ID, Tries: r.Tries, Failed: true, Again: true})
		}
		if a.Status != mailbox.AckProcessing || a.Incarnation == live || r == nil || r.Status != mailbox.StatusPending || f.counted[r.ID] >= a.Incarnation {
			continue
		}
		f.counted[r.ID] = a.Incarnation
		r.Tries++
		after, failed := retry(r.Tries)
		if failed {
			r.Status = mailbox.StatusFailed
		} else {
			r.ProcessAfter = f.now().Add(after)
		}
		out = append(out, mailbox.Tried{ID: r.ID, Tries: r.Tries, Failed: failed})
	}
	return out, nil
}

func (f *files) Prepare(context.Context, mailbox.Address, []mailbox.Destination) error { return nil }

func (f *files) Outbox(_ context.Context, _, afterSeq, afterChange int64) (mailbox.Page, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := mailbox.Page{OutboundSeq: afterSeq, AckChange: int64(len(f.changes))}
	if f.outErr != nil {
		return p, f.outErr
	}
	for _, r := range f.out {
		if r.Seq > afterSeq {
			p.Rows = append(p.Rows, r)
			p.OutboundSeq = r.Seq
		}
	}
	rest := f.changes[afterChange:]
	for i, m := range rest {
		if a := f.acks[m]; a.Status.Final() && !slices.Contains(rest[i+1:], m) {
			p.Acks = append(p.Acks, a)
		}
	}
	return p, nil
}

func (f *files) State(context.Context) (mailbox.State, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.state
	for _, a := range f.acks {
		s.Acks = append(s.Acks, a)
	}
	return s, nil
}

func (f *files) Prune(_ context.Context, before time.Time) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pruned = append(f.pruned, before)
	return f.pruneErr
}

func (f *files) Close() error { return nil }

func (f *files) ack(a mailbox.Ack) {
	a.StatusChanged = f.now()
	f.acks[a.MessageID] = a
	f.changes = append(f.changes, a.MessageID)
}

// claim and answer are what a runner does.
func (f *files) claim(incarnation int64) (claimed []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.rows {
		a, taken := f.acks[r.ID]
		if r.AfterIncarnation < incarnation && r.Status == mailbox.StatusPending && !r.ProcessAfter.After(f.now()) && r.Trigger && (!taken || a.Status == mailbox.AckProcessing && a.Incarnation < incarnation) {
			f.ack(mailbox.Ack{MessageID: r.ID, Status: mailbox.AckProcessing, Incarnation: incarnation})
			claimed = append(claimed, r.ID)
		}
	}
	return claimed
}

func (f *files) answer(incarnation int64, ids []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range ids {
		seq := int64(len(f.out)*2 + 1)
		f.out = append(f.out, mailbox.OutRow{ID: fmt.Sprintf("out-%d", seq), Seq: seq, Kind: mailbox.KindChat, Exchange: "ex-" + m, InReplyTo: m,
			Address: mailbox.Address{ChannelType: "cli", PlatformID: "cli:local"}, Content: []byte(`{"text":"re ` + m + `"}`)})
		f.ack(mailbox.Ack{MessageID: m, Status: mailbox.AckCompleted, Incarnation: incarnation, Exchange: "ex-" + m})
	}
}

// bell carries one bit each way.
type bell struct{ toHost, toRunner chan struct{} }

func (b *bell) Ring()                 { signal(b.toRunner) }
func (b *bell) Rung() <-chan struct{} { return b.toHost }
func (b *bell) Close() error          { return nil }

// box is a sandbox whose runner is a function.
type box struct {
	labels sandbox.Labels
	term   chan struct{}
	dead   chan struct{}
	exit   sandbox.Exit
	stop   sync.Once
}

func (b *box) Labels() sandbox.Labels { return b.labels }
func (b *box) PID() int               { return 1 }
func (b *box) Stop(ctx context.Context, _ time.Duration) error {
	b.stop.Do(func() { close(b.term) })
	select {
	case <-b.dead:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (b *box) Wait(ctx context.Context) (sandbox.Exit, error) {
	select {
	case <-b.dead:
		return b.exit, nil
	case <-ctx.Done():
		return sandbox.Exit{}, ctx.Err()
	}
}

// world is everything around a Manager.
type world struct {
	t       *testing.T
	st      *store.Store
	files   *files
	bell    *bell
	session store.Session
	m       *Manager
	end     func()

	mu     sync.Mutex
	starts []int64
	boxes  []*box // running
	fail   []error
	owner  store.Destination      // where the owner is told
	owned  []string               // what the owner was told
	delay  time.Duration          // of a start
	runner func(w *world, b *box) // the program inside; returns when it ends

	said    []string
	works   []channel.Work
	ends    []store.End
	took    int // outbound rows taken over
	takeErr error
	openErr error
	endErr  error
	logger  *slog.Logger // nil: nobody reads it
}

var _ Outlet = (*world)(nil)
var _ Launcher = (*world)(nil)

func (w *world) TakeOver(ctx context.Context, s store.Session, p mailbox.Page) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.takeErr != nil {
		return w.takeErr
	}
	w.took += len(p.Rows)
	in := store.Ingest{Session: s.ID, OutboundSeq: p.OutboundSeq, AckChange: p.AckChange}
	for _, r := range p.Rows {
		in.Rows = append(in.Rows, store.Ledger{ID: id.Ledger(id.New(id.PrefixLedger)), SessionID: s.ID, OutboundID: r.ID, Seq: r.Seq, Kind: "chat",
			Destination: store.Destination{Instance: "cli", PlatformID: "cli:local"}, Content: r.Content, State: store.Sent})
	}
	for _, a := range p.Acks {
		in.Ends = append(in.Ends, store.End{RowID: a.MessageID, State: channel.Answered})
	}
	w.ends = append(w.ends, in.Ends...)
	_, err := w.st.Ingest(ctx, in)
	return err
}

func (w *world) Finish(ctx context.Context, ends ...store.End) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.endErr != nil {
		return w.endErr
	}
	w.ends = append(w.ends, ends...)
	_, err := w.st.Ingest(ctx, store.Ingest{Ends: ends})
	return err
}

func (w *world) Say(_ context.Context, d store.Destination, _, text string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.owner != (store.Destination{}) && d == w.owner {
		w.owned = append(w.owned, text)
		return nil
	}
	w.said = append(w.said, text)
	return nil
}

func (w *world) Start(_ context.Context, s store.Session, incarnation int64) (sandbox.Handle, func(), error) {
	time.Sleep(w.delay)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.starts = append(w.starts, incarnation)
	if len(w.fail) > 0 {
		err := w.fail[0]
		w.fail = w.fail[1:]
		if err != nil {
			return nil, nil, err
		}
	}
	return w.launch(s, incarnation), func() {}, nil
}

func (w *world) launch(s store.Session, incarnation int64) *box {
	b := &box{labels: sandbox.Labels{Session: string(s.ID), Incarnation: incarnation}, term: make(chan struct{}), dead: make(chan struct{})}
	w.boxes = append(w.boxes, b)
	runner := w.runner
	go func() {
		runner(w, b)
		w.mu.Lock()
		for i, v := range w.boxes {
			if v == b {
				w.boxes = append(w.boxes[:i], w.boxes[i+1:]...)
				break
			}
		}
		w.mu.Unlock()
		close(b.dead)
	}()
	return b
}

func (w *world) Adopt(context.Context, store.Session, int64) (func(), error) { return func() {}, nil }

func (w *world) List(context.Context) (out []sandbox.Handle, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, b := range w.boxes {
		out = append(out, b)
	}
	return out, nil
}

// good answers everything until it is told to stop.
func good(w *world, b *box) {
	for {
		ids := w.files.claim(b.labels.Incarnation)
		if len(ids) > 0 {
			w.files.answer(b.labels.Incarnation, ids)
			signal(w.bell.toHost)
			continue
		}
		select {
		case <-b.term:
			return
		case <-w.bell.toRunner:
		}
	}
}

func newWorld(t *testing.T, runner func(*world, *box)) *world {
	t.Helper()
	ctx := context.Background()
	st, err := store.Open(ctx, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	group, err := st.Bootstrap(ctx, store.First{Owner: "cli:ann", AgentName: "Nano", Folder: "main", Provider: "mock", ChannelType: "cli", Instance: "cli",
		PlatformID: "cli:local", DestinationAs: "terminal"})
	if err != nil {
		t.Fatal(err)
	}
	mg, err := st.MessagingGroup(ctx, "cli", "cli:local")
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, st: st, files: newFiles(), bell: &bell{make(chan struct{}, 1), make(chan struct{}, 1)}, runner: runner}
	if w.session, err = st.ResolveSession(ctx, "k", group, mg.ID, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		w.kill()
		for _, b := range w.running() {
			b.stop.Do(func() { close(b.term) })
			<-b.dead
		}
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

func (w *world) running() []*box {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]*box(nil), w.boxes...)
}

// host starts a Manager, as a host would.
func (w *world) host() {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	if w.logger == nil {
		w.logger = obs.Discard()
	}
	w.m = New(Options{Store: w.st, Outlet: w, Launcher: w, Home: "home", Log: w.logger,
		Open: func(context.Context, string) (Mailbox, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.files, w.openErr
		},
		Bell: func(string, int64) (Bell, error) { return w.bell, nil },
		Working: func(_ context.Context, _ store.Destination, v channel.Work) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.works = append(w.works, v)
		},
		Owner:    func(context.Context) (store.Destination, bool) { return w.owner, w.owner != store.Destination{} },
		IdleStop: 10 * time.Minute, MaxTries: 3, ClaimTolerance: time.Minute, Ceiling: 30 * time.Minute})
	w.end = sync.OnceFunc(func() {
		cancel()
		w.m.Wait()
	})
	if err := w.m.Start(ctx); err != nil {
		w.t.Fatal(err)
	}
}

// kill ends the host; sandboxes go on.
func (w *world) kill() {
	if w.end != nil {
		w.end()
	}
}

// message does what route does.
func (w *world) message(name string) {
	w.t.Helper()
	ctx := context.Background()
	if err := w.m.Put(ctx, w.session, mailbox.InRow{ID: name, Kind: mailbox.KindChat, Trigger: true, Content: []byte(`{}`)}); err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.st.Accept(ctx, []store.Message{{Instance: "cli", PlatformID: "cli:local", PlatformMessageID: name, AgentGroupID: w.session.AgentGroupID,
		RowID: name, SessionID: w.session.ID, Trigger: true}}); err != nil {
		w.t.Fatal(err)
	}
	w.m.Wake(w.session.ID)
}

func (w *world) ended(name string) (states []channel.SettleState) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.ends {
		if e.RowID == name {
			states = append(states, e.State)
		}
	}
	return states
}

func (w *world) told() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.said)
}

func (w *world) count() (starts, live int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.starts), len(w.boxes)
}

// pass lets d go by and everything happen in it.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

var errBroken = errors.New("broken")
