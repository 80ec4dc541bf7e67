package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"nanoclaw/internal/channel"
	"nanoclaw/internal/config"
	"nanoclaw/internal/control"
	"nanoclaw/internal/host"
	"nanoclaw/internal/id"
	"nanoclaw/internal/obs"
	"nanoclaw/internal/store"
)

// platform is a chat platform in this process that answers at once, or not at all for a while.
type platform struct {
	name string
	load *load

	mu    sync.Mutex
	host  channel.Host
	hangs chan struct{} // nil: it answers
}

func (p *platform) Info() channel.Info {
	return channel.Info{Type: p.name, Instance: p.name, Caps: channel.Caps{Idempotent: true}}
}

func (p *platform) Status() channel.Status { return channel.Status{State: channel.Connected} }

func (p *platform) Run(ctx context.Context, h channel.Host) error {
	p.mu.Lock()
	p.host = h
	p.mu.Unlock()
	<-ctx.Done()
	return nil
}

func (p *platform) Deliver(ctx context.Context, _ channel.Address, op channel.Op, key string) (channel.Receipt, error) {
	p.mu.Lock()
	hangs := p.hangs
	p.mu.Unlock()
	if hangs != nil {
		select {
		case <-hangs:
		case <-ctx.Done():
			return channel.Receipt{}, &channel.Outcome{Kind: channel.Ambiguous, Err: ctx.Err()}
		}
	}
	p.load.answered(nameIn(op.Text))
	return channel.Receipt{IDs: []string{key}}, nil
}

// Settled ends what was answered together with a later message.
func (p *platform) Settled(_ context.Context, s channel.Settlement) error {
	p.load.answered(s.MessageID)
	return nil
}

// hang makes the platform stop answering until the function it returns is called.
func (p *platform) hang() (release func()) {
	c := make(chan struct{})
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hangs = c
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.hangs = nil
		close(c)
	}
}

func (p *platform) user() string      { return p.name + ":ann" }
func (p *platform) chat(i int) string { return fmt.Sprintf("%s:%d", p.name, i) }

func (p *platform) say(ctx context.Context, chat int, name string) error {
	p.mu.Lock()
	h := p.host
	p.mu.Unlock()
	if h == nil {
		return errors.New("the host does not run the platform yet")
	}
	v, err := h.Inbound(ctx, channel.Inbound{ID: name, Kind: "chat", Address: channel.Address{PlatformID: p.chat(chat)}, Text: word(name),
		Sender: channel.Sender{ID: p.user(), Name: "Ann"}, Mention: channel.Yes, At: time.Now()})
	if err == nil && v.Kind != channel.Stored {
		err = fmt.Errorf("the message was %s: %s", v.Kind, v.Reason)
	}
	return err
}

// within runs a host in this process on a home with platforms, each with so many chats, each with an agent of its own. The function it
// returns ends the host and its sandboxes.
func (b *bundle) within(ctx context.Context, home string, platforms []*platform, chats int) (end func(), err error) {
	if err := os.MkdirAll(home, 0o711); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(home, "nanoclaw.toml"), []byte(crowdSettings("bubblewrap", len(platforms)*chats+8)), 0o600); err != nil {
		return nil, err
	}
	st, err := store.Open(ctx, home)
	if err != nil {
		return nil, err
	}
	var channels []channel.Adapter
	for _, p := range platforms {
		channels = append(channels, p)
		for i := range chats {
			if _, err = st.Bootstrap(ctx, store.First{Owner: id.User(p.user()), OwnerName: "Ann", AgentName: "Nano", Folder: fmt.Sprintf("%s-%d", p.name, i), Provider: "mock",
				ChannelType: p.name, Instance: p.name, PlatformID: p.chat(i), DestinationAs: "chat"}); err != nil {
				return nil, errors.Join(err, st.Close())
			}
		}
	}
	if err := st.Close(); err != nil {
		return nil, err
	}
	settings, err := config.Load(home, func(string) string { return "" }, nil)
	if err != nil {
		return nil, err
	}
	running, cancel := context.WithCancel(ctx)
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- host.Run(running, host.Options{Settings: settings, Version: "bench", Log: obs.Logger(io.Discard, slog.LevelWarn, false), Ready: func() { close(ready) },
			Programs: b.bin, Channels: channels})
	}()
	select {
	case <-ready:
	case err := <-ended:
		cancel()
		return nil, fmt.Errorf("start a host: %w", err)
	}
	return func() {
		client := control.NewClient(home)
		defer client.Close()
		if _, err := client.Stop(context.WithoutCancel(ctx), true); err != nil {
			cancel()
		}
		<-ended
		cancel()
	}, nil
}

// hang is what people on two platforms notice of a third one that takes words and never answers.
func hang(ctx context.Context, b *bundle) ([]row, error) {
	const (
		chats     = 15
		perSecond = 100
		phase     = 8 // seconds
		turns     = 4 // of a phase without and a phase with a platform that hangs
		tenth     = 10
	)
	l := newLoad()
	sound := []*platform{{name: "one", load: l}, {name: "two", load: l}}
	sick := &platform{name: "sick", load: l}
	end, err := b.within(ctx, filepath.Join(b.work, "hang"), append([]*platform{sick}, sound...), chats)
	if err != nil {
		return nil, err
	}
	defer end()
	// Each tenth message is for the sick platform.
	kind := func(of string) func(int) string {
		return func(i int) string {
			if i%tenth == 0 {
				return "sick"
			}
			return of
		}
	}
	say := func(ctx context.Context, i int, name string) error {
		if i%tenth == 0 {
			return sick.say(ctx, i/tenth%chats, name)
		}
		return sound[i%2].say(ctx, i/2%chats, name)
	}
	if err := l.wake(ctx, tenth*chats, say); err != nil {
		return nil, fmt.Errorf("start the agents: %w", err)
	}
	if err := errors.Join(l.drive(ctx, perSecond, 5*perSecond, kind("warm"), say), l.rest(ctx)); err != nil {
		return nil, err
	}
	for range turns {
		if err := errors.Join(l.drive(ctx, perSecond, phase*perSecond, kind("usual"), say), l.rest(ctx)); err != nil {
			return nil, err
		}
		release := sick.hang()
		err := l.drive(ctx, perSecond, phase*perSecond, kind("beside"), say)
		release()
		if err = errors.Join(err, l.rest(ctx)); err != nil {
			return nil, err
		}
	}
	usual, beside := l.took["usual"], l.took["beside"]
	floor, p99 := quantile(usual, 0.99), quantile(beside, 0.99)
	return []row{{Name: "added latency on two platforms while a third hangs; floor: p99 while none does", Unit: "ms", P50: quantile(beside, 0.5), P95: quantile(beside, 0.95), P99: p99,
		Floor: floor, Ratio: p99 / floor, Goal: "p99 < 1.1 × floor", OK: p99 < 1.1*floor}}, nil
}
