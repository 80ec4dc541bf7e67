package memory

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	maxSkills      = 100
	maxDescription = 1024
)

// Skill is a folder with a SKILL.md: the model knows its name and description, and reads the rest when it needs it.
type Skill struct {
	Name        string
	Description string
	Dir         string
}

// Skills are those below .claude/skills and skills of each folder and of the user, by name. The first of a name counts.
func (p Places) Skills() []Skill {
	var dirs []string
	for _, d := range append([]string{p.Cwd}, p.Dirs...) {
		if d != "" {
			dirs = append(dirs, filepath.Join(d, ".claude", "skills"), filepath.Join(d, "skills"))
		}
	}
	if p.Home != "" {
		dirs = append(dirs, filepath.Join(p.Home, ".claude", "skills"))
	}
	var out []Skill
	for _, d := range dirs {
		entries, err := os.ReadDir(d)
		if err != nil {
			continue
		}
		for _, e := range entries {
			s := Skill{Name: e.Name(), Dir: filepath.Join(d, e.Name())}
			head, err := s.content()
			if err != nil || len(out) == maxSkills {
				continue
			}
			meta := frontMatter(head)
			if meta["name"] != "" {
				s.Name = meta["name"]
			}
			if s.Description = meta["description"]; len(s.Description) > maxDescription {
				s.Description = strings.ToValidUTF8(s.Description[:maxDescription], "") + "…"
			}
			if !slices.ContainsFunc(out, func(o Skill) bool { return o.Name == s.Name }) {
				out = append(out, s)
			}
		}
	}
	slices.SortFunc(out, func(a, b Skill) int { return strings.Compare(a.Name, b.Name) })
	return out
}

func (s Skill) content() (string, error) {
	path := filepath.Join(s.Dir, "SKILL.md")
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() || info.Size() > maxFile {
		return "", fmt.Errorf("%s is no regular file, or too large", path)
	}
	b, err := os.ReadFile(path)
	return strings.ToValidUTF8(string(b), "\uFFFD"), err
}

// Text is what the model reads of a skill.
func (s Skill) Text() (string, error) {
	text, err := s.content()
	if err != nil {
		return "", fmt.Errorf("read the skill %s: %w", s.Name, err)
	}
	return "Files of this skill are in " + s.Dir + "\n\n" + body(text), nil
}

// body is the text behind the front matter.
func body(text string) string {
	if rest, ok := strings.CutPrefix(text, "---\n"); ok {
		if _, after, ok := strings.Cut(rest, "\n---"); ok {
			_, after, _ = strings.Cut(after, "\n")
			return strings.TrimSpace(after)
		}
	}
	return strings.TrimSpace(text)
}

// frontMatter reads the plain keys of the block between two lines of dashes: `key: value`, in quotes or not, and values that go on in
// indented lines.
func frontMatter(text string) map[string]string {
	out := map[string]string{}
	rest, ok := strings.CutPrefix(strings.ReplaceAll(text, "\r\n", "\n"), "---\n")
	if !ok {
		return out
	}
	head, _, ok := strings.Cut(rest, "\n---")
	if !ok {
		return out
	}
	key := ""
	for line := range strings.SplitSeq(head, "\n") {
		if key != "" && strings.HasPrefix(line, " ") {
			out[key] = strings.TrimSpace(out[key] + " " + strings.TrimSpace(line))
			continue
		}
		k, v, ok := strings.Cut(line, ":")
		if key = strings.TrimSpace(k); !ok || strings.HasPrefix(key, "#") {
			key = ""
			continue
		}
		switch v = strings.TrimSpace(v); v {
		case "|", ">", "|-", ">-":
			v = ""
		}
		if n := len(v); n > 1 && (v[0] == '"' || v[0] == '\'') && v[n-1] == v[0] {
			v = v[1 : n-1]
		}
		out[key] = v
	}
	return out
}
