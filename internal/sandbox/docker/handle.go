package docker

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
	"golang.org/x/sys/unix"

	"nanoclaw/internal/sandbox"
)

const (
	// lastLines and lastBytes bound what is kept of a dead sandbox's standard error.
	lastLines = "40"
	lastBytes = 8 << 10
	// retryFirst and retryMost pace a wait whose connection to the daemon broke.
	retryFirst = 100 * time.Millisecond
	retryMost  = 5 * time.Second
)

// handle of one container. Its end is collected once (exit code, OOM, last lines, then removal) by whoever sees it first.
type handle struct {
	r      *Runtime
	name   string
	id     string
	labels sandbox.Labels

	mu   sync.Mutex
	exit *sandbox.Exit // set once the container is gone
	pid  int
}

func (h *handle) Labels() sandbox.Labels { return h.labels }

// PID asks the daemon the first time, for at most two seconds.
func (h *handle) PID() int {
	ctx, cancel := context.WithTimeout(context.Background(), probeTimeout)
	defer cancel()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.pid == 0 && h.exit == nil {
		if res, err := h.r.api.ContainerInspect(ctx, h.id, client.ContainerInspectOptions{}); err == nil && res.Container.State != nil {
			h.pid = res.Container.State.Pid
		}
	}
	return h.pid
}

// Wait holds one request open at the daemon; nothing polls. A daemon that goes away meanwhile is asked again.
func (h *handle) Wait(ctx context.Context) (sandbox.Exit, error) {
	const op = "wait for a sandbox"
	for pause := retryFirst; ; pause = min(2*pause, retryMost) {
		if exit, ok := h.ended(); ok {
			return exit, nil
		}
		exit, err := h.await(ctx)
		if err == nil {
			return exit, nil
		}
		if ctx.Err() != nil {
			return sandbox.Exit{Code: -1}, h.r.failure(op, ctx.Err())
		}
		var f *sandbox.Failure
		if errors.As(h.r.failure(op, err), &f) && !f.Class.Retryable() {
			return sandbox.Exit{Code: -1}, f
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
}

func (h *handle) await(ctx context.Context) (sandbox.Exit, error) {
	waiting, cancel := context.WithCancel(ctx)
	defer cancel() // ends the request's reader when we return
	w := h.r.api.ContainerWait(waiting, h.id, client.ContainerWaitOptions{Condition: container.WaitConditionNotRunning})
	select {
	case res := <-w.Result:
		return h.collect(ctx, int(res.StatusCode))
	case err := <-w.Error:
		if err != nil && !gone(err) {
			return sandbox.Exit{}, err
		}
		return h.collect(ctx, -1)
	}
}

// Stop sends SIGTERM, then SIGKILL after grace, and confirms that the container is gone.
func (h *handle) Stop(ctx context.Context, grace time.Duration) error {
	const op = "stop a sandbox"
	if grace > 0 {
		switch ended, err := h.signal(ctx, "SIGTERM"); {
		case err != nil:
			return h.r.failure(op, err)
		case !ended:
			bounded, cancel := context.WithTimeout(ctx, grace)
			_, err := h.await(bounded)
			cancel()
			if err == nil {
				return nil
			}
			if ctx.Err() != nil {
				return h.r.failure(op, ctx.Err())
			}
		}
	}
	if _, err := h.signal(ctx, "SIGKILL"); err != nil {
		return h.r.failure(op, err)
	}
	if _, err := h.await(ctx); err != nil {
		return h.r.failure(op, err)
	}
	return nil
}

// signal reports ended when nothing runs that could take it.
func (h *handle) signal(ctx context.Context, name string) (ended bool, err error) {
	if _, ok := h.ended(); ok {
		return true, nil
	}
	_, err = h.r.api.ContainerKill(ctx, h.id, client.ContainerKillOptions{Signal: name})
	if gone(err) || errdefs.IsConflict(err) {
		return true, nil
	}
	return false, err
}

func (h *handle) ended() (sandbox.Exit, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.exit == nil {
		return sandbox.Exit{}, false
	}
	return *h.exit, true
}

// collect reads what the ended container left and removes it. code is the daemon's answer to a wait; -1 if unknown. It fails
// without having changed anything that a second call could not finish.
func (h *handle) collect(ctx context.Context, code int) (sandbox.Exit, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.exit != nil {
		return *h.exit, nil
	}
	exit := exitOf(code)
	res, err := h.r.api.ContainerInspect(ctx, h.id, client.ContainerInspectOptions{})
	switch {
	case gone(err): // somebody else collected it
	case err != nil:
		return sandbox.Exit{}, err
	default:
		if s := res.Container.State; s != nil && !s.Running {
			exit = exitOf(s.ExitCode)
			exit.OOM = s.OOMKilled
		}
		if exit.Stderr, err = h.lastLines(ctx); err != nil && ctx.Err() != nil {
			return sandbox.Exit{}, err
		}
		if err := h.r.remove(ctx, h.id); err != nil {
			return sandbox.Exit{}, err
		}
	}
	h.exit = &exit
	h.r.forget(h)
	return exit, nil
}

func (h *handle) lastLines(ctx context.Context) (string, error) {
	logs, err := h.r.api.ContainerLogs(ctx, h.id, client.ContainerLogsOptions{ShowStderr: true, Tail: lastLines})
	if err != nil {
		return "", err
	}
	defer func() { _ = logs.Close() }()
	var out bytes.Buffer
	_, err = stdcopy.StdCopy(io.Discard, &out, logs)
	b := out.Bytes()
	if len(b) > lastBytes {
		b = b[len(b)-lastBytes:]
	}
	return strings.ToValidUTF8(string(b), "\uFFFD"), err
}

// exitOf takes a code above 128 for an end by signal, as shells and daemons write it.
func exitOf(code int) sandbox.Exit {
	if code > 128 && code <= 128+64 {
		if name := unix.SignalName(unix.Signal(code - 128)); name != "" {
			return sandbox.Exit{Code: -1, Signal: name}
		}
	}
	return sandbox.Exit{Code: code}
}
