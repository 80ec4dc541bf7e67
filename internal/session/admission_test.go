package session

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
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

// crowd is several sessions under one Manager. Each has a world of its own; the Manager is one.
type crowd struct {
	*world
	all map[id.Session]*world

	orderMu sync.Mutex
	order   []string // thread ids in order of start
	most    int      // sandboxes at a time, as seen
}

func (c *crowd) Start(ctx context.Context, s store.Session, incarnation int64) (sandbox.Handle, func(), error) {
	h, closer, err := c.all[s.ID].Start(ctx, s, incarnation)
	live := 0
	for _, w := range c.all {
		_, n := w.count()
		live += n
	}
	c.orderMu.Lock()
	defer c.orderMu.Unlock()
	c.order = append(c.order, s.ThreadID)
	c.most = max(c.most, live)
	return h, closer, err
}

func (c *crowd) TakeOver(ctx context.Context, s store.Session, p mailbox.Page) error {
	return c.all[s.ID].TakeOver(ctx, s, p)
}

func (c *crowd) starts() []string {
	c.orderMu.Lock()
	defer c.orderMu.Unlock()
	return slices.Clone(c.order)
}

// newCrowd makes a session per thread. A thread "b/…" belongs to a second agent group.
func newCrowd(t *testing.T, most int, runner func(*world, *box), threads ...string) *crowd {
	t.Helper()
	ctx := context.Background()
	c := &crowd{world: newWorld(t, runner), all: map[id.Session]*world{}}
	other, err := c.st.Bootstrap(ctx, store.First{Owner: "cli:ann", AgentName: "Other", Folder: "other", Provider: "mock", ChannelType: "cli", Instance: "cli",
		PlatformID: "cli:other", DestinationAs: "terminal"})
	if err != nil {
		t.Fatal(err)
	}
	byThread := map[string]*world{}
	for _, thread := range threads {
		group := c.session.AgentGroupID
		if strings.HasPrefix(thread, "b/") {
			group = other
		}
		s, err := c.st.ResolveSession(ctx, thread, group, c.session.MessagingGroupID, thread)
		if err != nil {
			t.Fatal(err)
		}
		w := &world{t: t, st: c.st, files: newFiles(), bell: &bell{make(chan struct{}, 1), make(chan struct{}, 1)}, runner: runner, session: s}
		c.all[s.ID], byThread[thread] = w, w
	}
	m := New(Options{Store: c.st, Outlet: c, Launcher: c, Home: "home", Log: obs.Discard(), MaxLive: most,
		Open: func(_ context.Context, dir string) (Mailbox, error) {
			return c.all[id.Session(filepath.Base(dir))].files, nil
		},
		Bell: func(run string, _ int64) (Bell, error) {
			return c.all[id.Session(filepath.Base(filepath.Dir(run)))].bell, nil
		},
		IdleStop: 10 * time.Minute, MaxTries: 3, ClaimTolerance: time.Hour, Ceiling: time.Hour})
	end, cancel := context.WithCancel(ctx)
	if err := m.Start(end); err != nil {
		t.Fatal(err)
	}
	c.m = m
	for _, w := range c.all {
		w.m = m
	}
	t.Cleanup(func() {
		cancel()
		m.Wait()
		for _, w := range c.all {
			for _, b := range w.running() {
				b.stop.Do(func() { close(b.term) })
				<-b.dead
			}
		}
	})
	return c
}

func (c *crowd) thread(name string) *world {
	for _, w := range c.all {
		if w.session.ThreadID == name {
			return w
		}
	}
	panic("no thread " + name)
}

// say is message for one thread.
func (c *crowd) say(thread string) {
	w := c.thread(thread)
	w.message("to " + thread)
	synctest.Wait()
}

// slow works for a minute on each message and says in its mailbox what it does, as a runner would.
func slow(w *world, b *box) {
	turn := func(t mailbox.Turn) {
		w.files.mu.Lock()
		w.files.state.Container.Turn, w.files.state.Heartbeat = t, time.Now()
		w.files.mu.Unlock()
		signal(w.bell.toHost)
	}
	for {
		if ids := w.files.claim(b.labels.Incarnation); len(ids) > 0 {
			turn(mailbox.TurnWorking)
			time.Sleep(time.Minute)
			w.files.answer(b.labels.Incarnation, ids)
			turn(mailbox.TurnIdle)
			continue
		}
		select {
		case <-b.term:
			return
		case <-w.bell.toRunner:
		}
	}
}

// W23: no more sandboxes run than there are places; who waits holds no process, is shown as waiting, and is answered in the end.
// A sandbox at rest makes room at once.
func TestW23PlacesAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		threads := []string{"1", "2", "3", "4", "5"}
		c := newCrowd(t, 2, slow, threads...)
		for _, n := range threads {
			c.say(n)
		}
		pass(time.Second)
		if most, waiting := c.m.Places(); most != 2 || waiting != 3 {
			t.Errorf("%d places, %d wait; want 2 and 3", most, waiting)
		}
		states := map[State]int{}
		for _, l := range c.m.Live() {
			states[l.State]++
		}
		if states[Waiting] != 3 || states[Running] != 2 {
			t.Errorf("states %v", states)
		}
		pass(4 * time.Minute)
		for _, n := range threads {
			if got := c.thread(n).ended("to " + n); len(got) != 1 || got[0] != channel.Answered {
				t.Errorf("thread %s ended as %v", n, got)
			}
		}
		if c.most > 2 {
			t.Errorf("%d sandboxes at a time", c.most)
		}
		if _, waiting := c.m.Places(); waiting != 0 {
			t.Errorf("%d still wait", waiting)
		}
	})
}

// W23: conversations go before tasks, and a group with many waiting does not keep another one out.
func TestW23OrderOfAdmission(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		task := mailbox.TaskThread + "x"
		c := newCrowd(t, 1, slow, "1", "2", "3", "b/1", task)
		for _, n := range []string{"1", task, "2", "3", "b/1"} {
			c.say(n)
		}
		pass(20 * time.Minute)
		got := c.starts()
		if want := []string{"1", "2", "3", "b/1", task}; !slices.Equal(got, want) {
			t.Errorf("one place: started %q, want %q", got, want)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, 2, slow, "1", "2", "3", "4", "b/1")
		for _, n := range []string{"1", "2", "3", "4", "b/1"} {
			c.say(n)
		}
		pass(90 * time.Second) // both places are free once
		if got := c.starts(); len(got) != 4 || !slices.Contains(got[2:], "b/1") {
			t.Errorf("two places: started %q; the other agent's turn was due", got)
		}
	})
}

// W23: tasks are not starved: after a while one counts as a conversation.
func TestW23PatienceOfTasks(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	q := newQueue(1, func() time.Time { return now })
	first, task, chat := newPlace("1"), newPlace("2"), newPlace("3")
	if !q.ask(first, "g", false) || q.ask(task, "g", true) {
		t.Fatal("the only place was given wrongly")
	}
	now = now.Add(taskPatience)
	q.ask(chat, "g", false)
	q.leave(first)
	if len(task.granted) != 1 || len(chat.granted) != 0 {
		t.Error("a task that waited for long was passed over")
	}
	q.leave(task)
	q.leave(task)
	if held, waiting := q.count(); held != 1 || waiting != 0 || len(chat.granted) != 1 {
		t.Errorf("%d held, %d wait after the first left", held, waiting)
	}
}

// A sandbox that works is never ended for another; one that waits gives its wish up when its work is gone.
func TestW23WorkingSandboxIsKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, 1, slow, "1", "2")
		c.say("1")
		c.say("2")
		pass(50 * time.Second)
		if got := c.starts(); len(got) != 1 {
			t.Fatalf("started %q while the first worked", got)
		}
		two := c.thread("2")
		two.files.mu.Lock()
		two.files.find("to 2").Status = mailbox.StatusCompleted // cancelled
		two.files.mu.Unlock()
		pass(5 * time.Minute)
		if got := c.starts(); len(got) != 1 {
			t.Errorf("started %q for nothing", got)
		}
		for _, l := range c.m.Live() {
			if l.Session == two.session.ID {
				t.Errorf("still live: %+v", l)
			}
		}
	})
}
