package admin

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"nanoclaw/internal/control"
)

// render is an answer for people: its own words as they are, a list of flat objects as a table, anything else as JSON with
// instants in local time. note is for stderr.
func render(f control.Frame, zone *time.Location) (out, note string, err error) {
	if f.Human != "" {
		return strings.TrimSuffix(f.Human, "\n") + "\n", "", nil
	}
	if len(f.Data) == 0 {
		return "", "", nil
	}
	t, err := readTree(f.Data)
	if err != nil {
		return "", "", fmt.Errorf("the host's answer cannot be read: %w", err)
	}
	switch {
	case t.kind == null:
		return "", "", nil
	case t.kind == text:
		return printable(local(t.text, zone)) + "\n", "", nil
	case t.kind == array && len(t.items) == 0:
		return "", "the list is empty", nil
	case isTable(t):
		return table(t, zone), "", nil
	}
	var b strings.Builder
	pretty(&b, t, zone, "")
	return b.String() + "\n", "", nil
}

// isTable reports whether t is a list of objects that hold no others.
func isTable(t tree) bool {
	return t.kind == array && !slices.ContainsFunc(t.items, func(row tree) bool {
		return row.kind != object || len(row.keys) == 0 || slices.ContainsFunc(row.items, func(v tree) bool { return !v.scalar() })
	})
}

// table pads columns to their widest cell, two spaces between them; the columns are all keys in the order in which they appear.
func table(t tree, zone *time.Location) string {
	var columns []string
	for _, row := range t.items {
		for _, key := range row.keys {
			if !slices.Contains(columns, key) {
				columns = append(columns, key)
			}
		}
	}
	grid := [][]string{make([]string, len(columns)), make([]string, len(columns))}
	for i, c := range columns {
		grid[0][i] = cell(c)
	}
	for _, row := range t.items {
		cells := make([]string, len(columns))
		for i, v := range row.items {
			if v.kind != null {
				cells[slices.Index(columns, row.keys[i])] = cell(local(v.text, zone))
			}
		}
		grid = append(grid, cells)
	}
	widths := make([]int, len(columns))
	for _, cells := range grid {
		for i, c := range cells {
			widths[i] = max(widths[i], utf8.RuneCountInString(c))
		}
	}
	for i, w := range widths {
		grid[1][i] = strings.Repeat("-", w)
	}
	var b strings.Builder
	for _, cells := range grid {
		var l strings.Builder
		for i, c := range cells {
			l.WriteString(c + strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c)+2))
		}
		b.WriteString(strings.TrimRight(l.String(), " ") + "\n")
	}
	return b.String()
}

// pretty writes JSON with two spaces a level.
func pretty(b *strings.Builder, t tree, zone *time.Location, indent string) {
	open, end := "[", "]"
	switch t.kind {
	case object:
		open, end = "{", "}"
	case array:
	case text:
		b.WriteString(quote(local(t.text, zone)))
		return
	default:
		b.WriteString(t.text)
		return
	}
	b.WriteString(open)
	for i, v := range t.items {
		if i > 0 {
			b.WriteString(",")
		}
		b.WriteString("\n" + indent + "  ")
		if t.kind == object {
			b.WriteString(quote(t.keys[i]) + ": ")
		}
		pretty(b, v, zone, indent+"  ")
	}
	if len(t.items) > 0 {
		b.WriteString("\n" + indent)
	}
	b.WriteString(end)
}

func quote(s string) string {
	var b strings.Builder
	if encode(&b, s) != nil {
		return strconv.Quote(s)
	}
	return printable(strings.TrimSuffix(b.String(), "\n"))
}

var instant = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d{1,9})?)?Z$`)

// local shows a text that is an instant in UTC, as a whole, in the zone: 2006-01-02 15:04.
func local(s string, zone *time.Location) string {
	if !instant.MatchString(s) {
		return s
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04Z"} {
		if at, err := time.Parse(layout, s); err == nil {
			return at.In(zone).Format("2006-01-02 15:04")
		}
	}
	return s
}

// printable keeps what others have named from steering the terminal; line ends and tabs stay.
func printable(s string) string {
	return escape(s, func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' })
}

// cell is printable in one line.
func cell(s string) string { return escape(s, unicode.IsControl) }

func escape(s string, bad func(rune) bool) string {
	if !strings.ContainsFunc(s, bad) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if bad(r) {
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}
