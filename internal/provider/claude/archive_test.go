package claude

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"nanoclaw/internal/obs"
)

const session = "77fd83aa-0547-445e-9a38-622399fc539f"

// archivist is a provider with one transcript.
func archivist(t *testing.T, lines ...string) (p *Provider, file, cwd string) {
	t.Helper()
	home, cwd := t.TempDir(), t.TempDir()
	p, err := New(Options{Program: "/claude", Home: home, Log: obs.Discard()})
	if err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(home, ".claude", "projects", "-workspace-agent")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, ".claude", "projects", "-a-file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(home, ".claude", "projects", "-a-pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(folder, session+".jsonl")
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return p, file, cwd
}

func said(who, text string, at time.Time) string {
	b, err := json.Marshal(map[string]any{"type": who, "timestamp": at.UTC().Format(time.RFC3339Nano), "message": map[string]any{"role": who, "content": text}})
	if err != nil {
		panic(err)
	}
	return string(b)
}

func archives(t *testing.T, cwd string) map[string]string {
	t.Helper()
	all := map[string]string{}
	list, err := filepath.Glob(filepath.Join(cwd, "conversations", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range list {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all[filepath.Base(path)] = string(b)
	}
	return all
}

func TestW24ArchivesNeverOverwriteEachOther(t *testing.T) {
	t.Parallel()
	now := time.Now()
	p, file, cwd := archivist(t,
		`{"type":"queue-operation","content":"not said"}`, said("user", "What is a heron?", now), `{half a line`, `[]`, `7`,
		`{"type":"assistant","message":{"content":[{"type":"thinking","thinking":"hidden"},{"type":"text","text":"A bird."},{"type":"tool_use","name":"Bash"},{"type":"text","text":"It fishes."}]}}`,
		`{"type":"user","message":{"content":[{"type":"tool_result","content":"hidden"}]}}`, `{"type":"user","isMeta":true,"message":{"content":"hidden"}}`,
		`{"type":"assistant","isSidechain":true,"message":{"content":"hidden"}}`, `{"type":"user","message":{"content":17}}`, `{"type":"summary","message":{"content":"hidden"}}`,
		said("user", strings.Repeat("ü", 2500), now),
	)
	index := fmt.Sprintf(`{"version":1,"entries":[{"sessionId":"other","summary":"Wrong"},{"sessionId":%q,"summary":"All about Herons:\n  birds & ponds"}]}`, session)
	if err := os.WriteFile(filepath.Join(filepath.Dir(file), "sessions-index.json"), []byte(index), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := p.archive(session, cwd); err != nil {
			t.Fatal(err)
		}
	}
	all := archives(t, cwd)
	day := time.Now().Format(time.DateOnly)
	for _, name := range []string{"-all-about-herons-birds-ponds.md", "-all-about-herons-birds-ponds-2.md", "-all-about-herons-birds-ponds-3.md"} {
		text := all[day+name]
		for _, want := range []string{"# All about Herons: birds & ponds\n", "## User, ", "What is a heron?", "## Assistant\n", "A bird.\n\nIt fishes.", strings.Repeat("ü", 2000) + "…\n"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s has no %.40q:\n%.500s", name, want, text)
			}
		}
		if strings.Contains(text, "hidden") || strings.Contains(text, "not said") {
			t.Errorf("%s has too much:\n%.500s", name, text)
		}
	}
	if len(all) != 3 {
		t.Errorf("%d archives", len(all))
	}
}

func TestArchiveWithoutATitle(t *testing.T) {
	t.Parallel()
	p, _, cwd := archivist(t, said("user", "hello", time.Now()))
	if err := p.archive(session, cwd); err != nil {
		t.Fatal(err)
	}
	for name := range archives(t, cwd) {
		if !strings.HasPrefix(name, time.Now().Format(time.DateOnly)+"-conversation-") {
			t.Errorf("archive %s", name)
		}
	}
	for _, c := range []struct{ title, want string }{
		{"", ""}, {"Ünïcode!", "n-code"}, {strings.Repeat("word ", 20), "word-word-word-word-word-word-word-word-word-word"}, {"../../etc/passwd", "etc-passwd"}, {"—", ""},
	} {
		if got := slug(c.title); got != c.want {
			t.Errorf("%q: %q", c.title, got)
		}
	}
	// nothing was said, or there is nothing: no archive, no error
	for _, id := range []string{"11111111-1111-4111-8111-111111111111", "../../x", ""} {
		if err := p.archive(id, cwd); err != nil {
			t.Errorf("%q: %v", id, err)
		}
	}
	if n := len(archives(t, cwd)); n != 1 {
		t.Errorf("%d archives", n)
	}
}

// The agent owns the folder: what it plants there leads nowhere.
func TestArchiveIntoPlantedLinks(t *testing.T) {
	t.Parallel()
	outside := t.TempDir()
	for name, plant := range map[string]func(folder string) error{
		"the folder is a link out": func(folder string) error { return os.Symlink(outside, folder) },
		"the folder is a file":     func(folder string) error { return os.WriteFile(folder, nil, 0o600) },
		"the folder is a pipe":     func(folder string) error { return syscall.Mkfifo(folder, 0o600) },
		"a link with the name": func(folder string) error {
			if err := os.Mkdir(folder, 0o700); err != nil {
				return err
			}
			return os.Symlink(filepath.Join(outside, "x"), filepath.Join(folder, archiveName("", time.Now())+".md"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, _, cwd := archivist(t, said("user", "hello", time.Now()))
			if err := plant(filepath.Join(cwd, "conversations")); err != nil {
				t.Fatal(err)
			}
			err := p.archive(session, cwd)
			if free := name == "a link with the name"; free != (err == nil) {
				t.Errorf("archive: %v", err)
			}
			if left, err := os.ReadDir(outside); err != nil || len(left) != 0 {
				t.Errorf("written outside: %v, %v", left, err)
			}
		})
	}
}

func TestW24RotateBySizeAndAge(t *testing.T) {
	t.Parallel()
	now := time.Now()
	day := 24 * time.Hour
	long := `{"type":"attachment","text":"` + strings.Repeat("x", 100<<10) + `"}` // no time, and longer than any first look
	for name, c := range map[string]struct {
		lines []string
		opt   Options
		want  string
	}{
		"young and small":         {[]string{said("user", "hi", now)}, Options{}, ""},
		"old":                     {[]string{said("user", "hi", now.Add(-15*day)), said("user", "hi", now)}, Options{}, "began"},
		"nearly old":              {[]string{said("user", "hi", now.Add(-13*day))}, Options{}, ""},
		"old behind a long line":  {[]string{long, said("user", "hi", now.Add(-15*day))}, Options{}, "began"},
		"large":                   {[]string{said("user", "hi", now), long}, Options{RotateBytes: 100 << 10}, "bytes"},
		"any age":                 {[]string{said("user", "hi", now.Add(-1000*day))}, Options{RotateAge: -1}, ""},
		"a limit of its own":      {[]string{said("user", "hi", now.Add(-2*day))}, Options{RotateAge: day}, "began"},
		"no time":                 {[]string{`{"type":"user"}`, "junk"}, Options{}, ""},
		"half of a line":          {[]string{said("user", "hi", now.Add(-15*day))[:40]}, Options{}, ""},
		"a wrong time is no time": {[]string{`{"type":"user","timestamp":"yesterday"}`, said("user", "hi", now)}, Options{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, file, cwd := archivist(t, c.lines...)
			if c.opt.RotateBytes > 0 {
				p.opt.RotateBytes = c.opt.RotateBytes
			}
			if c.opt.RotateAge != 0 {
				p.opt.RotateAge = c.opt.RotateAge
			}
			reason, err := p.Rotate(t.Context(), session, cwd)
			if err != nil || (reason == "") != (c.want == "") || !strings.Contains(reason, c.want) {
				t.Fatalf("%q, %v", reason, err)
			}
			moved, err := filepath.Glob(file + ".rotated-*")
			if err != nil {
				t.Fatal(err)
			}
			_, statErr := os.Stat(file)
			if rotated := c.want != ""; rotated != (len(moved) == 1) || rotated != os.IsNotExist(statErr) || rotated != (len(archives(t, cwd)) == 1) {
				t.Errorf("moved %v, transcript: %v, archives %d", moved, statErr, len(archives(t, cwd)))
			}
			// what was rotated is no transcript any more, and so is kept
			if reason, err := p.Rotate(t.Context(), session, cwd); reason != "" || err != nil {
				t.Errorf("again: %q, %v", reason, err)
			}
		})
	}
}

// An archive that cannot be written does not keep a transcript that is too large.
func TestRotateWithoutAnArchive(t *testing.T) {
	t.Parallel()
	p, file, cwd := archivist(t, said("user", "hi", time.Now().Add(-1000*time.Hour)))
	if err := os.Symlink("/", filepath.Join(cwd, "conversations")); err != nil {
		t.Fatal(err)
	}
	if reason, err := p.Rotate(t.Context(), session, cwd); reason == "" || err != nil {
		t.Errorf("%q, %v", reason, err)
	}
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("the transcript: %v", err)
	}
}

// A transcript that is a pipe, a link out or a folder blocks nobody and is not read.
func TestRotateOfNoFile(t *testing.T) {
	t.Parallel()
	for name, plant := range map[string]func(string) error{
		"pipe":     func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"folder":   func(path string) error { return os.Mkdir(path, 0o700) },
		"link out": func(path string) error { return os.Symlink("/etc/passwd", path) },
	} {
		p, file, cwd := archivist(t)
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		if err := plant(file); err != nil {
			t.Fatal(err)
		}
		p.opt.RotateBytes = 1
		if reason, err := p.Rotate(t.Context(), session, cwd); reason != "" || err == nil {
			t.Errorf("%s: %q, %v", name, reason, err)
		}
	}
}

func TestRotateWithoutTheFolder(t *testing.T) {
	t.Parallel()
	for name, plant := range map[string]func(string) error{
		"none": func(string) error { return nil }, "pipe": func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"empty": func(path string) error { return os.Mkdir(path, 0o700) },
	} {
		home := t.TempDir()
		p, err := New(Options{Program: "/claude", Home: home})
		if err != nil {
			t.Fatal(err)
		}
		if err := plant(filepath.Join(home, ".claude")); err != nil {
			t.Fatal(err)
		}
		if reason, err := p.Rotate(t.Context(), session, t.TempDir()); reason != "" || (err != nil) != (name == "pipe") {
			t.Errorf("%s: %q, %v", name, reason, err)
		}
	}
}

// Whatever a transcript holds, archiving it ends well, and only text that was said is in the archive.
func FuzzArchive(f *testing.F) {
	f.Add([]byte(said("user", "hi", time.Unix(0, 0))+"\n"), []byte(`{"entries":[{"sessionId":"`+session+`","summary":"x"}]}`))
	f.Add([]byte("{\"type\":\"user\",\"message\":null}\n{\"type\":\"assistant\",\"message\":{\"content\":[null,{\"type\":\"text\",\"text\":\"a\"}]}}\n"), []byte(`{"entries":null}`))
	f.Add([]byte("\xff\n\n\r\n{"), []byte("["))
	f.Fuzz(func(t *testing.T, transcript, index []byte) {
		p, file, cwd := archivist(t)
		if err := os.WriteFile(file, transcript, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(filepath.Dir(file), "sessions-index.json"), index, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := p.archive(session, cwd); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Rotate(t.Context(), session, cwd); err != nil {
			t.Fatal(err)
		}
		for name := range archives(t, cwd) {
			if !strings.HasSuffix(name, ".md") || len(name) > len("2026-01-01-")+maxSlug+len("-2.md") {
				t.Errorf("archive %q", name)
			}
		}
	})
}
