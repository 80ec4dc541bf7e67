package channeltest

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"nanoclaw/internal/channel"
)

// Host records what an adapter tells it. Its store outlives adapters, as the real one outlives processes.
type Host struct {
	mu       sync.Mutex
	got      []channel.Inbound
	seen     map[string]bool
	pressed  []channel.Answer
	verdicts []channel.Verdict        // of the next answers; none left is stored
	fail     int                      // next calls of Inbound that store nothing
	lose     int                      // next calls of Inbound that store and then fail
	gates    map[string]chan struct{} // platform id → Inbound waits for it
	kvFail   int                      // next calls of Update that write nothing
	kvLose   int                      // next calls of Update that write and then fail
	kv       map[string]string
	all      lockedBuffer
	fromInfo lockedBuffer
	now      func() time.Time
}

// NewHost makes a host with an empty store.
func NewHost() *Host {
	return &Host{seen: map[string]bool{}, gates: map[string]chan struct{}{}, kv: map[string]string{}, now: time.Now}
}

// ErrStore is what the switches make the host return.
var ErrStore = errors.New("the store fails on purpose")

// FailNext makes the next n events fail before they are stored.
func (h *Host) FailNext(n int) { h.set(func() { h.fail = n }) }

// LoseNext makes the next n events fail after they are stored: the host was killed before it could answer.
func (h *Host) LoseNext(n int) { h.set(func() { h.lose = n }) }

// FailWrites makes the next n writes of the adapter's store fail before they are written.
func (h *Host) FailWrites(n int) { h.set(func() { h.kvFail = n }) }

// LoseWrites makes the next n writes of the adapter's store fail after they are written.
func (h *Host) LoseWrites(n int) { h.set(func() { h.kvLose = n }) }

// Hold makes events of a platform id wait until release is called.
func (h *Host) Hold(platformID string) (release func()) {
	gate := make(chan struct{})
	h.set(func() { h.gates[platformID] = gate })
	return sync.OnceFunc(func() {
		h.set(func() { delete(h.gates, platformID) })
		close(gate)
	})
}

func (h *Host) set(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
}

// Events stored so far, in order.
func (h *Host) Events() []channel.Inbound {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.got)
}

// EventsAt are the events of one platform id.
func (h *Host) EventsAt(platformID string) []channel.Inbound {
	return slices.DeleteFunc(h.Events(), func(m channel.Inbound) bool { return m.Address.PlatformID != platformID })
}

// Inbound stores an event once per platform id and event id.
func (h *Host) Inbound(ctx context.Context, m channel.Inbound) (channel.Verdict, error) {
	h.mu.Lock()
	gate := h.gates[m.Address.PlatformID]
	h.mu.Unlock()
	if gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
			return channel.Verdict{}, ctx.Err()
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.fail > 0 {
		h.fail--
		return channel.Verdict{}, ErrStore
	}
	key := m.Address.PlatformID + "\x00" + m.ID
	v := channel.Verdict{Kind: channel.Duplicate}
	if !h.seen[key] {
		h.seen[key] = true
		h.got = append(h.got, m)
		v.Kind = channel.Stored
	}
	if h.lose > 0 {
		h.lose--
		return channel.Verdict{}, ErrStore
	}
	return v, nil
}

// Verdicts are what the next answers get, in order; after them every answer is stored.
func (h *Host) Verdicts(all ...channel.Verdict) { h.set(func() { h.verdicts = all }) }

// Answers given so far, in order.
func (h *Host) Answers() []channel.Answer {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.pressed)
}

// Answer records a pressed option.
func (h *Host) Answer(_ context.Context, a channel.Answer) (channel.Verdict, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.fail > 0 {
		h.fail--
		return channel.Verdict{}, ErrStore
	}
	h.pressed = append(h.pressed, a)
	if len(h.verdicts) > 0 {
		v := h.verdicts[0]
		h.verdicts = h.verdicts[1:]
		return v, nil
	}
	return channel.Verdict{Kind: channel.Stored}, nil
}

// Store is the adapter's store.
func (h *Host) Store() channel.KV { return (*kv)(h) }

// Log keeps everything for the scan.
func (h *Host) Log() *slog.Logger {
	return slog.New(teeHandler{
		slog.NewJSONHandler(&h.all, &slog.HandlerOptions{Level: slog.LevelDebug}),
		slog.NewJSONHandler(&h.fromInfo, &slog.HandlerOptions{Level: slog.LevelInfo}),
	})
}

// Now is the time.
func (h *Host) Now() time.Time { return h.now() }

func (h *Host) logged(s string, fromInfo bool) bool {
	if fromInfo {
		return h.fromInfo.contains(s)
	}
	return h.all.contains(s)
}

// kv is the host's map as the adapter sees it.
type kv Host

func (k *kv) Get(_ context.Context, key string) (string, bool, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	v, ok := k.kv[key]
	return v, ok, nil
}

func (k *kv) List(_ context.Context, from, to string, limit int) ([]channel.Pair, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var out []channel.Pair
	for _, key := range slices.Sorted(maps.Keys(k.kv)) {
		if key >= from && key < to && len(out) < limit {
			out = append(out, channel.Pair{Key: key, Value: k.kv[key]})
		}
	}
	return out, nil
}

func (k *kv) Update(_ context.Context, pairs ...channel.Pair) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.kvFail > 0 {
		k.kvFail--
		return ErrStore
	}
	for _, p := range pairs {
		if _, ok := k.kv[p.Key]; ok && p.IfAbsent {
			return channel.ErrExists
		}
	}
	for _, p := range pairs {
		if p.Delete {
			delete(k.kv, p.Key)
		} else {
			k.kv[p.Key] = p.Value
		}
	}
	if k.kvLose > 0 {
		k.kvLose--
		return ErrStore
	}
	return nil
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) contains(s string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.b.String(), s)
}

// teeHandler gives each record to both.
type teeHandler struct{ a, b slog.Handler }

func (t teeHandler) Enabled(ctx context.Context, l slog.Level) bool {
	return t.a.Enabled(ctx, l) || t.b.Enabled(ctx, l)
}

func (t teeHandler) Handle(ctx context.Context, r slog.Record) error {
	var errs []error
	for _, h := range []slog.Handler{t.a, t.b} {
		if h.Enabled(ctx, r.Level) {
			errs = append(errs, h.Handle(ctx, r.Clone()))
		}
	}
	return errors.Join(errs...)
}

func (t teeHandler) WithAttrs(as []slog.Attr) slog.Handler {
	return teeHandler{t.a.WithAttrs(as), t.b.WithAttrs(as)}
}

func (t teeHandler) WithGroup(name string) slog.Handler {
	return teeHandler{t.a.WithGroup(name), t.b.WithGroup(name)}
}
