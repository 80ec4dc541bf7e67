package tool

import (
	"html"
	"strings"
)

// plainHTML is the readable text of a page: without scripts and styles, one line for each block, links with their address.
// Broken markup gives text too.
func plainHTML(page string) string {
	var out htmlText
	href := ""
	for len(page) > 0 {
		at := strings.IndexByte(page, '<')
		if at < 0 {
			out.text(page)
			break
		}
		out.text(page[:at])
		page = page[at:]
		switch {
		case strings.HasPrefix(page, "<!--"):
			_, page, _ = strings.Cut(page[4:], "-->")
			continue
		case len(page) < 2 || !isLetter(page[1]) && page[1] != '/' && page[1] != '!' && page[1] != '?':
			out.text("<")
			page = page[1:]
			continue
		}
		tag, rest := cutTag(page)
		page = rest
		name, closing := tagName(tag)
		switch name {
		case "script", "style", "svg", "template", "noscript", "iframe":
			if !closing && !strings.HasSuffix(tag, "/>") {
				page = after(page, "</"+name)
			}
		case "a":
			switch {
			case !closing:
				href = attribute(tag, "href")
			case strings.HasPrefix(href, "http"):
				out.raw(" (" + href + ")")
				href = ""
			}
		case "br", "hr":
			out.newline(1)
		case "li":
			if !closing {
				out.newline(1)
				out.raw("- ")
			}
		case "td", "th":
			out.raw(" ")
		case "h1", "h2", "h3", "h4", "h5", "h6":
			out.newline(2)
			if !closing {
				out.raw(strings.Repeat("#", int(name[1]-'0')) + " ")
			}
		case "p", "div", "section", "article", "ul", "ol", "table", "tr", "blockquote", "header", "footer", "nav", "main", "title", "dl", "dt", "dd", "form", "figure":
			out.newline(1)
			if name == "p" {
				out.newline(2)
			}
		case "pre":
			out.newline(1)
			out.pre = !closing
		}
	}
	return strings.TrimSpace(out.b.String())
}

type htmlText struct {
	b       strings.Builder
	pre     bool
	breaks  int  // newlines at the end
	space   bool // one is due before the next word
	started bool
}

func (t *htmlText) text(s string) {
	s = html.UnescapeString(s)
	if t.pre {
		t.raw(s)
		return
	}
	for i, w := range strings.Fields(s) {
		if i > 0 || t.space || strings.TrimLeft(s, " \t\r\n\f") != s {
			if t.started && t.breaks == 0 {
				t.b.WriteByte(' ')
			}
		}
		t.space = false
		t.raw(w)
	}
	if s != "" && strings.TrimRight(s, " \t\r\n\f") != s {
		t.space = true
	}
}

func (t *htmlText) raw(s string) {
	if s == "" {
		return
	}
	t.b.WriteString(s)
	t.started, t.breaks = true, 0
}

func (t *htmlText) newline(n int) {
	t.space = false
	for t.started && t.breaks < n {
		t.b.WriteByte('\n')
		t.breaks++
	}
}

func isLetter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }

// cutTag splits behind the > that ends the tag; one inside quotes is not it.
func cutTag(s string) (tag, rest string) {
	quote := byte(0)
	for i := 1; i < len(s); i++ {
		switch c := s[i]; {
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case (c == '"' || c == '\'') && s[i-1] == '=':
			quote = c
		case c == '>':
			return s[:i+1], s[i+1:]
		}
	}
	return s, ""
}

func tagName(tag string) (name string, closing bool) {
	s := strings.TrimPrefix(tag, "<")
	s, closing = strings.CutPrefix(s, "/")
	end := strings.IndexAny(s, " \t\r\n/>")
	if end < 0 {
		end = len(s)
	}
	return strings.ToLower(s[:end]), closing
}

func attribute(tag, name string) string {
	low := strings.ToLower(tag)
	if len(low) != len(tag) {
		return ""
	}
	at := strings.Index(low, name+"=")
	if at < 0 {
		return ""
	}
	v := tag[at+len(name)+1:]
	if v != "" && (v[0] == '"' || v[0] == '\'') {
		v, _, _ = strings.Cut(v[1:], v[:1])
	} else if end := strings.IndexAny(v, " \t\r\n>"); end >= 0 {
		v = v[:end]
	}
	return html.UnescapeString(v)
}

// after is what follows the closing tag; nothing if it never closes.
func after(s, closing string) string {
	for from := 0; ; {
		i := strings.Index(s[from:], "</")
		if i < 0 {
			return ""
		}
		at := from + i
		if len(s)-at >= len(closing) && strings.EqualFold(s[at:at+len(closing)], closing) {
			_, rest := cutTag(s[at:])
			return rest
		}
		from = at + 2
	}
}
