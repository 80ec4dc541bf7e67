package tool

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

const (
	maxHits       = 100
	maxSearchFile = 10 << 20
	maxContext    = 20
)

type globInput struct {
	Pattern string `json:"pattern"`
	Path    string `json:"path"`
}

func (b *Box) glob() Tool {
	return typed(Tool{
		Wire("Glob", `Finds files by name, newest first, 100 at most: **/*.go, docs/*.{md,txt}. What git ignores is left out.`,
			schema(`"pattern"`, `"pattern":{"type":"string"},"path":{"type":"string","description":"folder to look in; yours if you name none"}`)),
		true, nil, nil,
	}, func(ctx context.Context, in globInput) Result {
		root := b.path(in.Path)
		if filepath.IsAbs(in.Pattern) {
			return failed("The pattern is relative to path.")
		}
		if info, err := os.Stat(root); err != nil || !info.IsDir() {
			return failed("%s is no folder.", root)
		}
		patterns := braces(strings.TrimPrefix(in.Pattern, "./"))
		type hit struct {
			path string
			at   time.Time
		}
		var hits []hit
		err := walk(ctx, root, func(rel string, d fs.DirEntry) error {
			if slices.ContainsFunc(patterns, func(p string) bool { return match(p, rel) }) {
				h := hit{path: b.shown(filepath.Join(root, rel))}
				if info, err := d.Info(); err == nil {
					h.at = info.ModTime()
				}
				hits = append(hits, h)
			}
			return nil
		})
		if err != nil {
			return failed("The search failed: %v", err)
		}
		if len(hits) == 0 {
			return Result{Text: "No file has such a name."}
		}
		slices.SortStableFunc(hits, func(a, b hit) int { return b.at.Compare(a.at) })
		var out strings.Builder
		for _, h := range hits[:min(len(hits), maxHits)] {
			out.WriteString(h.path + "\n")
		}
		if len(hits) > maxHits {
			fmt.Fprintf(&out, "[%d more]\n", len(hits)-maxHits)
		}
		return Result{Text: out.String()}
	})
}

type grepInput struct {
	Pattern    string `json:"pattern"`
	Path       string `json:"path"`
	Glob       string `json:"glob"`
	Mode       string `json:"output_mode"`
	IgnoreCase bool   `json:"ignore_case"`
	Context    int    `json:"context"`
}

func (b *Box) grep() Tool {
	return typed(Tool{
		Wire("Grep", `Looks for a regular expression (RE2) in files, line by line. output_mode is content (the lines, with their numbers), files_with_matches or `+
			`count; 100 hits at most. What git ignores, and what is no text, is left out.`,
			schema(`"pattern"`, `"pattern":{"type":"string"},"path":{"type":"string","description":"file or folder; your folder if you name none"},`+
				`"glob":{"type":"string","description":"names of files, such as *.go"},"output_mode":{"type":"string","enum":["content","files_with_matches","count"]},`+
				`"ignore_case":{"type":"boolean"},"context":{"type":"integer","description":"lines before and after each"}`)),
		true, nil, nil,
	}, func(ctx context.Context, in grepInput) Result {
		expr := in.Pattern
		if in.IgnoreCase {
			expr = "(?i)" + expr
		}
		re, err := regexp.Compile(expr)
		if err != nil {
			return failed("The pattern is no regular expression: %v", err)
		}
		s := &grepSearch{re: re, mode: in.Mode, around: min(max(in.Context, 0), maxContext)}
		root := b.path(in.Path)
		info, err := os.Stat(root)
		if err != nil {
			return failed("%s cannot be searched: %s", in.Path, reason(err))
		}
		if !info.IsDir() {
			s.file(root, b.shown(root))
			return s.result()
		}
		names := braces(in.Glob)
		err = walk(ctx, root, func(rel string, d fs.DirEntry) error {
			if s.hits >= maxHits {
				s.more = true
				return errStop
			}
			if !d.Type().IsRegular() || in.Glob != "" && !slices.ContainsFunc(names, func(p string) bool {
				return match(p, rel) || match(p, path.Base(rel))
			}) {
				return nil
			}
			full := filepath.Join(root, rel)
			s.file(full, b.shown(full))
			return nil
		})
		if err != nil {
			return failed("The search failed: %v", err)
		}
		return s.result()
	})
}

type grepSearch struct {
	re     *regexp.Regexp
	mode   string
	around int
	out    strings.Builder
	hits   int
	more   bool
}

func (s *grepSearch) result() Result {
	if s.hits == 0 {
		return Result{Text: "Nothing was found."}
	}
	if s.more {
		s.out.WriteString("[there is more: narrow the search]\n")
	}
	return Result{Text: s.out.String()}
}

func (s *grepSearch) file(full, shown string) {
	f, info, err := openRegular(full)
	if err != nil || info.Size() > maxSearchFile {
		return
	}
	defer func() { _ = f.Close() }()
	content := make([]byte, info.Size())
	n, _ := f.ReadAt(content, 0) // what can be read is searched
	content = content[:n]
	if bytes.IndexByte(content[:min(n, 8000)], 0) >= 0 || !s.re.Match(content) && !multiline(s.re) {
		return
	}
	lines := bytes.Split(bytes.TrimSuffix(content, []byte("\n")), []byte("\n"))
	var found []int
	for i, l := range lines {
		if s.re.Match(bytes.TrimSuffix(l, []byte("\r"))) {
			found = append(found, i)
		}
	}
	if len(found) == 0 {
		return
	}
	switch s.mode {
	case "count":
		fmt.Fprintf(&s.out, "%s:%d\n", shown, len(found))
		s.hits++
	case "content":
		s.lines(shown, lines, found)
	default:
		s.out.WriteString(shown + "\n")
		s.hits++
	}
}

// multiline: anchors mean another thing in the whole text than in a line.
func multiline(re *regexp.Regexp) bool { return strings.ContainsAny(re.String(), "^$") }

func (s *grepSearch) lines(shown string, lines [][]byte, found []int) {
	last := -1
	for _, at := range found {
		if s.hits >= maxHits {
			s.more = true
			return
		}
		s.hits++
		from := max(at-s.around, last+1)
		if s.around > 0 && last >= 0 && from > last+1 {
			s.out.WriteString("--\n")
		}
		for i := from; i <= min(at+s.around, len(lines)-1); i++ {
			sep := "-"
			if s.re.Match(bytes.TrimSuffix(lines[i], []byte("\r"))) {
				sep = ":"
			}
			text := clean(string(lines[i][:min(len(lines[i]), 500)]))
			fmt.Fprintf(&s.out, "%s%s%d%s%s\n", shown, sep, i+1, sep, strings.TrimSuffix(text, "\r"))
			last = i
		}
	}
}
