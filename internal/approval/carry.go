package approval

import (
	"context"
	"errors"
	"fmt"

	"nanoclaw/internal/id"
	"nanoclaw/internal/obs"
	"nanoclaw/internal/store"
)

// carryOut routes what an approved act holds, in order, each message once. Only then the effects of the decision are written
// down: until then new messages of the same kind are held behind the others, so that none overtakes them.
func (s *Service) carryOut(ctx context.Context, a store.Approval) error {
	chat, err := s.opt.Store.MessagingGroupByID(ctx, a.Chat)
	if err != nil {
		return err
	}
	var wiring *store.Wiring
	if a.Action == store.ChannelsRegister && len(a.Agents) == 1 {
		wiring = s.wiring(a, chat)
	}
	for {
		held, err := s.opt.Store.Held(ctx, a.ID)
		if errors.Is(err, store.ErrNotFound) {
			finished, err := s.opt.Store.FinishApproval(ctx, a, wiring)
			if err != nil || finished {
				return err
			}
			if a, err = s.opt.Store.Approval(ctx, a.ID); err != nil || a.Done {
				return err
			}
			continue // another message came
		}
		if err != nil {
			return err
		}
		m, err := decode(held.Event)
		if err != nil {
			s.log.Error("a held message is given up", obs.KeyWhat, string(a.ID), obs.Error(err))
		} else {
			g := Grant{Wiring: wiring}
			if m.Sender.ID == string(a.Sender) {
				g.Members = a.Agents
			}
			if err := s.opt.Replay(ctx, chat.Instance, m, g); err != nil {
				return fmt.Errorf("route a held message of %s: %w", a.ID, err)
			}
		}
		if err := s.opt.Store.DropHeld(ctx, a.ID, held.Ord); err != nil {
			return err
		}
	}
}

// wiring of a chat that was connected with a card (spec/host.md section 2.5). Without threads mention-sticky would never end.
func (s *Service) wiring(a store.Approval, chat store.MessagingGroup) *store.Wiring {
	w := store.Wiring{ID: id.Wiring(id.Derived(id.PrefixWiring, "approval", string(a.ID))), MessagingGroupID: chat.ID, AgentGroupID: a.Agents[0],
		EngageMode: store.EngagePattern, EngagePattern: ".", SenderScope: store.ScopeKnown, IgnoredMessagePolicy: store.IgnoredAccumulate, SessionMode: store.ModeShared}
	if chat.IsGroup {
		w.EngageMode, w.EngagePattern = store.EngageMention, ""
		if adapter, ok := s.opt.Adapters[chat.Instance]; ok && adapter.Info().Caps.Threads {
			w.EngageMode = store.EngageSticky
		}
	}
	return &w
}
