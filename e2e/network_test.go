package e2e

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"nanoclaw/internal/channel"
	"nanoclaw/internal/config"
	"nanoclaw/internal/host"
	"nanoclaw/internal/id"
	"nanoclaw/internal/obs"
	"nanoclaw/internal/store"
	"nanoclaw/internal/testkit/chatnet"
)

// network is a host in this process, with real sandboxes and runners, and three platforms: one takes idempotency keys, one can
// edit, one can neither.
type network struct {
	*machine
	keyed, editing, plain *chatnet.Platform
	end                   func()
}

func (n *network) platforms() []*chatnet.Platform {
	return []*chatnet.Platform{n.keyed, n.editing, n.plain}
}

// person and room of a platform.
func person(p *chatnet.Platform) string { return p.Info().Type + ":ann" }
func room(p *chatnet.Platform) string   { return p.Info().Type + ":room" }

// newNetwork sets the home up and starts a host on it. mode is the session mode of all chats.
func newNetwork(t *testing.T, mode store.SessionMode) *network {
	t.Helper()
	available(t, "bubblewrap")
	n := &network{machine: setup(t, sandboxes(t)["bubblewrap"]),
		keyed:   chatnet.New("keyed", channel.Caps{Idempotent: true, React: true, Files: true, Buttons: true, Cards: true}, 0),
		editing: chatnet.New("editing", channel.Caps{Edit: true, React: true}, 400),
		plain:   chatnet.New("plain", channel.Caps{}, 300)}
	ctx := t.Context()
	st, err := store.Open(ctx, n.home)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range n.platforms() {
		_, err := st.Bootstrap(ctx, store.First{Owner: id.User(person(p)), OwnerName: "Ann", AgentName: "Nano", Folder: "main", Provider: "mock",
			ChannelType: p.Info().Type, Instance: p.Info().Instance, PlatformID: room(p), DestinationAs: p.Info().Type})
		if err != nil {
			t.Fatal(err)
		}
	}
	wirings, err := st.Wirings(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range wirings {
		w.SessionMode = mode
		if _, err := st.UpdateWiring(ctx, "test", w); err != nil {
			t.Fatal(err)
		}
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	n.serve()
	t.Cleanup(func() {
		n.end()
		for _, p := range n.platforms() {
			for _, broken := range p.Problems() {
				t.Error(broken)
			}
		}
	})
	return n
}

// serve runs a host until n.end is called; sandboxes go on then.
func (n *network) serve() {
	n.t.Helper()
	s, err := config.Load(n.home, func(string) string { return "" }, nil)
	if err != nil {
		n.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan struct{}), make(chan error, 1)
	channels := make([]channel.Adapter, 0, 3)
	for _, p := range n.platforms() {
		channels = append(channels, p)
	}
	go func() {
		ended <- host.Run(ctx, host.Options{Settings: s, Version: "test", Log: obs.Logger(n.log, slog.LevelDebug, false), Ready: func() { close(ready) },
			Programs: filepath.Clean(programs(n.t)), Channels: channels})
	}()
	n.end = func() {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			n.t.Errorf("host: %v", err)
		}
		n.end = func() {}
	}
	select {
	case <-ready:
	case err := <-ended:
		ended <- err
		n.t.Fatalf("the host did not start: %v", err)
	}
}

// post lets the person of a platform write in its room.
func (n *network) post(p *chatnet.Platform, text string) {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), patience)
	defer cancel()
	if _, err := p.Say(ctx, person(p), room(p), text); err != nil {
		n.t.Fatal(err)
	}
}

// until waits for a state of a platform's room.
func (n *network) until(p *chatnet.Platform, done func(chatnet.State) bool) chatnet.State {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), patience)
	defer cancel()
	s, err := p.Await(ctx, room(p), done)
	if err != nil {
		n.t.Fatal(err)
	}
	return s
}

// texts waits until the room has so many posts.
func (n *network) texts(p *chatnet.Platform, count int) []string {
	n.t.Helper()
	return n.until(p, func(s chatnet.State) bool { return len(s.Posts) >= count }).Texts()
}

// SES-1: chats of several platforms that share one session, alternating: every message is answered where it was written.
func TestSES1AnswersGoWhereTheQuestionCameFrom(t *testing.T) {
	t.Parallel()
	for _, mode := range []store.SessionMode{store.ModeShared, store.ModeAgentShared} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			n := newNetwork(t, mode)
			want := map[*chatnet.Platform][]string{}
			for i := range 3 {
				for _, p := range n.platforms() {
					text := fmt.Sprintf("%s %d", p.Info().Type, i)
					want[p] = append(want[p], text)
					n.post(p, text)
					n.until(p, func(s chatnet.State) bool { return len(s.Settled) > i })
				}
			}
			for p, texts := range want {
				if got := n.texts(p, len(texts)); !slices.Equal(got, texts) {
					t.Errorf("%s: got %q, want %q", p.Info().Type, got, texts)
				}
			}
		})
	}
}

func fault(kind channel.OutcomeKind, arrived bool) chatnet.Fault {
	return chatnet.Fault{Outcome: &channel.Outcome{Kind: kind, After: 10 * time.Millisecond, Err: errors.New("scripted")}, Arrived: arrived}
}

// A text that is longer than a platform takes arrives in parts, each once, although one of them fails on its way.
func TestLongTextOnEveryPlatform(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, store.ModeShared)
	long := strings.TrimSpace(strings.Repeat("word 😀 ", 120))
	for _, p := range n.platforms() {
		p.Fail(room(p), chatnet.Fault{}, fault(channel.Transient, false), fault(channel.RateLimited, false))
		n.post(p, long)
		n.until(p, func(s chatnet.State) bool { return len(s.Settled) > 0 })
		n.post(p, "next")
	}
	for _, p := range n.platforms() {
		s := n.until(p, func(s chatnet.State) bool { return len(s.Settled) >= 2 })
		texts := s.Texts()
		if p.Info().MaxText > 0 && len(texts) < 4 {
			t.Errorf("%s: %d posts", p.Info().Type, len(texts))
		}
		if got := strings.Join(texts, ""); got != long+"next" {
			t.Errorf("%s: got %q", p.Info().Type, texts)
		}
		if problems := p.Problems(); len(problems) > 0 {
			t.Error(problems)
		}
	}
}

// A platform that fails for a while gets everything once and in order; where it cannot be known and no key is taken, once more
// and marked (P3, P5).
func TestFailingPlatforms(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, store.ModeShared)
	for _, p := range n.platforms() {
		p.Fail(room(p), fault(channel.Offline, false), fault(channel.RateLimited, false), chatnet.Fault{}, fault(channel.Ambiguous, false), chatnet.Fault{},
			fault(channel.Ambiguous, true))
	}
	for i := range 3 {
		for _, p := range n.platforms() {
			n.post(p, fmt.Sprint(i))
			n.until(p, func(s chatnet.State) bool { return len(s.Settled) > i })
		}
	}
	for _, p := range n.platforms() {
		want := "0 1 2 2"
		if p.Info().Caps.Idempotent {
			want = "0 1 2"
		}
		s := n.until(p, func(s chatnet.State) bool { return len(s.Settled) >= 3 })
		if got := strings.Join(s.Texts(), " "); got != want {
			t.Errorf("%s: got %q, want %q", p.Info().Type, got, want)
		}
		for _, e := range s.Settled {
			if e.State != channel.Answered {
				t.Errorf("%s: %+v", p.Info().Type, e)
			}
		}
	}
}

// A platform that hangs holds up nobody else.
func TestHangingPlatform(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, store.ModeAgentShared)
	release := make(chan struct{})
	n.plain.Fail(room(n.plain), chatnet.Fault{Hang: release})
	n.post(n.plain, "first")
	n.until(n.plain, func(s chatnet.State) bool { return s.Calls == 1 })
	for i := range 5 {
		for _, p := range []*chatnet.Platform{n.keyed, n.editing} {
			n.post(p, fmt.Sprint(i))
			n.texts(p, i+1)
		}
	}
	n.post(n.plain, "second")
	close(release)
	if got := n.texts(n.plain, 2); !slices.Equal(got, []string{"first", "second"}) {
		t.Errorf("got %q", got)
	}
}

// A host that ends while a platform is away leaves nothing behind and repeats nothing: the next one goes on.
func TestHostRestartWithAPlatformAway(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, store.ModeShared)
	for _, p := range n.platforms() {
		for range 3 {
			p.Fail(room(p), fault(channel.Offline, false))
		}
		n.post(p, "one")
		n.until(p, func(s chatnet.State) bool { return s.Calls >= 1 })
	}
	n.end()
	n.serve()
	for _, p := range n.platforms() {
		s := n.until(p, func(s chatnet.State) bool { return len(s.Settled) >= 1 })
		if got := s.Texts(); !slices.Equal(got, []string{"one"}) || s.Settled[0].State != channel.Answered {
			t.Errorf("%s: got %q, %+v", p.Info().Type, got, s.Settled)
		}
	}
}
