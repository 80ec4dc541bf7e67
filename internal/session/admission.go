package session

import (
	"sync"
	"time"

	"nanoclaw/internal/id"
)

// taskPatience is how long a task lets conversations go first; after it, it counts as one, so that it is not starved.
const taskPatience = 5 * time.Minute

// queue bounds how many sandboxes exist at a time (spec/host.md W23). Who asks while all places are taken waits, without a
// process: conversations before tasks, then the agent group with the fewest places, then who came first. While somebody
// waits, sandboxes that have nothing to do are asked to go, the one longest at rest first.
type queue struct {
	most int // 0: no bound
	now  func() time.Time

	mu      sync.Mutex
	held    map[id.Session]*place
	groups  map[id.AgentGroup]int // places held
	waiting []*place              // as they came
}

// place is what a session holds or waits for. Its channels have room for one token and are never closed.
type place struct {
	session id.Session
	granted chan struct{} // the wait is over
	yield   chan struct{} // somebody else waits: go if there is nothing to do

	// Under queue.mu.
	group   id.AgentGroup
	task    bool
	since   time.Time // of waiting
	rests   time.Time // has nothing to do since; zero: works
	leaving bool      // was asked to go
}

func newPlace(session id.Session) *place {
	return &place{session: session, granted: make(chan struct{}, 1), yield: make(chan struct{}, 1)}
}

func newQueue(most int, now func() time.Time) *queue {
	return &queue{most: most, now: now, held: map[id.Session]*place{}, groups: map[id.AgentGroup]int{}}
}

// ask reports whether the place is granted at once; else it is waited for, and granted gets a token.
func (q *queue) ask(p *place, group id.AgentGroup, task bool) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	p.group, p.task, p.since = group, task, q.now()
	if len(q.waiting) == 0 && q.free() {
		q.hold(p)
		return true
	}
	q.waiting = append(q.waiting, p)
	q.settle()
	return false
}

// take holds a place for a sandbox that runs already, whether or not there is room.
func (q *queue) take(p *place, group id.AgentGroup) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.held[p.session] == nil {
		p.group = group
		q.hold(p)
	}
}

// leave gives a place back, or the wait for it up. It may be called again.
func (q *queue) leave(p *place) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.held[p.session] == p {
		delete(q.held, p.session)
		if q.groups[p.group]--; q.groups[p.group] <= 0 {
			delete(q.groups, p.group)
		}
	}
	for i, v := range q.waiting {
		if v == p {
			q.waiting = append(q.waiting[:i], q.waiting[i+1:]...)
			break
		}
	}
	for _, c := range []chan struct{}{p.granted, p.yield} { // what was said of the place that is no more
		select {
		case <-c:
		default:
		}
	}
	q.settle()
}

// rest notes whether the sandbox of a place has something to do.
func (q *queue) rest(p *place, idle bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case !idle:
		p.rests, p.leaving = time.Time{}, false
	case p.rests.IsZero():
		p.rests = q.now()
	}
	q.settle()
}

// count of places held and waited for.
func (q *queue) count() (held, waiting int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.held), len(q.waiting)
}

func (q *queue) free() bool { return q.most <= 0 || len(q.held) < q.most }

func (q *queue) hold(p *place) {
	p.rests, p.leaving = time.Time{}, false
	q.held[p.session] = p
	q.groups[p.group]++
}

// settle grants what is free and asks sandboxes at rest to go for those who still wait.
func (q *queue) settle() {
	for len(q.waiting) > 0 && q.free() {
		i := q.next()
		p := q.waiting[i]
		q.waiting = append(q.waiting[:i], q.waiting[i+1:]...)
		q.hold(p)
		signal(p.granted)
	}
	if len(q.waiting) == 0 {
		return
	}
	going := 0
	for _, p := range q.held {
		if p.leaving {
			going++
		}
	}
	for ; going < len(q.waiting); going++ {
		var longest *place
		for _, p := range q.held {
			if !p.leaving && !p.rests.IsZero() && (longest == nil || p.rests.Before(longest.rests)) {
				longest = p
			}
		}
		if longest == nil {
			return
		}
		longest.leaving = true
		signal(longest.yield)
	}
}

// next is whose turn it is.
func (q *queue) next() (best int) {
	later := func(p *place) bool { return p.task && q.now().Sub(p.since) < taskPatience }
	for i, p := range q.waiting {
		b := q.waiting[best]
		switch {
		case later(p) != later(b):
			if later(b) {
				best = i
			}
		case q.groups[p.group] < q.groups[b.group]:
			best = i
		}
	}
	return best
}
