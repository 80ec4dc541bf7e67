package delivery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"nanoclaw/internal/channel"
	"nanoclaw/internal/id"
	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/store"
)

// outgoing is what a row asks of an adapter.
type outgoing struct {
	op     channel.Op
	files  []string // names in the outbox of the row
	unsent []string // files that the chat cannot take; the text names them
}

// errNothing: there is nothing to send, and that is fine.
var errNothing = errors.New("nothing to send")

// outgoing makes the operation of a row for a chat with the given abilities. What the chat cannot show is written as text. An
// error refuses the row, unless ctx has ended.
func (s *Service) outgoing(ctx context.Context, row *store.Ledger, caps channel.Caps) (outgoing, error) {
	var c mailbox.ChatOut
	if err := json.Unmarshal(row.Content, &c); err != nil {
		return outgoing{}, fmt.Errorf("content is not a chat message: %w", err)
	}
	out := outgoing{op: channel.Op{Kind: channel.OpText, Text: c.Text, ReplyTo: row.ReplyTo, Notice: c.Notice || row.Kind == kindNotice}}
	op := &out.op
	if c.Operation != "" {
		return out, change(op, c, caps, row.Kind == kindNotice)
	}
	switch c.Type {
	case "":
		return out, out.text(c, caps)
	case mailbox.TypeQuestion:
		q, err := parseQuestion(row.Content, row.OutboundID)
		if err != nil {
			return outgoing{}, err
		}
		question := asked(row.ID, q.Title, q.Question, q.Options)
		if !caps.Buttons {
			op.Text = question.Plain()
			return out, nil
		}
		op.Kind, op.Text, op.Question = channel.OpQuestion, "", &question
		return out, nil
	case mailbox.TypeCard:
		card, err := parseCard(row.Content)
		if err != nil {
			return outgoing{}, err
		}
		if !caps.Cards {
			op.Text = card.Plain()
			return out, nil
		}
		op.Kind, op.Text, op.Card = channel.OpCard, "", &card
		return out, nil
	case mailbox.TypeClosed:
		if row.Kind == kindNotice { // an agent has no say in what became of a question
			return out, s.closed(ctx, op, row.Content, caps)
		}
	case mailbox.TypeCardClosed:
		if row.Kind == kindNotice {
			return out, s.cardClosed(ctx, op, row.Content, caps)
		}
	}
	return outgoing{}, fmt.Errorf("a message of the type %q is not known", short(c.Type))
}

// maxFiles of one message (spec/host.md section 28.2).
const maxFiles = 20

func (out *outgoing) text(c mailbox.ChatOut, caps channel.Caps) error {
	seen := map[string]bool{}
	for _, name := range c.Files {
		if seen[name] {
			return fmt.Errorf("it names the file %q twice", short(name))
		}
		seen[name] = true
	}
	switch {
	case strings.TrimSpace(c.Text) == "" && len(c.Files) == 0:
		return errors.New("there is no text in it")
	case len(c.Files) > maxFiles:
		return fmt.Errorf("it has %d files, at most %d are sent with one message", len(c.Files), maxFiles)
	case caps.Files:
		out.files = c.Files
	case len(c.Files) > 0:
		out.unsent = c.Files
		out.op.Text = strings.TrimSpace(c.Text + "\n\n[This chat takes no files. Not sent: " + strings.Join(c.Files, ", ") + "]")
	}
	return nil
}

// change is an edit, a reaction or, of the host itself, the removal of a part.
func change(op *channel.Op, c mailbox.ChatOut, caps channel.Caps, own bool) error {
	able := false
	switch c.Operation {
	case mailbox.OperationEdit:
		op.Kind, able = channel.OpEdit, caps.Edit
	case mailbox.OperationReaction:
		op.Kind, op.Text, op.Emoji, able = channel.OpReact, "", c.Emoji, caps.React
	case mailbox.OperationDelete:
		op.Kind, op.Text, able = channel.OpDelete, "", caps.Delete
		if own {
			break
		}
		fallthrough
	default:
		return fmt.Errorf("the operation %q is not known", short(c.Operation))
	}
	if op.Target = c.MessageID; op.Target == "" {
		return errors.New("it names no message to change")
	}
	if !able {
		return fmt.Errorf("this chat cannot do that (%s)", c.Operation)
	}
	return nil
}

// closed is the word that a question is not to be answered any more.
func (s *Service) closed(ctx context.Context, op *channel.Op, content json.RawMessage, caps channel.Caps) error {
	var c mailbox.AnswerIn
	if err := json.Unmarshal(content, &c); err != nil {
		return err
	}
	q, err := s.opt.Store.Question(ctx, id.Ledger(c.QuestionID))
	if errors.Is(err, store.ErrNotFound) {
		return errNothing
	}
	if err != nil {
		return err
	}
	if q.PlatformMessageID == "" || !caps.Buttons {
		return errNothing // it was never shown, or as a text
	}
	question := asked(q.ID, q.Title, q.Text, q.Options)
	op.Kind, op.Target, op.Question = channel.OpAnswered, q.PlatformMessageID, &question
	if o := q.Option(q.Value); o != nil && !q.Answered.IsZero() {
		op.Chosen = &channel.Option{Label: o.Label, Selected: o.SelectedLabel, Value: o.Value}
	}
	return nil
}

// parseCard reads a card as an agent may have written it. Only links to http and https stay.
func parseCard(content json.RawMessage) (channel.Card, error) {
	var out mailbox.CardOut
	var in struct {
		Title       json.RawMessage   `json:"title"`
		Description json.RawMessage   `json:"description"`
		Children    []json.RawMessage `json:"children"`
		Actions     []json.RawMessage `json:"actions"`
	}
	if err := json.Unmarshal(content, &out); err != nil {
		return channel.Card{}, fmt.Errorf("the card cannot be read: %w", err)
	}
	if err := json.Unmarshal(out.Card, &in); err != nil {
		return channel.Card{}, fmt.Errorf("the card cannot be read: %w", err)
	}
	card := channel.Card{Title: words(in.Title), Body: words(in.Description), Fallback: out.Fallback}
	for _, c := range in.Children {
		if text := words(c); text != "" {
			card.Paragraphs = append(card.Paragraphs, text)
			continue
		}
		var p struct {
			Text json.RawMessage `json:"text"`
		}
		if json.Unmarshal(c, &p) == nil && words(p.Text) != "" {
			card.Paragraphs = append(card.Paragraphs, words(p.Text))
		}
	}
	for _, a := range in.Actions {
		var l struct {
			Label json.RawMessage `json:"label"`
			URL   json.RawMessage `json:"url"`
			Style json.RawMessage `json:"style"`
		}
		if json.Unmarshal(a, &l) != nil {
			continue
		}
		link := channel.Link{Label: words(l.Label), URL: words(l.URL), Style: words(l.Style)}
		u, err := url.Parse(link.URL)
		if err == nil && link.Label != "" && (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != "" {
			card.Links = append(card.Links, link)
		}
	}
	if strings.TrimSpace(card.Plain()) == "" {
		return channel.Card{}, errors.New("the card has nothing to show")
	}
	return card, nil
}

// words is a JSON text, or nothing if it is something else.
func words(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return strings.TrimSpace(s)
}

// short is the beginning of what an agent wrote, for an error.
func short(s string) string {
	const most = 60
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}
