package tool

import (
	"context"
	_ "embed" // the description
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
)

//go:embed edit_message.md
var editMessageText string

type editMessageArgs struct {
	Message json.RawMessage `json:"messageId"`
	Text    string          `json:"text"`
}

func editMessage(s Session) Tool {
	schema := object(need("messageId", messageNumber()), need("text", text("the whole new text")))
	return define("edit_message", editMessageText, schema, func(ctx context.Context, args editMessageArgs) (string, error) {
		number, err := parseNumber(args.Message)
		if err != nil {
			return "", err
		}
		text, err := spoken("text", args.Text)
		if err != nil {
			return "", err
		}
		sent, err := s.Change(ctx, Change{Message: number, Text: text})
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("message %d in %s gets the new text", number, sent.To), nil
	})
}

func messageNumber() shape {
	return shape{
		about: "number of the message: its id in the prompt, or from the result of a tool",
		any:   []shape{{kind: "integer"}, {kind: "string", pattern: `^[0-9]{1,15}$`}},
	}
}

// parseNumber reads a message number, which models write as a number or as a string.
func parseNumber(raw json.RawMessage) (int64, error) {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		if n, err := strconv.ParseInt(s, 10, 64); err == nil && n > 0 {
			return n, nil
		}
	}
	var f float64
	if json.Unmarshal(raw, &f) == nil && f >= 1 && f <= 1<<53 && f == math.Trunc(f) {
		return int64(f), nil
	}
	return 0, errors.New("`messageId` must be the number of a message, 1 or more")
}
