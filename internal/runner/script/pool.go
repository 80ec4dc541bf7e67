package script

import (
	"context"
	"sync"
)

// DefaultLimit is how many scripts of a Pool run at the same time.
const DefaultLimit = 3

// Result is what came of the script of a row.
type Result struct {
	RowID string
	Outcome
}

// Pool runs scripts beside the loop, a few at a time (spec/runner.md W30). Its methods may be called from any goroutine.
type Pool struct {
	opt     Options
	slots   chan struct{}
	results chan Result
	ctx     context.Context // ends at Close
	stop    context.CancelFunc
	running sync.WaitGroup

	mu     sync.Mutex
	rows   map[string]bool // started, and the result not yet taken
	closed bool
}

// NewPool makes a pool. limit is how many scripts run at the same time; 0 is DefaultLimit. Close it.
func NewPool(o Options, limit int) *Pool {
	if limit <= 0 {
		limit = DefaultLimit
	}
	ctx, stop := context.WithCancel(context.Background())
	return &Pool{opt: o, slots: make(chan struct{}, limit), results: make(chan Result), ctx: ctx, stop: stop, rows: map[string]bool{}}
}

// Start runs the script of a row as soon as there is room and delivers one Result. It does not block. It reports false, and does
// nothing, if the row is in the pool already (spec/bugs.md RUN-5) or the pool is closed. When ctx ends the script is stopped.
func (p *Pool) Start(ctx context.Context, rowID, script string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.rows[rowID] {
		return false
	}
	p.rows[rowID] = true
	p.running.Add(1)
	go func() {
		defer p.running.Done()
		out := p.run(ctx, rowID, script)
		select {
		case p.results <- Result{RowID: rowID, Outcome: out}:
		case <-p.ctx.Done():
		}
		p.mu.Lock()
		delete(p.rows, rowID)
		p.mu.Unlock()
	}()
	return true
}

func (p *Pool) run(ctx context.Context, rowID, script string) Outcome {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.ctx, cancel)()
	select {
	case p.slots <- struct{}{}:
		defer func() { <-p.slots }()
	case <-ctx.Done():
	}
	return Run(ctx, p.opt, rowID, script)
}

// Results delivers one Result for each Start that reported true, until Close. It is closed by Close.
func (p *Pool) Results() <-chan Result { return p.results }

// Len is how many rows were started and their results not yet taken.
func (p *Pool) Len() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.rows)
}

// Close stops all scripts and waits for their end, at most a few seconds. Results that nobody has taken are dropped; their rows stay
// claimed by nobody but the caller. It may be called again.
func (p *Pool) Close() {
	p.mu.Lock()
	again := p.closed
	p.closed = true
	p.mu.Unlock()
	p.stop()
	p.running.Wait()
	if !again {
		close(p.results)
	}
}
