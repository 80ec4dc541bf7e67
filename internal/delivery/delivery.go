// Package delivery takes what agents write through a ledger to the channels: in order per destination, tried again by
// class of failure, never silently lost (design.md section 8; spec/host.md section 9).
package delivery

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"nanoclaw/internal/channel"
	"nanoclaw/internal/id"
	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/obs"
	"nanoclaw/internal/store"
)

// Options of a Service.
type Options struct {
	Store    *store.Store
	Adapters map[string]channel.Adapter // by instance
	// Closed is called after a row reached a final state that its session's inbox has to learn. It must not block.
	Closed func(id.Session)
	// Tell puts a notice for the agent into the session's inbox, once per key. It may block for a commit.
	Tell func(ctx context.Context, session id.Session, key, text string) error
	// Owner is where the owner is told what nobody else can be told; nil: nowhere.
	Owner func(ctx context.Context) (store.Destination, bool)
	// Actions are what agents may ask of the host, by name; others are refused.
	Actions map[string]Action
	// Files are what agents attach to their messages; nil: there are none.
	Files Files
	// Put stores the rows of an action in the session's inbox, durable on return, and rings its runner's bell.
	Put     func(ctx context.Context, s store.Session, rows ...mailbox.InRow) error
	Log     *slog.Logger
	Observe Observer // nil: nobody
	Now     func() time.Time
}

// Numbers of the ledger (spec/host.md section 27, spec/channels.md section 2.4).
const (
	maxTries       = 6
	patience       = 24 * time.Hour // how long offline and rate-limited rows are kept
	deliverTimeout = 60 * time.Second
	offlinePause   = 250 * time.Millisecond // a twentieth of the row's age, within these two
	offlineMost    = 2 * time.Minute
	settlePage     = 1000
)

// pauses before the second to sixth try.
func pause(tries int) time.Duration {
	p := []time.Duration{5 * time.Second, 15 * time.Second, 45 * time.Second, 2 * time.Minute, 5 * time.Minute}
	return p[min(max(tries-1, 0), len(p)-1)]
}

// Service delivers. Make it with New, run it once with Run.
type Service struct {
	opt Options
	log *slog.Logger

	breakers map[string]*breaker // by instance

	mu     sync.Mutex
	queues map[store.Destination]*queue
	ctx    context.Context // of Run; nil before
	work   sync.WaitGroup
}

// queue is the order of one destination. Its worker exists only while there is something to do.
type queue struct {
	items []item
}

// item is a row to deliver or, without one, a message whose end its adapter has to learn.
type item struct {
	row     *store.Ledger
	refused bool // the row is final; its agent has to learn that
	clean   bool // the row is final; its files have to go
	message *store.Message
}

// kindSystem is the ledger's kind of rows that ask the host for something.
const kindSystem = string(mailbox.KindSystem)

// kindNotice is the ledger's kind of the host's own rows.
const kindNotice = "notice"

// New makes a Service.
func New(opt Options) *Service {
	if opt.Now == nil {
		opt.Now = time.Now
	}
	if opt.Observe == nil {
		opt.Observe = deaf{}
	}
	s := &Service{opt: opt, log: opt.Log.With(obs.KeyComponent, "delivery"), breakers: map[string]*breaker{}, queues: map[store.Destination]*queue{}}
	for instance := range opt.Adapters {
		s.breakers[instance] = newBreaker()
	}
	return s
}

// Start loads what an earlier host left open: rows that were being sent when it died count as unknown. Rows taken over
// before Start wait in their queues.
func (s *Service) Start(ctx context.Context) error {
	open, err := s.opt.Store.OpenLedger(ctx)
	if err != nil {
		return err
	}
	for i := range open {
		if open[i].State == store.Sending {
			open[i].State = store.Unknown
		}
	}
	unsettled, err := s.opt.Store.Unsettled(ctx, settlePage)
	if err != nil {
		return err
	}
	left, err := s.opt.Store.LeftFiles(ctx, settlePage)
	if err != nil {
		return err
	}
	untold, err := s.opt.Store.Untold(ctx, settlePage)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ctx = ctx
	for i := range untold {
		s.pushLocked(store.Destination{PlatformID: string(untold[i].SessionID)}, item{row: &untold[i], refused: true})
	}
	for i := range open {
		s.pushLocked(open[i].Destination, item{row: &open[i]})
	}
	for i := range left {
		s.pushLocked(store.Destination{PlatformID: string(left[i].SessionID)}, item{row: &left[i], clean: true})
	}
	for i := range unsettled {
		s.pushLocked(origin(unsettled[i]), item{message: &unsettled[i]})
	}
	return nil
}

// Wait returns when every worker has ended after the context of Start did. Operations that are out finish first.
func (s *Service) Wait() { s.work.Wait() }

func (s *Service) push(d store.Destination, it item) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pushLocked(d, it)
}

func (s *Service) pushLocked(d store.Destination, it item) {
	q, ok := s.queues[d]
	if !ok {
		q = &queue{}
		s.queues[d] = q
	}
	q.items = append(q.items, it)
	if !ok && s.ctx != nil && s.ctx.Err() == nil {
		s.work.Add(1)
		go s.serve(s.ctx, d, q)
	}
}

// serve works through one destination's queue and ends with it.
func (s *Service) serve(ctx context.Context, d store.Destination, q *queue) {
	defer s.work.Done()
	for {
		s.mu.Lock()
		if len(q.items) == 0 || ctx.Err() != nil {
			delete(s.queues, d)
			s.mu.Unlock()
			return
		}
		it := q.items[0]
		q.items = q.items[1:]
		s.mu.Unlock()
		switch {
		case it.row == nil:
			s.settle(ctx, it.message)
		case it.clean:
			s.dropFiles(ctx, it.row)
		case it.refused:
			s.report(ctx, it.row)
			s.dropFiles(ctx, it.row)
		case it.row.Kind == kindSystem:
			s.act(ctx, it.row)
		default:
			s.deliver(ctx, it.row)
		}
	}
}

// settle tells an adapter how a message ended.
func (s *Service) settle(ctx context.Context, m *store.Message) {
	adapter, ok := s.opt.Adapters[m.Instance]
	if !ok {
		return
	}
	if settler, ok := adapter.(channel.Settler); ok {
		word := channel.Settlement{
			Address:   channel.Address{PlatformID: m.PlatformID, ThreadID: m.ThreadID},
			MessageID: m.PlatformMessageID, State: m.State, Reason: m.Reason,
		}
		for wait := offlinePause; ; wait = min(2*wait, offlineMost) {
			err := settler.Settled(ctx, word)
			if err == nil {
				break
			}
			s.log.Warn("could not tell how a message ended; it is tried again", obs.KeyMessage, m.RowID, obs.Error(err))
			if !s.waitUntil(ctx, s.opt.Now().Add(wait)) {
				return
			}
		}
	}
	s.opt.Observe.Ended(m.Instance, string(m.State), s.opt.Now().Sub(m.Received))
	s.durable(ctx, slog.String(obs.KeyMessage, m.RowID), func(ctx context.Context) error { return s.opt.Store.MarkSettled(ctx, m.RowID) })
}

// Say sends words of the host itself to a destination: idempotent by key.
func (s *Service) Say(ctx context.Context, d store.Destination, key, text string) error {
	content, err := notice(text)
	if err != nil {
		return err
	}
	return s.sayRow(ctx, d, key, content)
}

// noticeID is the ledger id of a notice with that key.
func noticeID(key string) id.Ledger { return id.Ledger(id.Derived(id.PrefixLedger, "host", key)) }

// sayRow sends something of the host itself: idempotent by key.
func (s *Service) sayRow(ctx context.Context, d store.Destination, key string, content json.RawMessage) error {
	fresh, err := s.opt.Store.Ingest(ctx, store.Ingest{Rows: []store.Ledger{{
		ID: noticeID(key), OutboundID: key, Destination: d, Kind: kindNotice, Content: content, State: store.Queued,
	}}})
	if err != nil {
		return fmt.Errorf("queue notice: %w", err)
	}
	for i := range fresh {
		s.push(d, item{row: &fresh[i]})
	}
	return nil
}

func origin(m store.Message) store.Destination {
	return store.Destination{Instance: m.Instance, PlatformID: m.PlatformID, ThreadID: m.ThreadID}
}
