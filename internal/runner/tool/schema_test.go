package tool

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
)

// samples are arguments that every tool takes, with all of its fields.
func samples() map[string]string {
	return map[string]string{
		"send_message":      `{"to":"me","text":"hi"}`,
		"send_file":         `{"to":"me","path":"a","text":"hi","filename":"b"}`,
		"edit_message":      `{"messageId":3,"text":"hi"}`,
		"add_reaction":      `{"messageId":"3","emoji":"👍"}`,
		"ask_user_question": `{"title":"t","question":"q","options":["a",{"label":"b","selectedLabel":"c","value":"d"}],"timeout":5}`,
		"send_card":         `{"card":{"title":"t","description":"d","children":["a",{"text":"b"}],"actions":[null]},"fallbackText":"f","to":"me"}`,
		"schedule_task":     `{"prompt":"p","when":"2026-03-01T09:00","recurrence":"0 9 * * *","script":"s","name":"n"}`,
		"list_tasks":        `{"status":"paused"}`,
		"update_task":       `{"taskId":"x","prompt":"p","when":"2026-03-01T09:00","recurrence":"0 9 * * *","script":"s","name":"n"}`,
		"cancel_task":       `{"taskId":"x"}`,
		"pause_task":        `{"taskId":"x"}`,
		"resume_task":       `{"taskId":"x"}`,
		"create_agent":      `{"name":"n","instructions":"i","template":"t"}`,
		"install_packages":  `{"apt":["jq"],"npm":["@a/b"],"reason":"r"}`,
		"add_mcp_server":    `{"name":"n","command":"c","args":["a"],"env":{"K":"v"}}`,
	}
}

// Every tool has a description and is named once; two of one name are an error.
func TestSet(t *testing.T) {
	t.Parallel()
	all := New(Options{}).Tools()
	names := slices.Collect(maps.Keys(samples()))
	for _, one := range all {
		if len(one.Description) < 80 || !slices.Contains(names, one.Name) {
			t.Errorf("%s: %q", one.Name, one.Description)
		}
		if len(one.Description) > 2000 {
			t.Errorf("%s is described with %d bytes", one.Name, len(one.Description))
		}
	}
	if len(all) != len(names) {
		t.Errorf("%d tools, %d known here", len(all), len(names))
	}
	if _, err := NewSet(all[0], all[1], all[0]); !errors.Is(err, ErrDuplicateTool) || !strings.Contains(err.Error(), all[0].Name) {
		t.Errorf("error %v", err)
	}
}

// What is advertised is what is enforced: another reader of JSON Schema and our own agree on every input that is made from
// a schema by taking away, adding and exchanging.
func TestAdvertisedSchemaIsEnforced(t *testing.T) {
	t.Parallel()
	for _, one := range New(Options{Session: &fake{}, Cwd: t.TempDir()}).Tools() {
		t.Run(one.Name, func(t *testing.T) {
			t.Parallel()
			var s jsonschema.Schema
			if err := json.Unmarshal(one.Schema, &s); err != nil {
				t.Fatal(err)
			}
			read, err := s.Resolve(nil)
			if err != nil {
				t.Fatal(err)
			}
			strict(t, one.Name, &s)
			var full any
			if err := json.Unmarshal([]byte(samples()[one.Name]), &full); err != nil {
				t.Fatal(err)
			}
			if err := read.Validate(full); err != nil {
				t.Fatalf("the sample is not of the schema: %v", err)
			}
			if _, err := one.Call(t.Context(), []byte(samples()[one.Name])); err != nil && one.Name != "send_file" {
				t.Errorf("refuses what it advertises: %v", err)
			}
			made := 0
			for what, v := range variants(full, "") {
				b, err := json.Marshal(v)
				if err != nil {
					t.Fatal(err)
				}
				var again any
				if err := json.Unmarshal(b, &again); err != nil {
					t.Fatal(err)
				}
				made++
				if again == nil || read.Validate(again) == nil {
					continue // no arguments at all, an optional field, or a type that is allowed too; the tool may still refuse the value
				}
				if _, err := one.Call(t.Context(), b); err == nil {
					t.Errorf("%s: takes %s, which its schema refuses", what, b)
				}
			}
			for name := range s.Properties {
				if !strings.Contains(samples()[one.Name], `"`+name+`"`) && name != "processAfter" && name != "url" && name != "headers" {
					t.Errorf("the sample has no %s", name)
				}
			}
			if made < 5 {
				t.Errorf("only %d inputs were made", made)
			}
		})
	}
}

// The shape refuses exactly what the schema refuses, also where a tool would refuse the value anyhow.
func TestShapeAgreesWithJSONSchema(t *testing.T) {
	t.Parallel()
	kid := shape{any: []shape{text("a"), object(need("text", text("b")))}}
	s := object(
		need("a", text("a")), may("b", shape{any: []shape{{kind: "integer"}, {kind: "string", pattern: "^[0-9]{1,3}$"}}}), may("c", list("c", kid, 1, 2)),
		may("d", dictionary("d")), may("e", shape{kind: "string", oneOf: []string{"x", "y"}}), may("f", shape{}),
	)
	b, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var advertised jsonschema.Schema
	if err := json.Unmarshal(b, &advertised); err != nil {
		t.Fatal(err)
	}
	read, err := advertised.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	agree := func(in string) {
		var v any
		if err := json.Unmarshal([]byte(in), &v); err != nil {
			t.Fatal(err)
		}
		theirs := read.Validate(v)
		var into json.RawMessage
		ours := s.decode([]byte(in), &into)
		if (theirs == nil) != (ours == nil) {
			t.Errorf("%s: schema says %v, we say %v", in, theirs, ours)
		}
	}
	values := []string{`"1"`, `"1234"`, `"x"`, `"z"`, `1`, `1.0`, `1e2`, `1.5`, `-1`, `true`, `null`, `[]`, `["a"]`, `["a",{"text":"b"}]`, `["a","b","c"]`, `[{"text":1}]`, `[{"text":"a","more":1}]`, `[1]`, `[{}]`, `{}`, `{"k":"v"}`, `{"k":1}`}
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "A", "g"} {
		for _, v := range values {
			if name == "a" {
				agree(fmt.Sprintf(`{"a":%s}`, v))
			} else {
				agree(fmt.Sprintf(`{"a":"",%q:%s}`, name, v))
			}
		}
	}
	agree(`[]`)
	agree(`"a"`)
	agree(`{}`)
}

// strict fails the test if an object of s that names its fields takes others, or anything has no description.
func strict(t *testing.T, path string, s *jsonschema.Schema) {
	t.Helper()
	if s.Type == "object" && len(s.Properties) > 0 {
		if b, _ := json.Marshal(s.AdditionalProperties); string(b) != "false" && string(b) != `{"not":{}}` {
			t.Errorf("%s takes other fields: %s", path, b)
		}
	}
	for name, p := range s.Properties {
		if p.Description == "" {
			t.Errorf("%s.%s is not described", path, name)
		}
		strict(t, path+"."+name, p)
	}
	for _, p := range s.AnyOf {
		strict(t, path, p)
	}
	if s.Items != nil {
		strict(t, path+"[]", s.Items)
	}
}

// variants of a JSON value: without each field, with one more, with each value exchanged for one of every other type.
func variants(v any, path string) map[string]any {
	out := map[string]any{}
	for name, other := range map[string]any{"string": "zz", "integer": 7, "number": 1.5, "bool": true, "null": nil, "array": []any{}, "object": map[string]any{}, "numbers": []any{1, nil}} {
		out[path+" as "+name] = other
	}
	switch v := v.(type) {
	case map[string]any:
		more := maps.Clone(v)
		more["zusatz"] = "x"
		out[path+" with one more"] = more
		for name, item := range v {
			less := maps.Clone(v)
			delete(less, name)
			out[path+" without "+name] = less
			upper := maps.Clone(less)
			upper[strings.ToUpper(name)] = item
			out[path+" with the case of "+name] = upper
			for what, other := range variants(item, path+"."+name) {
				with := maps.Clone(v)
				with[name] = other
				out[what] = with
			}
		}
	case []any:
		for i, item := range v {
			for what, other := range variants(item, fmt.Sprintf("%s[%d]", path, i)) {
				with := slices.Clone(v)
				with[i] = other
				out[what] = with
			}
		}
	}
	return out
}
