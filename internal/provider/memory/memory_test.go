package memory

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestInstructions(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	cwd, more, home, outside := filepath.Join(root, "agent"), filepath.Join(root, "more"), filepath.Join(root, "home"), filepath.Join(root, "outside.md")
	write(t, outside, "OUTSIDE")
	write(t, filepath.Join(home, ".claude", "CLAUDE.md"), "of the user")
	write(t, filepath.Join(home, "secret.md"), "SECRET")
	write(t, filepath.Join(cwd, "CLAUDE.md"), "top @a.md and @sub/b.md, @gone.md, @../outside.md, @"+outside+", @link.md, @~/secret.md, ann@example.org, @ann\n"+
		"`@code.md`\n```\n@code.md\n```\n@a.md\n@pipe.md")
	write(t, filepath.Join(cwd, "a.md"), "A @sub/b.md")
	write(t, filepath.Join(cwd, "sub", "b.md"), "B @c.md @../CLAUDE.md")
	write(t, filepath.Join(cwd, "sub", "c.md"), "C")
	write(t, filepath.Join(cwd, "code.md"), "CODE")
	write(t, filepath.Join(cwd, "AGENTS.md"), "NEVERREAD")
	write(t, filepath.Join(cwd, "CLAUDE.local.md"), "LOCAL")
	write(t, filepath.Join(more, "AGENTS.md"), "of the other folder")
	if err := os.Symlink(outside, filepath.Join(cwd, "link.md")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(cwd, "pipe.md"), 0o700); err != nil {
		t.Fatal(err)
	}
	got := Places{Cwd: cwd, Dirs: []string{more}, Home: home}.Instructions()
	at := -1
	for _, want := range []string{"of the user", "top @a.md", "A @sub/b.md", "B @c.md", "\nC\n", "LOCAL", "of the other folder"} {
		i := strings.Index(got, want)
		if i <= at || strings.Count(got, want) != 1 {
			t.Errorf("%q stands at %d, after %d, in %s", want, i, at, got)
		}
		at = i
	}
	for _, no := range []string{"OUTSIDE", "SECRET", "CODE", "NEVERREAD"} {
		if strings.Contains(got, no) {
			t.Errorf("%q is in %s", no, got)
		}
	}
	if got := (Places{Cwd: t.TempDir()}).Instructions(); got != "" {
		t.Errorf("of an empty folder: %q", got)
	}
}

func TestImportDepth(t *testing.T) {
	t.Parallel()
	cwd := t.TempDir()
	write(t, filepath.Join(cwd, "CLAUDE.md"), "@1.md")
	for i := 1; i < 9; i++ {
		write(t, filepath.Join(cwd, string(rune('0'+i))+".md"), "level"+string(rune('0'+i))+" @"+string(rune('1'+i))+".md")
	}
	got := Places{Cwd: cwd}.Instructions()
	if !strings.Contains(got, "level5") || strings.Contains(got, "level6") {
		t.Errorf("%s", got)
	}
}

func TestSkills(t *testing.T) {
	t.Parallel()
	cwd, home := t.TempDir(), t.TempDir()
	write(t, filepath.Join(cwd, "skills", "b", "SKILL.md"), "---\nname: \"birds\"\ndescription: >\n  all about\n  herons\nother: x\n---\n\nEat fish.\n---\nmore")
	write(t, filepath.Join(cwd, ".claude", "skills", "plain", "SKILL.md"), "No front matter.")
	write(t, filepath.Join(home, ".claude", "skills", "b", "SKILL.md"), "---\nname: birds\ndescription: of the user\n---\n")
	write(t, filepath.Join(cwd, "skills", "file"), "no folder")
	write(t, filepath.Join(cwd, "skills", "empty", "README.md"), "")
	got := Places{Cwd: cwd, Home: home}.Skills()
	want := []Skill{{"birds", "all about herons", filepath.Join(cwd, "skills", "b")}, {"plain", "", filepath.Join(cwd, ".claude", "skills", "plain")}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatal(diff)
	}
	if text, err := got[0].Text(); err != nil || !strings.HasSuffix(text, "\n\nEat fish.\n---\nmore") || !strings.Contains(text, got[0].Dir) {
		t.Errorf("%q, %v", text, err)
	}
	if text, err := got[1].Text(); err != nil || !strings.HasSuffix(text, "No front matter.") {
		t.Errorf("%q, %v", text, err)
	}
}

func FuzzFrontMatter(f *testing.F) {
	f.Add("---\nname: x\n---\nbody")
	f.Add("---\na: >\n  b\n c\n---")
	f.Fuzz(func(_ *testing.T, s string) {
		frontMatter(s)
		body(s)
		imports(s)
	})
}
