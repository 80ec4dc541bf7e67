package admin

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"nanoclaw/internal/control"
)

func args(m map[string]json.RawMessage) map[string]string {
	out := map[string]string{}
	for k, v := range m {
		out[k] = string(v)
	}
	return out
}

// spec/runner.md section 8, row "Arguments"; W27: --key=value, and values that begin with --.
func TestW27Grammar(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args    []string
		command string
		flags   map[string]string
	}{
		{[]string{"groups", "list"}, "groups-list", map[string]string{}},
		{[]string{"groups", "config", "add-mcp-server", "--name", "x"}, "groups-config-add-mcp-server", map[string]string{"name": `"x"`}},
		{[]string{"a", "--k=v"}, "a", map[string]string{"k": `"v"`}},
		{[]string{"a", "--k=--v"}, "a", map[string]string{"k": `"--v"`}},
		{[]string{"a", "--k=a=b"}, "a", map[string]string{"k": `"a=b"`}},
		{[]string{"a", "--k="}, "a", map[string]string{"k": `""`}},
		{[]string{"a", "--k", ""}, "a", map[string]string{"k": `""`}},
		{[]string{"a", "--k", "-5"}, "a", map[string]string{"k": `"-5"`}},
		{[]string{"a", "--k", "--l"}, "a", map[string]string{"k": "true", "l": "true"}},
		{[]string{"a", "--k"}, "a", map[string]string{"k": "true"}},
		{[]string{"a", "--k", "--json"}, "a", map[string]string{"k": "true"}},
		{[]string{"a", "--json", "b"}, "a-b", map[string]string{}},
		{[]string{"--k", "v", "a"}, "a", map[string]string{"k": `"v"`}},
		{[]string{"a", "--k", "v", "b"}, "a-b", map[string]string{"k": `"v"`}},
		{[]string{"a", "--", "--b", "c"}, "a---b-c", map[string]string{}},
		{[]string{"a", "--k", "say \"hi\" <b> 日本"}, "a", map[string]string{"k": `"say \"hi\" \u003cb\u003e 日本"`}},
		{[]string{"groups", "list", "--help"}, "help-groups-list", map[string]string{}},
	} {
		l, err := parse(c.args)
		if err != nil {
			t.Errorf("%q: %v", c.args, err)
			continue
		}
		r := l.request()
		if diff := cmp.Diff(c.flags, args(r.Args)); r.Command != c.command || diff != "" {
			t.Errorf("%q: command %q, flags %s", c.args, r.Command, diff)
		}
	}
}

// spec/runner.md section 8, row "--stdin-json": whatever cannot be taken ends with 2 before anything is sent.
func TestStdinJSON(t *testing.T) {
	t.Parallel()
	h := &far{}
	env := map[string]string{control.RunnerVariable: inside(t, h)}
	for _, c := range []struct {
		name, stdin, args, part string
	}{
		{"terminal", "terminal", "x --stdin-json", "nothing is piped"},
		{"empty", "", "x --stdin-json", "empty"},
		{"blank", " \n\t", "x --stdin-json", "empty"},
		{"array", "[1]", "x --stdin-json", "must be a JSON object"},
		{"null", "null", "x --stdin-json", "must be a JSON object"},
		{"text", `"x"`, "x --stdin-json", "must be a JSON object"},
		{"number", "1", "x --stdin-json", "must be a JSON object"},
		{"not JSON", "{a:1}", "x --stdin-json", "not one JSON value"},
		{"cut off", `{"a":`, "x --stdin-json", "not one JSON value"},
		{"two objects", `{"a":1} {"b":2}`, "x --stdin-json", "not one JSON value"},
		{"prototype", `{"__proto__":{}}`, "x --stdin-json", "cannot be used"},
		{"a key that is no name", `{"a b":1}`, "x --stdin-json", "cannot be used"},
		{"a key that is a flag", `{"name":1}`, "x --name y --stdin-json", "given twice"},
		{"a key that is a flag but for its dash", `{"a_b":1}`, "x --stdin-json --a-b y", "given twice"},
		{"a key twice", `{"a":1,"a":2}`, "x --stdin-json", "twice"},
		{"a key twice but for its dash", `{"a_b":1,"a-b":2}`, "x --stdin-json", "given twice"},
		{"a flag of ncl", `{"json":true}`, "x --stdin-json", "ncl itself"},
		{"too large", `{"a":"` + strings.Repeat("x", control.MaxArgs) + `"}`, "x --stdin-json", "larger than"},
		{"too large with flags", `{"a":"` + strings.Repeat("x", control.MaxArgs-100) + `"}`, "x --stdin-json --b " + strings.Repeat("y", 200), "args: has"},
	} {
		got := run(t, env, "", c.stdin, strings.Fields(c.args)...)
		if got.code != ExitUsage || !strings.Contains(got.stderr, c.part) || got.stdout != "" {
			t.Errorf("%s: %.200v; want exit 2 and %q", c.name, got, c.part)
		}
	}
	if len(h.asked) != 0 {
		t.Errorf("%d requests were sent", len(h.asked))
	}
	got := run(t, env, "", ` {"text": "long <b>\n--x", "n": 1.50, "deep": {"a":[ 1, null ]}, "yes":true} `, "x", "--stdin-json", "--k", "v")
	want := map[string]string{"text": `"long \u003cb\u003e\n--x"`, "n": "1.50", "deep": `{"a":[1,null]}`, "yes": "true", "k": `"v"`}
	if diff := cmp.Diff(want, args(h.last().Args)); got.code != 0 || diff != "" {
		t.Errorf("%+v; sent %s", got, diff)
	}
	// Without the switch nothing is read.
	if got := run(t, env, "", "{broken", "x"); got.code != 0 {
		t.Errorf("%+v", got)
	}
}

func FuzzStdinJSON(f *testing.F) {
	for _, s := range []string{`{"a":1}`, `{"a":{"b":[1,"x",null,true]}}`, `[]`, `{"a":1}}`, "{\"\\u0061\":1,\"a\":2}", `{"a":"\ud800"}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		l := line{flags: map[string]json.RawMessage{}}
		if l.merge(strings.NewReader(s), false) != nil {
			return
		}
		var want map[string]any
		if err := json.Unmarshal([]byte(s), &want); err != nil || len(want) != len(l.flags) {
			t.Fatalf("%q was taken: %v, %d keys, want %d", s, err, len(l.flags), len(want))
		}
		for k, raw := range l.flags {
			var got any
			if err := json.Unmarshal(raw, &got); err != nil {
				t.Fatalf("%q: key %q became %q: %v", s, k, raw, err)
			}
			if diff := cmp.Diff(want[k], got); diff != "" {
				t.Fatalf("%q: key %q: %s", s, k, diff)
			}
		}
	})
}
