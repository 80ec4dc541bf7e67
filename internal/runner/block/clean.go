package block

import (
	"math"
	"strings"
	"unicode"
)

// StripInternal removes internal spans, nested ones whole, from a complete text (of a tool call, a notice). Spans in code
// stay. A span that is not closed is removed to the end of the text: it is never shown.
func StripInternal(text string) string {
	if !strings.Contains(text, "<") {
		return text
	}
	p := New()
	p.strip = true
	p.bare.max = len(text)
	p.feed(text)
	p.endLexer()
	return string(p.bare.b)
}

// Inline is a complete text in one piece: internal spans are removed, every block is replaced in its place by what show makes of it,
// and harness tags at the end are removed. show is called in the order of the text, with any fate but Withheld. Tags in code stay.
func Inline(text string, show func(Item) string) string {
	p := New()
	p.show = show
	p.bare.max = math.MaxInt
	p.feed(text)
	p.endLexer()
	p.finish()
	return clean(string(p.bare.b))
}

// CleanHarness removes a run of tags of a model's tool-call notation, and the white space around them, from the end of
// text. Such tags anywhere else stay. It returns text unchanged if there are none (spec/runner.md section 4.8).
func CleanHarness(text string) string {
	rest := text
	for {
		t := strings.TrimRightFunc(rest, unicode.IsSpace)
		at := strings.LastIndexByte(t, '<')
		if at < 0 || !harnessTag(t[at:]) {
			break
		}
		rest = t[:at]
	}
	if len(rest) == len(text) {
		return text
	}
	return strings.TrimRightFunc(rest, unicode.IsSpace)
}

// harnessTag reports whether s, which starts with '<' and has no other, is one tag of the notation.
func harnessTag(s string) bool {
	end := strings.IndexByte(s, '>')
	if end != len(s)-1 {
		return false
	}
	name := strings.TrimPrefix(s[1:end], "/")
	if i := strings.IndexFunc(name, unicode.IsSpace); i >= 0 {
		name = name[:i]
	}
	switch strings.ToLower(strings.TrimSuffix(name, "/")) {
	case "parameter", "invoke", "function_calls", "function_results", "dispatch":
		return true
	}
	return false
}

func clean(s string) string {
	return strings.TrimSpace(CleanHarness(strings.TrimSpace(s)))
}
