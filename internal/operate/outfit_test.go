package operate

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"nanoclaw/internal/control"
	"nanoclaw/internal/store"
)

func TestSkillAndServerCommands(t *testing.T) {
	t.Parallel()
	st := &groups{all: []store.AgentGroup{{ID: "ag-1", Name: "Nano", Folder: "main"}}}
	d := New(slices.Concat(Skills(st, machine{}, func() []string { return []string{"garden", "ncl"} }), Servers(st, machine{}))...)
	for _, c := range []struct {
		command, args, says string
		refused             bool
	}{
		{"skills-list", `{}`, `{"skill":"garden","agents":["Nano"]}`, false},
		{"skills-set-ncl", `{}`, "has the skills ncl", false},
		{"skills-list", `{}`, `{"skill":"garden","agents":[]}`, false},
		{"skills-set-fish", `{}`, `there is no skill "fish"`, true},
		{"skills-set", `{}`, "is missing", true},
		{"skills-set-none", `{}`, "no skills", false},
		{"skills-set-all", `{}`, "all skills", false},
		{"mcp-add-seeds", `{"config":{"command":"npx","args":["-y","seeds"],"instructions":"ask it"}}`, "has the MCP server seeds", false},
		{"mcp-add-plain", `{"config":"{\"url\":\"https://example.org/mcp\"}"}`, "has the MCP server plain", false},
		{"mcp-list", `{}`, "npx -y seeds", false},
		{"mcp-add-nanoclaw", `{"config":{"command":"x"}}`, "reserved", true},
		{"mcp-add-two", `{"config":{}}`, "either command or url", true},
		{"mcp-add-two", `{"config":{"command":"x","env":{"HTTPS_PROXY":"y"}}}`, "is set by this system", true},
		{"mcp-add-two", `{"config":{"command":"x","env":{"GITHUB_TOKEN":"y"}}}`, "GITHUB_TOKEN looks like a key", true},
		{"mcp-add-two", `{"config":{"url":"https://example.org","headers":{"Authorization":"Bearer y"}}}`, "Authorization looks like a key", true},
		{"mcp-add-two", `{"config":{"command":"x","args":["--key","sk-abcdefghijkl"]}}`, "looks like a key", true},
		{"mcp-add-two", `{}`, "is a JSON object", true},
		{"mcp-remove-seeds", `{}`, "taken away", false},
		{"mcp-remove-seeds", `{}`, "has no MCP server", true},
	} {
		var args map[string]json.RawMessage
		if err := json.Unmarshal([]byte(c.args), &args); err != nil {
			t.Fatal(err)
		}
		f := d.Do(t.Context(), Caller{}, "r", control.AdminRequest{Command: c.command, Args: args})
		said := f.Human + string(f.Data)
		if f.Error != nil {
			said = f.Error.Message
		}
		if f.OK == c.refused || !strings.Contains(said, c.says) {
			t.Errorf("%s %s: ok %v, %q; want %q", c.command, c.args, f.OK, said, c.says)
		}
		if strings.Contains(said, "sk-abc") {
			t.Errorf("%s: the key is in the answer", c.command)
		}
	}
	if len(st.all[0].Setup.MCPServers) != 1 || st.all[0].Setup.Skills != nil {
		t.Errorf("in the end %+v", st.all[0].Setup)
	}
}
