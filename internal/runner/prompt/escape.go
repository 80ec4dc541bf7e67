package prompt

import (
	"strings"
	"unicode"
)

// escape makes text harmless inside an element or an attribute: the four characters of markup become entities, and control
// characters and non-characters, which no message needs, are dropped (spec/runner.md section 6.4).
func escape(s string) string { return escapeWith(s, "&quot;") }

// escapeJSON is escape for JSON inside an element. Quotes end nothing there and stay: there are many, and entities for them would
// make it hard to read and twice as long (spec/runner.md W13).
func escapeJSON(s string) string { return escapeWith(s, `"`) }

func escapeWith(s, quote string) string {
	var b strings.Builder
	b.Grow(len(s))
	for _, r := range s {
		switch {
		case r == '&':
			b.WriteString("&amp;")
		case r == '<':
			b.WriteString("&lt;")
		case r == '>':
			b.WriteString("&gt;")
		case r == '"':
			b.WriteString(quote)
		case r == '\ufffe', r == '\uffff':
		case r == '\n', r == '\t', !unicode.IsControl(r): // a broken byte arrives here as U+FFFD
			b.WriteRune(r)
		}
	}
	return b.String()
}

// attrText is escape for what must stay on one line: attributes, names of files, addresses.
func attrText(s string) string {
	return escape(strings.Join(strings.Fields(s), " "))
}

// element writes the elements of a prompt.
type element struct {
	strings.Builder
	name string
}

func newElement(name string) *element {
	e := &element{name: name}
	e.WriteString("<" + name)
	return e
}

// attr adds an attribute; an empty value leaves it out.
func (e *element) attr(name, value string) {
	if value != "" {
		e.WriteString(" " + name + "=\"" + attrText(value) + "\"")
	}
}

// close ends the element around a body that is escaped already.
func (e *element) close(body string) string {
	e.WriteString(">" + body + "</" + e.name + ">")
	return e.String()
}
