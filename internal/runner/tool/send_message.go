package tool

import (
	"context"
	_ "embed" // the description
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"nanoclaw/internal/runner/block"
)

//go:embed send_message.md
var sendMessageText string

// maxText is the longest text of one message, in bytes.
const maxText = 256 << 10

const sendMessageSchema = `{"type":"object","properties":{` +
	`"to":{"type":"string","description":"Exact name of the destination"},` +
	`"text":{"type":"string","description":"Text of the message"}},` +
	`"required":["to","text"],"additionalProperties":false}`

type sendMessageArgs struct {
	To   string `json:"to"`
	Text string `json:"text"`
}

func sendMessage(s Session) Tool {
	return Tool{
		Name: "send_message", Description: strings.TrimSpace(sendMessageText), Schema: json.RawMessage(sendMessageSchema),
		Call: func(ctx context.Context, raw json.RawMessage) (string, error) {
			var args sendMessageArgs
			if err := decode(raw, &args); err != nil {
				return "", err
			}
			if args.To == "" {
				return "", errors.New("`to` is required: the exact name of a destination")
			}
			if len(args.Text) > maxText {
				return "", fmt.Errorf("the text has %d bytes, at most %d are allowed; nothing was sent", len(args.Text), maxText)
			}
			text := strings.TrimSpace(block.StripInternal(args.Text))
			if text == "" {
				return "", errors.New("`text` is required, and must hold more than internal notes; nothing was sent")
			}
			sent, err := s.Send(ctx, Message{To: args.To, Text: text})
			if err != nil {
				return "", err
			}
			return fmt.Sprintf("sent to %s (id: %d)", sent.To, sent.Seq), nil
		},
	}
}
