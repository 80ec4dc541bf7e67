package chatui

import (
	"strings"
	"unicode"

	"github.com/charmbracelet/x/ansi"
)

// Plain makes a text safe for a terminal: an agent's words may hold escape sequences, which could rewrite the screen or
// worse. Line ends and tabs stay, as \n and four spaces; every other control, and every mark that turns the direction of
// text around, is left out.
func Plain(s string) string {
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\r\n", "\n")
	if strings.IndexFunc(s, func(r rune) bool { return r != '\n' && unsafeRune(r) }) < 0 {
		return s
	}
	var b strings.Builder
	b.Grow(len(s))
	for _, r := range s {
		switch {
		case r == '\n':
			b.WriteByte('\n')
		case r == '\t':
			b.WriteString("    ")
		case !unsafeRune(r):
			b.WriteRune(r)
		}
	}
	return b.String()
}

// line is Plain on one line.
func line(s string) string { return strings.ReplaceAll(Plain(s), "\n", " ") }

func unsafeRune(r rune) bool {
	return unicode.IsControl(r) || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069
}

// wrap cuts a plain text into lines of at most width cells (at least 2): behind spaces and wide characters where it can,
// inside words where it must. Characters that belong together are never cut. It looks at each byte once.
func wrap(s string, width int) []string {
	width = max(width, 2)
	var out []string
	for _, l := range strings.Split(s, "\n") {
		out = wrapLine(out, l, width)
	}
	return out
}

func wrapLine(out []string, s string, width int) []string {
	start, cells := 0, 0   // of the line being filled
	brk, brkCells := -1, 0 // where it may be cut: byte, and cells up to there
	for at := 0; at < len(s); {
		cluster, w := ansi.FirstGraphemeCluster(s[at:], ansi.GraphemeWidth)
		if cluster == "" {
			break
		}
		if cells+w > width && at > start {
			if brk > start {
				out = append(out, strings.TrimRight(s[start:brk], " "))
				start, cells = brk, cells-brkCells
			}
			if cells+w > width && at > start {
				out = append(out, s[start:at])
				start, cells = at, 0
			}
			brk = -1
		}
		at += len(cluster)
		cells += w
		if cluster == " " || w > 1 {
			brk, brkCells = at, cells
		}
	}
	return append(out, s[start:])
}

// clip shortens one line to width cells.
func clip(s string, width int) string { return ansi.Truncate(s, max(width, 0), "…") }
