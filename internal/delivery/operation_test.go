package delivery

import (
	"strconv"
	"strings"
	"testing"

	"nanoclaw/internal/channel"
	"nanoclaw/internal/store"
)

var allCaps = channel.Caps{Edit: true, React: true, Buttons: true, Cards: true, Files: true}

const (
	askedJSON = `{"type":"ask_question","questionId":"out-1","title":"Deploy","question":"Now?","options":[{"label":"Yes","selectedLabel":"Yes, now","value":"y"},{"label":"Later"}]}`
	cardJSON  = `{"type":"card","card":{"title":"T","description":"D","children":["p",{"text":"q"},7],"actions":[{"label":"more","url":"https://example.org/a"},` +
		`{"label":"bad","url":"javascript:alert(1)"},{"label":"","url":"https://example.org"},{"url":5}]},"fallbackText":"in words"}`
)

// What a row becomes in a chat that can do everything and in one that can only write.
func TestOperations(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		content, able, plain string // what the platform gets, or ! and a part of the refusal
	}{
		"text":                           {`{"text":"hi"}`, "hi", "hi"},
		"edit":                           {`{"operation":"edit","messageId":"p1","text":"new"}`, "new[edit p1]", "!cannot do that"},
		"reaction":                       {`{"operation":"reaction","messageId":"p1","emoji":"👍","text":"x"}`, "[react p1👍]", "!cannot do that"},
		"reaction to nothing":            {`{"operation":"reaction","emoji":"👍"}`, "!names no message", "!names no message"},
		"unknown operation":              {`{"operation":"delete","messageId":"p1"}`, "!not known", "!not known"},
		"question":                       {askedJSON, "[question ] ?Deploy/Now?/2", "Deploy\n\nNow?\n\n1. Yes\n2. Later\n\nAnswer with a number."},
		"card":                           {cardJSON, "[card ] card:T/1", "in words"},
		"card without fallback":          {strings.Replace(cardJSON, "in words", "", 1), "[card ] card:T/1", "T\n\nD\n\np\n\nq\n\nmore: https://example.org/a"},
		"empty card":                     {`{"type":"card","card":{"actions":[{"label":"x","url":"file:///etc/passwd"}]}}`, "!nothing to show", "!nothing to show"},
		"card that is none":              {`{"type":"card","card":7}`, "!cannot be read", "!cannot be read"},
		"unknown type":                   {`{"type":"poll"}`, "!not known", "!not known"},
		"only the host closes questions": {`{"type":"question_closed","questionId":"led-1"}`, "!not known", "!not known"},
		"files":                          {`{"text":"see","files":["a.txt","b"]}`, "see (a.txt b)", "see\n\n[This chat takes no files. Not sent: a.txt, b]"},
		"a file alone":                   {`{"files":["a.txt"]}`, " (a.txt)", "[This chat takes no files. Not sent: a.txt]"},
		"a file twice":                   {`{"files":["a.txt","a.txt"]}`, "!twice", "!twice"},
		"nothing":                        {`{"text":" "}`, "!no text", "!no text"},
		"not an object":                  {`[]`, "!not a chat message", "!not a chat message"},
		"too many files":                 {`{"files":["` + strings.Join(numbers(21), `","`) + `"]}`, "!at most 20", "!at most 20"},
		"another's id":                   {strings.Replace(askedJSON, "out-1", "out-2", 1), "!not that of its row", "!not that of its row"},
		"no options":                     {`{"type":"ask_question","questionId":"out-1","title":"t","question":"q","options":[]}`, "!0 options", "!0 options"},
		"eleven options":                 {`{"type":"ask_question","questionId":"out-1","title":"t","question":"q","options":[{"label":"` + strings.Join(numbers(11), `"},{"label":"`) + `"}]}`, "!11 options", "!11 options"},
		"same values":                    {`{"type":"ask_question","questionId":"out-1","title":"t","question":"q","options":[{"label":"a"},{"label":"b","value":"a"}]}`, "!the value", "!the value"},
		"no title":                       {`{"type":"ask_question","questionId":"out-1","question":"q","options":[{"label":"a"}]}`, "!no title", "!no title"},
		"no label":                       {`{"type":"ask_question","questionId":"out-1","title":"t","question":"q","options":[{"value":"a"}]}`, "!no label", "!no label"},
		"label too long":                 {`{"type":"ask_question","questionId":"out-1","title":"t","question":"q","options":[{"label":"` + strings.Repeat("x", 201) + `"}]}`, "!too long", "!too long"},
		"options of text":                {`{"type":"ask_question","questionId":"out-1","title":"t","question":"q","options":["a"]}`, "!cannot be read", "!cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for want, caps := range map[string]channel.Caps{c.able: allCaps, c.plain: {}} {
				if c.able == c.plain {
					caps = allCaps
				}
				out, err := (&Service{}).outgoing(t.Context(), &store.Ledger{Kind: "chat", OutboundID: "out-1", Content: []byte(c.content)}, caps)
				got := out.op.Text + shown(out.op)
				if len(out.files) > 0 {
					got += " (" + strings.Join(out.files, " ") + ")"
				}
				if err != nil {
					got = "!" + err.Error()
				}
				if refusal, refused := strings.CutPrefix(want, "!"); got != want && (!refused || err == nil || !strings.Contains(err.Error(), refusal)) {
					t.Errorf("with %+v: %q, want %q", caps, got, want)
				}
			}
		})
	}
}

func numbers(n int) (out []string) {
	for i := range n {
		out = append(out, strconv.Itoa(i))
	}
	return out
}

func FuzzOperation(f *testing.F) {
	f.Add([]byte(`{"text":"x"}`), true)
	f.Add([]byte(`{"operation":"edit","messageId":"1"}`), true)
	f.Add([]byte(`{"operation":7}`), false)
	f.Add([]byte(`{"text":"x","files":["a.txt","../b"]}`), false)
	f.Add([]byte(`{"type":"ask_question","questionId":"q","title":"t","question":"?","options":[{"label":"a"},{"label":"b","value":"c"}]}`), true)
	f.Add([]byte(`{"type":"card","card":{"title":"t","children":["a",{"text":"b"}],"actions":[{"label":"l","url":"https://example.org"}]}}`), false)
	f.Fuzz(func(t *testing.T, content []byte, able bool) {
		caps := channel.Caps{}
		if able {
			caps = allCaps
		}
		out, err := (&Service{}).outgoing(t.Context(), &store.Ledger{Kind: "chat", OutboundID: "q", Content: content}, caps)
		if err != nil {
			return
		}
		op := out.op
		switch op.Kind {
		case channel.OpText:
			if strings.TrimSpace(op.Text) == "" && len(out.files) == 0 {
				t.Errorf("%q became a message without text", content)
			}
		case channel.OpEdit, channel.OpReact:
			if op.Target == "" {
				t.Errorf("%q became a change of no message", content)
			}
		case channel.OpQuestion:
			if n := len(op.Question.Options); n < 1 || n > channel.MaxOptions {
				t.Errorf("%q became a question with %d options", content, n)
			}
		case channel.OpCard:
			for _, l := range op.Card.Links {
				if !strings.HasPrefix(strings.ToLower(l.URL), "http") {
					t.Errorf("%q became a card with the link %q", content, l.URL)
				}
			}
		default:
			t.Errorf("%q became %s", content, op.Kind)
		}
		if !able && (op.Kind != channel.OpText || len(out.files) > 0) {
			t.Errorf("%q became %s for a chat that can write only", content, op.Kind)
		}
	})
}
