package host

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"nanoclaw/internal/channel"
	"nanoclaw/internal/id"
	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/session"
	"nanoclaw/internal/store"
)

// Words that may be nowhere but where they belong: what people who are refused write, and the beginnings of all that is said.
const (
	simForbidden = "forbidden-words"
	simHeard     = "hear-"
	simSaid      = "say-"
)

// simTrace is what happened, for people.
type simTrace struct{ lines []string }

// simOut is a row that an agent wrote.
type simOut struct {
	session store.Session
	row     mailbox.OutRow
}

// simEnd is how an agent ended a row.
type simEnd struct {
	exchange string
	failed   bool
}

// simWorld is everything around the hosts of one home.
type simWorld struct {
	t         *testing.T
	home      string
	seed      uint64
	begun     time.Time
	platforms []*simPlatform
	groups    []id.AgentGroup
	accident  int // one write of so many is the host's last
	places    int
	calm      atomic.Bool // nothing fails any more
	over      atomic.Bool
	full      atomic.Bool // the disk
	failed    atomic.Bool
	talk      sync.WaitGroup

	host    *simHost
	hosts   int
	spoiled map[string][]byte // files, as they were

	rmu    sync.Mutex
	random *rand.Rand

	mu        sync.Mutex // guards what follows and the platforms
	trace     *simTrace
	sandboxes map[*simSandbox]bool
	bells     map[string]*simBell
	beats     map[string]time.Time
	broken    map[string]error // what reading a session's outbox leads to
	count     int
	acked     map[string]channel.VerdictKind // by event
	sent      map[string]channel.Inbound     // by event
	outs      map[string]simOut              // by outbound id
	order     []string                       // outbound ids as they were written
	ends      map[string]simEnd              // by row
	acted     map[string]int                 // by key
}

func newSimWorld(t *testing.T, home string, seed uint64, trace *simTrace) *simWorld {
	w := &simWorld{
		t: t, home: home, seed: seed, begun: time.Now(), random: rand.New(rand.NewPCG(seed, 5)), trace: trace, sandboxes: map[*simSandbox]bool{}, bells: map[string]*simBell{},
		beats: map[string]time.Time{}, broken: map[string]error{}, acked: map[string]channel.VerdictKind{}, sent: map[string]channel.Inbound{},
		outs: map[string]simOut{}, ends: map[string]simEnd{}, acted: map[string]int{}, spoiled: map[string][]byte{},
	}
	w.accident = []int{0, 400, 150, 60}[w.n(4)]
	w.places = []int{0, 0, 1, 2}[w.n(4)]
	w.platforms = []*simPlatform{newSimPlatform(w, "alpha", channel.Caps{Idempotent: true}), newSimPlatform(w, "beta", channel.Caps{}),
		newSimPlatform(w, "gamma", channel.Caps{Threads: true})}
	w.people()
	return w
}

// people makes two agents and five chats.
func (w *simWorld) people() {
	ctx := context.Background()
	st, err := store.Open(ctx, w.home)
	if err != nil {
		w.t.Fatal(err)
	}
	must := func(err error) {
		if err != nil {
			w.t.Fatal(err)
		}
	}
	for i, name := range []string{"alpha", "gamma"} {
		g, err := st.Bootstrap(ctx, store.First{Owner: "alpha:ann", AgentName: fmt.Sprintf("Nano%d", i), Folder: name, Provider: "mock", ChannelType: name, Instance: name,
			PlatformID: name + ":owner", DestinationAs: "home"})
		must(err)
		w.groups = append(w.groups, g)
	}
	for _, user := range []id.User{"beta:ann", "gamma:ann"} {
		_, err := st.AddUser(ctx, "sim", user, "Ann")
		must(err)
		for _, g := range w.groups {
			_, err := st.AddMember(ctx, "sim", user, g)
			must(err)
		}
	}
	chat := func(platform, name string, policy store.UnknownSenderPolicy, agents ...store.Wiring) {
		c, err := st.RegisterChat(ctx, store.MessagingGroup{ChannelType: platform, Instance: platform, PlatformID: platform + ":" + name, IsGroup: true, UnknownSenderPolicy: policy})
		must(err)
		for i, wiring := range agents {
			wiring.MessagingGroupID, wiring.AgentGroupID = c.ID, w.groups[i]
			_, _, err := st.AddWiring(ctx, "sim", wiring)
			must(err)
		}
	}
	every := store.Wiring{EngageMode: store.EngagePattern, EngagePattern: ".", SenderScope: store.ScopeAll, IgnoredMessagePolicy: store.IgnoredDrop, SessionMode: store.ModeShared}
	some, threads := every, every
	some.EngageMode, some.IgnoredMessagePolicy = store.EngageMention, store.IgnoredAccumulate
	threads.SessionMode = store.ModePerThread
	chat("beta", "room", store.Strict, every, some)
	chat("gamma", "room", store.DeclineNotify, threads)
	chat("gamma", "private", store.Strict) // no agent may write there
	must(st.Close())
}

func (w *simWorld) n(below int) int {
	w.rmu.Lock()
	defer w.rmu.Unlock()
	return w.random.IntN(below)
}

// chance is true once in so many times; of 0 never.
func (w *simWorld) chance(of int) bool { return of > 0 && w.n(of) == 0 }

func (w *simWorld) number() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.count++
	return w.count
}

func (w *simWorld) log(format string, args ...any) {
	if w.trace != nil {
		w.trace.lines = append(w.trace.lines, fmt.Sprintf("%9.3f ", time.Since(w.begun).Seconds())+fmt.Sprintf(format, args...))
	}
}

func (w *simWorld) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log(format, args...)
}

// fail notes a broken promise, the first of a world; the caller holds the lock.
func (w *simWorld) fail(format string, args ...any) {
	w.log("FAILED: "+format, args...)
	if !w.failed.Swap(true) {
		w.t.Errorf("seed %d: %s", w.seed, fmt.Sprintf(format, args...))
	}
}

func (w *simWorld) fault(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fail(format, args...)
}

// Write takes the hosts' log: no words of people or agents are in it.
func (w *simWorld) Write(line []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := strings.TrimSuffix(string(line), "\n")
	w.log("  %s", s)
	for _, words := range []string{simForbidden, simHeard, simSaid} {
		if strings.Contains(s, words) {
			w.fail("the log has message text: %s", s)
		}
	}
	return len(line), nil
}

// refused says why a session's files cannot be read at the moment.
func (w *simWorld) refused(dir string) error {
	if w.calm.Load() {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.broken[dir]
}

// written notes what an agent has said.
func (w *simWorld) written(b *simSandbox, row mailbox.OutRow) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.outs[row.ID] = simOut{b.session, row}
	w.order = append(w.order, row.ID)
	w.log("%s writes %s %d to %v: %s", b.session.ID, row.ID, row.Seq, row.Address, row.Content)
}

// finished notes the end of an exchange.
func (w *simWorld) finished(rows []mailbox.InRow, exchange string, f mailbox.Finish) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log("exchange %s ends, %d rows completed, %d failed", exchange, len(f.Completed), len(f.Failed))
	for _, r := range rows {
		if _, ok := w.ends[r.ID]; ok {
			w.fail("an agent was asked twice about %s", r.ID)
		}
		w.ends[r.ID] = simEnd{exchange, len(f.Failed) > 0}
	}
}

// move is one thing that happens.
func (w *simWorld) move() {
	w.alive()
	switch n := w.n(100); {
	case n < 45:
		for range 1 + w.n(2)*w.n(4) {
			w.speak()
		}
	case n < 75:
		time.Sleep(time.Duration(w.n(3000)) * time.Millisecond)
	case n < 83:
		time.Sleep(time.Duration(w.n(90)) * time.Second)
	case n < 85:
		time.Sleep(time.Duration(w.n(20)) * time.Minute)
	case n < 87:
		w.full.Store(!w.full.Load())
		w.note("the disk is full: %v", w.full.Load())
	case n < 90:
		p := w.platforms[w.n(len(w.platforms))]
		w.mu.Lock()
		p.off = time.Now().Add(time.Duration(w.n(600)) * time.Second)
		w.log("%s is off until %v", p.info.Type, p.off)
		w.mu.Unlock()
	case n < 94:
		if all := w.running(); len(all) > 0 {
			b := all[w.n(len(all))].(*simSandbox)
			w.note("KILL sandbox of %s", b.session.ID)
			b.die()
		}
	case n < 96:
		if all := w.running(); len(all) > 0 {
			b := all[w.n(len(all))].(*simSandbox)
			w.mu.Lock()
			w.broken[b.dir] = []error{mailbox.ErrHostile, mailbox.ErrCorrupt, mailbox.ErrBusy}[w.n(3)]
			w.log("the outbox of %s: %v", b.session.ID, w.broken[b.dir])
			w.mu.Unlock()
		}
	case n < 97:
		w.spoil()
	case n < 98:
		w.host.sessions.Recycle("")
	case n < 99:
		if w.accident > 0 {
			w.host.crash("by chance")
		}
	default:
		w.note("an orderly stop")
		w.host.finish()
		w.start()
	}
	if w.chance(2) {
		synctest.Wait()
	}
}

// spoil writes rubbish over the inbox of a session that rests.
func (w *simWorld) spoil() {
	synctest.Wait()
	sessions, err := w.host.store.Sessions(context.Background(), "", 1000)
	if err != nil || len(sessions) == 0 || w.host.dead.Load() {
		return
	}
	s := sessions[w.n(len(sessions))]
	if len(w.running()) > 0 || len(w.host.sessions.Live()) > 0 {
		return
	}
	path := filepath.Join(session.Dir(w.home, s), "in", "inbound.db")
	if _, ok := w.spoiled[path]; ok {
		return
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return // it has none yet
	}
	w.note("the inbox of %s is rubbish", s.ID)
	w.spoiled[path] = b
	if err := os.WriteFile(path, bytes.Repeat([]byte("rubbish "), len(b)/8), 0o640); err != nil {
		w.t.Fatal(err)
	}
}

// alive starts another host when this one has crashed.
func (w *simWorld) alive() {
	for w.host.dead.Load() {
		w.host.finish()
		time.Sleep(time.Duration(w.n(8000)) * time.Millisecond)
		w.start()
	}
}

// speak is a person or a stranger who writes somewhere.
func (w *simWorld) speak() {
	p := w.platforms[w.n(len(w.platforms))]
	w.mu.Lock()
	p.said++
	m := channel.Inbound{ID: fmt.Sprintf("%s-in-%d", p.info.Type, p.said), Kind: "chat", Sender: channel.Sender{ID: p.info.Type + ":ann", Name: "Ann"}, At: time.Now(), Mention: channel.No}
	m.Text = fmt.Sprintf("%s%s.", simHeard, m.ID)
	w.mu.Unlock()
	m.Address.PlatformID = p.info.Type + ":owner"
	if p.info.Type == "beta" || w.chance(2) && p.info.Type == "gamma" {
		m.Address.PlatformID, m.Group = p.info.Type+":room", true
		if w.chance(2) {
			m.Mention = channel.Yes
		}
		if w.chance(2) {
			m.Address.ThreadID = fmt.Sprint("t", w.n(2))
		}
		if w.chance(5) {
			m.Sender = channel.Sender{ID: fmt.Sprintf("%s:mallory%d", p.info.Type, w.n(2)), Name: "Mallory"}
			m.Text = simForbidden + " " + m.Text
		}
	}
	w.mu.Lock()
	w.sent[m.ID] = m
	w.log("%s says %s in %v, mention %v", m.Sender.ID, m.Text, m.Address, m.Mention)
	w.mu.Unlock()
	p.say(m)
}

// settle lets nothing fail any more and everything come to its end, and all that is idle end.
func (w *simWorld) settle() {
	w.alive()
	if w.chance(3) {
		w.host.crash("before the calm")
	}
	w.calm.Store(true)
	w.full.Store(false)
	w.note("CALM")
	for path, b := range w.spoiled { // somebody has put the backup back
		if err := os.WriteFile(path, b, 0o640); err != nil {
			w.t.Fatal(err)
		}
	}
	w.mu.Lock()
	for _, p := range w.platforms {
		p.off = time.Time{}
	}
	w.mu.Unlock()
	w.alive()
	for range 60 {
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(w.open()) == 0 || w.failed.Load() {
			break
		}
	}
	for _, what := range w.open() {
		w.fault("after an hour: %s", what)
	}
	time.Sleep(40 * time.Minute)
	synctest.Wait()
}

// open is what has still to end.
func (w *simWorld) open() (all []string) {
	ctx := context.Background()
	note := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	w.mu.Lock()
	for event := range w.sent {
		if _, ok := w.acked[event]; !ok {
			note("%s is not acknowledged", event)
		}
	}
	w.mu.Unlock()
	st := w.host.store
	ledger, err := st.OpenLedger(ctx)
	if err != nil {
		note("%v", err)
	}
	for _, v := range ledger {
		note("delivery %s of %s (%s) is %s: %s", v.ID, v.OutboundID, v.Content, v.State, v.Reason)
	}
	unsettled, err := st.Unsettled(ctx, 1000)
	if err != nil {
		note("%v", err)
	}
	for _, m := range unsettled {
		note("%s was not told that %s is %s", m.Instance, m.PlatformMessageID, m.State)
	}
	untold, err := st.Untold(ctx, 1000)
	if err != nil {
		note("%v", err)
	}
	for _, v := range untold {
		note("nobody was told that %s is %s", v.OutboundID, v.State)
	}
	sessions, err := st.Sessions(ctx, "", 1000)
	if err != nil {
		note("%v", err)
	}
	for _, s := range sessions {
		pending, err := st.PendingMessages(ctx, s.ID)
		if err != nil {
			note("%v", err)
		}
		for _, m := range pending {
			note("%s (%s) has no end", m.PlatformMessageID, m.RowID)
		}
	}
	return all
}

// end ends the world.
func (w *simWorld) end() {
	w.over.Store(true)
	w.host.finish()
	for _, b := range w.running() {
		b.(*simSandbox).die()
		<-b.(*simSandbox).gone
	}
	w.talk.Wait()
}
