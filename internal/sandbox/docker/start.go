package docker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
	"golang.org/x/sys/unix"

	"nanoclaw/internal/obs"
	"nanoclaw/internal/sandbox"
)

const (
	// createTries bounds how often the remains of an earlier sandbox are cleared away in one Start.
	createTries = 3
	// cleanup bounds the removal of a container that did not start, when the caller's context may be over.
	cleanup  = 15 * time.Second
	lockFile = "docker.lock"
)

// Start creates and starts the container. When ctx ends meanwhile, it still lets the daemon finish the call in progress (at most
// 15 s): one that is cut off leaves Podman with a container that it can neither list nor remove. It returns ErrRunning if the session has a sandbox, also one of another process;
// what is left of a dead one is removed. On any error nothing stays behind.
func (r *Runtime) Start(ctx context.Context, spec sandbox.Spec) (sandbox.Handle, error) {
	const op = "start sandbox in a container"
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	f, err := r.facts(ctx)
	if err != nil {
		return nil, r.failure(op, err)
	}
	if f.remapped || f.rootless && !f.podman {
		return nil, &sandbox.Failure{Class: sandbox.Denied, Op: op, Hint: remapHint, Err: errRemapped}
	}
	if f.podman && r.opt.Runtime != "" && r.opt.Runtime != f.runtime {
		// its API takes the name and runs something else, which would be less isolated than was asked for
		return nil, &sandbox.Failure{Class: sandbox.SpecInvalid, Op: op, Hint: "start Podman's service with --runtime " + r.opt.Runtime + ", or unset docker.runtime",
			Err: fmt.Errorf("the API of Podman starts every container with its own default, %s", f.runtime)}
	}
	name := containerName(spec.Labels)
	release, ok := r.hold(name)
	if !ok {
		return nil, running(spec.Labels)
	}
	defer release()
	unlock, err := lock(spec)
	if err != nil {
		return nil, err
	}
	defer unlock()
	accounts, err := writeAccounts(spec)
	if err != nil {
		return nil, err
	}
	create, err := createOptions(spec, accounts, r.opt, f)
	if err != nil {
		return nil, err
	}
	id, err := r.create(ctx, create, spec)
	if err != nil {
		return nil, r.failure(op, err)
	}
	if err := r.begin(ctx, id); err != nil {
		r.discard(ctx, id)
		return nil, r.failure(op, err)
	}
	return r.adopt(name, id, spec.Labels), nil
}

func (r *Runtime) create(ctx context.Context, opt client.ContainerCreateOptions, spec sandbox.Spec) (string, error) {
	var err error
	for range createTries {
		var res client.ContainerCreateResult
		if res, err = r.make(ctx, opt); err == nil {
			for _, w := range res.Warnings {
				r.log.Debug("the daemon warns about a sandbox", obs.KeySession, spec.Labels.Session, obs.KeyReason, w)
			}
			return res.ID, nil
		}
		if !errdefs.IsConflict(err) && !strings.Contains(err.Error(), "name is already in use") { // the latter is Podman
			return "", err
		}
		if err := r.clear(ctx, opt.Name, spec); err != nil {
			return "", err
		}
	}
	return "", err
}

// make is one create call; the container is gone again if ctx ended meanwhile.
func (r *Runtime) make(ctx context.Context, opt client.ContainerCreateOptions) (client.ContainerCreateResult, error) {
	if ctx.Err() != nil {
		return client.ContainerCreateResult{}, ctx.Err()
	}
	patient, cancel := outlive(ctx)
	defer cancel()
	res, err := r.api.ContainerCreate(patient, opt)
	if err == nil && ctx.Err() != nil {
		r.discard(ctx, res.ID)
		err = ctx.Err()
	}
	return res, err
}

func (r *Runtime) begin(ctx context.Context, id string) error {
	patient, cancel := outlive(ctx)
	defer cancel()
	_, err := r.api.ContainerStart(patient, id, client.ContainerStartOptions{})
	return errors.Join(err, ctx.Err())
}

// outlive is ctx without its end, but bounded from then on.
func outlive(ctx context.Context) (context.Context, context.CancelFunc) {
	patient, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		timer := time.AfterFunc(cleanup, cancel)
		context.AfterFunc(patient, func() { timer.Stop() })
	})
	return patient, func() { stop(); cancel() }
}

// clear makes room for a session's container: what is dead goes, what lives is ErrRunning, what is not ours stays.
func (r *Runtime) clear(ctx context.Context, name string, spec sandbox.Spec) error {
	res, err := r.api.ContainerInspect(ctx, name, client.ContainerInspectOptions{})
	if gone(err) {
		return nil
	}
	if err != nil {
		return err
	}
	c := res.Container
	if c.Config == nil || c.Config.Labels[labelInstall] != spec.Labels.Install || c.Config.Labels[labelSession] != spec.Labels.Session {
		return &sandbox.Failure{
			Class: sandbox.Denied, Op: "start sandbox in a container", Hint: "remove or rename the container " + name,
			Err: errors.New("its name is taken by a container of somebody else"),
		}
	}
	if c.State != nil && (c.State.Running || c.State.Paused || c.State.Restarting) {
		return running(spec.Labels)
	}
	if h := r.lookup(name, c.ID); h != nil {
		_, err := h.collect(ctx, -1)
		return err
	}
	return r.remove(ctx, c.ID)
}

// discard removes a container that did not start, also when ctx is over.
func (r *Runtime) discard(ctx context.Context, id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanup)
	defer cancel()
	if err := r.remove(ctx, id); err != nil {
		r.log.Warn("a container that did not start could not be removed", obs.KeyContainer, id, obs.Error(err))
	}
}

// remove returns when the daemon no longer has the container.
func (r *Runtime) remove(ctx context.Context, id string) error {
	_, err := r.api.ContainerRemove(ctx, id, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
	switch {
	case err == nil || gone(err):
		return nil
	case errdefs.IsConflict(err): // somebody else is removing it
		w := r.api.ContainerWait(ctx, id, client.ContainerWaitOptions{Condition: container.WaitConditionRemoved})
		select {
		case <-w.Result:
			return nil
		case err := <-w.Error:
			if err == nil || gone(err) {
				return nil
			}
			return fmt.Errorf("wait for container %s to be removed: %w", id, err)
		}
	default:
		return fmt.Errorf("remove container %s: %w", id, err)
	}
}

// lock keeps other processes from starting the same session: while it is held, a container that was created and not
// started is a dead starter's. It makes the state folder if that is missing.
func lock(spec sandbox.Spec) (unlock func(), err error) {
	const op = "lock the start of a sandbox"
	if err := os.MkdirAll(spec.StateDir, 0o700); err != nil {
		return nil, &sandbox.Failure{Class: sandbox.Denied, Op: op, Err: err}
	}
	path := filepath.Join(spec.StateDir, lockFile)
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, &sandbox.Failure{Class: sandbox.Denied, Op: op, Hint: "the state folder must be the host's own", Err: err}
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = file.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, running(spec.Labels)
		}
		return nil, &sandbox.Failure{Class: sandbox.Denied, Op: op, Err: fmt.Errorf("%s: %w", path, err)}
	}
	return func() { _ = file.Close() }, nil
}
