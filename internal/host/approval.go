package host

import (
	"context"
	"fmt"

	"nanoclaw/internal/approval"
	"nanoclaw/internal/channel"
	"nanoclaw/internal/delivery"
	"nanoclaw/internal/id"
	"nanoclaw/internal/operate"
	"nanoclaw/internal/route"
	"nanoclaw/internal/store"
)

// keeper holds what the router cannot decide.
type keeper struct{ approvals *approval.Service }

var _ route.Keeper = keeper{}

func (k keeper) Hold(ctx context.Context, h route.Held) (bool, error) {
	r := approval.Request{Action: store.SendersAdmit, Chat: h.Chat, Agents: h.Agents, Event: h.Event}
	switch h.Kind {
	case route.HeldDeclined:
		return false, k.approvals.Declined(ctx, h.Key, h.Chat, h.Sender)
	case route.HeldChat:
		r.Action = store.ChannelsRegister
	}
	return k.approvals.Hold(ctx, r)
}

// replay routes a held message.
func (h *Host) replay(ctx context.Context, instance string, m channel.Inbound, g approval.Grant) error {
	info, ok := h.info(instance)
	if !ok {
		return fmt.Errorf("no channel %s runs here", instance)
	}
	_, err := h.router.Replay(ctx, info, m, route.Grant{Members: g.Members, Wiring: g.Wiring})
	return err
}

// asked takes what people choose: of the host's own cards, and of agents' questions.
type asked struct {
	approvals *approval.Service
	questions *delivery.Service
}

var _ answers = asked{}

func (a asked) Answer(ctx context.Context, info channel.Info, in channel.Answer) (channel.Verdict, error) {
	v, mine, err := a.approvals.Answer(ctx, info, in)
	if mine || err != nil {
		return v, err
	}
	return a.questions.Answer(ctx, info, in)
}

// AnswerText takes an answer only if it can be that of one card or question alone.
func (a asked) AnswerText(ctx context.Context, info channel.Info, m channel.Inbound) (bool, error) {
	cards, answered, err := a.approvals.Waiting(ctx, info, m)
	if err != nil || answered {
		return answered, err
	}
	if taken, err := a.questions.AnswerText(ctx, info, m, cards); taken || err != nil || cards == 0 {
		return taken, err
	}
	questions, _, err := a.questions.Waiting(ctx, info, m)
	if err != nil {
		return false, err
	}
	return a.approvals.AnswerText(ctx, info, m, questions)
}

var _ operate.Decider = (*Host)(nil)

// Decide implements operate.Decider.
func (h *Host) Decide(ctx context.Context, a id.Approval, choice, by string) (bool, error) {
	return h.approvals.Decide(ctx, a, choice, by)
}
