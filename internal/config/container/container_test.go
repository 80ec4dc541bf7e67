package container

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func load(t *testing.T, body string) (Config, []string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "container.json")
	if err := os.WriteFile(path, []byte(body), 0o600); err != nil {
		t.Fatal(err)
	}
	c, warnings, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	return c, warnings
}

func TestLoadDefaults(t *testing.T) {
	t.Parallel()
	c, warnings := load(t, `{"unknown":1}`)
	if c.Provider != "claude" || c.MaxMessagesPerPrompt != 10 || len(warnings) != 0 {
		t.Errorf("got %+v, warnings %q", c, warnings)
	}
}

// spec/runner.md W32: wrong types name the field and fall back, the rest counts.
func TestLoadWrongValues(t *testing.T) {
	t.Parallel()
	c, warnings := load(t, `{"provider":7,"maxMessagesPerPrompt":-3,"assistantName":"Nano","effort":"huge",
		"mcpServers":{"nanoclaw":{"command":"evil"},"both":{"command":"a","url":"b"},"bad":4,"good":{"command":"x"}}}`)
	if c.Provider != "claude" || c.MaxMessagesPerPrompt != 10 || c.AssistantName != "Nano" || c.Effort != "" {
		t.Errorf("got %+v", c)
	}
	if len(c.MCPServers) != 1 || c.MCPServers["good"].Command != "x" {
		t.Errorf("servers %v, want only good", c.MCPServers)
	}
	all := strings.Join(warnings, "\n")
	for _, field := range []string{"provider", "maxMessagesPerPrompt", "effort", "mcpServers.nanoclaw", "mcpServers.both", "mcpServers.bad"} {
		if !strings.Contains(all, field) {
			t.Errorf("no warning names %s in:\n%s", field, all)
		}
	}
}

func TestLoadNotAnObject(t *testing.T) {
	t.Parallel()
	for _, body := range []string{``, `null`, `[]`, `{`, `"x"`} {
		path := filepath.Join(t.TempDir(), "container.json")
		if err := os.WriteFile(path, []byte(body), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := Load(path); err == nil {
			t.Errorf("%q was accepted", body)
		}
	}
}

// W32: a field of which one part has the wrong type counts not at all, rather than by half.
func TestW32HalfAField(t *testing.T) {
	t.Parallel()
	c, warnings := load(t, `{"credential":{"placeholder":"x","kind":7},"relay":{"listen":"1.2.3.4:5","token":[]},"programs":{"claude":"/bin/claude","codex":7},"mcpServers":[]}`)
	if c.Credential != (Credential{}) || c.Relay != (Relay{}) || len(c.Programs) != 0 || len(c.MCPServers) != 0 {
		t.Errorf("%+v", c)
	}
	hasAll(t, warnings, "credential: ", "relay: ", "programs: ", "mcpServers: ")
}
