package delivery

import (
	"context"
	"fmt"
	"sync"
	"time"

	"nanoclaw/internal/channel"
)

// Numbers of a breaker.
const (
	breakAfter   = 5 // failures in a row of one adapter instance
	breakerPause = time.Second
	breakerMost  = 2 * time.Minute
)

// breaker spares a platform that fails again and again. After breakAfter failures in a row, of whatever rows, all rows of the
// instance wait; then one of them is let through as a probe, and the first success lets all go on (spec/host.md W6).
type breaker struct {
	mu       sync.Mutex
	changed  chan struct{} // closed and replaced when waiters have to look again
	failures int
	pause    time.Duration
	until    time.Time
	since    time.Time
	reason   string
	probing  bool
}

func newBreaker() *breaker { return &breaker{changed: make(chan struct{})} }

// admit waits until a row may be tried; a row past its last moment is let through, to have its end. It returns false when ctx
// ended first. The caller calls release after the try.
func (b *breaker) admit(ctx context.Context, now func() time.Time, last time.Time) bool {
	for {
		if ctx.Err() != nil {
			return false
		}
		b.mu.Lock()
		open := b.failures >= breakAfter
		if !open || now().After(last) {
			b.mu.Unlock()
			return true
		}
		wait := b.until.Sub(now())
		if wait <= 0 && !b.probing {
			b.probing = true
			b.mu.Unlock()
			return true
		}
		changed := b.changed
		b.mu.Unlock()
		if wait <= 0 {
			wait = deliverTimeout // for the probe, whose end wakes us
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-changed:
		case <-t.C:
		}
		t.Stop()
	}
}

// note takes the outcome of a try. A platform that refuses or asks for patience answers, and is not broken.
func (b *breaker) note(now time.Time, kind channel.OutcomeKind, reason string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch kind {
	case channel.Offline, channel.Transient, channel.Ambiguous:
		b.failures++
		if b.failures == breakAfter {
			b.since = now
		}
		if b.failures >= breakAfter && !b.until.After(now) {
			b.pause = min(max(2*b.pause, breakerPause), breakerMost)
			b.until = now.Add(b.pause)
		}
		b.reason = reason
	default:
		b.failures, b.pause, b.until = 0, 0, time.Time{}
	}
	b.wakeLocked()
}

// release ends a probe; without a noted outcome, so that the next row may be one.
func (b *breaker) release() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.probing {
		b.probing = false
		b.wakeLocked()
	}
}

func (b *breaker) wakeLocked() {
	close(b.changed)
	b.changed = make(chan struct{})
}

// Paused says in words that the deliveries of an adapter instance wait because it failed too often; "" if they do not.
func (s *Service) Paused(instance string) string {
	b := s.breakers[instance]
	if b == nil {
		return ""
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.failures < breakAfter {
		return ""
	}
	return fmt.Sprintf("deliveries wait: %d failures in a row, since %s; next try at %s: %s", b.failures, b.since.Format(time.TimeOnly),
		b.until.Format(time.TimeOnly), b.reason)
}
