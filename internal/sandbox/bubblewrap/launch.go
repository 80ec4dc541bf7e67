package bubblewrap

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
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
	if child.Runner.PID != 0 {
		_ = unix.Kill(child.Runner.PID, unix.SIGKILL) // not reaped yet by its monitor, or just so: the number is still its own
	}
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
	if err := p.ready(); err != nil {
		return child, err
	}
	if !child.Runner.Alive() && !statusKnown(spec.StateDir) {
		return child, errors.New("bubblewrap gave up")
	}
	return child, nil
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

func statusKnown(stateDir string) bool {
	_, _, known := readStatus(stateDir)
	return known
}

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

// plumbing is the descriptors between the host and bubblewrap while it builds a sandbox.
type plumbing struct {
	null, log, status        *os.File
	argsIn, argsOut          *os.File
	infoIn, infoOut          *os.File
	passwdIn                 *os.File
	passwd                   *net.UnixConn
	group, hosts, nameSwitch *os.File
	passwdText               string
}

func openPlumbing(spec sandbox.Spec) (p *plumbing, err error) {
	p = &plumbing{}
	defer func() {
		if err != nil {
			p.close()
			p.closeChildEnds()
		}
	}()
	p.passwdText = fmt.Sprintf("root:x:0:0:root:/:/usr/sbin/nologin\nagent:x:%d:%d:agent:%s:/bin/sh\nnobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n",
		spec.UID, spec.GID, homeOf(spec))
	if p.null, err = os.Open(os.DevNull); err != nil {
		return p, err
	}
	if p.log, err = local.OpenLog(spec.StateDir); err != nil {
		return p, err
	}
	if err = os.Remove(statusPath(spec.StateDir)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return p, err
	}
	if p.status, err = os.OpenFile(statusPath(spec.StateDir), os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600); err != nil {
		return p, err
	}
	if p.argsOut, p.argsIn, err = os.Pipe(); err != nil {
		return p, err
	}
	if p.infoOut, p.infoIn, err = os.Pipe(); err != nil {
		return p, err
	}
	if p.passwd, p.passwdIn, err = socketpair(); err != nil {
		return p, err
	}
	for _, data := range []struct {
		f    **os.File
		text string
	}{
		{&p.group, fmt.Sprintf("root:x:0:\nagent:x:%d:\nnogroup:x:65534:\n", spec.GID)},
		{&p.hosts, "127.0.0.1 localhost sandbox\n::1 localhost\n"},
		{&p.nameSwitch, "passwd: files\ngroup: files\nhosts: files\n"},
	} {
		if *data.f, err = filled(data.text); err != nil {
			return p, err
		}
	}
	return p, nil
}

func homeOf(spec sandbox.Spec) string {
	if h := spec.Env["HOME"]; filepath.IsAbs(h) && !strings.ContainsAny(h, ":\n") {
		return h
	}
	return "/"
}

// filled is the reading end of a pipe that holds text, which must fit into a page.
func filled(text string) (*os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	_, err = w.WriteString(text)
	return r, errors.Join(err, w.Close())
}

func socketpair() (*net.UnixConn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "ready"), os.NewFile(uintptr(fds[1]), "passwd")
	defer func() { _ = ours.Close() }()
	c, err := net.FileConn(ours)
	if err != nil {
		_ = theirs.Close()
		return nil, nil, err
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		_ = theirs.Close()
		return nil, nil, errors.New("socket pair is no unix socket")
	}
	return u, theirs, nil
}

// files in the order of the descriptor numbers in args.go.
func (p *plumbing) files() []*os.File {
	return []*os.File{p.null, p.log, p.log, p.argsOut, p.infoIn, p.status, p.group, p.hosts, p.nameSwitch, p.passwdIn}
}

func (p *plumbing) closeChildEnds() {
	for _, f := range []*os.File{p.null, p.log, p.status, p.argsOut, p.infoIn, p.passwdIn, p.group, p.hosts, p.nameSwitch} {
		_ = f.Close() // of nil: an error and no harm
	}
}

func (p *plumbing) close() {
	_ = p.argsIn.Close()
	_ = p.infoOut.Close()
	if p.passwd != nil {
		_ = p.passwd.Close()
	}
}

// expire makes every pending step fail.
func (p *plumbing) expire() {
	now := time.Now()
	_ = p.argsIn.SetDeadline(now)
	_ = p.infoOut.SetDeadline(now)
	_ = p.passwd.SetDeadline(now)
}

func (p *plumbing) feed(args []string) error {
	var b bytes.Buffer
	for _, a := range args {
		b.WriteString(a)
		b.WriteByte(0)
	}
	if _, err := p.argsIn.Write(b.Bytes()); err != nil {
		return fmt.Errorf("hand over its arguments: %w", err)
	}
	if err := p.argsIn.Close(); err != nil {
		return err
	}
	if _, err := io.WriteString(p.passwd, p.passwdText); err != nil {
		return fmt.Errorf("hand over its files: %w", err)
	}
	return p.passwd.CloseWrite()
}

// childPID reads the runner's process id as the host sees it.
func (p *plumbing) childPID() (int, error) {
	b, err := io.ReadAll(io.LimitReader(p.infoOut, 4096))
	if err != nil {
		return 0, fmt.Errorf("learn its process: %w", err)
	}
	pid, _, _ := parseStatus(b)
	if pid == 0 {
		return 0, errors.New("it started no process")
	}
	return pid, nil
}

// ready waits until bubblewrap has used the last of its files, or has ended.
func (p *plumbing) ready() error {
	var b [1]byte
	if _, err := p.passwd.Read(b[:]); !errors.Is(err, io.EOF) && !errors.Is(err, unix.ECONNRESET) {
		return fmt.Errorf("wait for its mounts: %w", err)
	}
	return nil
}
