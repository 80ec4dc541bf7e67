package tool

import (
	"cmp"
	"context"
	_ "embed" // the description
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

//go:embed ask_user_question.md
var askUserQuestionText string

// Limits of a question. A wait beyond half an hour would make the host take the agent for stuck.
const (
	maxOptions     = 10
	maxLabel       = 80  // runes of a label or a title
	maxValue       = 256 // bytes
	defaultTimeout = 300 * time.Second
	minTimeout     = time.Second
	maxTimeout     = 1500 * time.Second
)

type askArgs struct {
	Title    string            `json:"title"`
	Question string            `json:"question"`
	Options  []json.RawMessage `json:"options"`
	Timeout  *float64          `json:"timeout"`
}

func askUserQuestion(s Session) Tool {
	option := shape{any: []shape{
		text("label of the option"),
		object(
			need("label", text("what the person reads, at most 80 characters")),
			may("selectedLabel", text("shown in its place once it was chosen")),
			may("value", text("what this tool returns if it was chosen; default: the label")),
		),
	}}
	schema := object(
		need("title", text("a few words above the question")),
		need("question", text("the question")),
		need("options", list("what the person may choose, 1 to 10; their values differ", option, 1, maxOptions)),
		may("timeout", shape{kind: "integer", about: "seconds to wait for the answer: 1 to 1500, default 300; a number outside of that becomes the nearest one inside"}),
	)
	return define("ask_user_question", askUserQuestionText, schema, func(ctx context.Context, args askArgs) (string, error) {
		q, err := parseQuestion(args)
		if err != nil {
			return "", err
		}
		answer, err := s.Ask(ctx, q)
		if err != nil {
			return "", err
		}
		// The host checks answers as well; a value that was never offered means nothing to the model.
		if !slices.ContainsFunc(q.Options, func(o Option) bool { return o.Value == answer }) {
			return "", fmt.Errorf("the answer %q is none of the options; take it for no answer", shorten(answer))
		}
		return answer, nil
	})
}

func parseQuestion(args askArgs) (Question, error) {
	q := Question{Timeout: timeout(args.Timeout)}
	var err error
	if q.Title, err = spoken("title", args.Title); err != nil {
		return Question{}, err
	}
	if err := oneLine("title", q.Title); err != nil {
		return Question{}, err
	}
	if q.Text, err = spoken("question", args.Question); err != nil {
		return Question{}, err
	}
	if n := len(args.Options); n < 1 || n > maxOptions {
		return Question{}, fmt.Errorf("`options` has %d items; 1 to %d are allowed", n, maxOptions)
	}
	for i, raw := range args.Options {
		o, err := parseOption(raw, fmt.Sprintf("options[%d]", i))
		if err != nil {
			return Question{}, err
		}
		if slices.ContainsFunc(q.Options, func(other Option) bool { return other.Value == o.Value }) {
			return Question{}, fmt.Errorf("two options have the value %q: give each its own `value`", shorten(o.Value))
		}
		q.Options = append(q.Options, o)
	}
	return q, nil
}

// parseOption reads a string or an object; path names it in errors.
func parseOption(raw json.RawMessage, path string) (Option, error) {
	var o Option
	if json.Unmarshal(raw, &o.Label) != nil {
		if err := json.Unmarshal(raw, &o); err != nil {
			return Option{}, fmt.Errorf("`%s` must be a string or an object with `label`", path)
		}
	}
	var err error
	if o.Label, err = outward(path, o.Label); err != nil {
		return Option{}, err
	}
	if o.Label == "" {
		return Option{}, fmt.Errorf("`%s` has no label", path)
	}
	if o.SelectedLabel, err = outward(path, o.SelectedLabel); err != nil {
		return Option{}, err
	}
	o.SelectedLabel = cmp.Or(o.SelectedLabel, o.Label)
	o.Value = cmp.Or(o.Value, o.Label)
	if err := cmp.Or(oneLine(path, o.Label), oneLine(path+".selectedLabel", o.SelectedLabel)); err != nil {
		return Option{}, err
	}
	if len(o.Value) > max(maxValue, len(o.Label)) {
		return Option{}, fmt.Errorf("the value of `%s` has %d bytes, at most %d are allowed", path, len(o.Value), maxValue)
	}
	if strings.ContainsFunc(o.Value, unicode.IsControl) {
		return Option{}, fmt.Errorf("the value of `%s` has a control character", path)
	}
	return o, nil
}

func oneLine(what, s string) error {
	if n := utf8.RuneCountInString(s); n > maxLabel {
		return fmt.Errorf("`%s` has %d characters, at most %d are allowed", what, n, maxLabel)
	}
	if strings.ContainsFunc(s, unicode.IsControl) {
		return fmt.Errorf("`%s` must be one line", what)
	}
	return nil
}

func timeout(seconds *float64) time.Duration {
	if seconds == nil {
		return defaultTimeout
	}
	return time.Duration(min(max(*seconds, minTimeout.Seconds()), maxTimeout.Seconds()) * float64(time.Second))
}
