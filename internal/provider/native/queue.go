package native

import (
	"sync"

	"nanoclaw/internal/provider"
)

// queue is between the loop and whoever reads its events: it never blocks the first, however slow the second. It grows with what is
// not read; activity that follows activity is not kept twice.
type queue struct {
	out  chan provider.Event
	wake chan struct{} // capacity 1

	mu     sync.Mutex
	items  []provider.Event
	closed bool
}

func newQueue() *queue {
	q := &queue{out: make(chan provider.Event), wake: make(chan struct{}, 1)}
	go q.pump()
	return q
}

func (q *queue) put(events ...provider.Event) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, e := range events {
		if n := len(q.items); n > 0 && e.Kind == provider.Activity && q.items[n-1].Kind == provider.Activity {
			continue
		}
		q.items = append(q.items, e)
	}
	q.ring()
}

// close lets the pump end once everything is read.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.ring()
}

func (q *queue) ring() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *queue) pump() {
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
