// Package local keeps sandboxes that are plain processes of this machine: it records them, watches them through process
// descriptors, stops them, and finds them again when another host started them. How one is started is the business of
// a Driver (design.md sections 4 and 12).
package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"nanoclaw/internal/crashpoint"
	"nanoclaw/internal/obs"
	"nanoclaw/internal/sandbox"
	"nanoclaw/internal/sandbox/limit"
)

// Child is what Launch started. Process is reaped by the Set.
type Child struct {
	Process *os.Process
	Runner  Proc // first process inside
	Monitor Proc // stays outside and knows the exit code; zero if there is none
}

// Driver is how one runtime starts its sandboxes and reads their end.
type Driver interface {
	Name() string
	// Launch starts spec. As soon as there is a process, and before it does anything of its own, Launch calls begin with
	// what is known by then. After an error nothing of it runs.
	Launch(ctx context.Context, spec sandbox.Spec, begin func(Child) error) (Child, error)
	// Recover finds the runner of a record that was written at begin.
	Recover(r Record) (Proc, bool)
	// Members are the processes that may outlive the runner; none where its end is the end of all.
	Members(r Record) []Proc
	// Exit reads how the sandbox ended; state is nil for one that an earlier host started.
	Exit(r Record, state *os.ProcessState) sandbox.Exit
}

// Set is the sandboxes of one runtime under one folder of records.
type Set struct {
	driver Driver
	dir    string
	limits *limit.Limiter
	log    *slog.Logger
	trim   trimmer

	mu   sync.Mutex
	live map[string]*handle
}

// NewSet returns the sandboxes recorded in dir, which is made when it is first needed.
func NewSet(driver Driver, dir string, limits *limit.Limiter, log *slog.Logger) *Set {
	return &Set{driver: driver, dir: dir, limits: limits, log: log, live: map[string]*handle{}}
}

// Start is sandbox.Runtime's Start.
func (s *Set) Start(ctx context.Context, spec sandbox.Spec) (sandbox.Handle, error) {
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	op := "start sandbox of session " + spec.Labels.Session
	for _, dir := range []string{s.dir, spec.StateDir} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, &sandbox.Failure{Class: sandbox.RuntimeUnavailable, Op: op, Err: err}
		}
	}
	k := key(s.driver.Name(), spec.Labels.Install, spec.Labels.Session)
	l, err := takeLock(s.dir, k)
	if errors.Is(err, errLocked) {
		return nil, fmt.Errorf("%s: %w", op, sandbox.ErrRunning)
	}
	if err != nil {
		return nil, &sandbox.Failure{Class: sandbox.RuntimeUnavailable, Op: op, Err: err}
	}
	defer l.release()
	boot, err := s.clear(k)
	if err != nil {
		if errors.Is(err, sandbox.ErrRunning) {
			return nil, fmt.Errorf("%s: %w", op, err)
		}
		return nil, &sandbox.Failure{Class: sandbox.RuntimeUnavailable, Op: op, Err: err}
	}
	rec := Record{Version: recordVersion, Runtime: s.driver.Name(), Labels: spec.Labels, Boot: boot, StateDir: spec.StateDir,
		Started: time.Now().UTC().Truncate(time.Millisecond)}
	return s.launch(ctx, spec, k, rec)
}

// clear makes sure that the session has no sandbox, and removes what is left of one that ended unseen.
func (s *Set) clear(k string) (boot string, err error) {
	if boot, err = bootID(); err != nil {
		return "", err
	}
	path := filepath.Join(s.dir, k+".json")
	old, err := readRecord(path)
	if errors.Is(err, fs.ErrNotExist) {
		return boot, nil
	}
	if err != nil {
		return "", fmt.Errorf("%w (%s can be removed once no sandbox of that session runs)", err, path)
	}
	if old.alive(boot) {
		return "", sandbox.ErrRunning
	}
	s.bury(old, boot)
	return boot, os.Remove(path)
}

func (s *Set) launch(ctx context.Context, spec sandbox.Spec, k string, rec Record) (sandbox.Handle, error) {
	group, err := s.limits.Create(k, spec.Limits)
	if err != nil {
		return nil, err
	}
	rec.Group = group
	child, err := s.driver.Launch(ctx, spec, func(c Child) error {
		if err := group.Add(ctx, c.Process.Pid); err != nil {
			return err
		}
		crashpoint.Hit("sandbox-unrecorded")
		rec.Runner, rec.Monitor = c.Runner, c.Monitor
		if err := writeRecord(s.dir, k, rec); err != nil {
			return err
		}
		crashpoint.Hit("sandbox-recorded")
		return nil
	})
	if err == nil {
		rec.Runner, rec.Monitor = child.Runner, child.Monitor
		crashpoint.Hit("sandbox-started")
		if err = writeRecord(s.dir, k, rec); err != nil {
			s.abandon(child, rec)
		}
	}
	if err != nil {
		oom := group.OOMKilled()
		group.Remove()
		_ = os.Remove(filepath.Join(s.dir, k+".json"))
		var f *sandbox.Failure
		if errors.As(err, &f) && !oom {
			return nil, err
		}
		class := sandbox.RuntimeUnavailable
		if oom {
			class = sandbox.ResourcesExhausted
		}
		return nil, &sandbox.Failure{Class: class, Op: "start sandbox of session " + spec.Labels.Session, Err: err}
	}
	return s.follow(k, rec, child.Process)
}

// abandon ends a sandbox that could not be recorded.
func (s *Set) abandon(c Child, rec Record) {
	Kill(append(s.driver.Members(rec), c.Runner))
	KillTree(c.Monitor)
	_, _ = c.Process.Wait()
}

// List is sandbox.Runtime's List. Records of sandboxes that have ended are removed.
func (s *Set) List(ctx context.Context, install string) ([]sandbox.Handle, error) {
	boot, err := bootID()
	if err != nil {
		return nil, &sandbox.Failure{Class: sandbox.RuntimeUnavailable, Op: "list sandboxes", Err: err}
	}
	paths, err := records(s.dir)
	if err != nil {
		return nil, &sandbox.Failure{Class: sandbox.RuntimeUnavailable, Op: "list sandboxes", Err: err}
	}
	var found []sandbox.Handle
	for _, path := range paths {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		rec, err := readRecord(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			s.log.WarnContext(ctx, "sandbox record left alone", obs.KeyPath, path, obs.Error(err))
			continue
		}
		if rec.Runtime != s.driver.Name() || rec.Labels.Install != install {
			continue
		}
		h, err := s.adopt(rec, boot)
		if err != nil {
			return nil, err
		}
		if h != nil {
			found = append(found, h)
		}
	}
	return found, nil
}

// adopt returns the handle of a recorded sandbox, or nil if it has ended or is being started by somebody else.
func (s *Set) adopt(rec Record, boot string) (sandbox.Handle, error) {
	k := key(rec.Runtime, rec.Labels.Install, rec.Labels.Session)
	s.mu.Lock()
	h := s.live[k]
	s.mu.Unlock()
	if h != nil && h.rec.Runner == rec.Runner {
		if h.over() {
			return nil, nil
		}
		return h, nil
	}
	l, err := takeLock(s.dir, k)
	if errors.Is(err, errLocked) {
		return nil, nil
	}
	if err != nil {
		return nil, &sandbox.Failure{Class: sandbox.RuntimeUnavailable, Op: "list sandboxes", Err: err}
	}
	defer l.release()
	path := filepath.Join(s.dir, k+".json")
	if now, err := readRecord(path); err != nil || now.Runner != rec.Runner || now.Monitor != rec.Monitor {
		return nil, nil // it ended, or was replaced, before the lock was ours
	}
	if rec.Runner.PID == 0 && rec.alive(boot) {
		if p, ok := s.driver.Recover(rec); ok {
			rec.Runner = p
			if err := writeRecord(s.dir, k, rec); err != nil {
				return nil, &sandbox.Failure{Class: sandbox.RuntimeUnavailable, Op: "adopt sandbox", Err: err}
			}
		}
	}
	if rec.Boot != boot || !rec.Runner.Alive() {
		s.bury(rec, boot)
		return nil, os.Remove(path)
	}
	return s.follow(k, rec, nil)
}

// bury ends what is left of a sandbox whose runner is dead, and takes its limits away.
func (s *Set) bury(rec Record, boot string) {
	if rec.Boot == boot {
		Kill(s.driver.Members(rec))
		KillTree(rec.Monitor)
	}
	if rec.Group != nil {
		rec.Group.Remove()
	}
}

// follow makes the handle and the goroutine that sees the sandbox's end.
func (s *Set) follow(k string, rec Record, process *os.Process) (sandbox.Handle, error) {
	w, err := openPidfd(rec.Runner)
	if err != nil {
		return nil, &sandbox.Failure{Class: sandbox.RuntimeUnavailable, Op: "watch sandbox", Err: err, Hint: "Linux 5.3 or newer is needed"}
	}
	h := &handle{set: s, key: k, rec: rec, process: process, runner: w, done: make(chan struct{})}
	s.mu.Lock()
	s.live[k] = h
	s.mu.Unlock()
	h.unlog = s.trim.watch(LogPath(rec.StateDir))
	go h.follow()
	return h, nil
}

// forget drops the handle and the record of a sandbox that has ended.
func (s *Set) forget(h *handle) {
	s.mu.Lock()
	if s.live[h.key] == h {
		delete(s.live, h.key)
	}
	s.mu.Unlock()
	l, err := takeLock(s.dir, h.key)
	if err != nil {
		return // whoever holds the lock sees a dead record and replaces it
	}
	defer l.release()
	path := filepath.Join(s.dir, h.key+".json")
	if rec, err := readRecord(path); err == nil && rec.Runner == h.rec.Runner {
		_ = os.Remove(path)
	}
}
