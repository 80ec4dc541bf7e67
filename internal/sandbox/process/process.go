// Package process runs the command beside the host, without isolation: for tests, and by explicit choice. The host's
// files, processes and network are in reach of it; it refuses nothing but root. Mount targets do not exist: the command
// is told where its folders are by --root, and mounts are only checked. A process session of its own, a record and the
// limits are the same as bubblewrap's.
//
// A host that runs as root drops to the spec's uid. Where that uid cannot enter a parent of a mount's source, the command
// gets a private mount namespace in which that parent shows the mounts' sources, and links beside them, and nothing else.
package process

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"nanoclaw/internal/obs"
	"nanoclaw/internal/sandbox"
	"nanoclaw/internal/sandbox/limit"
	"nanoclaw/internal/sandbox/local"
)

// Options of a Runtime.
type Options struct {
	RecordsDir string         // private folder of the host in which its sandboxes are recorded, made when needed
	Limits     *limit.Limiter // nil bounds nothing
	Log        *slog.Logger   // nil logs nothing
}

// Runtime is the sandbox.Runtime of this package.
type Runtime struct {
	limits *limit.Limiter
	set    *local.Set
}

// New returns the runtime.
func New(opt Options) *Runtime {
	if opt.Limits == nil {
		opt.Limits = limit.Off()
	}
	if opt.Log == nil {
		opt.Log = obs.Discard()
	}
	return &Runtime{limits: opt.Limits, set: local.NewSet(driver{}, opt.RecordsDir, opt.Limits, opt.Log)}
}

// Name is process.
func (r *Runtime) Name() string { return sandbox.Process }

// Limits names the means that bounds memory, processes and cpu. They hold from the moment after the command has started.
func (r *Runtime) Limits() string { return r.limits.Means() }

// Start runs the command in spec.Dir, with spec.Env and nothing of the host's environment.
func (r *Runtime) Start(ctx context.Context, spec sandbox.Spec) (sandbox.Handle, error) {
	return r.set.Start(ctx, spec)
}

// List finds this install's sandboxes by their records.
func (r *Runtime) List(ctx context.Context, install string) ([]sandbox.Handle, error) {
	return r.set.List(ctx, install)
}

// Candidate is process for sandbox.Choose, which never takes it by itself.
type Candidate struct{}

// Name is process.
func (Candidate) Name() string { return sandbox.Process }

// Probe always succeeds.
func (Candidate) Probe(context.Context) (string, error) { return "it isolates nothing", nil }

type driver struct{}

func (driver) Name() string { return sandbox.Process }

func (driver) Launch(_ context.Context, spec sandbox.Spec, begin func(local.Child) error) (local.Child, error) {
	process, err := spawn(spec)
	if err != nil {
		class := sandbox.SpecInvalid
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.ENOMEM) {
			class = sandbox.ResourcesExhausted
		}
		return local.Child{}, &sandbox.Failure{Class: class, Op: "start " + spec.Command[0], Err: err}
	}
	runner, err := local.Identify(process.Pid)
	child := local.Child{Process: process, Runner: runner}
	if err == nil {
		err = begin(child)
	}
	if err != nil {
		_ = unix.Kill(-process.Pid, unix.SIGKILL)
		_, _ = process.Wait()
		return local.Child{}, fmt.Errorf("start %s: %w", spec.Command[0], err)
	}
	return child, nil
}

func spawn(spec sandbox.Spec) (process *os.Process, err error) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	defer func() { _ = null.Close() }()
	log, err := local.OpenLog(spec.StateDir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	attr := &os.ProcAttr{Dir: spec.Dir, Env: environ(spec.Env), Files: []*os.File{null, log, log}, Sys: &syscall.SysProcAttr{Setsid: true}}
	local.KeepDescriptors()
	start := func() error {
		process, err = os.StartProcess(spec.Command[0], spec.Command, attr)
		return err
	}
	if os.Geteuid() != 0 {
		if spec.UID != os.Geteuid() || spec.GID != os.Getegid() {
			return nil, fmt.Errorf("the sandbox is to run as %d:%d, the host is %d:%d and not root", spec.UID, spec.GID, os.Geteuid(), os.Getegid())
		}
		return process, start()
	}
	attr.Sys.Credential = &syscall.Credential{Uid: uint32(spec.UID), Gid: uint32(spec.GID)}
	covers := hidden(spec)
	if len(covers) == 0 {
		return process, start()
	}
	err = local.InPrivateMounts(func() error {
		for _, c := range covers {
			if err := c.show(); err != nil {
				return err
			}
		}
		return start()
	})
	return process, err
}

// cover is a folder that the uid cannot enter, and what must be found in it all the same.
type cover struct {
	dir     string
	sources []string
}

// hidden finds, for the sources of all mounts, the outermost parent that spec's uid cannot enter.
func hidden(spec sandbox.Spec) []cover {
	byDir := map[string][]string{}
	for _, m := range spec.Mounts {
		if dir := barred(m.Source, spec.UID, spec.GID); dir != "" {
			byDir[dir] = append(byDir[dir], m.Source)
		}
	}
	var all []cover
	for dir, sources := range byDir {
		slices.Sort(sources) // outer ones first
		all = append(all, cover{dir, sources})
	}
	return all
}

// barred is the outermost parent of path without search permission for uid:gid, "" if there is none.
func barred(path string, uid, gid int) string {
	found := ""
	for dir := filepath.Dir(path); dir != "/"; dir = filepath.Dir(dir) {
		var st unix.Stat_t
		if unix.Stat(dir, &st) != nil {
			continue
		}
		bit := uint32(0o001)
		switch {
		case int(st.Uid) == uid:
			bit = 0o100
		case int(st.Gid) == gid:
			bit = 0o010
		}
		if st.Mode&bit == 0 {
			found = dir
		}
	}
	return found
}

// show covers the folder and binds the sources at their own paths. Links that lie beside them are made again: the runner's
// root may reach its folders through them.
func (c cover) show() error {
	links := map[string]string{}
	var binds []local.Bind
	for i, s := range c.sources {
		if slices.ContainsFunc(c.sources[:i], func(outer string) bool { return sandbox.Within(outer, s) }) {
			continue // shown by an outer one
		}
		binds = append(binds, local.Bind{Source: s, Target: s})
		for dir := filepath.Dir(s); sandbox.Within(c.dir, dir); dir = filepath.Dir(dir) {
			entries, err := os.ReadDir(dir)
			if err != nil {
				return err
			}
			for _, e := range entries {
				if e.Type()&os.ModeSymlink != 0 {
					path := filepath.Join(dir, e.Name())
					if links[path], err = os.Readlink(path); err != nil {
						return err
					}
				}
			}
		}
	}
	if err := local.Cover(c.dir, binds); err != nil {
		return err
	}
	for path, to := range links {
		if err := os.Symlink(to, path); err != nil && !errors.Is(err, os.ErrExist) {
			return fmt.Errorf("make link %s again: %w", path, err)
		}
	}
	return nil
}

// Recover: the runner is known when the record is first written.
func (driver) Recover(local.Record) (local.Proc, bool) { return local.Proc{}, false }

// Members are the session's processes, all that descends from the runner, and those in its control group.
func (driver) Members(r local.Record) []local.Proc {
	members := local.Family(r.Runner)
	if r.Group == nil {
		return members
	}
	for _, pid := range r.Group.PIDs() {
		if p, err := local.Identify(pid); err == nil {
			members = append(members, p)
		}
	}
	return members
}

// Exit is known to the parent alone: of a sandbox that an earlier host started, the code is unknown.
func (driver) Exit(_ local.Record, state *os.ProcessState) sandbox.Exit {
	if state == nil {
		return sandbox.Exit{Code: -1}
	}
	if ws, ok := state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return sandbox.Exit{Code: -1, Signal: unix.SignalName(ws.Signal())}
	}
	return sandbox.Exit{Code: state.ExitCode()}
}

func environ(env map[string]string) []string {
	all := make([]string, 0, len(env))
	for k, v := range env {
		all = append(all, k+"="+v)
	}
	return all
}
