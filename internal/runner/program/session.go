package program

import (
	"context"
	"encoding/json"
	"errors"

	"nanoclaw/internal/control"
	"nanoclaw/internal/runner/tool"
)

// toolSession is the loop as the tools see it; the loop is made after the tools.
type toolSession struct{ s *session }

// errNotYet says that the loop cannot do what a tool asked for.
var errNotYet = errors.New("this is not available yet in this version; nothing was sent")

func (t toolSession) Send(ctx context.Context, m tool.Message) (tool.Sent, error) {
	if len(m.Files) > 0 {
		return tool.Sent{}, errNotYet
	}
	return t.s.loop.Send(ctx, m.To, m.Text)
}

func (toolSession) Change(context.Context, tool.Change) (tool.Sent, error) {
	return tool.Sent{}, errNotYet
}

func (toolSession) Ask(context.Context, tool.Question) (string, error) { return "", errNotYet }

func (toolSession) Show(context.Context, tool.Card) (tool.Sent, error) {
	return tool.Sent{}, errNotYet
}

func (toolSession) Request(context.Context, json.RawMessage) (string, error) { return "", errNotYet }

func (toolSession) Admin(context.Context, string, map[string]json.RawMessage) (control.Frame, error) {
	return control.Frame{}, errNotYet
}
