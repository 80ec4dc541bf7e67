package sandboxtest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"nanoclaw/internal/id"
	"nanoclaw/internal/sandbox"
	"nanoclaw/internal/sandbox/sandboxtest/ask"
	"nanoclaw/internal/socket"
)

// socketName is the suite's socket in run/.
const socketName = "probe.sock"

// bench is one part's folders and runtime.
type bench struct {
	Subject
	ctx     context.Context
	probe   string
	dir     string
	records string
	install string
	runtime sandbox.Runtime
}

func newBench(t *testing.T, s Subject, probe string) *bench {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*patience)
	t.Cleanup(cancel)
	b := &bench{Subject: s, ctx: ctx, probe: probe, dir: t.TempDir(), install: install()}
	b.records = filepath.Join(b.dir, "records")
	b.runtime = b.open(t)
	t.Cleanup(func() { b.stopAll(t) })
	return b
}

func (b *bench) open(t *testing.T) sandbox.Runtime {
	t.Helper()
	r, err := b.Open(b.records)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (b *bench) stopAll(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	all, err := b.runtime.List(ctx, b.install)
	if err != nil {
		t.Errorf("clean up: %v", err)
	}
	for _, h := range all {
		if err := h.Stop(ctx, 0); err != nil {
			t.Errorf("clean up: %v", err)
		}
	}
}

// session is the folders of one session, the suite's listener in them, and the spec that goes with them.
type session struct {
	b        *bench
	dir      string
	listener *socket.Listener
	spec     sandbox.Spec
}

func (b *bench) session(t *testing.T) *session {
	t.Helper()
	s := &session{b: b, dir: filepath.Join(b.dir, id.New("sess"))}
	for _, sub := range []string{"in/inbox", "out", "home", "run", "group", "state", "extra"} {
		if err := os.MkdirAll(filepath.Join(s.dir, sub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"in/container.json", "in/inbound.db", "extra/secret"} {
		if err := os.WriteFile(filepath.Join(s.dir, name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s.listen(t)
	s.spec = sandbox.Spec{
		Labels: sandbox.Labels{Install: b.install, AgentGroup: "ag-suite", Session: filepath.Base(s.dir), Incarnation: 3},
		Image:  b.Image, UID: b.UID, GID: b.GID, StateDir: filepath.Join(s.dir, "state"), Network: sandbox.NetworkNone,
		Env: map[string]string{"PATH": "/usr/bin:/bin", "HOME": "/home/agent", "NOTE": "a value with spaces = and ü"},
		Mounts: []sandbox.Mount{
			{Class: sandbox.ClassProgram, Source: b.probe, Target: "/opt/nanoclaw/probe"},
			{Class: sandbox.ClassConfig, Source: filepath.Join(s.dir, "in", "container.json"), Target: "/workspace/agent/container.json"},
			{Class: sandbox.ClassHostBox, Source: filepath.Join(s.dir, "in"), Target: "/workspace/in"},
			{Class: sandbox.ClassHostBox, Source: filepath.Join(s.dir, "in", "inbox"), Target: "/workspace/inbox"},
			{Class: sandbox.ClassHostBox, Source: filepath.Join(s.dir, "run"), Target: "/run/nanoclaw-host"},
			{Class: sandbox.ClassAgent, Source: filepath.Join(s.dir, "out"), Target: "/workspace/out", Writable: true},
			{Class: sandbox.ClassAgent, Source: filepath.Join(s.dir, "home"), Target: "/home/agent", Writable: true},
			{Class: sandbox.ClassAgent, Source: filepath.Join(s.dir, "group"), Target: "/workspace/agent", Writable: true},
			{Class: sandbox.ClassExtra, Source: filepath.Join(s.dir, "extra"), Target: "/workspace/extra/folder"},
		},
	}
	s.spec.Command = []string{s.inside("/opt/nanoclaw/probe"), s.inside("/run/nanoclaw-host"), socketName}
	s.spec.Dir = s.inside("/workspace/agent")
	return s
}

// listen binds the suite's socket, as a host that comes back does.
func (s *session) listen(t *testing.T) {
	t.Helper()
	l, err := socket.Listen(filepath.Join(s.dir, "run"), socketName, 0o660)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Chown(-1, s.b.GID); err != nil {
		t.Fatal(err)
	}
	s.listener = l
	t.Cleanup(func() { _ = l.Close() })
}

// inside is where the command finds a mount's target.
func (s *session) inside(target string) string {
	if s.b.Isolated {
		return target
	}
	best := sandbox.Mount{}
	for _, m := range s.spec.Mounts {
		if sandbox.Within(m.Target, target) && len(m.Target) > len(best.Target) {
			best = m
		}
	}
	return best.Source + strings.TrimPrefix(target, best.Target)
}

// start runs the probe and waits until it has dialled.
func (s *session) start(t *testing.T) (sandbox.Handle, *link) {
	t.Helper()
	if err := sandbox.Prepare(s.spec); err != nil {
		t.Fatal(err)
	}
	h, err := s.b.runtime.Start(s.b.ctx, s.spec)
	if err != nil {
		t.Fatal(err)
	}
	return h, s.accept(t)
}

// link is the connection to a probe.
type link struct {
	conn net.Conn
	in   *bufio.Reader
}

func (s *session) accept(t *testing.T) *link {
	t.Helper()
	if err := s.listener.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	c, err := s.listener.Accept()
	if err != nil {
		t.Fatalf("the probe does not dial: %v\n%s", err, s.output())
	}
	t.Cleanup(func() { _ = c.Close() })
	return &link{c, bufio.NewReader(c)}
}

// output is what the sandbox printed, where the runtime keeps that in the state folder.
func (s *session) output() string {
	var all strings.Builder
	logs, _ := filepath.Glob(filepath.Join(s.spec.StateDir, "*.log"))
	for _, path := range logs {
		b, _ := os.ReadFile(path)
		all.Write(b)
	}
	return all.String()
}

// ask sends a question and returns the answer; ok is false when the probe is gone instead.
func (l *link) ask(t *testing.T, q ask.Question) (a ask.Answer, ok bool) {
	t.Helper()
	if err := l.conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	line, err := json.Marshal(q)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.conn.Write(append(line, '\n')); err != nil {
		return a, false
	}
	line, err = l.in.ReadBytes('\n')
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("no answer to %+v", q)
	}
	if err != nil {
		return a, false
	}
	if err := json.Unmarshal(line, &a); err != nil {
		t.Fatal(err)
	}
	return a, true
}

// must is ask of a probe that has to be there.
func (l *link) must(t *testing.T, q ask.Question) ask.Answer {
	t.Helper()
	a, ok := l.ask(t, q)
	if !ok {
		t.Fatalf("the probe is gone at %+v", q)
	}
	return a
}

// wait waits for the end of a sandbox.
func (b *bench) wait(t *testing.T, h sandbox.Handle) sandbox.Exit {
	t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	e, err := h.Wait(ctx)
	if err != nil {
		t.Fatalf("wait for the end: %v", err)
	}
	return e
}

// marked lists the living processes of the machine whose command line holds mark.
func marked(t *testing.T, mark string) (pids []int) {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if strings.Contains(commandLine(pid), mark) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// commandLine of a process; a zombie has none.
func commandLine(pid int) string {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	if err != nil {
		return ""
	}
	return strings.ReplaceAll(string(b), "\x00", " ")
}

func as(uid int) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
}
