package instruction

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"golang.org/x/sys/unix"
)

func TestComposeOrder(t *testing.T) {
	t.Parallel()
	in := Input{
		Persona: "You are a gardener.",
		Folders: []Folder{{Inside: "/workspace/extra/a", Writable: true}, {Inside: "/workspace/extra/b", Hidden: true}, {Inside: "/workspace/extra/c", Problem: "does not exist"}},
		Skills:  []Skill{{"zebra", "stripes"}, {"ape", "climbs"}},
		Servers: map[string]string{"b": "second server", "a": "first server"},
		Own:     []Own{{"CLAUDE.md", "old notes"}},
	}
	text, dropped, err := Compose(in)
	if err != nil || len(dropped) != 0 {
		t.Fatal(dropped, err)
	}
	at := 0
	for _, want := range []string{"# Instructions", "You are a gardener.", "## How you work", "## Where you are", "## The system around you", "extra/a`: people", "extra/b`: you can read it, not write. Files",
		"extra/c` is not there, though it should be: does not exist", "## Skill ape\n\nclimbs", "## Skill zebra", "## Tools of a\n\nfirst", "## Tools of b", "old notes"} {
		i := strings.Index(text[at:], want)
		if i < 0 {
			t.Fatalf("%q is missing, or not in its place, in\n%s", want, text)
		}
		at += i
	}
	if again, _, _ := Compose(in); again != text {
		t.Error("equal input gives other bytes")
	}
	if strings.Contains(text, "\n@") {
		t.Error("the file imports something")
	}
}

// Over the limit the largest part that may go goes, and that is said; the persona stays.
func TestComposeLimit(t *testing.T) {
	t.Parallel()
	text, dropped, err := Compose(Input{Persona: "PERSONA " + strings.Repeat("p", 20<<10), Skills: []Skill{{"big", strings.Repeat("x", 40<<10)}, {"small", strings.Repeat("y", 10<<10)}}})
	if err != nil || !slices.Equal(dropped, []string{"skill big"}) {
		t.Fatal(dropped, err)
	}
	if len(text) > MaxBytes || !strings.Contains(text, "PERSONA") || !strings.Contains(text, "yyy") || !strings.Contains(text, "Left out, since it is too long: skill big") {
		t.Errorf("%d bytes: %.200s", len(text), text)
	}
}

// What an agent puts in the way of the host's reading is not read.
func TestReadBeneath(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	secret := filepath.Join(t.TempDir(), "secret")
	for path, text := range map[string]string{secret: "secret", dir + "/plain": " text \n", dir + "/large": strings.Repeat("x", maxText+1)} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, err := range []error{os.Symlink(secret, dir+"/link"), os.Link(secret, dir+"/second"), unix.Mkfifo(dir+"/fifo", 0o600), os.Mkdir(dir+"/folder", 0o700)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{"plain": "text", "link": "", "second": "", "fifo": "", "folder": "", "large": "", "none": ""} {
		if got := ReadBeneath(dir, name); got != want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestShelf(t *testing.T) {
	t.Parallel()
	own, dir := t.TempDir(), t.TempDir()
	shipped := fstest.MapFS{"one/SKILL.md": {Data: []byte("1")}, "one/instructions.md": {Data: []byte("say one")}, "two/SKILL.md": {Data: []byte("2")}, "no/README": {}}
	for _, f := range []string{"two/SKILL.md", "mine/SKILL.md", "Bad Name/SKILL.md"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(own, f)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(own, f), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(own, "mine"), filepath.Join(own, "linked")); err != nil {
		t.Fatal(err)
	}
	s, err := Install(shipped, dir, own)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := Install(shipped, dir, own); err != nil || again != s {
		t.Errorf("a second start: %+v, %v", again, err)
	}
	if got := s.Names(); !slices.Equal(got, []string{"mine", "one", "two"}) {
		t.Errorf("skills %q", got)
	}
	dirs, missing := s.Choose(nil)
	if len(dirs) != 3 || len(missing) != 0 || dirs["two"] != filepath.Join(own, "two") || !strings.HasPrefix(dirs["one"], dir) {
		t.Errorf("all: %v, missing %v", dirs, missing)
	}
	if texts := Texts(dirs); len(texts) != 1 || texts[0] != (Skill{"one", "say one"}) {
		t.Errorf("texts %v", texts)
	}
	dirs, missing = s.Choose(&[]string{"one", "gone"})
	if len(dirs) != 1 || !slices.Equal(missing, []string{"gone"}) {
		t.Errorf("chosen: %v, missing %v", dirs, missing)
	}
	if dirs, _ = s.Choose(&[]string{}); len(dirs) != 0 {
		t.Errorf("none: %v", dirs)
	}
	st, err := os.Stat(s.shipped)
	if err != nil || st.Mode().Perm() != 0o755 {
		t.Errorf("another uid cannot read the shipped skills: %v, %v", st.Mode(), err)
	}
}
