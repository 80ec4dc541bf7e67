package tool

import (
	"bufio"
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// maxWalk is how many entries a search looks at.
const maxWalk = 200_000

var errStop = errors.New("enough")

// walk calls each with the files below root that git would not ignore, in order of name. rel has forward slashes. It does not follow
// links.
func walk(ctx context.Context, root string, each func(rel string, d fs.DirEntry) error) error {
	rules := map[string][]ignoreRule{} // folder → rules of its own file
	count := 0
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			if d != nil && d.IsDir() {
				return filepath.SkipDir
			}
			return nil // what cannot be read is not found
		}
		if count++; count > maxWalk {
			return errStop
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if rel == "." {
			rules[""] = readIgnore(filepath.Join(p, ".gitignore"))
			return nil
		}
		if d.IsDir() {
			if d.Name() == ".git" || d.Name() == "node_modules" || ignored(rules, rel, true) {
				return filepath.SkipDir
			}
			if own := readIgnore(filepath.Join(p, ".gitignore")); own != nil {
				rules[rel] = own
			}
			return nil
		}
		if ignored(rules, rel, false) {
			return nil
		}
		return each(rel, d)
	})
	if errors.Is(err, errStop) {
		return nil
	}
	return err
}

type ignoreRule struct {
	pattern string
	not     bool // it takes back
	dir     bool // folders only
	rooted  bool // counts from the folder of its file, not at any depth
}

func readIgnore(file string) []ignoreRule {
	f, err := os.Open(file)
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }()
	var out []ignoreRule
	for s := bufio.NewScanner(f); s.Scan(); {
		line := strings.TrimRight(s.Text(), " \t\r")
		if line == "" || line[0] == '#' {
			continue
		}
		var r ignoreRule
		line, r.not = strings.CutPrefix(line, "!")
		line, r.dir = strings.CutSuffix(line, "/")
		r.rooted = strings.Contains(line, "/")
		if r.pattern = strings.TrimPrefix(line, "/"); r.pattern != "" {
			out = append(out, r)
		}
	}
	return out
}

// ignored looks through the rules of all folders above; the last one that fits counts.
func ignored(rules map[string][]ignoreRule, rel string, dir bool) bool {
	out := false
	for at := 0; ; {
		folder, below := "", rel
		if at > 0 {
			folder, below = rel[:at-1], rel[at:]
		}
		for _, r := range rules[folder] {
			if r.dir && !dir {
				continue
			}
			name := below
			if !r.rooted {
				name = path.Base(below)
			}
			if match(r.pattern, name) {
				out = !r.not
			}
		}
		i := strings.IndexByte(rel[at:], '/')
		if i < 0 {
			return out
		}
		at += i + 1
	}
}

// match is path.Match with ** for any number of folders.
func match(pattern, name string) bool {
	return matchParts(strings.Split(pattern, "/"), strings.Split(name, "/"))
}

func matchParts(pattern, name []string) bool {
	for len(pattern) > 0 {
		if pattern[0] == "**" {
			for len(pattern) > 1 && pattern[1] == "**" {
				pattern = pattern[1:]
			}
			if len(pattern) == 1 {
				return true
			}
			for i := range name {
				if matchParts(pattern[1:], name[i:]) {
					return true
				}
			}
			return false
		}
		if len(name) == 0 {
			return false
		}
		if ok, err := path.Match(pattern[0], name[0]); err != nil || !ok {
			return false
		}
		pattern, name = pattern[1:], name[1:]
	}
	return len(name) == 0
}

// braces opens {a,b}: path.Match knows no alternatives.
func braces(pattern string) []string {
	open := strings.IndexByte(pattern, '{')
	if open < 0 {
		return []string{pattern}
	}
	depth, parts, from := 0, []string{}, open+1
	for i := open; i < len(pattern); i++ {
		switch pattern[i] {
		case '{':
			depth++
		case ',':
			if depth == 1 {
				parts, from = append(parts, pattern[from:i]), i+1
			}
		case '}':
			if depth--; depth > 0 {
				continue
			}
			var out []string
			for _, p := range append(parts, pattern[from:i]) {
				if len(out) > 100 {
					break
				}
				out = append(out, braces(pattern[:open]+p+pattern[i+1:])...)
			}
			return out
		}
	}
	return []string{pattern}
}
