package program

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"nanoclaw/internal/config/container"
)

// A foreign agent gets the address of its API and the placeholder in the variables that the vendor's own clients read.
func TestAPIOfAForeignAgent(t *testing.T) {
	t.Parallel()
	key, token := container.Credential{Kind: "api_key", Placeholder: "p"}, container.Credential{Kind: "oauth_token", Placeholder: "p"}
	for name, c := range map[string]struct {
		api  string
		key  container.Credential
		want map[string]string
	}{
		"none":               {"", key, map[string]string{}},
		"anthropic":          {"anthropic", key, map[string]string{"ANTHROPIC_BASE_URL": "http://relay/anthropic", "ANTHROPIC_API_KEY": "p"}},
		"subscription":       {"anthropic", token, map[string]string{"ANTHROPIC_BASE_URL": "http://relay/anthropic", "CLAUDE_CODE_OAUTH_TOKEN": "p"}},
		"host without a key": {"anthropic", container.Credential{}, map[string]string{"ANTHROPIC_BASE_URL": "http://relay/anthropic"}},
		"openai":             {"openai", key, map[string]string{"OPENAI_BASE_URL": "http://relay/openai/v1", "OPENAI_API_KEY": "p"}},
		"ollama":             {"ollama", container.Credential{}, map[string]string{"OLLAMA_HOST": "http://relay/ollama"}},
	} {
		env := map[string]string{}
		agentAPI(env, container.Config{AgentAPI: c.api, Credential: c.key}, func(api string) string { return "http://relay/" + api })
		if d := cmp.Diff(c.want, env); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}
