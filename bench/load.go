package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"nanoclaw/internal/control"
)

// load sends messages by the clock, whether or not the earlier ones are answered, and notes how long each answer took from the
// moment its message was to be sent.
type load struct {
	mu    sync.Mutex
	sent  int
	open  map[string]time.Time // when it was to be sent
	took  map[string][]float64 // by kind of message, in milliseconds
	ended chan struct{}        // one token when open becomes empty
}

func newLoad() *load {
	return &load{open: map[string]time.Time{}, took: map[string][]float64{}, ended: make(chan struct{}, 1)}
}

// begin names a message of a kind that is to be sent at a time.
func (l *load) begin(kind string, at time.Time) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent++
	name := fmt.Sprintf("%s-%d", kind, l.sent)
	l.open[name] = at
	return name
}

// answered ends a message; what was not begun, or has ended, is nothing.
func (l *load) answered(name string) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	at, ok := l.open[name]
	if !ok {
		return
	}
	delete(l.open, name)
	kind, _, _ := strings.Cut(name, "-")
	l.took[kind] = append(l.took[kind], millis(now.Sub(at)))
	if len(l.open) == 0 {
		select {
		case l.ended <- struct{}{}:
		default:
		}
	}
}

// rest waits until every message is answered.
func (l *load) rest(ctx context.Context) error {
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for {
		l.mu.Lock()
		n := len(l.open)
		l.mu.Unlock()
		if n == 0 {
			return nil
		}
		select {
		case <-l.ended:
		case <-limit.C:
			return fmt.Errorf("%d messages had no answer in time", n)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// drive sends n messages at so many a second. send returns when its message is stored.
func (l *load) drive(ctx context.Context, perSecond, n int, kind func(i int) string, send func(ctx context.Context, i int, name string) error) error {
	var sending sync.WaitGroup
	failed := make(chan error, n)
	began := time.Now()
	for i := range n {
		at := began.Add(time.Duration(i) * time.Second / time.Duration(perSecond))
		time.Sleep(time.Until(at))
		if ctx.Err() != nil {
			break
		}
		name := l.begin(kind(i), at)
		sending.Go(func() {
			if err := send(ctx, i, name); err != nil {
				failed <- err
			}
		})
	}
	sending.Wait()
	close(failed)
	if err, any := <-failed; any {
		return err
	}
	return ctx.Err()
}

// wake sends n messages, each when the one before has its answer: sandboxes start one by one.
func (l *load) wake(ctx context.Context, n int, send func(ctx context.Context, i int, name string) error) error {
	for i := range n {
		if err := send(ctx, i, l.begin("first", time.Now())); err != nil {
			return err
		}
		if err := l.rest(ctx); err != nil {
			return err
		}
	}
	return nil
}

// word is the text of a message; the built-in provider answers with the same.
func word(name string) string { return "ping " + name + "." }

// nameIn finds the name in the text of an answer.
func nameIn(text string) string {
	_, rest, _ := strings.Cut(text, "ping ")
	name, _, _ := strings.Cut(rest, ".")
	return name
}

// listen ends the messages of a terminal conversation as their answers come, until ctx ends.
func (l *load) listen(ctx context.Context, m *machine, conversation string) {
	_ = m.client.Follow(ctx, conversation, 0, func(e control.Event) error {
		switch {
		case e.Kind == control.EventMessage && e.Author == control.AuthorAgent:
			l.answered(nameIn(e.Text))
		case e.Kind == control.EventSettled: // answered together with a later one
			l.answered(e.Target)
		}
		return nil
	})
}
