package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"nanoclaw/internal/control"
	"nanoclaw/internal/testkit/modelserver"
)

func tool(t *testing.T, name, input string) modelserver.Step {
	t.Helper()
	if !json.Valid([]byte(input)) {
		t.Fatalf("%s: %s is no JSON", name, input)
	}
	return modelserver.Step{Tools: []modelserver.Tool{{Name: "mcp__nanoclaw__" + name, Input: json.RawMessage(input)}}}
}

// The real CLI uses every tool once. The question is answered in the terminal, and the file arrives there with the same bytes.
func TestClaudeUsesEveryTool(t *testing.T) {
	t.Parallel()
	m, api := withClaude(t, "bubblewrap")
	// The numbers of messages: 2 is what the person says, 3 the first one of the agent.
	acc := m.say("m1", "please "+modelserver.Script(
		tool(t, "send_message", `{"to":"terminal","text":"working"}`),
		tool(t, "edit_message", `{"messageId":3,"text":"still working"}`),
		tool(t, "add_reaction", `{"messageId":2,"emoji":"👍"}`),
		modelserver.Step{Tools: []modelserver.Tool{call(t, "Bash", map[string]string{"command": "printf 'a\\000b\\377<&>' > 'odd name.bin'", "description": "write"})}},
		tool(t, "send_file", `{"to":"terminal","path":"odd name.bin","text":"the file"}`),
		tool(t, "send_card", `{"card":{"title":"Card","description":"of <b>mine</b>","actions":[{"label":"Open","url":"https://example.org"},{"label":"Bad","url":"mailto:x"}]}}`),
		tool(t, "ask_user_question", `{"title":"Deploy","question":"Now?","options":["Yes",{"label":"No","value":"n"}]}`),
		tool(t, "create_agent", `{"name":"helper"}`),
		tool(t, "install_packages", `{"apt":["jq"]}`),
		tool(t, "add_mcp_server", `{"name":"weather","command":"weather-mcp"}`),
		tool(t, "schedule_task", `{"prompt":"look","processAfter":"2030-01-01T09:00"}`),
		tool(t, "list_tasks", `{}`),
		tool(t, "update_task", `{"taskId":"t1","prompt":"look again"}`),
		tool(t, "pause_task", `{"taskId":"t1"}`),
		tool(t, "resume_task", `{"taskId":"t1"}`),
		tool(t, "cancel_task", `{"taskId":"t1"}`),
		modelserver.Step{Text: `<message to="terminal">Done.</message>`}))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var trail []string
	err := m.client.Follow(ctx, control.DefaultConversation, acc.Seq, func(e control.Event) error {
		switch e.Kind {
		case control.EventMessage:
			switch {
			case e.Question != nil:
				trail = append(trail, "question "+e.Question.Text)
				if _, err := m.client.Answer(ctx, control.DefaultConversation, control.Answer{Question: e.Question.ID, Value: "n"}); err != nil {
					return err
				}
			case e.Card != nil:
				if len(e.Card.Links) != 1 || e.Card.Links[0].URL != "https://example.org" {
					t.Errorf("card %+v", e.Card)
				}
				trail = append(trail, "card "+e.Card.Title)
			case len(e.Files) == 1:
				trail = append(trail, "file "+e.Files[0].Name+" "+e.Text)
				r, size, err := m.client.File(ctx, control.DefaultConversation, e.ID, e.Files[0].Name)
				if err != nil {
					return err
				}
				b, err := io.ReadAll(r)
				if err = errors.Join(err, r.Close()); err != nil {
					return err
				}
				if want := []byte("a\x00b\xff<&>"); !bytes.Equal(b, want) || size != int64(len(want)) {
					t.Errorf("the file has %q (%d)", b, size)
				}
			case e.Author == control.AuthorAgent && !e.Notice:
				trail = append(trail, e.Text)
			}
		case control.EventEdit:
			trail = append(trail, "edit "+e.Text)
		case control.EventReaction:
			trail = append(trail, "reaction "+e.Emoji)
		case control.EventAnswer:
			trail = append(trail, "answer "+e.Text)
		case control.EventSettled:
			if e.Target == "m1" {
				trail = append(trail, e.State)
				return errDone
			}
		}
		return nil
	})
	want := "working|edit still working|reaction 👍|file odd name.bin the file|card Card|question Now?|answer No|Done.|answered"
	if got := strings.Join(trail, "|"); !errors.Is(err, errDone) || got != want {
		t.Fatalf("%v\n got %s\nwant %s\n%s", err, got, want, m.log.tail(2000))
	}
	requests := api.Requests()
	last := requests[len(requests)-1]
	for _, said := range []string{"sent to terminal (id: 3)", "unknown command"} {
		if !last.Contains(said) {
			t.Errorf("the model was not told %q", said)
		}
	}
}
