package mailbox

import (
	"encoding/json"
	"strings"
	"testing"
)

// P6: a note is read as a sandbox may have written it.
func FuzzDecodeNote(f *testing.F) {
	for _, s := range []string{`{}`, `{"exchange":"ex-1"}`, `{"exchange":"ex-1","tools":[{"name":"a\u001b[2J"}],"lost":[{"to":"x","why":"y"}],"more":-3}`, `[]`, `{"exchange":"ex-1","retries":["a","b"]}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, value string) {
		n := DecodeNote("ex-1", value)
		if n == nil {
			return
		}
		b, err := json.Marshal(n)
		if err != nil || n.Exchange != "ex-1" || n.More < 0 || len(n.Tools) > NoteItems || len(n.Lost) > NoteItems || len(n.Retries) > NoteItems {
			t.Fatalf("%s %v", b, err)
		}
		for _, tool := range n.Tools {
			if len(tool.Name) > noteWord+len("…") || strings.ContainsAny(tool.Name, "\x1b\n") {
				t.Fatalf("%q", tool.Name)
			}
		}
	})
}

func TestNotesOfOthers(t *testing.T) {
	t.Parallel()
	if DecodeNote("ex-2", `{"exchange":"ex-1"}`) != nil || DecodeNote("", `{"exchange":""}`) != nil || DecodeNote("ex-1", `broken`) != nil {
		t.Error("a note of another exchange was taken")
	}
	keys := map[string]bool{}
	for i := range 1000 {
		keys[NoteKey("ex-"+strings.Repeat("a", i))] = true
	}
	if len(keys) > noteSlots || len(keys) < noteSlots/2 {
		t.Errorf("%d places", len(keys))
	}
}
