package local

import (
	"context"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"nanoclaw/internal/obs"
	"nanoclaw/internal/sandbox"
)

// monitorGrace is how long a monitor may take to write the exit code after its sandbox has ended.
const monitorGrace = 2 * time.Second

type handle struct {
	set     *Set
	key     string
	rec     Record
	process *os.Process // nil when an earlier host is the parent
	runner  *pidfd
	unlog   func()
	done    chan struct{}
	exit    sandbox.Exit // readable once done is closed

	mu    sync.Mutex
	known []Proc // members seen by Stop, which may have lost their way to the runner since
}

func (h *handle) Labels() sandbox.Labels { return h.rec.Labels }

func (h *handle) PID() int { return h.rec.Runner.PID }

func (h *handle) Wait(ctx context.Context) (sandbox.Exit, error) {
	select {
	case <-h.done:
		return h.exit, nil
	default:
	}
	select {
	case <-h.done:
		return h.exit, nil
	case <-ctx.Done():
		return sandbox.Exit{Code: -1}, ctx.Err()
	}
}

func (h *handle) over() bool {
	select {
	case <-h.done:
		return true
	default:
		return false
	}
}

func (h *handle) Stop(ctx context.Context, grace time.Duration) error {
	if h.over() {
		return nil
	}
	members := h.set.driver.Members(h.rec)
	h.mu.Lock()
	h.known = append(h.known, members...)
	h.mu.Unlock()
	if grace > 0 {
		ended, err := h.terminate(ctx, grace)
		if ended || err != nil {
			return err
		}
	}
	if err := h.runner.signal(unix.SIGKILL); err != nil && !h.over() {
		return h.failure("send SIGKILL", err)
	}
	select {
	case <-h.done:
		return nil
	case <-ctx.Done():
		return h.failure("wait for its end", ctx.Err())
	}
}

// retryTerm is the pause between signals to a runner that does not catch them yet.
const retryTerm = 10 * time.Millisecond

// terminate sends SIGTERM and waits for the end, at most grace. The kernel drops the signal for the first process of a
// namespace until it has a handler, so it is sent again to one that has just started.
func (h *handle) terminate(ctx context.Context, grace time.Duration) (ended bool, err error) {
	limit := time.NewTimer(grace)
	defer limit.Stop()
	for caught := false; ; {
		var again <-chan time.Time
		if !caught {
			caught = catches(h.rec.Runner.PID, unix.SIGTERM)
			if err := h.runner.signal(unix.SIGTERM); err != nil && !h.over() {
				return false, h.failure("send SIGTERM", err)
			}
			if !caught {
				again = time.After(retryTerm)
			}
		}
		select {
		case <-h.done:
			return true, nil
		case <-ctx.Done():
			return false, h.failure("wait for its end", ctx.Err())
		case <-limit.C:
			return false, nil
		case <-again:
		}
	}
}

func (h *handle) failure(what string, err error) error {
	return &sandbox.Failure{Class: sandbox.RuntimeUnavailable, Op: "stop sandbox of session " + h.rec.Labels.Session + ": " + what, Err: err}
}

// follow waits for the runner's end, ends what outlived it, and settles the record.
func (h *handle) follow() {
	if err := h.runner.wait(time.Time{}); err != nil {
		h.set.log.Warn("sandbox is watched no more", obs.KeySession, h.rec.Labels.Session, obs.Error(err))
	}
	h.mu.Lock()
	known := h.known
	h.mu.Unlock()
	Kill(append(h.set.driver.Members(h.rec), known...))
	if m := h.rec.Monitor; m.PID != 0 && m.PID != h.rec.Runner.PID && !WaitGone(context.Background(), m, monitorGrace) {
		Kill([]Proc{m})
	}
	var state *os.ProcessState
	if h.process != nil {
		state, _ = h.process.Wait()
	}
	h.exit = h.set.driver.Exit(h.rec, state)
	if g := h.rec.Group; g != nil {
		h.exit.OOM = g.OOMKilled() && h.exit.Code != 0
		g.Remove()
	}
	h.exit.Stderr = Tail(LogPath(h.rec.StateDir))
	h.set.forget(h)
	close(h.done)
	h.unlog()
	h.runner.close()
}

// Kill sends SIGKILL to each process and waits up to five seconds for their ends.
func Kill(procs []Proc) {
	deadline := time.Now().Add(5 * time.Second)
	var open []*pidfd
	for _, p := range procs {
		w, err := openPidfd(p)
		if err != nil || w == nil {
			continue
		}
		_ = w.signal(unix.SIGKILL)
		open = append(open, w)
	}
	for _, w := range open {
		_ = w.wait(deadline)
		w.close()
	}
}

// KillTree ends a process that may be about to start others: it is stopped first, so that none is missed.
func KillTree(p Proc) {
	w, err := openPidfd(p)
	if err != nil || w == nil {
		return
	}
	_ = w.signal(unix.SIGSTOP)
	w.close()
	for deadline := time.Now().Add(time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if s, err := readStat(p.PID); err != nil || s.state == 'T' || s.state == 'Z' {
			break
		}
	}
	Kill(Family(p))
}
