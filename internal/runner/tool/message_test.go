package tool

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// W22: an edit or reaction names a message by its number, and what cannot be done is an error, not silence.
func TestW22EditAndReact(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		tool, args string
		want       Change
		result     string
		fails      string
	}{
		{tool: "edit_message", args: `{"messageId":7,"text":" new <internal>x</internal>"}`, want: Change{Message: 7, Text: "new"}, result: "message 7 in me gets the new text"},
		{tool: "edit_message", args: `{"messageId":"7","text":"new"}`, want: Change{Message: 7, Text: "new"}, result: "message 7 in me gets the new text"},
		{tool: "edit_message", args: `{"messageId":7.0,"text":"new"}`, want: Change{Message: 7, Text: "new"}, result: "message 7 in me gets the new text"},
		{tool: "edit_message", args: `{"messageId":7}`, fails: "`text` is required"},
		{tool: "edit_message", args: `{"text":"x"}`, fails: "`messageId` is required"},
		{tool: "edit_message", args: `{"messageId":7,"text":"<internal>x"}`, fails: "`text` is required"},
		{tool: "edit_message", args: `{"messageId":0,"text":"x"}`, fails: "1 or more"},
		{tool: "edit_message", args: `{"messageId":-3,"text":"x"}`, fails: "1 or more"},
		{tool: "edit_message", args: `{"messageId":1e300,"text":"x"}`, fails: "1 or more"},
		{tool: "edit_message", args: `{"messageId":7.5,"text":"x"}`, fails: "must be"},
		{tool: "edit_message", args: `{"messageId":"seven","text":"x"}`, fails: "must match"},
		{tool: "edit_message", args: `{"messageId":"0","text":"x"}`, fails: "1 or more"},
		{tool: "edit_message", args: `{"messageId":null,"text":"x"}`, fails: "must be"},
		{tool: "edit_message", args: `{"messageId":7,"text":"` + strings.Repeat("x", maxText+1) + `"}`, fails: "at most 262144"},
		{tool: "add_reaction", args: `{"messageId":7,"emoji":"👍"}`, want: Change{Message: 7, Emoji: "👍"}, result: "message 7 in me gets 👍"},
		{tool: "add_reaction", args: `{"messageId":"7","emoji":":eyes:"}`, want: Change{Message: 7, Emoji: "👀"}, result: "message 7 in me gets 👀"},
		{tool: "add_reaction", args: `{"messageId":7}`, fails: "`emoji` is required"},
		{tool: "add_reaction", args: `{"emoji":"👍"}`, fails: "`messageId` is required"},
		{tool: "add_reaction", args: `{"messageId":7,"emoji":"nosuch"}`, fails: "give the character itself"},
	} {
		t.Run(tt.tool+tt.args[:min(40, len(tt.args))], func(t *testing.T) {
			t.Parallel()
			f, got, err := call(t, tt.tool, tt.args)
			if tt.fails != "" {
				refused(t, f, err, tt.fails)
				return
			}
			if did, _ := f.last(); err != nil || did != tt.want || got != tt.result {
				t.Errorf("did %+v, %q, %v", did, got, err)
			}
		})
	}
}

// What the session says goes to the model as it is.
func TestErrorsOfTheSession(t *testing.T) {
	t.Parallel()
	gone := errors.New("no message 7 here")
	for name, args := range samples() {
		if name == "send_file" {
			continue
		}
		if _, err := New(Options{Session: &fake{err: gone}}).Call(t.Context(), name, []byte(args)); !errors.Is(err, gone) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCard(t *testing.T) {
	t.Parallel()
	const left = "; actions left out: %d (each needs a label and an http or https URL)"
	ok := func(action string) string { return `{"card":{"title":"t","actions":[` + action + `]}}` }
	for _, tt := range []struct {
		name, args string
		want       string // payload
		card       Card   // To and Fallback
		dropped    int
		fails      string
	}{
		{name: "all", args: `{"card":{"title":"a < b","description":"d","children":["x",{"text":"y"}],"actions":[{"label":"l","url":"https://a.example/?b=1&c","style":"primary","more":1}]},"fallbackText":" f ","to":"me"}`,
			want: `{"actions":[{"label":"l","more":1,"style":"primary","url":"https://a.example/?b=1&c"}],"children":["x",{"text":"y"}],"description":"d","title":"a < b"}`, card: Card{To: "me", Fallback: "f"}},
		{name: "no action", args: `{"card":{"title":"t"}}`, want: `{"title":"t"}`},
		{name: "internal", args: `{"card":{"title":"t<internal>1</internal>","children":["<internal>2</internal>x",{"text":"y<internal>3</internal>"}],"actions":[{"label":"l<internal>4</internal>","url":"http://h"}]},"fallbackText":"f<internal>5</internal>"}`,
			want: `{"actions":[{"label":"l","url":"http://h"}],"children":["x",{"text":"y"}],"title":"t"}`, card: Card{Fallback: "f"}},
		{name: "scheme in capitals", args: ok(`{"label":"l","url":"HTTPS://h/x"}`), want: `{"actions":[{"label":"l","url":"HTTPS://h/x"}],"title":"t"}`},
		{name: "any style", args: ok(`{"label":"l","url":"http://h","style":7}`), want: `{"actions":[{"label":"l","style":7,"url":"http://h"}],"title":"t"}`},
		{name: "null", args: ok(`null`), want: `{"actions":[],"title":"t"}`, dropped: 1},
		{name: "no object", args: ok(`"http://h",7,[]`), want: `{"actions":[],"title":"t"}`, dropped: 3},
		{name: "no label", args: ok(`{"url":"http://h"}`), want: `{"actions":[],"title":"t"}`, dropped: 1},
		{name: "empty label", args: ok(`{"label":"","url":"http://h"}`), want: `{"actions":[],"title":"t"}`, dropped: 1},
		{name: "white label", args: ok(`{"label":" \n","url":"http://h"}`), want: `{"actions":[],"title":"t"}`, dropped: 1},
		{name: "label of another type", args: ok(`{"label":1,"url":"http://h"}`), want: `{"actions":[],"title":"t"}`, dropped: 1},
		{name: "no url", args: ok(`{"label":"l"}`), want: `{"actions":[],"title":"t"}`, dropped: 1},
		{name: "fragment", args: ok(`{"label":"l","url":"#"}`), want: `{"actions":[],"title":"t"}`, dropped: 1},
		{name: "path", args: ok(`{"label":"l","url":"/x"}`), want: `{"actions":[],"title":"t"}`, dropped: 1},
		{name: "mailto", args: ok(`{"label":"l","url":"mailto:a@b"}`), want: `{"actions":[],"title":"t"}`, dropped: 1},
		{name: "javascript", args: ok(`{"label":"l","url":"javascript:alert(1)"}`), want: `{"actions":[],"title":"t"}`, dropped: 1},
		{name: "no host", args: ok(`{"label":"l","url":"https://"}`), want: `{"actions":[],"title":"t"}`, dropped: 1},
		{name: "only a port", args: ok(`{"label":"l","url":"https://:80/"}`), want: `{"actions":[],"title":"t"}`, dropped: 1},
		{name: "white space", args: ok(`{"label":"l","url":"https://h/a b"}`), want: `{"actions":[],"title":"t"}`, dropped: 1},
		{name: "one of two", args: ok(`{"label":"l","url":"https://h"},{"label":"l"}`), want: `{"actions":[{"label":"l","url":"https://h"}],"title":"t"}`, dropped: 1},
		{name: "actions are no array", args: `{"card":{"title":"t","actions":{"a":1}}}`, want: `{"actions":{"a":1},"title":"t"}`},
		{name: "numbers stay", args: `{"card":{"title":"t","actions":9007199254740993}}`, want: `{"actions":9007199254740993,"title":"t"}`},
		{name: "no card", args: `{}`, fails: "`card` is required"},
		{name: "card of another type", args: `{"card":"x"}`, fails: "`card` must be"},
		{name: "empty", args: `{"card":{}}`, fails: "nothing to show"},
		{name: "only internal", args: `{"card":{"title":"<internal>x</internal>"},"fallbackText":"x"}`, fails: "nothing to show"},
		{name: "only bad actions", args: `{"card":{"actions":[{"label":"l","url":"#"}]}}`, fails: "none of its actions"},
		{name: "too large", args: `{"card":{"title":"` + strings.Repeat("x", maxText) + `"}}`, fails: "at most 262144"},
		{name: "fallback too large", args: `{"card":{"title":"x"},"fallbackText":"` + strings.Repeat("x", maxText+1) + `"}`, fails: "at most 262144"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f, got, err := call(t, "send_card", tt.args)
			if tt.fails != "" {
				refused(t, f, err, tt.fails)
				return
			}
			did, _ := f.last()
			c, _ := did.(Card)
			if err != nil || string(c.Card) != tt.want || c.To != tt.card.To || c.Fallback != tt.card.Fallback {
				t.Errorf("sent %s (%+v), %v; want %s", c.Card, c, err, tt.want)
			}
			want := "card sent to me (id: 3)"
			if tt.dropped > 0 {
				want += fmt.Sprintf(left, tt.dropped)
			}
			if got != want {
				t.Errorf("result %q, want %q", got, want)
			}
		})
	}
}
