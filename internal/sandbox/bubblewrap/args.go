package bubblewrap

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"nanoclaw/internal/sandbox"
)

// Sizes of the file systems in memory that the sandbox may write.
const (
	defaultTmp = 256 << 20
	shmSize    = 64 << 20
)

// etcFiles are shown where the machine has them and everybody may read them: what programs need to load and to check
// certificates. The folder /etc itself is never shown.
var etcFiles = []string{
	"/etc/ld.so.cache",
	"/etc/ssl/openssl.cnf",
	"/etc/ssl/certs/ca-certificates.crt",
	"/etc/pki/tls/certs/ca-bundle.crt",
	"/etc/mime.types",
	"/etc/debian_version",
}

// links of the root that a merged /usr has.
var usrLinks = []string{"bin", "sbin", "lib", "lib32", "lib64", "libx32"}

// Descriptors as bubblewrap sees them: ExtraFiles begin at 3.
const (
	fdArgs = 3 + iota
	fdInfo
	fdStatus
	fdGroup
	fdHosts
	fdSwitch
	fdPasswd // used last: when bubblewrap has closed it, every mount is made
)

// builder collects bubblewrap's arguments.
type builder struct {
	args []string
	dirs map[string]bool // folders that exist in the sandbox by now
}

func (b *builder) add(args ...string) { b.args = append(b.args, args...) }

// dir makes a folder and its parents that anybody may enter.
func (b *builder) dir(path string) {
	if path == "/" || b.dirs[path] {
		return
	}
	b.dir(filepath.Dir(path))
	b.add("--perms", "0755", "--dir", path)
	b.dirs[path] = true
}

func (b *builder) tmpfs(path, perms string, size int64) {
	b.dir(filepath.Dir(path))
	b.add("--size", strconv.FormatInt(size, 10), "--perms", perms, "--tmpfs", path)
	b.dirs[path] = true
}

// arguments are everything but the command, for --args. A mount's source is the path at which bubblewrap itself sees it.
func arguments(spec sandbox.Spec, sources []string) []string {
	b := &builder{dirs: map[string]bool{"/usr": true, "/proc": true, "/dev": true}}
	b.add("--unshare-all", "--unshare-user", "--disable-userns", "--hostname", "sandbox", "--new-session", "--as-pid-1",
		"--cap-drop", "ALL", "--info-fd", strconv.Itoa(fdInfo), "--json-status-fd", strconv.Itoa(fdStatus))
	b.system()
	size := spec.Limits.TmpBytes
	if size == 0 {
		size = defaultTmp
	}
	b.tmpfs("/tmp", "1777", size)
	b.tmpfs("/run", "0755", size)
	b.dir("/var")
	b.add("--symlink", "../tmp", "/var/tmp", "--symlink", "../run", "/var/run")
	b.mounts(spec.Mounts, sources)
	b.add("--perms", "0644", "--ro-bind-data", strconv.Itoa(fdPasswd), "/etc/passwd", "--remount-ro", "/", "--chdir", spec.Dir)
	return b.args
}

func (b *builder) system() {
	b.add("--ro-bind", "/usr", "/usr")
	for _, name := range usrLinks {
		path := "/" + name
		st, err := os.Lstat(path)
		switch {
		case err != nil:
		case st.Mode()&os.ModeSymlink != 0:
			if to, err := os.Readlink(path); err == nil {
				b.add("--symlink", to, path)
			}
		case st.IsDir():
			b.add("--ro-bind", path, path)
		}
		b.dirs[path] = true
	}
	b.add("--proc", "/proc", "--dev", "/dev")
	b.tmpfs("/dev/shm", "1777", shmSize)
	b.add("--remount-ro", "/dev") // its own tmpfs, which has no size; what is mounted in it stays as it is
	b.dir("/etc")
	for _, path := range etcFiles {
		if st, err := os.Stat(path); err == nil && st.Mode().IsRegular() && st.Mode()&0o004 != 0 {
			b.dir(filepath.Dir(path))
			b.add("--ro-bind", path, path)
		}
	}
	b.alternatives()
	b.add("--perms", "0644", "--ro-bind-data", strconv.Itoa(fdGroup), "/etc/group",
		"--perms", "0644", "--ro-bind-data", strconv.Itoa(fdHosts), "/etc/hosts",
		"--perms", "0644", "--ro-bind-data", strconv.Itoa(fdSwitch), "/etc/nsswitch.conf")
}

// alternatives copies the links by which Debian's /usr/bin finds its programs (awk, which, pager, …); links alone, and only
// those that lead back into /usr.
func (b *builder) alternatives() {
	const dir = "/etc/alternatives"
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	b.dir(dir)
	for _, e := range entries {
		if e.Type()&os.ModeSymlink == 0 || strings.HasSuffix(e.Name(), ".gz") {
			continue
		}
		path := filepath.Join(dir, e.Name())
		if to, err := os.Readlink(path); err == nil && strings.HasPrefix(to, "/usr/") {
			b.add("--symlink", to, path)
		}
	}
}

// mounts adds the spec's, outer ones first.
func (b *builder) mounts(all []sandbox.Mount, sources []string) {
	order := make([]int, len(all))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return depth(all[i].Target) - depth(all[j].Target) })
	var done []string
	for _, i := range order {
		m := all[i]
		if !slices.ContainsFunc(done, func(outer string) bool { return sandbox.Within(outer, m.Target) }) {
			b.dir(filepath.Dir(m.Target))
		}
		op := "--ro-bind"
		if m.Writable {
			op = "--bind"
		}
		b.add(op, sources[i], m.Target)
		b.dirs[m.Target] = true
		done = append(done, m.Target)
	}
}

func depth(path string) int { return strings.Count(path, "/") }
