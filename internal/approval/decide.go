package approval

import (
	"context"
	"errors"
	"slices"
	"strings"

	"nanoclaw/internal/channel"
	"nanoclaw/internal/control"
	"nanoclaw/internal/id"
	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/obs"
	"nanoclaw/internal/store"
)

// Why an answer is not taken, in words for whoever gave it.
const (
	notKnown     = "this card is not known here"
	notYours     = "this is for an owner or admin to decide"
	noSuchOption = "that is none of the options"
	notOpen      = "this card is no longer open: nobody decided in time"
	replaced     = "this card is no longer valid; there is a newer one"
	agentGone    = "that agent is gone"
)

// Answer takes a pressed option of a card. The first answer of a person who may decide counts; it is durable before the verdict. The
// same answer again is a duplicate; every other one is dropped with a reason and changes nothing. mine: the question is a card of
// the Service. An error means that it must be tried again.
func (s *Service) Answer(ctx context.Context, info channel.Info, in channel.Answer) (v channel.Verdict, mine bool, err error) {
	c, err := s.opt.Store.ApprovalCard(ctx, id.Ledger(in.QuestionID))
	if errors.Is(err, store.ErrNotFound) {
		return channel.Verdict{}, false, nil
	}
	if err != nil {
		return channel.Verdict{}, true, err
	}
	if c.Instance != info.Instance || c.PlatformID != in.Address.PlatformID || in.Address.ThreadID != "" {
		return dropped(notKnown), true, nil
	}
	if in.Number > 0 && in.Number <= len(c.Options) {
		in.Value = c.Options[in.Number-1].Value
	} else if in.Number != 0 {
		in.Value = ""
	}
	v, err = s.press(ctx, c, in.Sender, in.Value, "")
	return v, true, err
}

func dropped(reason string) channel.Verdict {
	return channel.Verdict{Kind: channel.Dropped, Reason: reason}
}

// press decides with an option of a card.
func (s *Service) press(ctx context.Context, c store.ApprovalCard, sender channel.Sender, value, message string) (channel.Verdict, error) {
	if !slices.ContainsFunc(c.Options, func(o mailbox.Option) bool { return o.Value == value }) {
		return dropped(noSuchOption), nil
	}
	a, err := s.opt.Store.Approval(ctx, c.Approval)
	if err != nil {
		return channel.Verdict{}, err
	}
	may, err := s.may(ctx, a, sender, value)
	if err != nil {
		return channel.Verdict{}, err
	}
	if !may {
		detail, err := mailbox.EncodeContent(map[string]string{"choice": value})
		if err != nil {
			return channel.Verdict{}, err
		}
		s.log.Warn("somebody who may not decide tried to", obs.KeyWhat, string(a.ID))
		return dropped(notYours), s.opt.Store.Audit(ctx, store.AuditEntry{Actor: sender.ID, Action: "approval.refused", Subject: string(a.ID), Detail: detail})
	}
	if !c.ClosedAt.IsZero() || !a.Open(s.opt.Now()) {
		return late(a, c, sender.ID, value), nil
	}
	if value == more {
		return s.turn(ctx, a, c, message)
	}
	first, err := s.decide(ctx, a, value, sender.ID, c.ID, message)
	var conflict *store.ConflictError
	switch {
	case errors.As(err, &conflict):
		return dropped(conflict.Reason), nil
	case err != nil:
		return channel.Verdict{}, err
	case first:
		return channel.Verdict{Kind: channel.Stored}, nil
	}
	if a, err = s.opt.Store.Approval(ctx, a.ID); err != nil {
		return channel.Verdict{}, err
	}
	if c, err = s.opt.Store.ApprovalCard(ctx, c.ID); err != nil {
		return channel.Verdict{}, err
	}
	return late(a, c, sender.ID, value), nil
}

// late is the verdict on an answer to a card that counts no more.
func late(a store.Approval, c store.ApprovalCard, by, value string) channel.Verdict {
	switch {
	case a.Status == store.ApprovalPending && c.Outcome == turned:
		return dropped(replaced)
	case a.Status == store.ApprovalPending, a.Status == store.ApprovalExpired:
		return dropped(notOpen)
	case a.DecidedBy == by && a.Choice == value:
		return channel.Verdict{Kind: channel.Duplicate}
	}
	return dropped("it is decided already: " + c.Outcome)
}

// may reports whether somebody may decide so: an owner or admin of all that the decision gives access to (APR-1, W40, W48). It is
// looked at when the answer comes, whoever was asked.
func (s *Service) may(ctx context.Context, a store.Approval, who channel.Sender, value string) (bool, error) {
	if who.ID == "" || who.IsBot {
		return false, nil
	}
	groups := a.Agents
	if a.Action == store.ChannelsRegister {
		agent, _ := strings.CutPrefix(value, store.ChoiceConnect)
		if agent == value {
			agent = "" // whatever is not about one agent is for those who are admins of all
		}
		groups = []id.AgentGroup{id.AgentGroup(agent)}
	}
	for _, g := range groups {
		v, err := s.opt.Store.Standing(ctx, id.User(who.ID), g)
		if err != nil || !v.Admin() {
			return false, err
		}
	}
	return len(groups) > 0, nil
}

// turn shows the next agents.
func (s *Service) turn(ctx context.Context, a store.Approval, c store.ApprovalCard, message string) (channel.Verdict, error) {
	cards, err := s.opt.Store.ApprovalCards(ctx, a.ID)
	if err != nil {
		return channel.Verdict{}, err
	}
	next := store.ApprovalCard{Approval: a.ID, N: len(cards) + 1, User: c.User, Destination: c.Destination, Page: c.Page + 1, AskedAt: s.opt.Now()}
	next.ID = s.opt.Cards.CardID(cardKey(next))
	if _, _, next.Options, err = s.card(ctx, a, next.Page); err != nil {
		return channel.Verdict{}, err
	}
	done, err := s.opt.Store.TurnApprovalCard(ctx, c.ID, message, turned, next)
	if err != nil {
		return channel.Verdict{}, err
	}
	if !done {
		return dropped(replaced), nil
	}
	s.wake()
	return channel.Verdict{Kind: channel.Stored}, nil
}

// Decide takes a decision that comes by no card. by is host:<name> of the operator. changed is false if it was decided so before; the
// error is store.ErrNotFound, a *store.FieldError for a value that it does not take, or a *store.ConflictError if it was decided
// otherwise.
func (s *Service) Decide(ctx context.Context, approval id.Approval, value, by string) (changed bool, err error) {
	a, err := s.opt.Store.Approval(ctx, approval)
	if err != nil {
		return false, err
	}
	fits := value == store.ChoiceReject || a.Action == store.SendersAdmit && (value == store.ChoiceApprove || value == store.ChoiceBlock) ||
		a.Action == store.ChannelsRegister && strings.HasPrefix(value, store.ChoiceConnect)
	if !fits {
		return false, &store.FieldError{Field: "choice", Reason: "is none that this approval takes"}
	}
	if a.Open(s.opt.Now()) {
		first, err := s.decide(ctx, a, value, by, "", "")
		if err != nil || first {
			return first, err
		}
		if a, err = s.opt.Store.Approval(ctx, approval); err != nil {
			return false, err
		}
	}
	switch {
	case a.Status == store.ApprovalPending, a.Status == store.ApprovalExpired:
		return false, &store.ConflictError{Reason: "it has expired; the next message asks again"}
	case a.Choice != value:
		return false, &store.ConflictError{Reason: "it is decided already: " + a.Choice + " by " + a.DecidedBy}
	}
	return false, nil
}

// decide writes a decision down and has it carried out. The error is a *store.ConflictError if that is not possible any more.
func (s *Service) decide(ctx context.Context, a store.Approval, value, by string, card id.Ledger, message string) (first bool, err error) {
	v := store.Verdict{Approval: a.ID, At: s.opt.Now(), Status: store.ApprovalApproved, Choice: value, By: by, Card: card, Message: message}
	agents := a.Agents
	if agent, ok := strings.CutPrefix(value, store.ChoiceConnect); ok {
		v.Agents = []id.AgentGroup{id.AgentGroup(agent)}
		agents = v.Agents
	} else if value != store.ChoiceApprove {
		v.Status = store.ApprovalRejected
	}
	v.Outcome, err = s.outcome(ctx, value, agents, by)
	if errors.Is(err, store.ErrNotFound) {
		return false, &store.ConflictError{Reason: agentGone}
	}
	if err != nil {
		return false, err
	}
	if first, err = s.opt.Store.Decide(ctx, v); err != nil || !first {
		return first, err
	}
	s.log.Info("an approval is decided", obs.KeyWhat, string(a.ID), obs.KeyAction, string(a.Action), obs.KeyReason, value)
	s.wake()
	return true, nil
}

// waiting lists the cards that a message's sender could answer by writing. answered: the message has answered one already.
func (s *Service) waiting(ctx context.Context, info channel.Info, m channel.Inbound) (cards []store.ApprovalCard, answered bool, err error) {
	all, err := s.opt.Store.ApprovalCardsAt(ctx, info.Instance, m.Address.PlatformID, m.ID)
	if err != nil || len(all) == 0 {
		return nil, false, err
	}
	for _, c := range all {
		if c.Message != "" {
			return nil, true, nil
		}
		a, err := s.opt.Store.Approval(ctx, c.Approval)
		if err != nil {
			return nil, false, err
		}
		may, err := s.may(ctx, a, m.Sender, store.ChoiceReject)
		if err != nil {
			return nil, false, err
		}
		if may && a.Open(s.opt.Now()) && m.Address.ThreadID == "" {
			cards = append(cards, c)
		}
	}
	return cards, false, nil
}

// Waiting is how many cards are open for a message's sender in its chat. answered: the message has answered one already.
func (s *Service) Waiting(ctx context.Context, info channel.Info, m channel.Inbound) (open int, answered bool, err error) {
	cards, answered, err := s.waiting(ctx, info, m)
	return len(cards), answered, err
}

// AnswerText takes a message as a decision if it is one: the number, the label or the value of an option, from a person who may
// decide, while exactly one card is open for that person in that chat; others is how many questions there are that are not the
// Service's. It reports whether it was; every other message is left alone. The same message again is the same answer.
func (s *Service) AnswerText(ctx context.Context, info channel.Info, m channel.Inbound, others int) (taken bool, err error) {
	cards, answered, err := s.waiting(ctx, info, m)
	if err != nil || answered {
		return answered, err
	}
	if len(cards) != 1 || others > 0 || len(m.Attachments) > 0 {
		return false, nil
	}
	shown := make([]control.Option, 0, len(cards[0].Options))
	for _, o := range cards[0].Options {
		shown = append(shown, control.Option{Label: o.Label, Value: o.Value})
	}
	at := control.Choice(shown, m.Text)
	if at < 0 {
		return false, nil
	}
	if seen, err := s.opt.Store.SeenByAny(ctx, info.Instance, m.Address.PlatformID, m.ID); err != nil || seen {
		return false, err // it came before the card did
	}
	v, err := s.press(ctx, cards[0], m.Sender, shown[at].Value, m.ID)
	return err == nil && v.Kind != channel.Dropped, err
}
