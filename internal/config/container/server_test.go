package container

import (
	"strings"
	"testing"
)

// MCP-3: one rule for the name that the model sees; names that become the same are refused.
func TestMCP3CleanServerName(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"my.server": "my_server", "a-b_c9": "a-b_c9", "a b": "a_b", "ä": "_", "a/b:c": "a_b_c", "": "",
	} {
		if got := CleanServerName(in); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
}

func TestMCP3CheckServerName(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a", "A9", "my.server", "a-b_c", strings.Repeat("x", 64), "nanoclaw2"} {
		if err := CheckServerName(name, "other", "my-server"); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for name, why := range map[string]string{
		"": "1 to 64", ".a": "1 to 64", "-a": "1 to 64", "_a": "1 to 64", "a b": "1 to 64", "a/b": "1 to 64", "ä": "1 to 64", "a\n": "1 to 64", strings.Repeat("x", 65): "1 to 64",
		"nanoclaw": "reserved", "NanoClaw": "reserved",
		"my.server": `cannot be told from "my_server"`, "my_server": `cannot be told from "my_server"`,
	} {
		err := CheckServerName(name, "other", "my_server")
		if err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%q: %v, want %q", name, err, why)
		}
	}
}

// MCP-3: of two servers that the model could not tell apart one is left out, always the same, with a warning.
func TestMCP3LoadRefusesCollision(t *testing.T) {
	t.Parallel()
	for range 10 {
		c, warnings := load(t, `{"mcpServers":{"my_server":{"command":"b"},"my.server":{"command":"a"},"NanoClaw":{"command":"c"},"x y":{"command":"d"},"z":{"url":"http://h"}}}`)
		if len(c.MCPServers) != 2 || c.MCPServers["my.server"].Command != "a" || c.MCPServers["z"].URL == "" {
			t.Fatalf("servers %v", c.MCPServers)
		}
		all := strings.Join(warnings, "\n")
		for _, part := range []string{"mcpServers.my_server", "cannot be told", "mcpServers.NanoClaw", "mcpServers.x y"} {
			if !strings.Contains(all, part) {
				t.Errorf("no warning has %s: %s", part, all)
			}
		}
	}
}
