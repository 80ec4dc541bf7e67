package block

import (
	"regexp"
	"strings"
)

// The oracle reads a whole text by the grammar of the package comment, in three plain passes without any state between
// bytes. It looks ahead and copies as it likes. It knows no limits and no segments.

type token struct {
	kind kind
	text string
	to   string
}

func oracle(text string) ([]Item, Rest) {
	tokens, hidden, open := withoutInternal(tokensOf(text))
	var items []Item
	var bare strings.Builder
	for i := 0; i < len(tokens); i++ {
		if tokens[i].kind != openTag {
			bare.WriteString(tokens[i].text)
			continue
		}
		end := balance(tokens, i)
		if end < 0 {
			for end = i + 1; end < len(tokens) && tokens[end].kind != openTag; end++ {
			}
			items = append(items, Item{Fate: Unclosed, To: tokens[i].to, Body: clean(withoutPartialTag(join(tokens[i+1 : end])))})
			i = end - 1
			continue
		}
		item := Item{Fate: Deliver, To: tokens[i].to, Body: clean(join(tokens[i+1 : end]))}
		if item.Body == "" {
			item.Fate = Empty
		}
		items = append(items, item)
		i = end
	}
	for _, to := range hidden {
		items = append(items, Item{Fate: Withheld, To: to})
	}
	return items, Rest{Bare: clean(bare.String()), OpenInternal: open}
}

var (
	openForm     = regexp.MustCompile("^<message[ \t\n\v\f\r]+to=\"([^\"<`\n]+)\"[ \t\n\v\f\r]*>")
	closeForm    = regexp.MustCompile(`^</message>`)
	internalForm = regexp.MustCompile("^(?i:<internal)(?:[ \t\v\f\r/][^<>`\n]*)?>")
	internalStop = regexp.MustCompile(`^(?i:</internal>)`)
	fenceForm    = regexp.MustCompile("^(`{3,})[^`<\n]*\n")
	ticksForm    = regexp.MustCompile("^`+")
	fenceEnd     = regexp.MustCompile("^[ \t\r]*(`{3,})[ \t\r]*(\n|$|</)")
)

func tokensOf(text string) []token {
	var out []token
	fences, lineFrom := true, 0
	for at := 0; at < len(text); {
		rest := text[at:]
		if m := openForm.FindStringSubmatch(rest); m != nil {
			out = append(out, token{openTag, m[0], m[1]})
		} else if m := closeForm.FindString(rest); m != "" {
			out = append(out, token{closeTag, m, ""})
		} else if m := internalForm.FindString(rest); m != "" {
			k := internalOpen
			if strings.HasSuffix(m, "/>") {
				k = internalEmpty
			}
			out = append(out, token{k, m, ""})
		} else if m := internalStop.FindString(rest); m != "" {
			out = append(out, token{internalClose, m, ""})
		} else {
			n := 1
			if m := fenceForm.FindStringSubmatch(rest); m != nil && fences && strings.Trim(text[lineFrom:at], " \t\r") == "" {
				if n = fenceLength(rest, len(m[1]), len(m[0])); n < 0 {
					fences = false
					n = len(m[1])
				}
			} else if m := ticksForm.FindString(rest); m != "" {
				n = spanLength(rest, len(m))
			}
			out = append(out, token{noTag, rest[:n], ""})
			at += n
			if i := strings.LastIndexByte(text[:at], '\n'); i >= lineFrom {
				lineFrom = i + 1
			}
			continue
		}
		at += len(out[len(out)-1].text)
		lineFrom = at
	}
	return out
}

// fenceLength is the length of a fence whose first line has ticks backticks and ends at body, -1 if it is not closed.
func fenceLength(s string, ticks, body int) int {
	for at := body; at <= len(s); {
		if m := fenceEnd.FindStringSubmatchIndex(s[at:]); m != nil && m[3]-m[2] >= ticks {
			if m[5]-m[4] == 2 {
				return at + m[4]
			}
			return at + m[1]
		}
		n := strings.IndexByte(s[at:], '\n')
		if n < 0 {
			break
		}
		at += n + 1
	}
	return -1
}

// spanLength is the length of the code span that s begins with, or of the run of ticks alone.
func spanLength(s string, ticks int) int {
	line, _, _ := strings.Cut(s, "\n")
	for at := ticks; at < len(line); at++ {
		if line[at] != '`' {
			continue
		}
		n := len(ticksForm.FindString(line[at:]))
		if n == ticks {
			return at + n
		}
		at += n
	}
	return ticks
}

func withoutInternal(tokens []token) (out []token, hidden []string, open bool) {
	depth := 0
	for _, t := range tokens {
		switch {
		case t.kind == internalOpen:
			if depth++; depth == 1 {
				hidden = nil
			}
		case t.kind == internalEmpty:
		case t.kind == internalClose && depth > 0:
			if depth--; depth == 0 {
				hidden = nil
			}
		case depth > 0:
			if t.kind == openTag && len(hidden) < maxNames {
				hidden = append(hidden, t.to)
			}
		default:
			if t.kind == internalClose {
				t.kind = noTag
			}
			out = append(out, t)
		}
	}
	return out, hidden, depth > 0
}

func balance(tokens []token, from int) int {
	depth := 0
	for i := from; i < len(tokens); i++ {
		switch tokens[i].kind {
		case openTag:
			depth++
		case closeTag:
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return -1
}

func join(tokens []token) string {
	var b strings.Builder
	for _, t := range tokens {
		b.WriteString(t.text)
	}
	return b.String()
}

func withoutPartialTag(s string) string {
	for n := len("</message>") - 1; n >= 2; n-- {
		if t, ok := strings.CutSuffix(s, "</message>"[:n]); ok {
			return t
		}
	}
	return s
}
