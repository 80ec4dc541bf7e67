package tool

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type rig struct {
	*testing.T
	box *Box
	cwd string
	out string
}

func newRig(t *testing.T) *rig {
	t.Helper()
	t.Parallel()
	r := &rig{T: t, cwd: t.TempDir(), out: filepath.Join(t.TempDir(), "out")}
	r.box = NewBox(Options{Cwd: r.cwd, Output: r.out, Env: map[string]string{"PATH": os.Getenv("PATH"), "SECRET_FREE": "yes"}})
	t.Cleanup(r.box.Close)
	return r
}

func (r *rig) write(name, content string) string {
	r.Helper()
	path := filepath.Join(r.cwd, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		r.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		r.Fatal(err)
	}
	return path
}

func (r *rig) content(name string) string {
	r.Helper()
	b, err := os.ReadFile(filepath.Join(r.cwd, name))
	if err != nil {
		r.Fatal(err)
	}
	return string(b)
}

func (r *rig) run(name string, args any) Result { return r.runIn(r.Context(), name, args) }

func (r *rig) runIn(ctx context.Context, name string, args any) Result {
	r.Helper()
	b, err := json.Marshal(args)
	if err != nil {
		r.Fatal(err)
	}
	for _, t := range r.box.Tools() {
		if t.Name == name {
			return t.Run(ctx, b)
		}
	}
	r.Fatalf("no tool %s", name)
	return Result{}
}

// fine and bad run a tool that must succeed, or fail, with a text that holds want.
func (r *rig) fine(name string, args any, want string) Result {
	r.Helper()
	res := r.run(name, args)
	if res.IsError || !strings.Contains(res.Text, want) {
		r.Errorf("%s %v: %+v, want %q", name, args, res, want)
	}
	return res
}

func (r *rig) bad(name string, args any, want string) {
	r.Helper()
	if res := r.run(name, args); !res.IsError || !strings.Contains(res.Text, want) {
		r.Errorf("%s %v: %+v, want %q", name, args, res, want)
	}
}

type m map[string]any

func TestBash(t *testing.T) {
	r := newRig(t)
	r.fine("Bash", m{"command": "pwd; echo $SECRET_FREE$HOME; echo err >&2"}, r.cwd+"\nyes\nerr")
	r.fine("Bash", m{"command": "true"}, "(no output)")
	r.bad("Bash", m{"command": "echo out; exit 3"}, "out\nExit code 3")
	r.bad("Bash", m{"command": "kill -9 $$"}, "Exit code 137")
	r.bad("Bash", m{"command": " "}, "no command")
	r.bad("Bash", m{"cmd": "x"}, `unknown field "cmd"`)
	r.bad("Bash", m{"command": 7}, "command must be string, not number")
	start := time.Now()
	r.bad("Bash", m{"command": "echo begun; sleep 600 & sleep 600", "timeout": 200}, "begun\nThe command was ended: it did not end within 200ms.")
	r.fine("Bash", m{"command": "sleep 600 & echo started"}, "started") // a child that stays holds nothing up
	if took := time.Since(start); took > 20*time.Second {
		t.Errorf("it took %s", took)
	}
	if left, err := os.ReadDir(r.out); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestLongOutput(t *testing.T) {
	r := newRig(t)
	res := r.fine("Bash", m{"command": "seq 100000"}, "bytes left out")
	if !strings.HasPrefix(res.Text, "1\n2\n") || !strings.HasSuffix(res.Text, "\n100000") || len(res.Text) > MaxOutput+500 {
		t.Errorf("%d bytes: %.50q … %q", len(res.Text), res.Text, res.Text[len(res.Text)-50:])
	}
	_, rest, _ := strings.Cut(res.Text, "is in ")
	path, _, _ := strings.Cut(rest, ". …]")
	if b, err := os.ReadFile(path); err != nil || strings.Count(string(b), "\n") != 100000 {
		t.Errorf("the whole output: %d bytes, %v", len(b), err)
	}
	if res := r.run("Bash", m{"command": `printf '\377\376x'`}); !utf8.ValidString(res.Text) {
		t.Errorf("not UTF-8: %q", res.Text)
	}
}

func TestCut(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, text := range []string{strings.Repeat("你好", 1000), strings.Repeat("a line\n", 1000), strings.Repeat("\xffx", 5000)} {
		got := Cut(text, dir, "x", 1000)
		if !utf8.ValidString(got) || len(got) > 1300 || !strings.Contains(got, dir) {
			t.Errorf("%d bytes: %q", len(got), got)
		}
	}
	if got := Cut("short", dir, "x", 1000); got != "short" {
		t.Error(got)
	}
	if got := Cut(strings.Repeat("x", 2000), "/proc/none", "x", 1000); !strings.Contains(got, "could not be kept") {
		t.Error(got)
	}
}

func TestBackground(t *testing.T) {
	r := newRig(t)
	fifo := filepath.Join(r.cwd, "go")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	r.fine("Bash", m{"command": "echo one; read x < go; echo two; exit 4", "run_in_background": true}, "as bash_1")
	res := r.run("BashOutput", m{"id": "bash_1"})
	if res.IsError || !strings.Contains(res.Text, "still runs") {
		t.Errorf("%+v", res)
	}
	if r.box.Ended() != "" {
		t.Error("ended too early")
	}
	f, err := os.OpenFile(fifo, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_ = f.Close()
	<-r.box.Changed()
	if text := r.box.Ended(); !strings.Contains(text, "bash_1 has ended with code 4") || r.box.Ended() != "" {
		t.Errorf("told: %q", text)
	}
	r.fine("BashOutput", m{"id": "bash_1", "wait": 60000}, "two\nIt has ended with code 4.")
	r.fine("BashOutput", m{"id": "bash_1"}, "(nothing new)")
	r.bad("BashOutput", m{"id": "bash_9"}, "there are: bash_1")
	r.fine("Bash", m{"command": "sleep 600", "run_in_background": true}, "as bash_2")
	r.fine("BashKill", m{"id": "bash_2"}, "is ended")
	r.bad("BashKill", m{"id": "bash_2"}, "no background command")
}

// An interrupted command is gone with all its children when the call returns, and so is everything after Close.
func TestNothingIsLeft(t *testing.T) {
	r := newRig(t)
	pids := filepath.Join(r.cwd, "pids")
	script := fmt.Sprintf(`trap "" TERM HUP INT; (setsid sh -c 'trap "" TERM HUP; echo $$ >> %[1]s; while :; do sleep 60; done' &) ; echo $$ >> %[1]s; `, pids)
	alive := func() int {
		n := 0
		for line := range strings.Lines(r.content("pids")) {
			if b, err := os.ReadFile("/proc/" + strings.TrimSpace(line) + "/stat"); err == nil && !strings.Contains(string(b), ") Z ") {
				n++
			}
		}
		return n
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan Result)
	go func() {
		done <- r.runIn(ctx, "Bash", m{"command": script + "echo ready > ready; while :; do sleep 60; done"})
	}()
	for { // there is nothing to wait on but the file
		if b, err := os.ReadFile(pids); err == nil && strings.Count(string(b), "\n") == 2 {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	cancel()
	if res := <-done; !res.IsError || !strings.Contains(res.Text, "interrupted") {
		t.Errorf("%+v", res)
	}
	if n := alive(); n != 0 {
		t.Errorf("%d processes are left", n)
	}
	r.write("pids", "")
	r.run("Bash", m{"command": script + "sleep 600 & true"})
	r.run("Bash", m{"command": script + "while :; do sleep 60; done", "run_in_background": true})
	for strings.Count(r.content("pids"), "\n") != 4 {
		time.Sleep(5 * time.Millisecond)
	}
	r.box.Close()
	if n := alive(); n != 0 {
		t.Errorf("%d processes are left after Close", n)
	}
	r.bad("Bash", m{"command": "true"}, "being closed")
}

func TestRead(t *testing.T) {
	r := newRig(t)
	r.write("a.txt", "one\ntwo\r\nthree")
	r.fine("Read", m{"file_path": "a.txt"}, "     1\tone\n     2\ttwo\n     3\tthree\n")
	r.fine("Read", m{"file_path": filepath.Join(r.cwd, "a.txt"), "offset": 2, "limit": 1}, "     2\ttwo\n[there is more: go on with offset 3]")
	r.fine("Read", m{"file_path": "a.txt", "offset": 9}, "only 3 lines")
	r.write("empty", "")
	r.fine("Read", m{"file_path": "empty"}, "is empty")
	r.write("long", strings.Repeat("é", 5000)+"\nnext\n"+strings.Repeat("y\n", 3000))
	res := r.fine("Read", m{"file_path": "long"}, "… [line cut]\n     2\tnext")
	if !strings.Contains(res.Text, "go on with offset 2001") || !utf8.ValidString(res.Text) {
		t.Errorf("%.100q … %q", res.Text, res.Text[len(res.Text)-60:])
	}
	r.write("binary", "a\x00b")
	r.bad("Read", m{"file_path": "binary"}, "no text")
	r.bad("Read", m{"file_path": "gone"}, "no such file")
	r.bad("Read", m{"file_path": "."}, "folder")
	if err := syscall.Mkfifo(filepath.Join(r.cwd, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.bad("Read", m{"file_path": "pipe"}, "no regular file")
	r.write("p.dat", "\x89PNG\x0d\x0a\x1a\x0a123")
	if res := r.fine("Read", m{"file_path": "p.dat"}, "image/png"); len(res.Files) != 1 || res.Files[0].MimeType != "image/png" {
		t.Errorf("%+v", res)
	}
	r.write("d.pdf", "%PDF-1.7 x")
	if res := r.fine("Read", m{"file_path": "d.pdf"}, "application/pdf"); len(res.Files) != 1 {
		t.Errorf("%+v", res)
	}
	r.write("huge.png", "\x89PNG\x0d\x0a\x1a\x0a"+strings.Repeat("x", maxPicture))
	r.bad("Read", m{"file_path": "huge.png"}, "at most")
}

func TestWriteAndEdit(t *testing.T) {
	r := newRig(t)
	r.fine("Write", m{"file_path": "d/new.txt", "content": "a b a\n"}, "written")
	r.fine("Write", m{"file_path": "d/new.txt", "content": "a b a b\n"}, "written") // its own words need not be read
	r.bad("Edit", m{"file_path": "d/new.txt", "old_string": "a", "new_string": "x"}, "2 times")
	r.fine("Edit", m{"file_path": "d/new.txt", "old_string": "a", "new_string": "x", "replace_all": true}, "2 places")
	r.fine("Edit", m{"file_path": "d/new.txt", "old_string": "x b x", "new_string": "$1\\n"}, "changed")
	if got := r.content("d/new.txt"); got != "$1\\n b\n" {
		t.Errorf("%q", got)
	}
	r.bad("Edit", m{"file_path": "d/new.txt", "old_string": "none", "new_string": "x"}, "does not stand in it")
	r.bad("Edit", m{"file_path": "d/new.txt", "old_string": "b", "new_string": "b"}, "the same")
	r.bad("Edit", m{"file_path": "d/new.txt", "old_string": "", "new_string": "b"}, "empty")
	path := r.write("theirs", "x")
	r.bad("Write", m{"file_path": "theirs", "content": "y"}, "read it first")
	r.bad("Edit", m{"file_path": "theirs", "old_string": "x", "new_string": "y"}, "read it first")
	r.run("Read", m{"file_path": "theirs"})
	if err := os.Chtimes(path, time.Now(), time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	r.bad("Edit", m{"file_path": "theirs", "old_string": "x", "new_string": "y"}, "changed since")
	r.write("dos", "one\r\ntwo\r\n")
	r.run("Read", m{"file_path": "dos"})
	r.fine("Edit", m{"file_path": "dos", "old_string": "one\ntwo", "new_string": "1\n2"}, "changed")
	if got := r.content("dos"); got != "1\r\n2\r\n" {
		t.Errorf("%q", got)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode: %v, %v", info, err)
	}
}

func TestSearch(t *testing.T) {
	r := newRig(t)
	r.write("a.go", "package a\n// heron\n")
	r.write("b/c.go", "package b\nheron\nHeron\n")
	r.write("b/d.md", "a heron\nx\ny\nz\nheron")
	r.write("b/e.log", "heron")
	r.write("node_modules/x.go", "heron")
	r.write("bin.dat", "heron\x00")
	r.write(".gitignore", "*.log\n/build/\n!keep.log\n")
	r.write("build/out.go", "heron")
	r.write("b/build/in.go", "heron in")
	r.write("keep.log", "heron kept")
	if err := os.Chtimes(filepath.Join(r.cwd, "b/c.go"), time.Now(), time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if res := r.fine("Glob", m{"pattern": "**/*.go"}, "b/c.go\n"); !strings.HasPrefix(res.Text, "b/c.go") || strings.Count(res.Text, "\n") != 3 || strings.Contains(res.Text, "node_modules") {
		t.Errorf("%q", res.Text)
	}
	r.fine("Glob", m{"pattern": "*.{md,log}", "path": "b"}, "b/d.md")
	r.fine("Glob", m{"pattern": "*.none"}, "No file")
	r.bad("Glob", m{"pattern": "/etc/*"}, "relative")
	r.bad("Glob", m{"pattern": "*", "path": "none"}, "no folder")
	if res := r.fine("Grep", m{"pattern": "heron"}, "a.go"); res.Text != "a.go\nb/build/in.go\nb/c.go\nb/d.md\nkeep.log\n" {
		t.Errorf("%q", res.Text)
	}
	if res := r.run("Grep", m{"pattern": "^heron$", "output_mode": "content", "glob": "*.{go,md}"}); res.Text != "b/c.go:2:heron\nb/d.md:5:heron\n" {
		t.Errorf("%q", res.Text)
	}
	if res := r.run("Grep", m{"pattern": "HERON", "ignore_case": true, "output_mode": "count", "path": "b/c.go"}); res.Text != "b/c.go:2\n" {
		t.Errorf("%q", res.Text)
	}
	if res := r.run("Grep", m{"pattern": "heron", "output_mode": "content", "context": 1, "path": "b/d.md"}); res.Text != "b/d.md:1:a heron\nb/d.md-2-x\n--\nb/d.md-4-z\nb/d.md:5:heron\n" {
		t.Errorf("%q", res.Text)
	}
	r.bad("Grep", m{"pattern": "("}, "no regular expression")
	r.fine("Grep", m{"pattern": "absent"}, "Nothing")
	r.write("many", strings.Repeat("hit\n", 500))
	if res := r.fine("Grep", m{"pattern": "hit", "path": "many", "output_mode": "content"}, "there is more"); strings.Count(res.Text, "many:") != maxHits {
		t.Errorf("%d hits", strings.Count(res.Text, "many:"))
	}
}

func TestMatch(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"*.go", "a.go", true}, {"*.go", "b/a.go", false}, {"**/*.go", "a.go", true}, {"**/*.go", "b/c/a.go", true}, {"b/**", "b/c/a.go", true},
		{"b/**/a.go", "b/a.go", true}, {"**", "x", true}, {"a/**/**/b", "a/b", true}, {"[", "[", false}, {"a/b", "a", false}, {"a", "a/b", false},
	} {
		if got := match(c.pattern, c.name); got != c.want {
			t.Errorf("%s on %s: %v", c.pattern, c.name, got)
		}
	}
	if got := fmt.Sprint(braces("a{b,c{d,e}}f{g,h}")); got != "[abfg abfh acdfg acdfh acefg acefh]" {
		t.Error(got)
	}
}

func TestWebFetch(t *testing.T) {
	r := newRig(t)
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		switch q.URL.Path {
		case "/moved":
			http.Redirect(w, q, "/", http.StatusFound)
		case "/":
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			_, _ = fmt.Fprint(w, `<html><head><title>T &amp; t</title><style>p{}</style><script>if (a<b) "</p>"</script></head><body><h1>Head</h1><p>One <b>two</b>`+
				` three</p><ul><li>x<li>y</ul><a href="https://e.org/?a=1&amp;b=2">link</a><!-- <p>no</p> --> 1 < 2<pre> a
  b</pre></body>`)
		case "/json":
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprint(w, `{"a":1}`)
		case "/zip":
			w.Header().Set("Content-Type", "application/zip")
		default:
			http.Error(w, "not here", http.StatusNotFound)
		}
	}))
	t.Cleanup(page.Close)
	r.box.opt.Web = page.Client()
	t.Cleanup(page.Client().CloseIdleConnections)
	res := r.fine("WebFetch", m{"url": page.URL}, "# Head")
	for _, want := range []string{"T & t", "One two three", "- x\n- y", "link (https://e.org/?a=1&b=2)", "1 < 2", " a\n  b"} {
		if !strings.Contains(res.Text, want) {
			t.Errorf("no %q in %q", want, res.Text)
		}
	}
	if strings.Contains(res.Text, "p{}") || strings.Contains(res.Text, "if (a") || strings.Contains(res.Text, "no\n") {
		t.Errorf("%q", res.Text)
	}
	r.fine("WebFetch", m{"url": page.URL + "/moved"}, "[moved to ")
	r.fine("WebFetch", m{"url": page.URL + "/json"}, `{"a":1}`)
	r.bad("WebFetch", m{"url": page.URL + "/zip"}, "no text")
	r.bad("WebFetch", m{"url": page.URL + "/none"}, "not here")
	for _, url := range []string{"file:///etc/passwd", "ftp://x", "x", "http://user:pw@" + page.URL[7:]} {
		r.bad("WebFetch", m{"url": url}, "whole address")
	}
	r.bad("WebFetch", m{"url": "http://127.0.0.1:1/"}, "cannot be fetched")
}

func FuzzPlainHTML(f *testing.F) {
	f.Add("<p>a<b>c</p><script>x</script><a href='x'>y</a>")
	f.Add("<!-- <a <  </ <script")
	f.Fuzz(func(t *testing.T, s string) {
		if out := plainHTML(s); len(out) > 20*len(s)+100 {
			t.Fatalf("%d bytes from %d", len(out), len(s))
		}
	})
}
