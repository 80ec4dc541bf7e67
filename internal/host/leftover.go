package host

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"nanoclaw/internal/channel"
	"nanoclaw/internal/config"
	"nanoclaw/internal/control"
	"nanoclaw/internal/id"
	"nanoclaw/internal/obs"
	"nanoclaw/internal/sandbox"
	"nanoclaw/internal/sandbox/bubblewrap"
	"nanoclaw/internal/sandbox/docker"
	"nanoclaw/internal/sandbox/limit"
	"nanoclaw/internal/sandbox/process"
	"nanoclaw/internal/store"
)

// StopLeft ends the sandboxes that a host which is gone has left running on its home, and returns how many there were. It
// returns a *store.LockedError when a host has the home.
func StopLeft(ctx context.Context, s config.Settings, log *slog.Logger) (int, error) {
	b, err := os.ReadFile(filepath.Join(s.Home, "install-id"))
	if errors.Is(err, os.ErrNotExist) || err == nil && !id.Safe(string(b)) {
		return 0, nil // no host was ever here
	}
	if err != nil {
		return 0, err
	}
	lock, err := store.AcquireLock(s.Home, control.Version())
	if err != nil {
		return 0, err
	}
	n, err := endSandboxes(ctx, runtimesBut(s, "", log), string(b))
	return n, errors.Join(err, lock.Release())
}

// kindKey is where a home notes the kind of sandbox it starts, in the scope of the host itself.
const kindScope, kindKey = "host", "sandbox.kind"

// endForeign ends what an earlier host on this home started with another kind of sandbox: nobody would find it again.
// What cannot be ended now is tried again by the next host.
func (h *Host) endForeign(ctx context.Context) error {
	kind, notes := h.runtime.Name(), h.store.KV(kindScope)
	before, _, err := notes.Get(ctx, kindKey)
	if err != nil || before == kind {
		return err
	}
	if before != "" {
		n, err := endSandboxes(ctx, runtimesBut(h.opt.Settings, kind, h.log), h.install)
		if n > 0 {
			h.log.Info("sandboxes of another kind are ended", obs.KeyRuntime, before, obs.KeyCount, n)
		}
		if err != nil {
			h.log.Warn("sandboxes of another kind cannot be ended", obs.KeyRuntime, before, obs.Error(err))
			return nil
		}
	}
	return notes.Update(ctx, channel.Pair{Key: kindKey, Value: kind})
}

// runtimesBut are the runtimes that can be asked here, without the one called name.
func runtimesBut(s config.Settings, name string, log *slog.Logger) []sandbox.Runtime {
	records, limits := filepath.Join(s.Home, "run", "sandboxes"), limit.Detect(log)
	var all []sandbox.Runtime
	if name != sandbox.Process {
		all = append(all, process.New(process.Options{RecordsDir: records, Limits: limits, Log: log}))
	}
	if name != sandbox.Bubblewrap {
		if b, err := bubblewrap.New(bubblewrap.Options{RecordsDir: records, Limits: limits, Log: log}); err == nil {
			all = append(all, b)
		}
	}
	if name != sandbox.Docker {
		if d, err := docker.New(docker.Options{Host: s.DockerHost, Image: s.Image, Log: log}); err == nil {
			all = append(all, d)
		}
	}
	return all
}

// endSandboxes ends every sandbox of an install in some runtimes and closes those. A runtime that is not there has none.
func endSandboxes(ctx context.Context, runtimes []sandbox.Runtime, install string) (ended int, err error) {
	for _, r := range runtimes {
		handles, listErr := r.List(ctx, install)
		var f *sandbox.Failure
		if errors.As(listErr, &f) && (f.Class == sandbox.RuntimeUnavailable || f.Class == sandbox.Denied) {
			listErr = nil
		}
		errs := make([]error, len(handles))
		var wait sync.WaitGroup
		for i, h := range handles {
			wait.Go(func() { errs[i] = h.Stop(ctx, 10*time.Second) })
		}
		wait.Wait()
		ended += len(handles)
		err = errors.Join(err, listErr, errors.Join(errs...))
		if c, ok := r.(io.Closer); ok {
			err = errors.Join(err, c.Close())
		}
	}
	return ended, err
}
