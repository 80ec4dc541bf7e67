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
	s = strings.ReplaceAll(s, "\r\n", "\n")
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

func unsafeRune(r rune) bool {
	return unicode.IsControl(r) || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069
}

// wrap cuts a plain text into lines of at most width cells: at spaces where it can, inside words where it must. Wide
// characters count two cells and are never cut.
func wrap(s string, width int) []string {
	return strings.Split(ansi.Wrap(s, max(width, 2), ""), "\n")
}

// clip shortens one line to width cells.
func clip(s string, width int) string { return ansi.Truncate(s, max(width, 0), "…") }
