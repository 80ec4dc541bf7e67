package channel

import (
	"fmt"
	"strings"
)

// Plain is the question for chats without buttons: its options are numbered, and the number or the label answers it.
func (q Question) Plain() string {
	var b strings.Builder
	b.WriteString(paragraphs(q.Title, q.Text))
	b.WriteString("\n")
	for i, o := range q.Options {
		fmt.Fprintf(&b, "\n%d. %s", i+1, o.Label)
	}
	b.WriteString("\n\nAnswer with a number.")
	return b.String()
}

// Plain is the card for chats that show none: the agent's own words for this case, or else all that is on it.
func (c Card) Plain() string {
	if strings.TrimSpace(c.Fallback) != "" {
		return c.Fallback
	}
	parts := append([]string{c.Title, c.Body}, c.Paragraphs...)
	for _, l := range c.Links {
		parts = append(parts, l.Label+": "+l.URL)
	}
	return paragraphs(parts...)
}

func paragraphs(parts ...string) string {
	kept := parts[:0:0]
	for _, p := range parts {
		if p = strings.TrimSpace(p); p != "" {
			kept = append(kept, p)
		}
	}
	return strings.Join(kept, "\n\n")
}
