package tool

import (
	"context"
	_ "embed" // the description
	"encoding/json"
	"fmt"
)

//go:embed add_reaction.md
var addReactionText string

type addReactionArgs struct {
	Message json.RawMessage `json:"messageId"`
	Emoji   string          `json:"emoji"`
}

func addReaction(s Session) Tool {
	schema := object(need("messageId", messageNumber()), need("emoji", text("one emoji as a character, for example 👍")))
	return define("add_reaction", addReactionText, schema, func(ctx context.Context, args addReactionArgs) (string, error) {
		number, err := parseNumber(args.Message)
		if err != nil {
			return "", err
		}
		emoji, err := parseEmoji(args.Emoji)
		if err != nil {
			return "", err
		}
		sent, err := s.Change(ctx, Change{Message: number, Emoji: emoji})
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("message %d in %s gets %s", number, sent.To, emoji), nil
	})
}
