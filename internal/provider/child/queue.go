package child

import (
	"sync"

	"nanoclaw/internal/provider"
)

// Queue is between the reader of a program and whoever reads the events: it never blocks the first, however slow the second.
// It grows with what is not read; activity that follows activity is not kept twice.
type Queue struct {
	out  chan provider.Event
	wake chan struct{} // capacity 1

	mu     sync.Mutex
	items  []provider.Event
	closed bool
}

// NewQueue must be followed by Close, and Events be read to its end.
func NewQueue() *Queue {
	q := &Queue{out: make(chan provider.Event), wake: make(chan struct{}, 1)}
	go q.pump()
	return q
}

// Events is closed once Close was called and everything is read.
func (q *Queue) Events() <-chan provider.Event { return q.out }

// Put adds an event; it never blocks.
func (q *Queue) Put(e provider.Event) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if n := len(q.items); n > 0 && e.Kind == provider.Activity && q.items[n-1].Kind == provider.Activity {
		return
	}
	q.items = append(q.items, e)
	q.ring()
}

// Close lets the pump end once everything is read.
func (q *Queue) Close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.ring()
}

func (q *Queue) ring() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *Queue) pump() {
	defer close(q.out)
	for range q.wake {
		q.mu.Lock()
		items, closed := q.items, q.closed
		q.items = nil
		q.mu.Unlock()
		for _, e := range items {
			q.out <- e
		}
		if closed {
			return
		}
	}
}
