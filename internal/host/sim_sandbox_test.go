package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"nanoclaw/internal/id"
	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/mailbox/sqlite"
	"nanoclaw/internal/sandbox"
	"nanoclaw/internal/session"
	"nanoclaw/internal/store"
)

// simBell is the bell of one session. Some rings get lost.
type simBell struct {
	w                *simWorld
	toHost, toRunner chan struct{}
}

func (b *simBell) Ring()                 { b.ring(b.toRunner) }
func (b *simBell) Rung() <-chan struct{} { return b.toHost }
func (b *simBell) Close() error          { return nil }

func (b *simBell) ring(c chan struct{}) {
	if !b.w.calm.Load() && b.w.chance(10) {
		return
	}
	select {
	case c <- struct{}{}:
	default:
	}
}

// bell of a session, by its folder.
func (w *simWorld) bell(dir string) *simBell {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.bells[dir] == nil {
		w.bells[dir] = &simBell{w, make(chan struct{}, 1), make(chan struct{}, 1)}
	}
	return w.bells[dir]
}

// simSandbox runs a program that uses the real half of the runner. It outlives hosts.
type simSandbox struct {
	w       *simWorld
	labels  sandbox.Labels
	session store.Session
	dir     string
	term    chan struct{}
	kill    chan struct{}
	gone    chan struct{}
	once    [2]sync.Once
	exit    sandbox.Exit
}

var _ sandbox.Handle = (*simSandbox)(nil)

func (b *simSandbox) Labels() sandbox.Labels { return b.labels }
func (b *simSandbox) PID() int               { return 1 }
func (b *simSandbox) die()                   { b.once[1].Do(func() { close(b.kill) }) }

func (b *simSandbox) Stop(ctx context.Context, grace time.Duration) error {
	b.once[0].Do(func() { close(b.term) })
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-b.gone:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		b.die()
	}
	<-b.gone
	return nil
}

func (b *simSandbox) Wait(ctx context.Context) (sandbox.Exit, error) {
	select {
	case <-b.gone:
		return b.exit, nil
	case <-ctx.Done():
		return sandbox.Exit{}, ctx.Err()
	}
}

func (w *simWorld) spawn(s store.Session, incarnation int64) (*simSandbox, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for b := range w.sandboxes {
		if b.session.ID == s.ID {
			w.log("a second sandbox of %s is refused", s.ID)
			return nil, sandbox.ErrRunning
		}
	}
	b := &simSandbox{w: w, session: s, dir: session.Dir(w.home, s), term: make(chan struct{}), kill: make(chan struct{}), gone: make(chan struct{}),
		labels: sandbox.Labels{Install: "sim", AgentGroup: string(s.AgentGroupID), Session: string(s.ID), Incarnation: incarnation}}
	w.sandboxes[b] = true
	w.log("sandbox %d of %s starts", incarnation, s.ID)
	go func() {
		err := b.run()
		w.mu.Lock()
		w.log("sandbox %d of %s has ended: %v", incarnation, s.ID, err)
		delete(w.sandboxes, b)
		w.mu.Unlock()
		if err != nil {
			b.exit = sandbox.Exit{Code: 1, Stderr: err.Error()}
		}
		close(b.gone)
	}()
	return b, nil
}

func (w *simWorld) running() (all []sandbox.Handle) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for b := range w.sandboxes {
		all = append(all, b)
	}
	return all
}

var errSimKilled = errors.New("killed")

// think takes time; the sandbox may die in it.
func (b *simSandbox) think(d time.Duration) error {
	if !b.w.calm.Load() && b.w.chance(60) {
		return errors.New("the program broke")
	}
	for end := time.Now().Add(d); ; {
		step := min(time.Until(end), 5*time.Second)
		select {
		case <-b.kill:
			return errSimKilled
		default:
		}
		if step <= 0 {
			return nil
		}
		timer := time.NewTimer(step)
		select {
		case <-b.kill:
			timer.Stop()
			return errSimKilled
		case <-timer.C:
			b.beat()
		}
	}
}

func (b *simSandbox) beat() {
	b.w.mu.Lock()
	defer b.w.mu.Unlock()
	b.w.beats[b.dir] = time.Now()
}

// run is the program inside.
func (b *simSandbox) run() error {
	w, ctx := b.w, context.Background()
	if err := b.think(time.Duration(w.n(200)) * time.Millisecond); err != nil {
		return err
	}
	box, err := sqlite.OpenRunner(ctx, b.dir, sqlite.RunnerOptions{Incarnation: b.labels.Incarnation})
	if err != nil {
		return err
	}
	defer func() { _ = box.Close() }()
	bell := w.bell(b.dir)
	for {
		select {
		case <-b.term:
			return nil
		default:
		}
		batch, err := box.Fetch(ctx, 1+w.n(5))
		if err != nil {
			return err
		}
		if len(batch.Rows)+len(batch.System)+len(batch.Broken) > 0 {
			if err := b.exchange(ctx, box, batch); err != nil {
				return err
			}
			bell.ring(bell.toHost)
			continue
		}
		wait := time.Hour
		if !batch.Next.IsZero() {
			wait = max(time.Until(batch.Next), 0)
		}
		timer := time.NewTimer(wait)
		select {
		case <-b.term:
		case <-b.kill:
			timer.Stop()
			return errSimKilled
		case <-bell.toRunner:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// exchange works on one batch.
func (b *simSandbox) exchange(ctx context.Context, box *sqlite.Runner, batch sqlite.Batch) error {
	w := b.w
	var f mailbox.Finish
	for _, r := range batch.System {
		f.Completed = append(f.Completed, r.ID)
	}
	f.Failed = batch.Broken
	exchange := ""
	if len(batch.Rows) > 0 {
		if exchange = batch.Rows[0].Exchange; exchange == "" {
			exchange = id.New("ex")
		}
		var ids []string
		for _, r := range batch.Rows {
			ids = append(ids, r.ID)
			if strings.Contains(string(r.Content), simForbidden) {
				w.fault("an agent read what a refused person wrote: %s", r.Content)
			}
		}
		if err := b.think(0); err != nil {
			return err
		}
		if err := box.Claim(ctx, exchange, ids); err != nil {
			return err
		}
		w.note("%s claims %v for %s", b.session.ID, ids, exchange)
		if !w.calm.Load() && w.chance(40) { // it hangs
			w.note("%s hangs", b.session.ID)
			select {
			case <-b.kill:
			case <-b.term:
			}
			return errSimKilled
		}
		_ = box.SetContainer(ctx, mailbox.ContainerState{Turn: mailbox.TurnWorking, UpdatedAt: time.Now()})
		b.beat()
		for range w.n(3) {
			if err := b.think(time.Duration(w.n(4000)) * time.Millisecond); err != nil {
				return err
			}
			row, err := box.Write(ctx, b.row(batch.Rows, exchange))
			if err != nil {
				return err
			}
			w.written(b, row)
			bell := w.bell(b.dir)
			bell.ring(bell.toHost)
		}
		if err := b.think(time.Duration(w.n(2000)) * time.Millisecond); err != nil {
			return err
		}
		for range w.n(3) {
			f.Out = append(f.Out, b.row(batch.Rows, exchange))
		}
		if w.chance(12) {
			for _, one := range ids {
				f.Failed = append(f.Failed, mailbox.Failure{ID: one, Reason: "the model failed"})
			}
		} else {
			f.Completed = append(f.Completed, ids...)
		}
	}
	out, err := box.Finish(ctx, f)
	if err != nil {
		return err
	}
	for _, row := range out {
		w.written(b, row)
	}
	w.finished(batch.Rows, exchange, f)
	_ = box.SetContainer(ctx, mailbox.ContainerState{Turn: mailbox.TurnIdle, UpdatedAt: time.Now()})
	return b.think(0)
}

// row is something that the agent says.
func (b *simSandbox) row(in []mailbox.InRow, exchange string) mailbox.OutRow {
	w := b.w
	asked := in[w.n(len(in))]
	r := mailbox.OutRow{Kind: mailbox.KindChat, Exchange: exchange, Address: asked.Address, InReplyTo: asked.ID}
	r.Content, _ = mailbox.EncodeContent(mailbox.ChatOut{Text: fmt.Sprintf("say-%d.", w.number())})
	to := func(platform, chat string) {
		r.InReplyTo, r.Address = "", mailbox.Address{ChannelType: platform, PlatformID: chat}
	}
	switch n := w.n(20); {
	case n < 3:
		to("beta", "beta:room")
	case n == 3:
		to("gamma", "gamma:private")
	case n == 4:
		to("alpha", "alpha:nowhere")
	case n == 5:
		r.Address, r.Kind, r.Content = mailbox.Address{}, mailbox.KindSystem, json.RawMessage(`{"action":"count"}`)
	case n == 6:
		to("delta", "delta:x")
	}
	if r.ChannelType == mailbox.ChannelAgent {
		to("beta", "beta:room")
	}
	return r
}
