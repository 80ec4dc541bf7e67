package tool

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func labels(n int) string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf(`"o%d"`, i))
	}
	return strings.Join(all, ",")
}

func TestW23Question(t *testing.T) {
	t.Parallel()
	ask := func(options, more string) string {
		return `{"title":"Which","question":"Which one?","options":[` + options + `]` + more + `}`
	}
	ab := []Option{{"a", "a", "a"}, {"b", "c", "d"}}
	for _, tt := range []struct {
		name, args string
		want       Question
		fails      string
	}{
		{name: "plain", args: ask(`"a",{"label":"b","selectedLabel":"c","value":"d"}`, ""), want: Question{"Which", "Which one?", ab, 300 * time.Second}},
		{name: "one option", args: ask(`"a"`, ""), want: Question{"Which", "Which one?", ab[:1], 300 * time.Second}},
		{name: "internal", args: `{"title":"W<internal>x</internal>","question":"Q <internal>y</internal>","options":["a<internal>z</internal>",{"label":"b","selectedLabel":"c<internal></internal>","value":"d"}]}`,
			want: Question{"W", "Q", ab, 300 * time.Second}},
		{name: "empty extras", args: ask(`{"label":"a","selectedLabel":"","value":""}`, ""), want: Question{"Which", "Which one?", ab[:1], 300 * time.Second}},
		{name: "timeout", args: ask(`"a"`, `,"timeout":12`), want: Question{"Which", "Which one?", ab[:1], 12 * time.Second}},
		{name: "timeout too small", args: ask(`"a"`, `,"timeout":0`), want: Question{"Which", "Which one?", ab[:1], time.Second}},
		{name: "timeout negative", args: ask(`"a"`, `,"timeout":-1e200`), want: Question{"Which", "Which one?", ab[:1], time.Second}},
		{name: "timeout too large", args: ask(`"a"`, `,"timeout":86400`), want: Question{"Which", "Which one?", ab[:1], 1500 * time.Second}},
		{name: "timeout huge", args: ask(`"a"`, `,"timeout":1e300`), want: Question{"Which", "Which one?", ab[:1], 1500 * time.Second}},
		{name: "timeout as text", args: ask(`"a"`, `,"timeout":"12"`), fails: "`timeout` must be"},
		{name: "no title", args: `{"question":"q","options":["a"]}`, fails: "`title` is required"},
		{name: "no question", args: `{"title":"t","options":["a"]}`, fails: "`question` is required"},
		{name: "no options", args: `{"title":"t","question":"q"}`, fails: "`options` is required"},
		{name: "empty question", args: `{"title":"t","question":" ","options":["a"]}`, fails: "`question` is required"},
		{name: "no option", args: ask("", ""), fails: "1 to 10"},
		{name: "eleven", args: ask(labels(11), ""), fails: "1 to 10"},
		{name: "empty label", args: ask(`""`, ""), fails: "no label"},
		{name: "internal label", args: ask(`"a","<internal>x</internal>"`, ""), fails: "`options[1]` has no label"},
		{name: "no label", args: ask(`{"value":"x"}`, ""), fails: "`options[0].label` is required"},
		{name: "option of another type", args: ask(`7`, ""), fails: "`options[0]` must be"},
		{name: "unknown field", args: ask(`{"label":"x","style":"y"}`, ""), fails: `unknown field "style" in ` + "`options[0]`"},
		{name: "long label", args: ask(`"`+strings.Repeat("ä", 81)+`"`, ""), fails: "at most 80"},
		{name: "long selected label", args: ask(`{"label":"a","selectedLabel":"`+strings.Repeat("ä", 81)+`"}`, ""), fails: "at most 80"},
		{name: "label of two lines", args: ask(`"a\nb"`, ""), fails: "one line"},
		{name: "title of two lines", args: `{"title":"a\nb","question":"q","options":["a"]}`, fails: "one line"},
		{name: "twice", args: ask(`"a","b","a"`, ""), fails: `two options have the value "a"`},
		{name: "value twice", args: ask(`"a",{"label":"b","value":"a"}`, ""), fails: `two options have the value "a"`},
		{name: "long value", args: ask(`{"label":"b","value":"`+strings.Repeat("x", 257)+`"}`, ""), fails: "at most 256"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f, got, err := call(t, "ask_user_question", tt.args)
			if tt.fails != "" {
				refused(t, f, err, tt.fails)
				return
			}
			if did, _ := f.last(); err != nil || !reflect.DeepEqual(did, tt.want) {
				t.Errorf("asked %+v, %v; want %+v", did, err, tt.want)
			}
			if got != "a" {
				t.Errorf("result %q", got)
			}
		})
	}
	if q, err := parseQuestion(askArgs{Title: "t", Question: "q", Options: []json.RawMessage{[]byte(`"` + strings.Repeat("ä", 80) + `"`)}}); err != nil || len(q.Options) != 1 {
		t.Errorf("a label of 80 characters: %v", err)
	}
}

// W23: the answer is the value of an option, whatever the other side wrote.
func TestW23AnswerIsValidated(t *testing.T) {
	t.Parallel()
	args := json.RawMessage(`{"title":"t","question":"q","options":["a",{"label":"b","value":"v"}]}`)
	if got, err := New(Options{Session: &fake{answer: "v"}}).Call(t.Context(), "ask_user_question", args); got != "v" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := New(Options{Session: &fake{answer: "b"}}).Call(t.Context(), "ask_user_question", args); got != "" || err == nil || !strings.Contains(err.Error(), "none of the options") {
		t.Errorf("%q, %v", got, err)
	}
}

// W23: where nobody can answer the session says so at once.
func TestW23NoChat(t *testing.T) {
	t.Parallel()
	none := errors.New("there is no chat in a task")
	_, err := New(Options{Session: &fake{err: none}}).Call(t.Context(), "ask_user_question", json.RawMessage(samples()["ask_user_question"]))
	if !errors.Is(err, none) {
		t.Error(err)
	}
}

func FuzzOption(f *testing.F) {
	for _, s := range []string{`"a"`, `{"label":"a"}`, `{"label":"a","selectedLabel":"b","value":"c"}`, `null`, `7`, `"<internal>"`, `{"label":null}`, `{"LABEL":"x"}`, `"\ud800"`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		o, err := parseOption(json.RawMessage(in), "o")
		if err != nil {
			return
		}
		for _, s := range []string{o.Label, o.SelectedLabel} {
			if s == "" || utf8.RuneCountInString(s) > maxLabel || strings.ContainsAny(s, "\n\r\x00") || s != strings.TrimSpace(s) {
				t.Fatalf("%s became %+v", in, o)
			}
		}
		if o.Value == "" || len(o.Value) > 4*maxLabel {
			t.Fatalf("%s became %+v", in, o)
		}
	})
}
