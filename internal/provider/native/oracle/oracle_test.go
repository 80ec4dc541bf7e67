// Package oracle lets the vendors' official Go clients talk to our scripted server: what they understand of it is what our own
// clients are tested with. It is a module of its own, so that the product carries none of them:
//
//	cd internal/provider/native/oracle && go test .
package oracle

import (
	"encoding/json"
	"testing"

	"github.com/anthropics/anthropic-sdk-go"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/option"
	"github.com/openai/openai-go/v3"
	openaioption "github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"

	"nanoclaw/internal/testkit/modelserver"
)

func start(t *testing.T) *modelserver.Server {
	t.Helper()
	s, err := modelserver.Start(modelserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

const long = "你好, a text that is sent in several pieces"

func prompt() string {
	return "go " + modelserver.Script(modelserver.Step{Text: long, Tools: []modelserver.Tool{{Name: "add", Input: json.RawMessage(`{"a":2}`)}}, InputTokens: 7, OutputTokens: 3})
}

func TestAnthropic(t *testing.T) {
	t.Parallel()
	c := anthropic.NewClient(anthropicoption.WithAPIKey("k"), anthropicoption.WithBaseURL(start(t).URL()))
	s := c.Messages.NewStreaming(t.Context(), anthropic.MessageNewParams{
		Model: "m", MaxTokens: 100, Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock(prompt()))},
	})
	var m anthropic.Message
	for s.Next() {
		if err := m.Accumulate(s.Current()); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
	if len(m.Content) != 2 || m.Content[0].Text != long || m.Content[1].Name != "add" || string(m.Content[1].Input) != `{"a":2}` || m.Usage.InputTokens != 7 || m.StopReason != "tool_use" {
		t.Errorf("%+v", m)
	}
}

func TestResponses(t *testing.T) {
	t.Parallel()
	c := openai.NewClient(openaioption.WithAPIKey("k"), openaioption.WithBaseURL(start(t).URL()+"/v1"))
	s := c.Responses.NewStreaming(t.Context(), responses.ResponseNewParams{Model: "m", Input: responses.ResponseNewParamsInputUnion{
		OfInputItemList: responses.ResponseInputParam{responses.ResponseInputItemParamOfMessage(prompt(), responses.EasyInputMessageRoleUser)},
	}})
	var last responses.Response
	text := ""
	for s.Next() {
		e := s.Current()
		switch e.Type {
		case "response.output_text.delta":
			text += e.AsResponseOutputTextDelta().Delta
		case "response.completed":
			last = e.AsResponseCompleted().Response
		}
	}
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
	if text != long || last.OutputText() != long || len(last.Output) != 2 || last.Output[1].AsFunctionCall().Arguments != `{"a":2}` || last.Usage.InputTokens != 7 {
		t.Errorf("%q, %+v", text, last)
	}
}

func TestChat(t *testing.T) {
	t.Parallel()
	c := openai.NewClient(openaioption.WithAPIKey("k"), openaioption.WithBaseURL(start(t).URL()+"/v1"))
	s := c.Chat.Completions.NewStreaming(t.Context(), openai.ChatCompletionNewParams{Model: "m", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(prompt())}})
	var all openai.ChatCompletionAccumulator
	for s.Next() {
		if !all.AddChunk(s.Current()) {
			t.Fatal("a piece does not fit")
		}
	}
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
	m := all.Choices[0].Message
	if m.Content != long || len(m.ToolCalls) != 1 || m.ToolCalls[0].Function.Name != "add" || m.ToolCalls[0].Function.Arguments != `{"a":2}` || all.Usage.PromptTokens != 7 {
		t.Errorf("%+v", all)
	}
}
