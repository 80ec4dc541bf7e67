package delivery

import (
	"strings"
	"testing"

	"nanoclaw/internal/channel"
	"nanoclaw/internal/store"
)

var allCaps = channel.Caps{Edit: true, React: true, Buttons: true, Cards: true, Files: true}

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
