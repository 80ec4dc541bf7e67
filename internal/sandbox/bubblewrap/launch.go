package bubblewrap

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"nanoclaw/internal/sandbox"
	"nanoclaw/internal/sandbox/local"
)

// setupLimit is how long bubblewrap may take to build a sandbox.
const setupLimit = 20 * time.Second

type driver struct{ program string }

func (d *driver) Name() string { return sandbox.Bubblewrap }

// Members: the runner is process 1 of its namespace, and its end is the end of all in it.
func (d *driver) Members(local.Record) []local.Proc { return nil }

// Launch starts bubblewrap, which waits for its arguments while begin puts it under its limits and on record. A host that
// dies before it wrote them leaves a bubblewrap that reads nothing and exits.
func (d *driver) Launch(ctx context.Context, spec sandbox.Spec, begin func(local.Child) error) (local.Child, error) {
	if !root() && (spec.UID != os.Geteuid() || spec.GID != os.Getegid()) {
		return local.Child{}, &sandbox.Failure{Class: sandbox.Denied, Op: "start bubblewrap",
			Err: fmt.Errorf("the sandbox is to run as %d:%d, the host is %d:%d and not root", spec.UID, spec.GID, os.Geteuid(), os.Getegid())}
	}
	p, err := openPlumbing(spec)
	if err != nil {
		return local.Child{}, fmt.Errorf("start bubblewrap: %w", err)
	}
	defer p.close()
	process, sources, err := d.spawn(spec, p)
	if err != nil {
		return local.Child{}, fmt.Errorf("start bubblewrap: %w", err)
	}
	p.closeChildEnds()
	child, err := d.setUp(ctx, spec, p, process, sources, begin)
	if err == nil {
		return child, nil
	}
	// Of bubblewrap alone, SIGKILL would leave its child waiting for ever.
	local.KillTree(child.Monitor)
	_ = process.Kill()
	_, _ = process.Wait()
	out := local.Tail(local.LogPath(spec.StateDir))
	class, hint := classify(out)
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return local.Child{}, &sandbox.Failure{Class: class, Op: "build sandbox", Hint: hint, Err: fmt.Errorf("%w: %s", err, firstLine(out, err))}
}

// setUp feeds bubblewrap and waits until all mounts are made.
func (d *driver) setUp(ctx context.Context, spec sandbox.Spec, p *plumbing, process *os.Process, sources []string,
	begin func(local.Child) error) (child local.Child, err error) {
	child.Process = process
	if child.Monitor, err = local.Identify(process.Pid); err != nil {
		return child, err
	}
	if err := begin(child); err != nil {
		return child, err
	}
	ctx, cancel := context.WithTimeout(ctx, setupLimit)
	defer cancel()
	stop := context.AfterFunc(ctx, p.expire)
	defer stop()
	if err := p.feed(arguments(spec, sources)); err != nil {
		return child, err
	}
	pid, err := p.childPID()
	if err != nil {
		return child, err
	}
	if child.Runner, err = local.Identify(pid); err != nil {
		return child, err
	}
	return child, p.finish()
}

// spawn starts bubblewrap as the sandbox's uid, in a process session of its own.
func (d *driver) spawn(spec sandbox.Spec, p *plumbing) (process *os.Process, sources []string, err error) {
	local.KeepDescriptors()
	argv := append([]string{"bwrap", "--args", strconv.Itoa(fdArgs), "--"}, spec.Command...)
	attr := &os.ProcAttr{Dir: "/", Env: environ(spec.Env), Files: p.files(), Sys: &syscall.SysProcAttr{Setsid: true}}
	sources = make([]string, len(spec.Mounts))
	if !root() {
		for i, m := range spec.Mounts {
			sources[i] = m.Source
		}
		process, err = os.StartProcess(d.program, argv, attr)
		return process, sources, err
	}
	attr.Sys.Credential = &syscall.Credential{Uid: uint32(spec.UID), Gid: uint32(spec.GID)}
	dir, err := d.coverable()
	if err != nil {
		return nil, nil, err
	}
	binds := make([]local.Bind, len(spec.Mounts))
	for i, m := range spec.Mounts {
		sources[i] = filepath.Join(dir, strconv.Itoa(i))
		binds[i] = local.Bind{Source: m.Source, Target: sources[i]}
	}
	err = local.InPrivateMounts(func() error {
		if err := local.Cover(dir, binds); err != nil {
			return err
		}
		process, err = os.StartProcess(d.program, argv, attr)
		return err
	})
	return process, sources, err
}

// coverable is a folder that everybody can reach and bubblewrap does not need.
func (d *driver) coverable() (string, error) {
	program, err := filepath.EvalSymlinks(d.program)
	if err != nil {
		return "", err
	}
	for _, dir := range []string{"/mnt", "/media", "/srv", "/opt", "/home"} {
		if st, err := os.Lstat(dir); err == nil && st.IsDir() && !sandbox.Within(dir, program) && !sandbox.Within(dir, d.program) {
			return dir, nil
		}
	}
	return "", errors.New("find a folder to mount over: none of /mnt, /media, /srv, /opt, /home can be used")
}

// Recover finds the runner in what bubblewrap wrote about itself, and checks that it is bubblewrap's child.
func (d *driver) Recover(r local.Record) (local.Proc, bool) {
	pid, _, _ := readStatus(r.StateDir)
	if pid == 0 || local.Parent(pid) != r.Monitor.PID {
		return local.Proc{}, false
	}
	p, err := local.Identify(pid)
	return p, err == nil && r.Monitor.Alive()
}

// Exit reads what bubblewrap said of its child's end.
func (d *driver) Exit(r local.Record, _ *os.ProcessState) sandbox.Exit {
	_, code, known := readStatus(r.StateDir)
	switch {
	case !known:
		return sandbox.Exit{Code: -1}
	case code > 128 && code <= 128+64:
		return sandbox.Exit{Code: -1, Signal: unix.SignalName(unix.Signal(code - 128))}
	}
	return sandbox.Exit{Code: code}
}

func statusPath(stateDir string) string { return filepath.Join(stateDir, "bubblewrap.status") }

// readStatus reads the child's pid, and its exit code once it is known.
func readStatus(stateDir string) (pid, code int, known bool) {
	b, err := os.ReadFile(statusPath(stateDir))
	if err != nil {
		return 0, 0, false
	}
	return parseStatus(b)
}

func parseStatus(b []byte) (pid, code int, known bool) {
	for dec := json.NewDecoder(bytes.NewReader(b)); ; {
		var line struct {
			Child *int `json:"child-pid"`
			Exit  *int `json:"exit-code"`
		}
		if err := dec.Decode(&line); err != nil {
			return pid, code, known
		}
		if line.Child != nil && *line.Child > 0 {
			pid = *line.Child
		}
		if line.Exit != nil {
			code, known = *line.Exit, true
		}
	}
}

func environ(env map[string]string) []string {
	all := make([]string, 0, len(env))
	for k, v := range env {
		all = append(all, k+"="+v)
	}
	return all
}

// unprivileged drops root for a probe.
func unprivileged() *syscall.SysProcAttr {
	if !root() {
		return &syscall.SysProcAttr{Setsid: true}
	}
	return &syscall.SysProcAttr{Setsid: true, Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
}
