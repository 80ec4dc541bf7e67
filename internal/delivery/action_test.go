package delivery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"nanoclaw/internal/channel"
	"nanoclaw/internal/id"
	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/obs"
	"nanoclaw/internal/store"
)

// acting is a service with one action, and the inbox it answers into.
type acting struct {
	t       *testing.T
	st      *store.Store
	s       *Service
	session store.Session

	mu    sync.Mutex
	keys  []string // of every run
	puts  []string // ids of rows
	told  []string
	fail  []error // of the next puts
	block func()  // called in every run
}

func (a *acting) Do(ctx context.Context, s store.Session, key string, content json.RawMessage) ([]mailbox.InRow, error) {
	a.mu.Lock()
	a.keys = append(a.keys, key)
	block := a.block
	a.mu.Unlock()
	if block != nil {
		block()
	}
	var c struct{ Say string }
	if err := json.Unmarshal(content, &c); err != nil {
		return nil, err
	}
	switch c.Say {
	case "refuse":
		return nil, errors.New("not like that")
	case "nothing":
		return nil, nil
	case "ended":
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return []mailbox.InRow{{ID: "answer-" + c.Say, Kind: mailbox.KindSystem, Content: json.RawMessage("{}")}}, nil
}

func (a *acting) put(_ context.Context, s store.Session, rows ...mailbox.InRow) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.fail) > 0 {
		err := a.fail[0]
		a.fail = a.fail[1:]
		return err
	}
	for _, r := range rows {
		a.puts = append(a.puts, string(s.ID)+" "+r.ID)
	}
	return nil
}

// open makes the service on home; end closes it.
func (a *acting) open(home string) (end func()) {
	a.t.Helper()
	ctx := context.Background()
	var err error
	if a.st, err = store.Open(ctx, home); err != nil {
		a.t.Fatal(err)
	}
	group, err := a.st.Bootstrap(ctx, store.First{Owner: "cli:ann", AgentName: "Nano", Folder: "main", Provider: "mock", ChannelType: "cli", Instance: "cli", PlatformID: chat, DestinationAs: "terminal"})
	if err != nil {
		a.t.Fatal(err)
	}
	if a.session, err = a.st.ResolveSession(ctx, "k", group, "", ""); err != nil {
		a.t.Fatal(err)
	}
	a.s = New(Options{Store: a.st, Adapters: map[string]channel.Adapter{}, Log: obs.Discard(), Closed: func(id.Session) {},
		Actions: map[string]Action{"known": a}, Put: a.put,
		Tell: func(_ context.Context, _ id.Session, _, text string) error {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.told = append(a.told, text)
			return nil
		},
		Owner: func(context.Context) (store.Destination, bool) { return store.Destination{}, false },
	})
	run, cancel := context.WithCancel(ctx)
	if err := a.s.Start(run); err != nil {
		a.t.Fatal(err)
	}
	end = sync.OnceFunc(func() {
		cancel()
		a.s.Wait()
		if err := a.st.Close(); err != nil {
			a.t.Error(err)
		}
	})
	a.t.Cleanup(end)
	return end
}

func (a *acting) write(n int64, content string) {
	a.t.Helper()
	err := a.s.TakeOver(context.Background(), a.session, mailbox.Page{OutboundSeq: n, Rows: []mailbox.OutRow{
		{ID: fmt.Sprintf("out-%d", n), Seq: n, Kind: mailbox.KindSystem, Content: json.RawMessage(content), DeliverAfter: time.Now().Add(time.Hour)},
	}})
	if err != nil {
		a.t.Fatal(err)
	}
}

func (a *acting) state(n int64) store.Ledger {
	a.t.Helper()
	rows, err := a.st.Ledgers(context.Background(), a.session.ID, 100)
	if err != nil {
		a.t.Fatal(err)
	}
	for _, r := range rows {
		if r.OutboundID == fmt.Sprintf("out-%d", n) {
			return r
		}
	}
	a.t.Fatalf("no row %d", n)
	return store.Ledger{}
}

// An action is carried out once under its ledger id, and its rows reach the inbox of the session that asked, nobody else's.
// What this host does not know or does not accept is refused, and the agent is told once.
func TestActions(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		a := &acting{t: t}
		end := a.open(home)
		for n, content := range []string{
			1: `{"action":"known","say":"hello","session":"sess-other"}`, 2: `{"action":"known","say":"nothing"}`, 3: `{"action":"known","say":"refuse"}`,
			4: `{"action":"create_agent"}`, 5: `{"action":7}`, 6: `{}`, 7: `{"action":"` + strings.Repeat("x", 1000) + `"}`,
		} {
			if content != "" {
				a.write(int64(n), content)
				synctest.Wait()
			}
		}
		a.write(1, `{"action":"known","say":"hello"}`) // taken over again
		synctest.Wait()
		if want := []string{string(a.session.ID) + " answer-hello"}; strings.Join(a.puts, ",") != strings.Join(want, ",") {
			t.Errorf("rows %q, want %q", a.puts, want)
		}
		if len(a.keys) != 3 || a.keys[0] != string(a.state(1).ID) {
			t.Errorf("keys %q", a.keys)
		}
		for n, want := range map[int64]store.LedgerState{1: store.Sent, 2: store.Sent, 3: store.Refused, 4: store.Refused, 5: store.Refused, 6: store.Refused, 7: store.Refused} {
			if r := a.state(n); r.State != want || r.Kind != "system" {
				t.Errorf("row %d is %s %s: %s; want %s", n, r.Kind, r.State, r.Reason, want)
			}
		}
		want := []string{
			"A request of yours (known) was not carried out (refused): not like that",
			"A request of yours (create_agent) was not carried out (refused): this host knows no such action",
			"A request of yours was not carried out (refused): this host knows no such action",
			"A request of yours was not carried out (refused): this host knows no such action",
			"A request of yours was not carried out (refused): this host knows no such action",
		}
		if strings.Join(a.told, "\n") != strings.Join(want, "\n") {
			t.Errorf("told:\n%s", strings.Join(a.told, "\n"))
		}
		end()
	})
}

// An inbox that cannot be written for a while is tried again under the same key; one that never can ends the act.
func TestActionIsTriedAgain(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		a := &acting{t: t, fail: []error{errors.New("busy"), errors.New("busy")}}
		end := a.open(home)
		a.write(1, `{"action":"known","say":"late"}`)
		time.Sleep(time.Minute)
		synctest.Wait()
		if r := a.state(1); r.State != store.Sent || len(a.puts) != 1 || len(a.keys) != 3 || a.keys[0] != a.keys[2] {
			t.Errorf("%s %s, rows %q, keys %q", r.State, r.Reason, a.puts, a.keys)
		}
		for range 100 {
			a.fail = append(a.fail, errors.New("gone for good"))
		}
		a.write(3, `{"action":"known","say":"never"}`)
		time.Sleep(time.Hour)
		synctest.Wait()
		if r := a.state(3); r.State != store.Dead || !strings.Contains(r.Reason, "gone for good") || len(a.keys) != 3+maxActs || len(a.told) != 1 {
			t.Errorf("%s %s, %d tries, told %q", r.State, r.Reason, len(a.keys)-3, a.told)
		}
		end()
	})
}

// P3: an act that a host had begun when it ended is carried out by the next one, under the same key.
func TestActionOfAnEarlierHost(t *testing.T) {
	t.Parallel()
	home := filepath.Join(t.TempDir(), "home")
	begun := make(chan struct{}, 1)
	a := &acting{t: t, block: func() { begun <- struct{}{} }}
	end := a.open(home)
	a.write(1, `{"action":"known","say":"ended"}`)
	<-begun
	end()
	a.block = nil
	before := a.keys[0]
	if len(a.told) != 0 {
		t.Errorf("told %q", a.told)
	}
	done := make(chan struct{})
	a.block = func() { close(done) }
	end = a.open(home)
	<-done
	end() // the act itself waits for the end again
	if len(a.keys) != 2 || a.keys[1] != before {
		t.Errorf("keys %q, want the same twice", a.keys)
	}
}

// The words about a refused row go into the inbox of the session whose outbox is being taken over: they must not wait for it
// within the call.
func TestRefusalDoesNotWaitForItsOwnSession(t *testing.T) {
	t.Parallel()
	st, err := store.Open(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = st.Close() }()
	group, err := st.Bootstrap(t.Context(), store.First{Owner: "cli:ann", AgentName: "Nano", Folder: "main", Provider: "mock", ChannelType: "cli", Instance: "cli", PlatformID: chat, DestinationAs: "terminal"})
	if err != nil {
		t.Fatal(err)
	}
	sess, err := st.ResolveSession(t.Context(), "k", group, "", "")
	if err != nil {
		t.Fatal(err)
	}
	taken, told := make(chan struct{}), make(chan string, 1)
	s := New(Options{Store: st, Log: obs.Discard(), Closed: func(id.Session) {},
		Tell: func(_ context.Context, _ id.Session, _, text string) error {
			<-taken // the session answers only after the call
			told <- text
			return nil
		},
		Owner: func(context.Context) (store.Destination, bool) { return store.Destination{}, false },
	})
	ctx, cancel := context.WithCancel(t.Context())
	if err := s.Start(ctx); err != nil {
		t.Fatal(err)
	}
	page := mailbox.Page{OutboundSeq: 1, Rows: []mailbox.OutRow{{ID: "out-1", Seq: 1, Kind: mailbox.KindChat, Content: json.RawMessage(`{"text":"x"}`)}}}
	if err := s.TakeOver(ctx, sess, page); err != nil {
		t.Fatal(err)
	}
	close(taken)
	if text := <-told; !strings.Contains(text, "names no chat") {
		t.Errorf("told %q", text)
	}
	cancel()
	s.Wait()
}
