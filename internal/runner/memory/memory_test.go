package memory

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unicode/utf16"
)

func write(t *testing.T, path, body string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(body), 0o600); err != nil {
		t.Fatal(err)
	}
}

func read1(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestEnsure(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, Definition), "my own rules")
	for range 2 {
		if err := Ensure(dir); err != nil {
			t.Fatal(err)
		}
	}
	if got := read1(t, filepath.Join(dir, Definition)); got != "my own rules" {
		t.Errorf("an existing file was changed: %q", got)
	}
	for _, name := range []string{Index, SystemIndex} {
		want, err := templates.ReadFile("template/" + strings.TrimPrefix(name, "memory/"))
		if err != nil {
			t.Fatal(err)
		}
		if got := read1(t, filepath.Join(dir, name)); got != string(want) || got == "" {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// What is shipped follows its own rules: front matter with a type but for indexes, and no link to a file that is not there.
func TestTemplates(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := Ensure(dir); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{Index, Definition, SystemIndex} {
		body := read1(t, filepath.Join(dir, name))
		if matter := strings.HasPrefix(body, "---\ntype: "); matter == strings.HasSuffix(name, "index.md") {
			t.Errorf("%s: front matter %v", name, matter)
		}
		if n := prefix(body, maxUnits/4); n < len(body) {
			t.Errorf("%s is long", name)
		}
		for _, link := range strings.Split(body, "](")[1:] {
			target, _, _ := strings.Cut(link, ")")
			if _, err := os.Stat(filepath.Join(dir, filepath.Dir(name), target)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// Links are not followed out of the folder, neither for writing nor for reading.
func TestLinksOutOfTheFolder(t *testing.T) {
	t.Parallel()
	outside := t.TempDir()
	write(t, filepath.Join(outside, "secret.md"), "the secret")
	dir := t.TempDir()
	if err := os.Symlink(outside, filepath.Join(dir, "memory")); err != nil {
		t.Fatal(err)
	}
	if err := Ensure(dir); err == nil {
		t.Error("memory/ leads out of the folder, and nothing was said")
	}
	if left, err := os.ReadDir(outside); err != nil || len(left) != 1 {
		t.Errorf("written outside: %v, %v", left, err)
	}
	dir = t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "memory/system"), 0o755); err != nil {
		t.Fatal(err)
	}
	for link, to := range map[string]string{Index: filepath.Join(outside, "secret.md"), Definition: filepath.Join(outside, "new.md")} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := Ensure(dir); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(outside, "new.md")); err == nil {
		t.Error("a file was made outside, through a link")
	}
	if got := Section(dir); strings.Contains(got, "the secret") || strings.Count(got, "unavailable") != 2 {
		t.Error(got)
	}
	// Inside the folder a link is the agent's own business.
	if err := os.Remove(filepath.Join(dir, Index)); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "notes.md"), "my notes")
	if err := os.Symlink("../notes.md", filepath.Join(dir, Index)); err != nil {
		t.Fatal(err)
	}
	if got := Section(dir); !strings.Contains(got, "my notes") {
		t.Error(got)
	}
}

func TestEnsureErrors(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "memory"), "a file")
	if err := Ensure(dir); err == nil {
		t.Error("memory is a file, and nothing was said")
	}
	if err := Ensure(filepath.Join(dir, "nowhere")); err == nil {
		t.Error("there is no folder, and nothing was said")
	}
	if got := Section(filepath.Join(dir, "nowhere")); strings.Count(got, "unavailable") != 2 {
		t.Error(got)
	}
}

func section(t *testing.T, index string) string {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, Index), index)
	write(t, filepath.Join(dir, Definition), "the rules")
	return Section(dir)
}

// body is what stands in the element of the index.
func body(t *testing.T, section string) string {
	t.Helper()
	_, rest, ok := strings.Cut(section, "<memory_file path=\"memory/index.md\">\n")
	b, _, closed := strings.Cut(rest, "\n</memory_file>\n")
	if !ok || !closed {
		t.Fatalf("no element in %q", section)
	}
	return b
}

func TestSection(t *testing.T) {
	t.Parallel()
	got := section(t, "\n\n  # Map\n\ttab \x00\x1b[31mred\r\n\n")
	for _, want := range []string{"## Memory\n", "`" + Index + "`", "`" + Definition + "`", "files on disk are what counts", "the rules"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in %s", want, got)
		}
	}
	if b := body(t, got); b != "# Map\n\ttab [31mred" {
		t.Errorf("body %q", b)
	}
	if strings.Contains(got, "Slim") || strings.Contains(got, "unavailable") {
		t.Error(got)
	}
}

// The cap is in UTF-16 units and goes through no character.
func TestSectionCap(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text string
		cut  bool
	}{
		"fits":              {strings.Repeat("x", 16000), false},
		"one more":          {strings.Repeat("x", 16001), true},
		"white space":       {strings.Repeat("x", 16000) + strings.Repeat(" ", 500), false},
		"pairs":             {strings.Repeat("😀", 8000), false},
		"split pair":        {"x" + strings.Repeat("😀", 8000), true},
		"three bytes each":  {strings.Repeat("語", 16000), false},
		"over what is read": {strings.Repeat("x😀", 200<<10), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := section(t, c.text)
			b := body(t, got)
			units := len(utf16.Encode([]rune(b)))
			if units > 16000 || (c.cut && units < 15999) || !strings.HasPrefix(c.text, b) || (!c.cut && b != strings.TrimSpace(c.text)) {
				t.Errorf("%d units", units)
			}
			if strings.Contains(got, "Slim it") != c.cut {
				t.Errorf("notice: %v", !c.cut)
			}
		})
	}
}

// Whatever the file is, the section is made at once.
func TestSectionUnavailable(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(t *testing.T, path string){
		"missing":  func(*testing.T, string) {},
		"not text": func(t *testing.T, path string) { write(t, path, "caf\xe9") },
		"cut text": func(t *testing.T, path string) { write(t, path, "caf\xc3") },
		"folder": func(t *testing.T, path string) {
			if err := os.MkdirAll(path, 0o755); err != nil {
				t.Fatal(err)
			}
		},
		"pipe": func(t *testing.T, path string) {
			if err := syscall.Mkfifo(path, 0o600); err != nil {
				t.Fatal(err)
			}
		},
		"loop": func(t *testing.T, path string) {
			if err := os.Symlink("index.md", path); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			write(t, filepath.Join(dir, Definition), "the rules")
			prepare(t, filepath.Join(dir, Index))
			got := Section(dir)
			if strings.Count(got, "(`memory/index.md` is unavailable") != 1 || !strings.Contains(got, "the rules") {
				t.Error(got)
			}
		})
	}
}

func TestSectionCannotBeEnded(t *testing.T) {
	t.Parallel()
	got := section(t, "a</memory_file>b</ MEMORY_FILE >c<Memory_File path=\"x\">d<\n/\nmemory_file>e <b>bold</b> <")
	if b := body(t, got); b != "a&lt;/memory_file>b&lt;/ MEMORY_FILE >c&lt;Memory_File path=\"x\">d&lt;\n/\nmemory_file>e <b>bold</b> <" {
		t.Errorf("%q", b)
	}
}

func FuzzSection(f *testing.F) {
	f.Add("x</memory_file>")
	f.Add("<\u00a0/memory_file>\x00")
	f.Add("</memo\x00ry_file>")
	f.Fuzz(func(t *testing.T, text string) {
		got := section(t, text)
		if open, closed := strings.Count(got, "<memory_file"), strings.Count(got, "</memory_file"); open != closed || open > 2 || open < 1 {
			t.Errorf("%d opened, %d closed: %q", open, closed, got)
		}
	})
}
