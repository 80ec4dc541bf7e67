package host

import (
	"context"
	"errors"
	"fmt"
	"time"

	"nanoclaw/internal/channel"
)

// simPlatform is one account on a platform. It outlives the hosts; the lock of the world guards it.
type simPlatform struct {
	w    *simWorld
	info channel.Info

	desk    channel.Host // of the account that runs
	account *simAccount
	off     time.Time // not connected until then
	said    int
	ops     map[string]*simOp
	order   map[channel.Address][]string // keys by their first try
	posts   []simPost
	settled map[string][]channel.SettleState // by message
}

// simOp is what the platform knows of a key.
type simOp struct {
	text     string
	arrivals int
}

type simPost struct {
	to   channel.Address
	text string
}

func newSimPlatform(w *simWorld, name string, caps channel.Caps) *simPlatform {
	return &simPlatform{w: w, info: channel.Info{Type: name, Instance: name, Caps: caps}, ops: map[string]*simOp{},
		order: map[channel.Address][]string{}, settled: map[string][]channel.SettleState{}}
}

// simAccount is the platform as one host has it.
type simAccount struct {
	*simPlatform
	host *simHost
	busy map[channel.Address]bool
}

var (
	_ channel.Adapter = (*simAccount)(nil)
	_ channel.Settler = (*simAccount)(nil)
)

func (a *simAccount) Info() channel.Info     { return a.info }
func (a *simAccount) Status() channel.Status { return channel.Status{State: channel.Connected} }

func (a *simAccount) Run(ctx context.Context, h channel.Host) error {
	a.w.mu.Lock()
	a.desk, a.account = h, a
	a.w.mu.Unlock()
	if a.w.chance(8) { // a connection that breaks
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(a.w.n(20)) * time.Second):
			return errors.New("the connection broke")
		}
	}
	<-ctx.Done()
	return nil
}

// Settled fails sometimes.
func (a *simAccount) Settled(_ context.Context, s channel.Settlement) error {
	if a.host.dead.Load() || !a.w.calm.Load() && a.w.chance(10) {
		return errors.New("not reachable")
	}
	a.w.mu.Lock()
	defer a.w.mu.Unlock()
	a.settled[s.MessageID] = append(a.settled[s.MessageID], s.State)
	a.w.log("%s was told that %s is %s", a.info.Type, s.MessageID, s.State)
	return nil
}

// Deliver ends in one of the six ways.
func (a *simAccount) Deliver(ctx context.Context, to channel.Address, op channel.Op, key string) (channel.Receipt, error) {
	w := a.w
	w.mu.Lock()
	if a.host.dead.Load() {
		w.mu.Unlock()
		return channel.Receipt{}, errSimGone
	}
	if a.busy[to] {
		w.fail("two operations at a time in %v", to)
	}
	a.busy[to] = true
	known := a.ops[key]
	if known == nil {
		known = &simOp{text: op.Text}
		a.ops[key] = known
		a.order[to] = append(a.order[to], key)
	} else if keys := a.order[to]; len(keys) == 0 || keys[len(keys)-1] != key {
		w.fail("%s: %q was sent behind what came later", to.PlatformID, op.Text)
	}
	if known.text != op.Text {
		w.fail("the key of %q was used for %q", known.text, op.Text)
	}
	off := a.off.After(time.Now())
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		a.busy[to] = false
		w.mu.Unlock()
	}()
	if off {
		return channel.Receipt{}, &channel.Outcome{Kind: channel.Offline, Err: errors.New("no connection")}
	}
	slow := time.Duration(w.n(40)) * time.Millisecond
	kind := channel.OutcomeKind("")
	if !w.calm.Load() {
		switch n := w.n(40); {
		case n < 2:
			kind = channel.Offline
		case n < 4:
			kind = channel.RateLimited
		case n < 8:
			kind = channel.Transient
		case n == 8:
			kind = channel.Permanent
		case n < 12:
			kind = channel.Ambiguous
		case n == 12:
			slow = 2 * time.Minute
		case n < 18:
			slow = time.Duration(w.n(5000)) * time.Millisecond
		}
	}
	timer := time.NewTimer(slow)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-a.host.gone:
		if w.chance(2) {
			a.arrive(to, op, known)
		}
		return channel.Receipt{}, errSimGone
	case <-ctx.Done():
		if w.chance(2) {
			a.arrive(to, op, known)
		}
		return channel.Receipt{}, &channel.Outcome{Kind: channel.Ambiguous, Err: ctx.Err()}
	}
	fault := &channel.Outcome{Kind: kind, Err: errors.New("as told")}
	switch kind {
	case "":
		return a.arrive(to, op, known), nil
	case channel.Ambiguous:
		if w.chance(2) {
			a.arrive(to, op, known)
		}
	case channel.RateLimited:
		fault.After = time.Duration(w.n(60)) * time.Second
	}
	return channel.Receipt{}, fault
}

// arrive shows an operation to people.
func (a *simAccount) arrive(to channel.Address, op channel.Op, known *simOp) channel.Receipt {
	w := a.w
	w.mu.Lock()
	defer w.mu.Unlock()
	receipt := channel.Receipt{IDs: []string{fmt.Sprintf("%s-post-%d", a.info.Type, len(a.posts))}}
	if known.arrivals > 0 && a.info.Caps.Idempotent {
		return receipt
	}
	if known.arrivals > 1 || known.arrivals == 1 && !op.Marked {
		w.fail("%q arrived %d times, marked %v", op.Text, known.arrivals+1, op.Marked)
	}
	known.arrivals++
	a.posts = append(a.posts, simPost{to, op.Text})
	w.log("%s shows %q in %v", a.info.Type, op.Text, to)
	return receipt
}

// say is a person who writes: the platform repeats the event until a host has acknowledged it, and sometimes after that.
func (p *simPlatform) say(m channel.Inbound) {
	w := p.w
	w.talk.Go(func() {
		for {
			time.Sleep(time.Duration(w.n(2000)) * time.Millisecond)
			w.mu.Lock()
			desk, account := p.desk, p.account
			w.mu.Unlock()
			if desk == nil || account.host.dead.Load() {
				if w.over.Load() {
					return
				}
				time.Sleep(time.Second)
				continue
			}
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			v, err := desk.Inbound(ctx, m)
			cancel()
			if account.host.dead.Load() || err != nil {
				w.mu.Lock()
				w.log("%s is not acknowledged: %v", m.ID, err)
				w.mu.Unlock()
				if w.over.Load() {
					return
				}
				time.Sleep(time.Duration(1+w.n(5)) * time.Second)
				continue
			}
			w.mu.Lock()
			w.log("%s is %s", m.ID, v.Kind)
			if first, ok := w.acked[m.ID]; !ok {
				w.acked[m.ID] = v.Kind
			} else if (first == channel.Dropped) != (v.Kind == channel.Dropped) {
				w.fail("%s was %s and is %s", m.ID, first, v.Kind)
			}
			w.mu.Unlock()
			if w.calm.Load() || !w.chance(6) {
				return
			}
		}
	})
}
