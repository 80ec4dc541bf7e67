package extra

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// ground is a home and a folder with things in it.
type ground struct {
	t    *testing.T
	home string
	root string
}

func newGround(t *testing.T, list string) ground {
	t.Helper()
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	g := ground{t, filepath.Join(base, "claw"), filepath.Join(base, "projects")}
	for _, d := range []string{g.home, g.root + "/app/src", g.root + "/app/.ssh", g.root + "/my.environment", g.root + "/credentials", base + "/other"} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []string{"/app/.ENV", "/app/src/id_rsa.pub", "/app/src/main.go", "/notes.txt"} {
		if err := os.WriteFile(g.root+f, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(g.root+"/app", g.root+"/link"); err != nil {
		t.Fatal(err)
	}
	if list != "" {
		g.write(strings.ReplaceAll(list, "ROOT", g.root), 0o600)
	}
	return g
}

func (g ground) write(list string, mode os.FileMode) {
	g.t.Helper()
	name := filepath.Join(g.home, FileName)
	if err := os.WriteFile(name, []byte(list), 0o600); err != nil {
		g.t.Fatal(err)
	}
	if err := os.Chmod(name, mode); err != nil {
		g.t.Fatal(err)
	}
}

func (g ground) load() List {
	g.t.Helper()
	l, err := Load(g.home)
	if err != nil {
		g.t.Fatal(err)
	}
	return l
}

const open = "[[root]]\npath = \"ROOT\"\nwritable = true\n[[root]]\npath = \"ROOT/app/src\"\n"

// W53: whole parts of a path count, not pieces of text; what lies below is looked at, too.
func TestW53Rules(t *testing.T) {
	t.Parallel()
	g := newGround(t, "")
	if err := os.Mkdir(g.root+"/Secret Plans", 0o755); err != nil {
		t.Fatal(err)
	}
	g.write("blocked = [\"secret*\"]\n"+strings.ReplaceAll(open, "ROOT", g.root), 0o600)
	l := g.load()
	for _, c := range []struct {
		name string
		r    Request
		why  string // of the refusal; empty: granted
	}{
		{"folder", Request{Path: g.root + "/app"}, ""},
		{"file", Request{Path: g.root + "/notes.txt"}, ""},
		{"a name that only holds a pattern", Request{Path: g.root + "/my.environment"}, ""},
		{"a blocked name", Request{Path: g.root + "/credentials"}, "never shown"},
		{"below a blocked name", Request{Path: g.root + "/app/.ssh"}, "never shown"},
		{"a blocked file, in other letters", Request{Path: g.root + "/app/.ENV", Name: "env"}, "never shown"},
		{"the operator's own pattern", Request{Path: g.root + "/Secret Plans", Name: "plans"}, "never shown"},
		{"not allowed", Request{Path: filepath.Dir(g.root) + "/other"}, "not below an allowed"},
		{"over a link", Request{Path: g.root + "/link"}, "leads over a link"},
		{"over a link further up", Request{Path: g.root + "/link/src"}, "leads over a link"},
		{"nothing there", Request{Path: g.root + "/none"}, "does not exist"},
		{"relative", Request{Path: "app"}, "not an absolute path"},
		{"dots out of the root", Request{Path: g.root + "/../other"}, "not below an allowed"},
		{"name with dots", Request{Path: g.root + "/app", Name: "../x"}, "cannot be its name"},
		{"name with a colon", Request{Path: g.root + "/app", Name: "a:rw"}, "cannot be its name"},
		{"the system", Request{Path: "/etc"}, "belongs to the system"},
		{"what holds the system", Request{Path: "/", Name: "all"}, "belongs to the system"},
		{"a device", Request{Path: "/dev/null"}, "neither a folder nor a file"},
		{"our own home", Request{Path: g.home}, "home folder of NanoClaw"},
		{"what holds our home", Request{Path: filepath.Dir(g.home), Name: "up"}, "home folder of NanoClaw"},
	} {
		_, err := l.Check(c.r)
		var refusal *Refusal
		switch {
		case c.why == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.why != "" && (!errors.As(err, &refusal) || !strings.Contains(err.Error(), c.why)):
			t.Errorf("%s: %v, want %q", c.name, err, c.why)
		}
	}
}

// W53: a folder is not refused for what is never shown below it: that is hidden.
func TestW53HiddenBelow(t *testing.T) {
	t.Parallel()
	g := newGround(t, open)
	grant, err := g.load().Check(Request{Path: g.root + "/app"})
	if err != nil {
		t.Fatal(err)
	}
	want := []Mask{{".ENV", false}, {".ssh", true}, {"src/id_rsa.pub", false}}
	if !slices.Equal(grant.Masked, want) || !grant.Folder || grant.Name != "app" {
		t.Errorf("%+v, want masks %v", grant, want)
	}
}

func TestReadOnlyUnlessGranted(t *testing.T) {
	t.Parallel()
	g := newGround(t, open)
	l := g.load()
	for _, c := range []struct {
		r        Request
		writable bool
		notes    int
	}{
		{Request{Path: g.root + "/app"}, false, 0},
		{Request{Path: g.root + "/app", Writable: true}, true, 0},
		{Request{Path: g.root + "/app/src", Writable: true}, false, 1}, // the innermost root counts
	} {
		grant, err := l.Check(c.r)
		if err != nil || grant.Writable != c.writable || len(grant.Notes) != c.notes {
			t.Errorf("%+v: %+v, %v", c.r, grant, err)
		}
	}
}

// Without a list nothing is allowed, and the way out is said; a list that others may write is not believed.
func TestListOfAllowedMounts(t *testing.T) {
	t.Parallel()
	g := newGround(t, "")
	if _, err := g.load().Check(Request{Path: g.root + "/app"}); err == nil || !strings.Contains(err.Error(), FileName) {
		t.Errorf("without a list: %v", err)
	}
	for name, c := range map[string]struct {
		list string
		mode os.FileMode
		says string
	}{
		"writable by others": {"", 0o666, "only its owner"},
		"not TOML":           {"[[root", 0o600, "read the list"},
		"an unknown key":     {"[[root]]\npath = \"/x\"\nwriteable = true\n", 0o600, "writeable is not known"},
		"a wrong pattern":    {"blocked = [\"[\"]\n", 0o600, "is not a pattern"},
	} {
		g.write(c.list, c.mode)
		if _, err := Load(g.home); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	g.write(strings.ReplaceAll(open, "ROOT", g.root), 0o600)
	if _, err := g.load().Check(Request{Path: g.root + "/app"}); err != nil {
		t.Errorf("a changed list does not count at once: %v", err)
	}
}

func FuzzCheckName(f *testing.F) {
	for _, s := range []string{"app", "..", "a/b", "a:b", "", "ä", "-", "a\nb"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if nameShape.MatchString(name) && (strings.ContainsAny(name, "/:\n\x00") || name == "." || name == "..") {
			t.Errorf("%q was accepted as a name", name)
		}
	})
}
