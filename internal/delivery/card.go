package delivery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"nanoclaw/internal/channel"
	"nanoclaw/internal/id"
	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/store"
)

// CardID is the id of a card that ShowCard shows under a key: what adapters call its question.
func (s *Service) CardID(key string) id.Ledger { return noticeID(key) }

// ShowCard asks something in the host's own name: durable on return, once per key, which must be safe as a file name. Whoever calls it
// takes the answers.
func (s *Service) ShowCard(ctx context.Context, d store.Destination, key, title, text string, options []mailbox.Option) error {
	content, err := mailbox.EncodeContent(mailbox.QuestionOut{Type: mailbox.TypeQuestion, QuestionID: key, Title: title, Question: text, Options: options})
	if err != nil {
		return err
	}
	if _, err := parseQuestion(content, key); err != nil {
		return fmt.Errorf("show card %s: %w", key, err)
	}
	return s.sayRow(ctx, d, key, content)
}

// closedCard is the content of a row that closes a card.
type closedCard struct {
	Type    string    `json:"type"` // mailbox.TypeCardClosed
	Card    id.Ledger `json:"card"`
	Outcome string    `json:"outcome"`
	Value   string    `json:"value,omitempty"`
}

// CloseCard shows what became of a card in place of its options: durable on return, once per card. value is that of the option that
// was taken; empty: none. Where a card cannot be changed, the outcome is said.
func (s *Service) CloseCard(ctx context.Context, d store.Destination, card id.Ledger, outcome, value string) error {
	content, err := mailbox.EncodeContent(closedCard{mailbox.TypeCardClosed, card, outcome, value})
	if err != nil {
		return err
	}
	return s.sayRow(ctx, d, "closed:"+string(card), content)
}

func (s *Service) cardClosed(ctx context.Context, op *channel.Op, content json.RawMessage, caps channel.Caps) error {
	var c closedCard
	if err := json.Unmarshal(content, &c); err != nil {
		return err
	}
	row, err := s.opt.Store.Delivery(ctx, c.Card)
	if errors.Is(err, store.ErrNotFound) || err == nil && row.State != store.Sent {
		return errNothing // nobody saw it
	}
	if err != nil {
		return err
	}
	q, err := parseQuestion(row.Content, row.OutboundID)
	if err != nil {
		return err
	}
	question := asked(row.ID, q.Title, q.Question, q.Options)
	switch {
	case row.PlatformMessageID != "" && caps.Buttons:
		op.Kind, op.Target, op.Question = channel.OpAnswered, row.PlatformMessageID, &question
		op.Chosen = &channel.Option{Label: c.Outcome, Selected: c.Outcome, Value: c.Value}
	case row.PlatformMessageID != "" && caps.Edit:
		op.Kind, op.Target, op.Text = channel.OpEdit, row.PlatformMessageID, q.Title+"\n\n"+q.Question+"\n\n"+c.Outcome
	default:
		about, _, _ := strings.Cut(q.Question, "\n")
		op.Kind, op.Text, op.ReplyTo = channel.OpText, q.Title+"\n\n"+about+"\n\n"+c.Outcome, row.PlatformMessageID
	}
	return nil
}
