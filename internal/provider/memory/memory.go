// Package memory finds what an agent's folder tells the model: CLAUDE.md or AGENTS.md with what they import, and skills.
package memory

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"nanoclaw/internal/obs"
)

const (
	maxFile  = 256 << 10
	maxAll   = 512 << 10
	maxDepth = 5
)

// Places is where to look.
type Places struct {
	Cwd  string   // the agent's folder
	Dirs []string // further folders
	Home string   // of the user; its .claude is looked at too; "": none
	Log  *slog.Logger
}

// roots are the folders out of which nothing is imported, links resolved.
func (p Places) roots() []string {
	var out []string
	for _, d := range append([]string{p.Cwd}, p.Dirs...) {
		if real, err := filepath.EvalSymlinks(d); err == nil && d != "" {
			out = append(out, real)
		}
	}
	if p.Home != "" {
		if real, err := filepath.EvalSymlinks(filepath.Join(p.Home, ".claude")); err == nil {
			out = append(out, real)
		}
	}
	return out
}

// Instructions is the text of the memory files: that of the user, then of each folder, CLAUDE.md or else AGENTS.md, then
// CLAUDE.local.md. Missing files are no error; an import that is missing, goes in a circle or leaves the folders is left out and logged.
func (p Places) Instructions() string {
	l := loader{Places: p, within: p.roots(), seen: map[string]bool{}}
	if l.Log == nil {
		l.Log = obs.Discard()
	}
	if p.Home != "" {
		l.file(filepath.Join(p.Home, ".claude", "CLAUDE.md"), "", 0)
	}
	for _, d := range append([]string{p.Cwd}, p.Dirs...) {
		if d == "" {
			continue
		}
		if !l.file(filepath.Join(d, "CLAUDE.md"), "", 0) {
			l.file(filepath.Join(d, "AGENTS.md"), "", 0)
		}
		l.file(filepath.Join(d, "CLAUDE.local.md"), "", 0)
	}
	return strings.TrimSpace(l.out.String())
}

type loader struct {
	Places
	within []string
	seen   map[string]bool // real paths
	out    strings.Builder
}

// file adds one file and what it imports. from is the file that imports it.
func (l *loader) file(path, from string, depth int) bool {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		if from != "" {
			l.Log.Warn("an imported file is not there", obs.KeyPath, path, slog.String(obs.KeyFrom, from))
		}
		return false
	}
	if !slices.ContainsFunc(l.within, func(root string) bool { return inside(root, real) }) {
		l.Log.Warn("a file outside of the agent's folders is not imported", obs.KeyPath, path)
		return false
	}
	if l.seen[real] {
		return true
	}
	info, err := os.Stat(real)
	if err != nil || !info.Mode().IsRegular() || info.Size() > maxFile || l.out.Len() > maxAll {
		l.Log.Warn("a memory file is no regular file, or too large", obs.KeyPath, path)
		return false
	}
	content, err := os.ReadFile(real)
	if err != nil {
		l.Log.Warn("a memory file cannot be read", obs.KeyPath, path, obs.Error(err))
		return false
	}
	l.seen[real] = true
	text := strings.TrimSpace(strings.ToValidUTF8(string(content), "\uFFFD"))
	if text != "" {
		fmt.Fprintf(&l.out, "# From %s\n\n%s\n\n", path, text)
	}
	if depth == maxDepth {
		return true
	}
	for _, name := range imports(text) {
		if rest, ok := strings.CutPrefix(name, "~/"); ok {
			name = filepath.Join(l.Home, rest)
		} else if !filepath.IsAbs(name) {
			name = filepath.Join(filepath.Dir(path), name)
		}
		l.file(name, path, depth+1)
	}
	return true
}

func inside(root, path string) bool {
	rel, err := filepath.Rel(root, path)
	return err == nil && filepath.IsLocal(rel)
}

var importForm = regexp.MustCompile(`(?:^|\s)@([^\s@` + "`" + `]*[\w/])`)

var codeSpan = regexp.MustCompile("`[^`\n]*`")

// imports are the paths behind an @ at the beginning of a word, but for those in code. A word without dot or slash is no path
// but somebody's name.
func imports(text string) []string {
	var out []string
	fence := ""
	for line := range strings.Lines(text) {
		trimmed := strings.TrimSpace(line)
		if fence != "" {
			if strings.HasPrefix(trimmed, fence) {
				fence = ""
			}
			continue
		}
		if strings.HasPrefix(trimmed, "```") || strings.HasPrefix(trimmed, "~~~") {
			fence = trimmed[:3]
			continue
		}
		for _, m := range importForm.FindAllStringSubmatch(codeSpan.ReplaceAllString(line, " "), -1) {
			if strings.ContainsAny(m[1], "./") {
				out = append(out, m[1])
			}
		}
	}
	return out
}
