package tool

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestEmoji(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"👍": "👍", " 👍 ": "👍", "❤️": "❤️", "👍🏽": "👍🏽", "👩‍👩‍👧‍👦": "👩‍👩‍👧‍👦", "🇩🇪": "🇩🇪", "#️⃣": "#️⃣", "1️⃣": "1️⃣", "🏴󠁧󠁢󠁥󠁮󠁧󠁿": "🏴󠁧󠁢󠁥󠁮󠁧󠁿", "‼️": "‼️", "™️": "™️", "☑": "☑",
		":thumbs_up:": "👍", "thumbs_up:": "👍", "thumbs_up": "👍", ":thumbsup:": "👍", "+1": "👍", ":+1:": "👍", "-1": "👎", "Heart": "❤️", "point_down": "👇",
	} {
		if got, err := parseEmoji(in); got != want || err != nil {
			t.Errorf("%q: %q, %v; want %q", in, got, err, want)
		}
	}
	for in, why := range map[string]string{
		"": "is required", "  ": "is required", ":": "neither", "::": "neither", ":partyparrot:": "give the character itself", "hello": "neither", "ä": "neither", "1": "neither", "#": "neither",
		"👍 👎": "neither", "👍\n": "", "👍x": "neither", "<👍>": "neither", "\u200d": "neither", "\ufe0f": "neither", "👍\u202e": "neither", "\ufffd": "neither", "👍\x00": "neither",
		strings.Repeat("👍", 17): "at most 64",
	} {
		got, err := parseEmoji(in)
		if why == "" {
			if err != nil {
				t.Errorf("%q: %v", in, err)
			}
		} else if err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%q: %q, %v; want %q", in, got, err, why)
		}
	}
}

// The table: every line has one emoji and at least one name, and no name stands twice.
func TestShortNames(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for line := range strings.Lines(shortNames) {
		words := strings.Fields(line)
		if len(words) < 2 || !isEmoji(words[0]) {
			t.Errorf("line %q", line)
			continue
		}
		for _, name := range words[1:] {
			if other, ok := seen[name]; ok || name != strings.ToLower(name) {
				t.Errorf("%s stands for %s and %s", name, other, words[0])
			}
			seen[name] = words[0]
		}
	}
}

func FuzzEmoji(f *testing.F) {
	for _, s := range []string{"👍", ":+1:", "👩‍👩‍👧‍👦", "#️⃣", "a👍", "\xff", "👍\u202e"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		got, err := parseEmoji(in)
		if err != nil {
			return
		}
		if got == "" || len(got) > maxEmoji || !utf8.ValidString(got) || strings.ContainsFunc(got, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsLetter(r) || unicode.IsControl(r) }) {
			t.Fatalf("%q became %q", in, got)
		}
		if again, err := parseEmoji(got); err != nil || again != got {
			t.Fatalf("%q became %q, and that %q, %v", in, got, again, err)
		}
	})
}
