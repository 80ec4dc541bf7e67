package instruction

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Shelf is the skills that agents can have: those that are shipped, and the operator's own, which go before shipped ones of the
// same name.
type Shelf struct {
	shipped, own string // folders with a folder for each skill
}

// skillName is what a skill's folder may be called.
var skillName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,63}$`)

// Bounds of what is read of a skill and of an agent's folder.
const maxText = 64 << 10

// Install writes the shipped skills below dir, in a folder named by what is in them, and returns the shelf; own is the operator's
// folder, which need not exist. Another version's skills stay where they are: a running sandbox may have them mounted.
func Install(shipped fs.FS, dir, own string) (Shelf, error) {
	files := map[string][]byte{}
	err := fs.WalkDir(shipped, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		files[path], err = fs.ReadFile(shipped, path)
		return err
	})
	if err != nil {
		return Shelf{}, fmt.Errorf("read shipped skills: %w", err)
	}
	sum := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(sum, "%s\x00%d\x00%s", name, len(files[name]), files[name])
	}
	s := Shelf{filepath.Join(dir, hex.EncodeToString(sum.Sum(nil))[:32]), own}
	if _, err := os.Stat(s.shipped); err == nil {
		return s, nil
	}
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return Shelf{}, fmt.Errorf("install skills: %w", err)
	}
	tmp, err := os.MkdirTemp(dir, ".new-")
	if err != nil {
		return Shelf{}, fmt.Errorf("install skills: %w", err)
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	for name, content := range files {
		path := filepath.Join(tmp, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return Shelf{}, fmt.Errorf("install skills: %w", err)
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return Shelf{}, fmt.Errorf("install skills: %w", err)
		}
	}
	err = filepath.WalkDir(tmp, func(path string, d fs.DirEntry, err error) error { // whatever the umask is: another user reads them
		if err != nil {
			return err
		}
		mode := fs.FileMode(0o644)
		if d.IsDir() {
			mode = 0o755
		}
		return os.Chmod(path, mode)
	})
	if err != nil {
		return Shelf{}, fmt.Errorf("install skills: %w", err)
	}
	if err := os.Rename(tmp, s.shipped); err != nil && !errors.Is(err, fs.ErrExist) {
		return Shelf{}, fmt.Errorf("install skills: %w", err)
	}
	return s, nil
}

// Names are all skills, in order.
func (s Shelf) Names() []string {
	var names []string
	for _, dir := range []string{s.own, s.shipped} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue // none
		}
		for _, e := range entries {
			if e.IsDir() && skillName.MatchString(e.Name()) && !slices.Contains(names, e.Name()) {
				if st, err := os.Lstat(filepath.Join(dir, e.Name(), "SKILL.md")); err == nil && st.Mode().IsRegular() {
					names = append(names, e.Name())
				}
			}
		}
	}
	slices.Sort(names)
	return names
}

// Choose returns the folders of the wanted skills by name, nil for all there are, and the names that are not there.
func (s Shelf) Choose(wanted *[]string) (dirs map[string]string, missing []string) {
	dirs = map[string]string{}
	all := s.Names()
	if wanted == nil {
		wanted = &all
	}
	for _, name := range *wanted {
		if !slices.Contains(all, name) {
			missing = append(missing, name)
			continue
		}
		dirs[name] = filepath.Join(s.shipped, name)
		if st, err := os.Lstat(filepath.Join(s.own, name)); err == nil && st.IsDir() {
			dirs[name] = filepath.Join(s.own, name)
		}
	}
	return dirs, missing
}

// Texts are the instructions for every conversation that skills ship as instructions.md, by the folders of Choose.
func Texts(dirs map[string]string) []Skill {
	var out []Skill
	for _, name := range slices.Sorted(maps.Keys(dirs)) {
		if text := ReadBeneath(dirs[name], "instructions.md"); text != "" {
			out = append(out, Skill{name, text})
		}
	}
	return out
}

// ReadBeneath reads a text in a folder that an agent may write. It follows no link, waits for no FIFO and reads nothing that has
// another name elsewhere or is too large; "" then, and where there is none.
func ReadBeneath(dir, name string) string {
	d, err := os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	defer func() { _ = d.Close() }()
	fd, err := unix.Openat(int(d.Fd()), name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	f := os.NewFile(uintptr(fd), name)
	defer func() { _ = f.Close() }()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || st.Nlink != 1 || st.Size > maxText {
		return ""
	}
	b := make([]byte, st.Size)
	n, err := f.ReadAt(b, 0)
	if err != nil && n == 0 {
		return ""
	}
	return strings.TrimSpace(strings.ToValidUTF8(string(b[:n]), "\uFFFD"))
}
