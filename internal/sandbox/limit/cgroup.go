package limit

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"nanoclaw/internal/id"
)

// controllers that a means must have to be used.
var controllers = []string{"memory", "pids", "cpu"}

// cpuPeriod is the length in microseconds over which cpu time is bounded.
const cpuPeriod = 100_000

// mount of a cgroup hierarchy.
type mount struct {
	kind   string // cgroup or cgroup2
	path   string
	option []string
}

func mounts() []mount {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }()
	var all []mount
	for s := bufio.NewScanner(f); s.Scan(); {
		if m, ok := parseMount(s.Text()); ok {
			all = append(all, m)
		}
	}
	return all
}

// parseMount reads one line of mountinfo, and accepts only cgroup mounts.
func parseMount(line string) (mount, bool) {
	before, after, ok := strings.Cut(line, " - ")
	if !ok {
		return mount{}, false
	}
	left, right := strings.Fields(before), strings.Fields(after)
	if len(left) < 6 || len(right) < 3 || right[0] != "cgroup" && right[0] != "cgroup2" {
		return mount{}, false
	}
	path := left[4]
	for _, e := range []struct{ code, char string }{{`\040`, " "}, {`\011`, "\t"}, {`\012`, "\n"}, {`\134`, `\`}} {
		path = strings.ReplaceAll(path, e.code, e.char)
	}
	return mount{kind: right[0], path: path, option: strings.Split(right[2], ",")}, true
}

func cgroup1() (map[string]string, bool) {
	roots := map[string]string{}
	for _, m := range mounts() {
		for _, c := range controllers {
			if m.kind == "cgroup" && slices.Contains(m.option, c) {
				roots[c] = m.path
			}
		}
	}
	if len(roots) != len(controllers) {
		return nil, false
	}
	return roots, works(func(g *Group, name string) error { return g.makeV1(roots, name) })
}

func (g *Group) makeV1(roots map[string]string, name string) error {
	made := map[string]string{}
	for _, c := range controllers {
		root := roots[c]
		if made[root] != "" { // cpu and memory may share a hierarchy
			continue
		}
		dir, err := g.make(root, name)
		if err != nil {
			return err
		}
		made[root] = dir
	}
	var err error
	if n := g.Want.MemoryBytes; n > 0 {
		dir, v := made[roots["memory"]], strconv.FormatInt(n, 10)
		err = errors.Join(err, set(dir, "memory.limit_in_bytes", v))
		// No swap beside it, where the kernel counts swap.
		if e := set(dir, "memory.memsw.limit_in_bytes", v); e != nil && !errors.Is(e, fs.ErrNotExist) && !errors.Is(e, fs.ErrPermission) {
			err = errors.Join(err, e)
		}
	}
	if n := g.Want.PIDs; n > 0 {
		err = errors.Join(err, set(made[roots["pids"]], "pids.max", strconv.FormatInt(n, 10)))
	}
	if n := g.Want.CPUs; n > 0 {
		dir := made[roots["cpu"]]
		err = errors.Join(err, set(dir, "cpu.cfs_period_us", strconv.Itoa(cpuPeriod)), set(dir, "cpu.cfs_quota_us", quota(n)))
	}
	return err
}

func cgroup2() (map[string]string, bool) {
	for _, m := range mounts() {
		if m.kind != "cgroup2" {
			continue
		}
		for _, root := range []string{m.path, filepath.Join(m.path, ownGroup())} {
			has, _ := os.ReadFile(filepath.Join(root, "cgroup.controllers"))
			missing := slices.ContainsFunc(controllers, func(c string) bool { return !slices.Contains(strings.Fields(string(has)), c) })
			if !missing && works(func(g *Group, name string) error { return g.makeV2(root, name) }) {
				return map[string]string{"": root}, true
			}
		}
	}
	return nil, false
}

func (g *Group) makeV2(root, name string) error {
	dir, err := g.make(root, name)
	if err != nil {
		return err
	}
	for _, d := range []string{root, filepath.Dir(dir)} {
		if err := delegate(d); err != nil {
			return err
		}
	}
	if n := g.Want.MemoryBytes; n > 0 {
		err = errors.Join(err, set(dir, "memory.max", strconv.FormatInt(n, 10)))
		if e := set(dir, "memory.swap.max", "0"); e != nil && !errors.Is(e, fs.ErrNotExist) && !errors.Is(e, fs.ErrPermission) {
			err = errors.Join(err, e)
		}
	}
	if n := g.Want.PIDs; n > 0 {
		err = errors.Join(err, set(dir, "pids.max", strconv.FormatInt(n, 10)))
	}
	if n := g.Want.CPUs; n > 0 {
		err = errors.Join(err, set(dir, "cpu.max", quota(n)+" "+strconv.Itoa(cpuPeriod)))
	}
	return err
}

// delegate turns the controllers on for the children of dir where they are not yet.
func delegate(dir string) error {
	on, err := os.ReadFile(filepath.Join(dir, "cgroup.subtree_control"))
	if err != nil {
		return err
	}
	for _, c := range controllers {
		if !slices.Contains(strings.Fields(string(on)), c) {
			if err := set(dir, "cgroup.subtree_control", "+"+c); err != nil {
				return err
			}
		}
	}
	return nil
}

// ownGroup is the path of this process in the v2 hierarchy.
func ownGroup() string {
	b, _ := os.ReadFile("/proc/self/cgroup")
	for line := range strings.Lines(string(b)) {
		if p, ok := strings.CutPrefix(line, "0::"); ok {
			return strings.TrimSpace(p)
		}
	}
	return "/"
}

// works tries to make a group with every limit set.
func works(makeGroup func(*Group, string) error) bool {
	g := &Group{Means: CgroupV1}
	g.Want.MemoryBytes, g.Want.PIDs, g.Want.CPUs = 64<<20, 16, 1
	defer g.Remove()
	return makeGroup(g, id.New("probe")) == nil
}

func quota(cpus float64) string { return fmt.Sprintf("%d", max(1000, int64(cpus*cpuPeriod))) }
