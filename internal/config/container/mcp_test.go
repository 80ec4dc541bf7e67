package container

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// hasAll reports each part that no warning has.
func hasAll(t *testing.T, warnings []string, parts ...string) {
	t.Helper()
	all := strings.Join(warnings, "\n")
	for _, part := range parts {
		if !strings.Contains(all, part) {
			t.Errorf("no warning has %q:\n%s", part, all)
		}
	}
}

func TestServers(t *testing.T) {
	t.Parallel()
	c, warnings := load(t, `{"mcpServers":{
		"files":{"command":"fs","args":["-x"],"env":{"TOKEN":"a","_b2":"c"},"cwd":"data","enabledTools":["read","read","list"],"disabledTools":["write"],"instructions":"Use it."},
		"web":{"url":"https://mcp.example:8443/x?y=1","headers":{"Authorization":"Bearer x","X-Tab":"a\tb"}}
	}}`)
	want := map[string]MCPServer{
		"files": {Command: "fs", Args: []string{"-x"}, Env: map[string]string{"TOKEN": "a", "_b2": "c"}, Cwd: "data", EnabledTools: []string{"read", "list"}, DisabledTools: []string{"write"}, Instructions: "Use it."},
		"web":   {URL: "https://mcp.example:8443/x?y=1", Headers: map[string]string{"Authorization": "Bearer x", "X-Tab": "a\tb"}},
	}
	if d := cmp.Diff(want, c.MCPServers); d != "" || len(warnings) > 0 {
		t.Errorf("(-want +got)\n%s\nwarnings %q", d, warnings)
	}
}

func TestW32ServersThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	c, warnings := load(t, `{"mcpServers":{
		"good":{"command":"x"},
		"s1":{"url":"ftp://h/x"}, "s2":{"url":"https://"}, "s3":{"url":"h/x"}, "s4":{"url":"http://:80/"}, "s5":{"url":"https://h/%zz"},
		"s6":{"command":"a\u0000b"}, "s7":{"command":"a","args":["\u0000"]}, "s8":{"command":"a","cwd":"\u0000"},
		"s9":{"command":"a","args":"not a list"}, "t1":{"command":"a","env":["x"]}, "t2":null, "t3":{}, "t4":{"command":"a","enabledTools":"x"},
		"nanoclaw__x":{"command":"a"}, "NANOCLAW":{"command":"a"}, "a b":{"command":"a"}, "":{"command":"a"}
	}}`)
	if got := slices.Sorted(maps.Keys(c.MCPServers)); !slices.Equal(got, []string{"good"}) {
		t.Errorf("servers %q", got)
	}
	for _, name := range []string{"s1", "s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9", "t1", "t2", "t3", "t4", "nanoclaw__x", "NANOCLAW", "a b"} {
		hasAll(t, warnings, "mcpServers."+name+": ")
	}
	if !slices.IsSorted(warnings) {
		t.Errorf("not always in the same order: %q", warnings)
	}
}

// W32: a part that cannot count is dropped and named; the server stays.
func TestW32PartsOfServers(t *testing.T) {
	t.Parallel()
	c, warnings := load(t, `{"mcpServers":{
		"cmd":{"command":"x","headers":{"A":"b"},"env":{"2x":"a","a-b":"c","":"d","NUL":"a\u0000b","OK":"1"},"disabledTools":["","a b","ok"]},
		"only":{"command":"x","enabledTools":[""," "]},
		"url":{"url":"http://h","args":["a"],"env":{"A":"b"},"cwd":"c","headers":{"Bad Name":"x","Split":"a\r\nb: c","1-Good":"y"}}
	}}`)
	want := map[string]MCPServer{
		"cmd":  {Command: "x", Env: map[string]string{"OK": "1"}, DisabledTools: []string{"ok"}},
		"only": {Command: "x", EnabledTools: []string{noTool}},
		"url":  {URL: "http://h", Headers: map[string]string{"1-Good": "y"}},
	}
	if d := cmp.Diff(want, c.MCPServers); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
	hasAll(t, warnings, "headers do not go with command", `"2x"`, `"a-b"`, "NUL character", `disabledTools: "a b"`, "all of them are off", "do not go with url", `"Bad Name"`, `"Split"`)
}

// MCP-7: no server of the settings, added when it may, goes around the way out: what the runner sets for every child wins in each
// spelling, and settings cannot even ask for something else.
func TestMCP7ServersKeepTheProxy(t *testing.T) {
	t.Parallel()
	required := []string{
		"HTTP_PROXY=http://127.0.0.1:3128", "http_proxy=http://127.0.0.1:3128", "HTTPS_PROXY=http://127.0.0.1:3128", "https_proxy=http://127.0.0.1:3128",
		"ALL_PROXY=http://127.0.0.1:3128", "all_proxy=http://127.0.0.1:3128", "NO_PROXY=127.0.0.1,localhost", "no_proxy=127.0.0.1,localhost", "PATH=/usr/bin",
	}
	c, warnings := load(t, `{"mcpServers":{
		"plain":{"command":"a"},
		"sly":{"command":"a","env":{"HTTPS_PROXY":"","https_proxy":"http://elsewhere","No_Proxy":"*","ALL_PROXY":"x","ANTHROPIC_BASE_URL":"http://elsewhere","OPENAI_BASE_URL":"x","KEY":"own","PATH":"/opt"}}
	}}`)
	hasAll(t, warnings, "HTTPS_PROXY is set by this system", "https_proxy is set", "No_Proxy is set", "ALL_PROXY is set", "ANTHROPIC_BASE_URL is set", "OPENAI_BASE_URL is set")
	for name, s := range c.MCPServers {
		env := s.Environment(required)
		for _, v := range required {
			key, value, _ := strings.Cut(v, "=")
			if env[key] != value {
				t.Errorf("%s: %s is %q", name, key, env[key])
			}
		}
		for key := range env {
			if runnerSets(key) && !slices.ContainsFunc(required, func(v string) bool { return strings.HasPrefix(v, key+"=") }) {
				t.Errorf("%s: %s was let through", name, key)
			}
		}
	}
	if env := c.MCPServers["sly"].Environment(required); env["KEY"] != "own" {
		t.Errorf("its own variable is gone: %v", env)
	}
	// A server that did not come from Load is no way around either.
	if env := (MCPServer{Env: map[string]string{"no_proxy": "*", "A": "1"}}).Environment(nil); len(env) != 1 || env["A"] != "1" {
		t.Errorf("%v", env)
	}
}

func TestW32NewFields(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]Config{
		`{}`: {ScriptTimeoutSeconds: 30},
		`{"scriptTimeoutSeconds":1,"uploadTrace":true,"fallbackModel":" claude-haiku-4-5 ","model":"claude-opus-4-1[1m]"}`: {ScriptTimeoutSeconds: 1, UploadTrace: true, FallbackModel: "claude-haiku-4-5", Model: "claude-opus-4-1[1m]"},
		`{"scriptTimeoutSeconds":300,"fastMode":true}`:                                                                     {ScriptTimeoutSeconds: 300, FastMode: true, Speed: "fast"},
		`{"speed":"Standard","fastMode":true}`:                                                                             {ScriptTimeoutSeconds: 30, Speed: "standard"},
		`{"speed":"fast"}`:                                                                                                 {ScriptTimeoutSeconds: 30, FastMode: true, Speed: "fast"},
		`{"speed":null,"fastMode":false}`:                                                                                  {ScriptTimeoutSeconds: 30},
		`{"model":"3-x/y@z:1"}`:                                                                                            {ScriptTimeoutSeconds: 30, Model: "3-x/y@z:1"},
	} {
		c, warnings := load(t, body)
		c.Provider, c.MaxMessagesPerPrompt, c.MCPServers = "", 0, nil
		if d := cmp.Diff(want, c); d != "" || len(warnings) > 0 {
			t.Errorf("%s: (-want +got)\n%s\nwarnings %q", body, d, warnings)
		}
	}
	for body, field := range map[string]string{
		`{"scriptTimeoutSeconds":-1}`: "scriptTimeoutSeconds", `{"scriptTimeoutSeconds":301}`: "scriptTimeoutSeconds", `{"scriptTimeoutSeconds":"9"}`: "scriptTimeoutSeconds", `{"scriptTimeoutSeconds":1.5}`: "scriptTimeoutSeconds",
		`{"uploadTrace":"yes"}`: "uploadTrace", `{"uploadTrace":1}`: "uploadTrace", `{"fastMode":"fast"}`: "fastMode", `{"speed":"warp"}`: "speed", `{"speed":true}`: "speed",
		`{"fallbackModel":"--verbose"}`: "fallbackModel", `{"fallbackModel":"a b"}`: "fallbackModel", `{"model":"-x"}`: "model", `{"model":"a\nb"}`: "model", `{"fallbackModel":["x"]}`: "fallbackModel",
		`{"model":"` + strings.Repeat("x", 129) + `"}`: "model",
	} {
		c, warnings := load(t, body)
		if c.ScriptTimeoutSeconds != DefaultScriptTimeout || c.UploadTrace || c.FastMode || c.Speed != "" || c.FallbackModel != "" || c.Model != "" {
			t.Errorf("%s: %+v", body, c)
		}
		if len(warnings) != 1 || !strings.HasPrefix(warnings[0], field+": ") {
			t.Errorf("%s: warnings %q", body, warnings)
		}
	}
	if c, warnings := load(t, `{"model":"m","fallbackModel":"m"}`); c.FallbackModel != "" || c.Model != "m" || len(warnings) != 1 {
		t.Errorf("a model to fall back to that is the model itself: %+v, %q", c, warnings)
	}
}

func FuzzLoad(f *testing.F) {
	for _, s := range []string{
		`{}`, `{"provider":"Claude","maxMessagesPerPrompt":5,"speed":"fast","fastMode":true,"scriptTimeoutSeconds":7,"model":"m","fallbackModel":"n","effort":"low"}`,
		`{"mcpServers":{"a.b":{"command":"x","env":{"https_proxy":"x","A":"b"},"enabledTools":["t"]},"a_b":{"url":"http://h","headers":{"A":"b"}},"nanoclaw":{}}}`,
		`{"credential":{"kind":7},"relay":[],"programs":{"claude":null},"incarnation":-1}`, `[]`, ``, `{"mcpServers":{"x":{"url":"http://[::1"}}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		path := filepath.Join(t.TempDir(), "container.json")
		if err := os.WriteFile(path, body, 0o600); err != nil {
			t.Fatal(err)
		}
		c, warnings, err := Load(path)
		if err != nil {
			return
		}
		again, _, err := Load(path)
		if d := cmp.Diff(c, again); d != "" || err != nil {
			t.Fatalf("another reading is another: %v\n%s", err, d)
		}
		if c.Provider == "" || c.MaxMessagesPerPrompt < 1 || c.MaxMessagesPerPrompt > maxMessages || c.ScriptTimeoutSeconds < 1 || c.ScriptTimeoutSeconds > maxScriptTimeout || c.Incarnation < 0 || c.FastMode != (c.Speed == SpeedFast) {
			t.Fatalf("out of range: %+v", c)
		}
		seen := map[string]string{}
		for name, s := range c.MCPServers {
			clean := CleanServerName(name)
			if other, twice := seen[clean]; twice || strings.EqualFold(clean, ReservedMCPServer) {
				t.Fatalf("%q and %q", name, other)
			}
			seen[clean] = name
			if (s.Command == "") == (s.URL == "") || (s.URL != "" && len(s.Env) > 0) {
				t.Fatalf("%s: %+v", name, s)
			}
			for v := range s.Env {
				if runnerSets(v) || strings.ContainsAny(v, "=\x00") || v == "" {
					t.Fatalf("%s: variable %q", name, v)
				}
			}
		}
		for _, w := range warnings {
			if strings.ContainsRune(w, 0) || len(w) > 510 || strings.ContainsRune(w, 10) {
				t.Fatalf("warning %q", w)
			}
		}
		// What Load accepts it accepts again without a word.
		clean, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, clean, 0o600); err != nil {
			t.Fatal(err)
		}
		if again, warnings, err := Load(path); err != nil || len(warnings) > 0 {
			t.Fatalf("%v, %q: %+v", err, warnings, again)
		}
	})
}
