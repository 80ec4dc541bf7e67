package container

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

// Every field that can be written can be read back: one that Load forgets is a setting that silently does nothing, as `wire` and
// `contextTokens` once were.
func TestLoadReadsEveryField(t *testing.T) {
	t.Parallel()
	want := Config{
		Provider: "openai", AssistantName: "Nano", GroupName: "main", AgentGroupID: "ag-1", SessionID: "sess-1", Incarnation: 3,
		MaxMessagesPerPrompt: 7, MCPServers: map[string]MCPServer{"x": {Command: "x"}}, Model: "m", Effort: "low",
		Credential: Credential{Kind: "api_key", Placeholder: "p"}, Fallbacks: []Choice{{Provider: "mock"}},
		Relay: Relay{Listen: RelayAddress, Token: "t"}, Speed: SpeedFast, FastMode: true, FallbackModel: "n", UploadTrace: true,
		Wire: WireChat, ContextTokens: 9000, ScriptTimeoutSeconds: 9, Programs: map[string]string{"claude": "/bin/claude"}, AgentAPI: "anthropic",
	}
	v := reflect.ValueOf(want)
	for i := range v.NumField() {
		if v.Field(i).IsZero() {
			t.Errorf("the test gives %s no value", v.Type().Field(i).Name)
		}
	}
	body, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	got, warnings := load(t, string(body))
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if len(warnings) > 0 {
		t.Errorf("warnings:\n%s", strings.Join(warnings, "\n"))
	}
}

// The model of a provider of several APIs names one of them, or is of its usual one.
func TestAPIOfAModel(t *testing.T) {
	t.Parallel()
	for model, want := range map[string][2]string{
		"": {"anthropic", ""}, "opus": {"anthropic", "opus"}, "openai/gpt": {"openai", "gpt"}, "ollama/qwen/coder:8b": {"ollama", "qwen/coder:8b"},
		"other/model": {"anthropic", "other/model"}, "openai": {"anthropic", "openai"}, "openai/": {"openai", ""}, "/x": {"anthropic", "/x"},
	} {
		if api, name := API(model, "anthropic", "openai", "ollama"); api != want[0] || name != want[1] {
			t.Errorf("%q: %q %q", model, api, name)
		}
	}
}
