package tool

import (
	"context"
	_ "embed" // the description
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

//go:embed create_agent.md
var createAgentText string

// maxAgentName is in characters.
const maxAgentName = 64

type createAgentArgs struct {
	Name         string  `json:"name"`
	Instructions *string `json:"instructions"`
	Template     *string `json:"template"`
}

// createAgentAction is what the host gets; instructions are null when there are none.
type createAgentAction struct {
	Action       string  `json:"action"`
	Name         string  `json:"name"`
	Instructions *string `json:"instructions"`
	Template     *string `json:"template,omitempty"`
}

func createAgent(s Session) Tool {
	schema := object(
		need("name", text("name of the new agent, which becomes your destination for it")),
		may("instructions", text("its standing instructions: who it is and what it does")),
		may("template", text("name of a template to make it from")),
	)
	return define("create_agent", createAgentText, schema, func(ctx context.Context, args createAgentArgs) (string, error) {
		name := strings.TrimSpace(args.Name)
		switch {
		case name == "":
			return "", fmt.Errorf("`name` is required: the name of the new agent")
		case utf8.RuneCountInString(name) > maxAgentName || strings.ContainsFunc(name, unicode.IsControl):
			return "", fmt.Errorf("`name` must be one line of at most %d characters", maxAgentName)
		case !strings.ContainsFunc(name, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }):
			return "", fmt.Errorf("`name` is %q; it needs a letter or a digit", shorten(name))
		}
		if args.Instructions != nil && len(*args.Instructions) > maxText {
			return "", fmt.Errorf("`instructions` has %d bytes, at most %d are allowed", len(*args.Instructions), maxText)
		}
		action := createAgentAction{Action: "create_agent", Name: name, Instructions: args.Instructions, Template: args.Template}
		return request(ctx, s, action, fmt.Sprintf("create the agent %q", name))
	})
}
