package tool

import (
	"context"
	_ "embed" // the description
	"errors"
	"fmt"
)

//go:embed send_message.md
var sendMessageText string

type sendMessageArgs struct {
	To   string `json:"to"`
	Text string `json:"text"`
}

const aboutTo = "exact name of the destination"

var errNoDestination = errors.New("`to` is required: the " + aboutTo)

func sendMessage(s Session) Tool {
	schema := object(need("to", text(aboutTo)), need("text", text("text of the message")))
	return define("send_message", sendMessageText, schema, func(ctx context.Context, args sendMessageArgs) (string, error) {
		if args.To == "" {
			return "", errNoDestination
		}
		text, err := spoken("text", args.Text)
		if err != nil {
			return "", err
		}
		sent, err := s.Send(ctx, Message{To: args.To, Text: text})
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("sent to %s (id: %d)", sent.To, sent.Seq), nil
	})
}
