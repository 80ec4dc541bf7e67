package slash

import (
	"strings"
	"testing"
)

// W6: whole words in both places. W7: a path is no command.
func TestW6Find(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text string
		word string // empty: not a command
	}{
		{"/clear", Clear}, {" /CLEAR \n", Clear}, {"/stop", Stop}, {"/compact", Compact}, {"/compact keep the names", Compact},
		{"/compact\nkeep the names", Compact}, {"/upload-trace", UploadTrace}, {"/review now", "/review"}, {"/help", "/help"},
		{"/clearx", ""}, {"/upload-tracex", ""}, {"/clear the table, please", ""}, {"/stop it", ""}, {"/stopx", ""}, {"clear", ""},
		{"/etc/passwd is what?", ""}, {"/", ""}, {"", ""}, {"please /clear", ""}, {"/reviews", ""}, {"//clear", ""}, {"/cost?", ""},
	} {
		got, ok := Find(c.text, "/review")
		if ok != (c.word != "") || ok && got.Word != c.word {
			t.Errorf("%q is %q (%v), want %q", c.text, got.Word, ok, c.word)
		}
	}
}

func TestTableIsSound(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, c := range Commands() {
		if seen[c.Word] || c.Word != strings.ToLower(c.Word) || !strings.HasPrefix(c.Word, "/") || strings.ContainsAny(c.Word, " \t\n") || c.By == "" {
			t.Errorf("%+v is twice in the table or cannot be typed", c)
		}
		seen[c.Word] = true
	}
	for _, w := range []string{Clear, Compact, Context, Cost, Files, Stop, UploadTrace} {
		if !seen[w] {
			t.Errorf("%s is not in the table", w)
		}
	}
}
