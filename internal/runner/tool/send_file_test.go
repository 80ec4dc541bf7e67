package tool

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"
)

// folders of an agent: its own with files and traps in it, one more root, and one outside.
type folders struct{ cwd, root, outside string }

func newFolders(t *testing.T) folders {
	t.Helper()
	dir := t.TempDir()
	d := folders{filepath.Join(dir, "agent"), filepath.Join(dir, "inbox"), filepath.Join(dir, "outside")}
	for _, one := range []string{d.cwd, d.root, d.outside, filepath.Join(d.cwd, "sub")} {
		must(t, os.MkdirAll(one, 0o700))
	}
	for path, body := range map[string]string{
		filepath.Join(d.cwd, "a.txt"): "a", filepath.Join(d.cwd, "sub", "b.txt"): "b", filepath.Join(d.cwd, ".env"): "dot", filepath.Join(d.cwd, "empty"): "",
		filepath.Join(d.root, "got.pdf"): "got", filepath.Join(d.outside, "secret"): "s",
		filepath.Join(d.cwd, `übung "1" – 😀.txt`): "odd", filepath.Join(d.cwd, "-rf"): "dash", filepath.Join(d.cwd, "big"): strings.Repeat("x", 101),
		filepath.Join(d.cwd, "just"): strings.Repeat("x", 100),
	} {
		must(t, os.WriteFile(path, []byte(body), 0o600))
	}
	must(t, os.Symlink("a.txt", filepath.Join(d.cwd, "inner-link")))
	must(t, os.Symlink("../outside/secret", filepath.Join(d.cwd, "link-out")))
	must(t, os.Symlink(filepath.Join(d.outside, "secret"), filepath.Join(d.cwd, "absolute-link-out")))
	must(t, os.Symlink("../outside", filepath.Join(d.cwd, "folder-out")))
	must(t, os.Symlink("circle", filepath.Join(d.cwd, "circle")))
	must(t, syscall.Mkfifo(filepath.Join(d.cwd, "fifo"), 0o600))
	return d
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// W22: plain names only, regular files only, a limit of size, no way out of the allowed folders, an error instead of a silent
// no-op; and nothing is sent then.
func TestW22SendFile(t *testing.T) {
	t.Parallel()
	d := newFolders(t)
	file := func(path, more string) string {
		p, err := json.Marshal(path)
		must(t, err)
		return fmt.Sprintf(`{"to":"me","path":%s%s}`, p, more)
	}
	for _, tt := range []struct {
		name, args string
		want       string // name of the file
		body, text string
		fails      string
	}{
		{name: "relative", args: file("a.txt", ""), want: "a.txt", body: "a"},
		{name: "below", args: file("sub/b.txt", ""), want: "b.txt", body: "b"},
		{name: "dots inside", args: file("sub/../a.txt", ""), want: "a.txt", body: "a"},
		{name: "absolute", args: file(filepath.Join(d.cwd, "a.txt"), ""), want: "a.txt", body: "a"},
		{name: "other root", args: file(filepath.Join(d.root, "got.pdf"), ""), want: "got.pdf", body: "got"},
		{name: "other root by dots", args: file("../inbox/got.pdf", ""), want: "got.pdf", body: "got"},
		{name: "text", args: file("a.txt", `,"text":" see <internal>x</internal> here "`), want: "a.txt", body: "a", text: "see  here"},
		{name: "only internal text", args: file("a.txt", `,"text":"<internal>x</internal>"`), want: "a.txt", body: "a"},
		{name: "renamed", args: file("a.txt", `,"filename":"Übersicht 2026 (1).txt"`), want: "Übersicht 2026 (1).txt", body: "a"},
		{name: "odd name", args: file(`übung "1" – 😀.txt`, ""), want: `übung "1" – 😀.txt`, body: "odd"},
		{name: "leading dash", args: file("-rf", ""), want: "-rf", body: "dash"},
		{name: "leading dot renamed", args: file(".env", `,"filename":"env.txt"`), want: "env.txt", body: "dot"},
		{name: "empty file", args: file("empty", ""), want: "empty"},
		{name: "link inside", args: file("inner-link", ""), want: "inner-link", body: "a"},
		{name: "just at the limit", args: file("just", ""), want: "just", body: strings.Repeat("x", 100)},

		{name: "no path", args: `{"to":"me"}`, fails: "`path` is required"},
		{name: "empty path", args: file("", ""), fails: "`path` is required"},
		{name: "no to", args: `{"path":"a.txt"}`, fails: "`to` is required"},
		{name: "unknown to", args: `{"to":"you","path":"a.txt"}`, fails: `unknown destination "you"; known names: me`},
		{name: "not there", args: file("nosuch", ""), fails: "there is no file"},
		{name: "folder", args: file("sub", ""), fails: "is a folder"},
		{name: "folder with slash", args: file("sub/", ""), fails: "is a folder"},
		{name: "own folder", args: file(".", `,"filename":"x"`), fails: "is a folder"},
		{name: "file with slash", args: file("a.txt/x", ""), fails: "nothing was sent"},
		{name: "fifo", args: file("fifo", ""), fails: "not a regular file"},
		{name: "device", args: file("/dev/null", ""), fails: "outside"},
		{name: "too big", args: file("big", ""), fails: "at most 100"},
		{name: "leading dot", args: file(".env", ""), fails: "starts with a dot"},
		{name: "out by dots", args: file("../outside/secret", ""), fails: "outside"},
		{name: "out by many dots", args: file("../../../../../../etc/passwd", ""), fails: "outside"},
		{name: "absolute outside", args: file("/etc/passwd", ""), fails: "outside"},
		{name: "neighbour of a root", args: file(d.root+"x/got.pdf", ""), fails: "outside"},
		{name: "link out", args: file("link-out", ""), fails: "nothing was sent"},
		{name: "absolute link out", args: file("absolute-link-out", ""), fails: "nothing was sent"},
		{name: "folder link out", args: file("folder-out/secret", ""), fails: "nothing was sent"},
		{name: "circle", args: file("circle", ""), fails: "nothing was sent"},
		{name: "nul", args: file("a\x00b", ""), fails: "control character"},
		{name: "nul renamed", args: file("a\x00b", `,"filename":"x"`), fails: "NUL"},
		{name: "filename with path", args: file("a.txt", `,"filename":"x/y.txt"`), fails: "path parts"},
		{name: "filename up", args: file("a.txt", `,"filename":"../y.txt"`), fails: "path parts"},
		{name: "filename absolute", args: file("a.txt", `,"filename":"/etc/passwd"`), fails: "path parts"},
		{name: "filename backslash", args: file("a.txt", `,"filename":"x\\y"`), fails: "path parts"},
		{name: "filename dots", args: file("a.txt", `,"filename":".."`), fails: "starts with a dot"},
		{name: "filename line break", args: file("a.txt", `,"filename":"a\nb"`), fails: "control character"},
		{name: "filename too long", args: file("a.txt", `,"filename":"`+strings.Repeat("x", 256)+`"`), fails: "longer than 255"},
		{name: "text too long", args: file("a.txt", `,"text":"`+strings.Repeat("x", maxText+1)+`"`), fails: "at most 262144"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := &fake{}
			got, err := New(Options{Session: f, Cwd: d.cwd, Roots: []string{d.root}, MaxFile: 100}).Call(t.Context(), "send_file", json.RawMessage(tt.args))
			if tt.fails != "" {
				refused(t, f, err, tt.fails)
				return
			}
			if want := "sent to me (id: 3), file " + tt.want; err != nil || got != want {
				t.Fatalf("%q, %v; want %q", got, err, want)
			}
			did, _ := f.last()
			m := did.(Message)
			if m.Text != tt.text || m.To != "me" || len(m.Files) != 1 || m.Files[0].Name != tt.want || m.Files[0].Size != int64(len(tt.body)) {
				t.Errorf("sent %+v", m)
			}
			if f.bodies[tt.want] != tt.body {
				t.Errorf("the file has %q, want %q", f.bodies[tt.want], tt.body)
			}
		})
	}
}

// A folder of the agent that is itself reached by a link works, by either name.
func TestSendFileBelowLinkedFolder(t *testing.T) {
	t.Parallel()
	d := newFolders(t)
	linked := filepath.Join(t.TempDir(), "workspace")
	must(t, os.Symlink(d.cwd, linked))
	for _, path := range []string{"a.txt", filepath.Join(linked, "a.txt"), filepath.Join(d.cwd, "a.txt")} {
		f := &fake{}
		args, err := json.Marshal(map[string]string{"to": "me", "path": path})
		must(t, err)
		if _, err := New(Options{Session: f, Cwd: linked}).Call(t.Context(), "send_file", args); err != nil || f.bodies["a.txt"] != "a" {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// A file belongs to the session once it took it; one that was not taken is closed, and cannot be taken later.
func TestHeldFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "f")
	must(t, os.WriteFile(path, []byte("x"), 0o600))
	f, err := os.Open(path)
	must(t, err)
	h := &heldFile{f: f}
	r, err := h.take()
	must(t, err)
	h.release()
	if b, err := io.ReadAll(r); err != nil || string(b) != "x" {
		t.Errorf("%q, %v", b, err)
	}
	must(t, r.Close())
	f, err = os.Open(path)
	must(t, err)
	h = &heldFile{f: f}
	h.release()
	if _, err := h.take(); err == nil {
		t.Error("took a file of a call that has ended")
	}
	if _, err := f.Stat(); err == nil {
		t.Error("it is still open")
	}
}

func FuzzFileName(f *testing.F) {
	for _, s := range []string{"", ".", "..", "a", "a/b", `a\b`, "\x00", "é", "\xff", "-", " ", strings.Repeat("x", 256)} {
		f.Add(s)
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, name string) {
		if badName(name) != "" {
			return
		}
		if name != filepath.Base(name) || !filepath.IsLocal(name) || !utf8.ValidString(name) {
			t.Fatalf("%q is no plain name", name)
		}
		path := filepath.Join(dir, name)
		must(t, os.WriteFile(path, nil, 0o600))
		must(t, os.Remove(path))
	})
}
