package admin

import (
	"encoding/json"
	"testing"
	"time"

	"nanoclaw/internal/control"
)

// spec/runner.md section 8, row "Output".
func TestRender(t *testing.T) {
	t.Parallel()
	zone, err := time.LoadLocation("Europe/Paris")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, human, data, want, note string }{
		{"words as they are", "a <b>\n 2026-01-02T03:04:05Z", `[{"x":1}]`, "a <b>\n 2026-01-02T03:04:05Z\n", ""},
		{"nothing", "", ``, "", ""},
		{"null", "", `null`, "", ""},
		{"an empty list", "", `[]`, "", "the list is empty"},
		{"a text", "", `"done"`, "done\n", ""},
		{"a text that is an instant", "", `"2026-07-01T22:30:00Z"`, "2026-07-02 00:30\n", ""},
		{"a table", "", `[{"id":"a","n":1,"ok":true},{"id":"bb","n":null,"ok":false}]`, "id  n  ok\n--  -  -----\na   1  true\nbb     false\n", ""},
		{"columns of later rows", "", `[{"a":"1"},{"b":"2"}]`, "a  b\n-  -\n1\n   2\n", ""},
		{"instants in a table", "", `[{"at":"2026-01-02T03:04:05.678Z","t":"at 2026-01-02T03:04:05Z"}]`,
			"at                t\n----------------  -----------------------\n2026-01-02 04:04  at 2026-01-02T03:04:05Z\n", ""},
		{"wide letters count as one", "", `[{"name":"Zoë","n":"x"}]`, "name  n\n----  -\nZoë   x\n", ""},
		{"what steers a terminal", "", `[{"name":"a\u001b[31m\nb"}]`, "name\n------------\na\\x1b[31m\\nb\n", ""},
		{"a text that steers a terminal", "", `"a\u001b[2J\nb"`, "a\\x1b[2J\nb\n", ""},
		{"a list that is not flat", "", `[{"a":{"b":1}}]`, "[\n  {\n    \"a\": {\n      \"b\": 1\n    }\n  }\n]\n", ""},
		{"a list of texts", "", `["a","b"]`, "[\n  \"a\",\n  \"b\"\n]\n", ""},
		{"an object in its own order", "", `{"z":1.50,"a":"<b>","at":"2026-01-02T03:04:05Z","e":{},"l":[]}`,
			"{\n  \"z\": 1.50,\n  \"a\": \"<b>\",\n  \"at\": \"2026-01-02 04:04\",\n  \"e\": {},\n  \"l\": []\n}\n", ""},
		{"no instants", "", `["2026-13-02T03:04:05Z","2026-01-02T03:04:05+01:00","2026-01-02"]`,
			"[\n  \"2026-13-02T03:04:05Z\",\n  \"2026-01-02T03:04:05+01:00\",\n  \"2026-01-02\"\n]\n", ""},
		{"an instant without seconds", "", `"2026-01-02T03:04Z"`, "2026-01-02 04:04\n", ""},
	} {
		out, note, err := render(control.Frame{OK: true, Human: c.human, Data: json.RawMessage(c.data)}, zone)
		if err != nil || out != c.want || note != c.note {
			t.Errorf("%s: %q, %q, %v; want %q", c.name, out, note, err, c.want)
		}
	}
	if _, _, err := render(control.Frame{OK: true, Data: json.RawMessage(`{"a":1,"a":2}`)}, zone); err == nil {
		t.Error("an object with a key twice was shown")
	}
}
