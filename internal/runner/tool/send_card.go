package tool

import (
	"bytes"
	"context"
	_ "embed" // the description
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"unicode"

	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/runner/block"
)

//go:embed send_card.md
var sendCardText string

type sendCardArgs struct {
	Card     json.RawMessage `json:"card"`
	Fallback string          `json:"fallbackText"`
	To       string          `json:"to"`
}

func sendCard(s Session) Tool {
	child := shape{any: []shape{text("a paragraph"), object(need("text", text("a paragraph")))}}
	card := object(
		may("title", text("heading")),
		may("description", text("text below the heading")),
		may("children", shape{kind: "array", items: &child, about: "paragraphs"}),
		may("actions", shape{about: "links, an array of {label, url, style?}; one without a label or without an http or https URL is left out"}),
	).saying("the card; at least one field")
	schema := object(
		need("card", card),
		may("fallbackText", text("text for chats that show no cards")),
		may("to", text(aboutTo+"; default: the chat of this session")),
	)
	return define("send_card", sendCardText, schema, func(ctx context.Context, args sendCardArgs) (string, error) {
		if len(args.Card) > maxText {
			return "", fmt.Errorf("`card` has %d bytes, at most %d are allowed; nothing was sent", len(args.Card), maxText)
		}
		fallback, err := outward("fallbackText", args.Fallback)
		if err != nil {
			return "", err
		}
		payload, dropped, err := cleanCard(args.Card)
		if err != nil {
			return "", err
		}
		sent, err := s.Show(ctx, Card{To: args.To, Card: payload, Fallback: fallback})
		if err != nil {
			return "", err
		}
		result := fmt.Sprintf("card sent to %s (id: %d)", sent.To, sent.Seq)
		if dropped > 0 {
			result += fmt.Sprintf("; actions left out: %d (each needs a label and an http or https URL)", dropped)
		}
		return result, nil
	})
}

// cleanCard is the card as it may leave: no internal notes in any text, no action that is no link.
func cleanCard(raw json.RawMessage) (payload json.RawMessage, dropped int, err error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var card map[string]any
	if err := d.Decode(&card); err != nil {
		return nil, 0, fmt.Errorf("`card` cannot be used: %w", err)
	}
	for key, v := range card {
		card[key] = stripAll(v)
	}
	if actions, ok := card["actions"].([]any); ok {
		kept := []any{}
		for _, a := range actions {
			if isLink(a) {
				kept = append(kept, a)
			}
		}
		dropped = len(actions) - len(kept)
		card["actions"] = kept
	}
	if !says(card) {
		if dropped > 0 {
			return nil, 0, errors.New("`card` has nothing to show: none of its actions has a label and an http or https URL; nothing was sent")
		}
		return nil, 0, errors.New("`card` has nothing to show: give a title, a description, children or actions; nothing was sent")
	}
	payload, err = mailbox.EncodeContent(card)
	return payload, dropped, err
}

// stripAll takes internal notes out of every text in v.
func stripAll(v any) any {
	switch v := v.(type) {
	case string:
		return strings.TrimSpace(block.StripInternal(v))
	case []any:
		for i := range v {
			v[i] = stripAll(v[i])
		}
	case map[string]any:
		for key, item := range v {
			v[key] = stripAll(item)
		}
	}
	return v
}

// says reports whether v shows anything.
func says(v any) bool {
	switch v := v.(type) {
	case nil:
		return false
	case string:
		return v != ""
	case []any:
		for _, item := range v {
			if says(item) {
				return true
			}
		}
		return false
	case map[string]any:
		for _, item := range v {
			if says(item) {
				return true
			}
		}
		return false
	}
	return true
}

// isLink reports whether an action has a label and leads to the web.
func isLink(v any) bool {
	action, _ := v.(map[string]any)
	label, _ := action["label"].(string)
	target, _ := action["url"].(string)
	if strings.TrimSpace(label) == "" || strings.ContainsFunc(target, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }) {
		return false
	}
	u, err := url.Parse(target) // the scheme comes back in lower case
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != ""
}
