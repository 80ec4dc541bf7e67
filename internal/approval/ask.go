package approval

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"nanoclaw/internal/channel"
	"nanoclaw/internal/id"
	"nanoclaw/internal/obs"
	"nanoclaw/internal/store"
)

// ask has an approval shown to the first person who may decide and can be reached, and to the next one when that led to nothing
// for too long (APR-11).
func (s *Service) ask(ctx context.Context, a store.Approval) error {
	cards, err := s.opt.Store.ApprovalCards(ctx, a.ID)
	if err != nil {
		return err
	}
	asked := map[id.User]bool{}
	now := s.opt.Now()
	for i, c := range cards {
		asked[c.User] = true
		if c.ClosedAt.IsZero() && c.State == "" { // a host was killed before it could be shown
			if err := s.show(ctx, a, c); err != nil {
				return err
			}
		}
		wait := patience
		switch c.State {
		case store.Refused, store.NoRoute, store.Dead:
			wait = 0
		case store.Sent:
		default:
			wait = undecided
		}
		if i == len(cards)-1 && now.Sub(c.AskedAt) < wait {
			return nil
		}
	}
	chat, err := s.opt.Store.MessagingGroupByID(ctx, a.Chat)
	if err != nil {
		return err
	}
	var group id.AgentGroup
	if len(a.Agents) > 0 {
		group = a.Agents[0]
	}
	all, err := s.opt.Store.Approvers(ctx, group)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(u id.User) bool { return asked[u] })
	user, d, ok := s.reachOne(ctx, all, chat)
	if !ok {
		if len(cards) == 0 {
			s.log.Warn("nobody can be asked for a decision: ncl approvals list shows it", obs.KeyWhat, string(a.ID))
		}
		return nil
	}
	return s.addCard(ctx, a, store.ApprovalCard{Approval: a.ID, N: len(cards) + 1, User: user, Destination: d, AskedAt: now})
}

// addCard keeps a card and then shows it.
func (s *Service) addCard(ctx context.Context, a store.Approval, c store.ApprovalCard) error {
	c.ID = s.opt.Cards.CardID(cardKey(c))
	var err error
	if _, _, c.Options, err = s.card(ctx, a, c.Page); err != nil {
		return err
	}
	added, err := s.opt.Store.AddApprovalCard(ctx, c)
	if err != nil || !added {
		return err
	}
	return s.show(ctx, a, c)
}

func cardKey(c store.ApprovalCard) string { return fmt.Sprintf("card-%s-%d", c.Approval, c.N) }

// show puts a card on its way. It shows the options that are kept with it.
func (s *Service) show(ctx context.Context, a store.Approval, c store.ApprovalCard) error {
	title, text, _, err := s.card(ctx, a, c.Page)
	if err != nil {
		return err
	}
	return s.opt.Cards.ShowCard(ctx, c.Destination, cardKey(c), title, text, c.Options)
}

// reachOne is the first of some people who can be reached: on the channel of the chat rather than on another, where the channel is
// connected rather than where it is not (spec/host.md section 13.2).
func (s *Service) reachOne(ctx context.Context, all []id.User, chat store.MessagingGroup) (id.User, store.Destination, bool) {
	for _, down := range []bool{false, true} {
		for _, elsewhere := range []bool{false, true} {
			for _, u := range all {
				kind, _, err := id.ParseUser(string(u))
				if err != nil || !elsewhere && kind != chat.ChannelType {
					continue
				}
				for _, instance := range s.instances(kind, chat.Instance) {
					if connected := s.opt.Adapters[instance].Status().State == channel.Connected; connected == down {
						continue
					}
					d, err := s.reach(ctx, u, kind, instance)
					if err == nil {
						return u, d, true
					}
					s.log.Debug("somebody cannot be reached", obs.KeyChannel, instance, obs.Error(err))
				}
			}
		}
	}
	return "", store.Destination{}, false
}

// instances of a channel type, the preferred one first.
func (s *Service) instances(kind, preferred string) []string {
	var out []string
	for name, a := range s.opt.Adapters {
		if a.Info().Type == kind {
			out = append(out, name)
		}
	}
	slices.SortFunc(out, func(a, b string) int {
		rank := func(n string) int {
			switch n {
			case preferred:
				return 0
			case kind:
				return 1
			}
			return 2
		}
		if d := rank(a) - rank(b); d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	return out
}

// reach is where a person is reached alone on an adapter instance (spec/host.md section 8.3). What was found is kept.
func (s *Service) reach(ctx context.Context, u id.User, kind, instance string) (store.Destination, error) {
	chat, err := s.opt.Store.DirectChat(ctx, u, instance)
	if errors.Is(err, store.ErrNotFound) {
		chat, err = s.open(ctx, u, kind, instance)
	}
	return store.Destination{Instance: instance, PlatformID: chat.PlatformID}, err
}

func (s *Service) open(ctx context.Context, u id.User, kind, instance string) (store.MessagingGroup, error) {
	user, err := s.opt.Store.User(ctx, u)
	if err != nil {
		return store.MessagingGroup{}, err
	}
	at := channel.Address{PlatformID: string(u)}
	if o, ok := s.opt.Adapters[instance].(channel.DirectOpener); ok {
		opening, cancel := context.WithTimeout(ctx, openTime)
		at, err = o.OpenDirect(opening, string(u))
		cancel()
		if err != nil {
			return store.MessagingGroup{}, err
		}
	}
	chat, err := s.opt.Store.RegisterChat(ctx, store.MessagingGroup{ChannelType: kind, Instance: instance, PlatformID: at.PlatformID, Name: user.DisplayName, UnknownSenderPolicy: store.Strict})
	if err != nil {
		return chat, err
	}
	return chat, s.opt.Store.KeepDirectChat(ctx, u, chat)
}
