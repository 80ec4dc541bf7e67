// Package approval holds acts until somebody who may decides: it keeps what waits, asks with cards, takes the answers and carries
// out what was decided (spec/host.md sections 8 and 13). Every step is written down before the next one, and Work goes on from
// whatever is written: a host that was killed anywhere loses and repeats nothing.
package approval

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"nanoclaw/internal/channel"
	"nanoclaw/internal/id"
	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/obs"
	"nanoclaw/internal/store"
)

// Cards shows questions of the host itself and says its words. Everything is durable on return and has one effect per key or card.
type Cards interface {
	// CardID is the id of the card that ShowCard shows under a key.
	CardID(key string) id.Ledger
	ShowCard(ctx context.Context, d store.Destination, key, title, text string, options []mailbox.Option) error
	// CloseCard shows what became of a card in place of its options.
	CloseCard(ctx context.Context, d store.Destination, card id.Ledger, outcome, value string) error
	Say(ctx context.Context, d store.Destination, key, text string) error
}

// Grant is what a decision allows while held messages are routed: it does not stand in the central store before all of them are.
type Grant struct {
	Members []id.AgentGroup // agents that the sender may talk to
	Wiring  *store.Wiring   // of the chat
}

// Options of a Service.
type Options struct {
	Store    *store.Store
	Cards    Cards
	Adapters map[string]channel.Adapter // by instance
	// Replay routes a held message; once it returned nil it is never called again for that message. An error means later.
	Replay func(ctx context.Context, instance string, m channel.Inbound, g Grant) error
	Log    *slog.Logger
	Now    func() time.Time // nil is time.Now
}

// Limits of what strangers can make a home keep and ask (spec/host.md W35, W54 and section 13.4).
func limits() store.HoldLimits {
	return store.HoldLimits{Life: 7 * 24 * time.Hour, Quiet: 24 * time.Hour, PerHour: 30, Open: 100, Messages: 20, Bytes: 512 << 10}
}

const (
	page      = 200              // approvals and cards that Work looks at in one go
	patience  = 24 * time.Hour   // after which the next person is asked, too
	undecided = 10 * time.Minute // the same for a card that could not be shown yet
	openTime  = 10 * time.Second // for a platform to open a conversation
)

// Service holds acts. Its methods may be called from several goroutines.
type Service struct {
	opt  Options
	log  *slog.Logger
	kick chan struct{}
	work sync.Mutex // one Work at a time
}

// New makes a Service.
func New(opt Options) *Service {
	if opt.Now == nil {
		opt.Now = time.Now
	}
	return &Service{opt: opt, log: opt.Log.With(obs.KeyComponent, "approval"), kick: make(chan struct{}, 1)}
}

// Run does what there is to do until ctx ends, first what an earlier host left.
func (s *Service) Run(ctx context.Context) {
	for {
		if err := s.Work(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn("an approval is gone on with later", obs.Error(err))
		}
		select {
		case <-ctx.Done():
			return
		case <-s.kick:
		}
	}
}

func (s *Service) wake() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// Request is an event that somebody has to decide about.
type Request struct {
	Action store.ApprovalAction
	Chat   store.MessagingGroup
	Agents []id.AgentGroup // of SendersAdmit: that the event was for, most important first
	Event  channel.Inbound
}

// Hold keeps an event and has somebody asked, unless that was done. It returns after durable storage; the same event again changes
// nothing. decided: there is nothing to decide any more, the event was not kept and is to be routed again.
func (s *Service) Hold(ctx context.Context, r Request) (decided bool, err error) {
	event, err := encode(r.Event)
	if err != nil {
		return false, err
	}
	m := store.HeldMessage{ID: r.Event.ID, Event: event}
	parts, err := s.split(ctx, r)
	if err != nil {
		return false, err
	}
	for _, agents := range parts {
		a := store.Approval{ID: id.Approval(id.New(id.PrefixApproval)), Action: r.Action, Chat: r.Chat.ID,
			Sender: id.User(r.Event.Sender.ID), SenderName: r.Event.Sender.Name, Agents: agents, CreatedAt: s.opt.Now()}
		out, err := s.opt.Store.Hold(ctx, a, m, limits())
		if err != nil {
			return false, err
		}
		switch out {
		case store.HoldMoot:
			decided = true
		case store.HoldFull:
			s.log.Warn("a message is not held: too much waits for a decision", obs.KeyChannel, r.Chat.Instance, obs.KeyMessage, r.Event.ID)
		case store.HoldAsk:
			s.log.Info("a decision is needed", obs.KeyAction, string(a.Action), obs.KeyWhat, string(a.ID))
			s.wake()
		case store.HoldAdd:
			s.wake() // it may be approved and almost done
		}
	}
	return decided, nil
}

// split sorts the agents of a request by who decides about them: what is asked with one card, whoever is asked may decide.
func (s *Service) split(ctx context.Context, r Request) (parts [][]id.AgentGroup, err error) {
	if r.Action != store.SendersAdmit {
		return [][]id.AgentGroup{nil}, nil
	}
	var who []string
	for _, g := range r.Agents {
		all, err := s.opt.Store.Approvers(ctx, g)
		if err != nil {
			return nil, err
		}
		var key strings.Builder
		for _, u := range all {
			key.WriteString(string(u) + "\n")
		}
		if at := slices.Index(who, key.String()); at >= 0 {
			parts[at] = append(parts[at], g)
			continue
		}
		who, parts = append(who, key.String()), append(parts, []id.AgentGroup{g})
	}
	return parts, nil
}

// Declined tells an owner or admin that a stranger was declined, once per key. There is nothing to decide.
func (s *Service) Declined(ctx context.Context, key string, chat store.MessagingGroup, sender channel.Sender) error {
	all, err := s.opt.Store.Approvers(ctx, "")
	if err != nil {
		return err
	}
	_, d, ok := s.reachOne(ctx, all, chat)
	if !ok {
		s.log.Warn("nobody can be told that a stranger was declined", obs.KeyChannel, chat.Instance)
		return nil
	}
	return s.opt.Cards.Say(ctx, d, "hold|"+key, person(sender.Name, sender.ID)+" wrote in "+place(chat)+" and was told that I do not know them.")
}

// Check ends what nobody decided in time, and goes on with the rest. The sweep calls it.
func (s *Service) Check(ctx context.Context) error {
	if _, err := s.opt.Store.ExpireApprovals(ctx, s.opt.Now(), expired); err != nil {
		return err
	}
	return s.Work(ctx)
}

// Work asks where nobody was asked, routes what was approved and shows what was decided. What fails is left for the next call.
func (s *Service) Work(ctx context.Context) error {
	s.work.Lock()
	defer s.work.Unlock()
	all, err := s.opt.Store.OpenApprovals(ctx, page)
	if err != nil {
		return err
	}
	var failed error
	for _, a := range all {
		switch {
		case a.Status == store.ApprovalApproved:
			failed = errors.Join(failed, s.carryOut(ctx, a))
		case a.Open(s.opt.Now()):
			failed = errors.Join(failed, s.ask(ctx, a))
		}
	}
	closed, err := s.opt.Store.UntoldApprovalCards(ctx, page)
	if err != nil {
		return errors.Join(failed, err)
	}
	for _, c := range closed {
		failed = errors.Join(failed, s.tell(ctx, c))
	}
	return failed
}

// tell shows that a card is closed.
func (s *Service) tell(ctx context.Context, c store.ApprovalCard) error {
	a, err := s.opt.Store.Approval(ctx, c.Approval)
	if err != nil {
		return err
	}
	if err := s.opt.Cards.CloseCard(ctx, c.Destination, c.ID, c.Outcome, a.Choice); err != nil {
		return err
	}
	return s.opt.Store.ApprovalCardTold(ctx, c.ID)
}
