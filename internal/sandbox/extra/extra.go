// Package extra decides which folders of this machine an agent may see beside its own: the operator's allow list, the names
// that are never shown, and what a path really is (spec/host.md section 20, W53). It looks and changes nothing.
package extra

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"

	"github.com/pelletier/go-toml/v2"
	"golang.org/x/sys/unix"

	"nanoclaw/internal/sandbox"
)

// FileName of the allow list, in the home folder. No sandbox ever sees that folder.
const FileName = "mounts.toml"

// Root is a folder below which mounts are allowed.
type Root struct {
	Path        string `toml:"path"`
	Writable    bool   `toml:"writable"` // mounts below it may ask to be writable
	Description string `toml:"description"`
}

// List is what the operator allows.
type List struct {
	Roots   []Root   `toml:"root"`
	Blocked []string `toml:"blocked"` // patterns beside the built-in ones

	home, user string // folders of NanoClaw and of the operator
}

// Request is a folder or file that an agent asks for.
type Request struct {
	Path     string
	Name     string // inside; empty: the last part of the path
	Writable bool
}

// Grant is an allowed request. Its source is canonical: no part of it is a link.
type Grant struct {
	Source   string
	Name     string
	Writable bool
	Folder   bool
	// Masked are paths below the source that hold what is never shown: something empty belongs over them.
	Masked []Mask
	// Notes are for the operator: what of the request was not granted, and what else to know.
	Notes []string
}

// Mask is one path to hide.
type Mask struct {
	Path   string // relative to the source
	Folder bool
}

// Refusal says why a request is not granted, and what would help.
type Refusal struct {
	Path, Why, Hint string
}

func (r *Refusal) Error() string {
	s := fmt.Sprintf("%s: %s", r.Path, r.Why)
	if r.Hint != "" {
		s += " (" + r.Hint + ")"
	}
	return s
}

// Load reads the allow list of a home. It is read anew for each look, so that a change needs no restart. A list that is
// missing allows nothing; one that cannot be trusted is an error.
func Load(home string) (List, error) {
	l := List{home: resolved(home)}
	if user, err := os.UserHomeDir(); err == nil {
		l.user = resolved(user)
	}
	name := filepath.Join(home, FileName)
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return l, nil
	}
	if err != nil {
		return l, fmt.Errorf("read the list of allowed mounts: %w", err)
	}
	defer func() { _ = f.Close() }()
	st, err := f.Stat()
	if err != nil {
		return l, fmt.Errorf("read the list of allowed mounts: %w", err)
	}
	if sys, ok := st.Sys().(*syscall.Stat_t); !st.Mode().IsRegular() || st.Mode().Perm()&0o022 != 0 || ok && int(sys.Uid) != os.Geteuid() && sys.Uid != 0 {
		return l, fmt.Errorf("read the list of allowed mounts: %s must be a file that only its owner can write (chmod go-w)", name)
	}
	if err := toml.NewDecoder(f).DisallowUnknownFields().Decode(&l); err != nil {
		var strict *toml.StrictMissingError
		if errors.As(err, &strict) && len(strict.Errors) > 0 {
			return l, fmt.Errorf("read the list of allowed mounts %s: %s is not known", name, strings.Join(strict.Errors[0].Key(), "."))
		}
		return l, fmt.Errorf("read the list of allowed mounts %s: %w", name, err)
	}
	for _, p := range l.Blocked {
		if _, err := path.Match(p, ""); err != nil || strings.Trim(p, "/ ") == "" {
			return l, fmt.Errorf("read the list of allowed mounts %s: blocked %q is not a pattern", name, p)
		}
	}
	return l, nil
}

// nameShape of a mount inside.
var nameShape = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// Check decides one request. The error is a *Refusal. Nothing is opened but names: neither links nor devices are followed.
func (l List) Check(r Request) (Grant, error) {
	refuse := func(why, hint string) (Grant, error) { return Grant{}, &Refusal{r.Path, why, hint} }
	g := Grant{Source: l.expand(r.Path), Name: r.Name}
	if !filepath.IsAbs(g.Source) || strings.ContainsAny(g.Source, "\x00\n:") {
		return refuse("is not an absolute path", "begin it with / or ~/; it may have no colon and no line break")
	}
	g.Source = filepath.Clean(g.Source)
	if g.Name == "" {
		g.Name = filepath.Base(g.Source)
	}
	st, err := look(g.Source)
	switch {
	case errors.Is(err, unix.ELOOP):
		return refuse("leads over a link", "name what it leads to: "+resolved(g.Source))
	case errors.Is(err, fs.ErrNotExist):
		return refuse("does not exist", "")
	case err != nil:
		return refuse(fmt.Sprintf("cannot be looked at: %v", err), "")
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		g.Folder = true
	case unix.S_IFREG:
	default:
		return refuse("is neither a folder nor a file", "")
	}
	if why := l.reserved(g.Source); why != "" {
		return refuse(why, "")
	}
	if p := l.blocked(strings.Split(strings.Trim(g.Source, "/"), "/")); p != "" {
		return refuse(fmt.Sprintf("is never shown to agents (%s)", p), "")
	}
	if !nameShape.MatchString(g.Name) {
		return refuse(fmt.Sprintf("%q cannot be its name inside", g.Name), "give another one: letters, digits, dot, dash and underscore")
	}
	root, hint := l.root(g.Source)
	if root == nil {
		return refuse("is not below an allowed folder", hint)
	}
	g.Writable = r.Writable && root.Writable
	if r.Writable && !root.Writable {
		g.Notes = append(g.Notes, fmt.Sprintf("it can only be read: %s allows no writing below %s", FileName, root.Path))
	}
	if g.Folder {
		var whole bool
		if g.Masked, whole = l.hidden(g.Source); !whole {
			g.Notes = append(g.Notes, "it is large: only its upper folders were searched for what is never shown")
		}
		if len(g.Masked) > maxMasks {
			return refuse(fmt.Sprintf("holds more than %d files and folders that are never shown, for example %s", maxMasks, g.Masked[0].Path), "give a folder further down")
		}
	}
	return g, nil
}

// root is the allowed folder that a path lies in, the innermost one; hint says what to do if there is none.
func (l List) root(source string) (best *Root, hint string) {
	for i := range l.Roots {
		r := &l.Roots[i]
		p := resolved(l.expand(r.Path))
		if filepath.IsAbs(p) && sandbox.Within(p, source) && (best == nil || len(p) > len(best.Path)) {
			best = &Root{p, r.Writable, r.Description}
		}
	}
	if best != nil {
		return best, ""
	}
	if len(l.Roots) == 0 {
		return nil, fmt.Sprintf("nothing is allowed yet: write [[root]] and path = %q into %s", filepath.Dir(source), filepath.Join(l.home, FileName))
	}
	return nil, "add it to " + filepath.Join(l.home, FileName)
}

func (l List) expand(p string) string {
	if rest, ok := strings.CutPrefix(p, "~/"); ok && l.user != "" {
		return filepath.Join(l.user, rest)
	}
	return p
}

// look says what a path is, and fails with ELOOP if any part of it is a link.
func look(p string) (unix.Stat_t, error) {
	var st unix.Stat_t
	fd, err := unix.Openat2(unix.AT_FDCWD, p, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS})
	if errors.Is(err, unix.ENOSYS) {
		return lookByName(p)
	}
	if err != nil {
		return st, err
	}
	defer func() { _ = unix.Close(fd) }()
	return st, unix.Fstat(fd, &st)
}

// lookByName is look for kernels older than 5.6.
func lookByName(p string) (unix.Stat_t, error) {
	var st unix.Stat_t
	real, err := filepath.EvalSymlinks(p)
	if err != nil {
		return st, err
	}
	if real != p {
		return st, unix.ELOOP
	}
	return st, unix.Lstat(p, &st)
}

// resolved is a path without its links, or the path itself if it cannot be followed.
func resolved(p string) string {
	if real, err := filepath.EvalSymlinks(p); err == nil {
		return real
	}
	return filepath.Clean(p)
}
