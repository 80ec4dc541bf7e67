// Package docker runs sandboxes as containers of Docker Engine or Podman through the API socket. A container has no network,
// no capability and no way to gain one, a read-only root, size-limited tmpfs on /tmp and /run, and is found again by its
// labels after the host was restarted (design.md section 4).
package docker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"nanoclaw/internal/obs"
	"nanoclaw/internal/sandbox"
)

// DefaultImage is the agent image where neither the options nor the spec name one.
const DefaultImage = "nanoclaw-agent:latest"

// probeTimeout bounds questions to the daemon that have no context of their own.
const probeTimeout = 2 * time.Second

// Options of a Runtime. The zero value talks to the daemon that answers at the usual places.
type Options struct {
	// Host is the API socket, as unix:///path or a path. Empty: DOCKER_HOST, else the first of the usual sockets of
	// Docker and Podman (also rootless) that accepts a connection.
	Host string
	// Image runs where the spec names none; empty is DefaultImage.
	Image string
	// Runtime is an OCI runtime the daemon knows by name, for example runsc or kata; empty is the daemon's default.
	Runtime string
	// Relabel adds the shared SELinux label (:z) to every mount.
	Relabel bool
	Log     *slog.Logger // nil: nothing is logged
}

// Runtime implements sandbox.Runtime. It is safe for use by several goroutines and starts none of its own.
type Runtime struct {
	opt  Options
	log  *slog.Logger
	api  *client.Client
	dial *dialer

	mu       sync.Mutex
	known    *facts             // of the daemon; nil until it has answered
	starting map[string]bool    // container names that a Start of this process is busy with
	live     map[string]*handle // by container name: started or adopted here and not yet collected
}

var _ sandbox.Runtime = (*Runtime)(nil)

// New makes a Runtime without talking to the daemon, which may come up later. It fails only for a Host that is no local
// socket: mounts and the sockets in them need the daemon on this machine.
func New(opt Options) (*Runtime, error) {
	if opt.Log == nil {
		opt.Log = obs.Discard()
	}
	if opt.Image == "" {
		opt.Image = DefaultImage
	}
	d, err := newDialer(opt.Host, os.Getenv, os.Getuid())
	if err != nil {
		return nil, err
	}
	api, err := client.New(client.WithHost(client.DefaultDockerHost), client.WithDialContext(d.dialContext))
	if err != nil {
		return nil, fmt.Errorf("make the client of the Docker API: %w", err)
	}
	return &Runtime{
		opt: opt, log: opt.Log, api: api, dial: d,
		starting: map[string]bool{}, live: map[string]*handle{},
	}, nil
}

// Close gives up idle connections to the daemon. Sandboxes run on.
func (r *Runtime) Close() error { return r.api.Close() }

// Name is "docker", also where the daemon is Podman.
func (r *Runtime) Name() string { return sandbox.Docker }

// Limits names what enforces memory, pids and cpu, for example "docker (cgroup v2): memory, pids, cpu"; "none" if nothing
// does or the daemon does not answer within two seconds.
func (r *Runtime) Limits() string {
	ctx, cancel := context.WithTimeout(context.Background(), probeTimeout)
	defer cancel()
	f, err := r.facts(ctx)
	if err != nil {
		return "none"
	}
	var have []string
	for _, l := range f.limits() {
		if l.enforced {
			have = append(have, l.name)
		}
	}
	if len(have) == 0 {
		return "none"
	}
	return fmt.Sprintf("%s (cgroup v%s): %s", f.engine(), f.cgroup, strings.Join(have, ", "))
}

// Available reports whether a daemon answers within two seconds and has the configured image; detail is one line for
// people. It is the question of the rule `auto`: nothing is built or pulled.
func (r *Runtime) Available(ctx context.Context) (daemon, image bool, detail string) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	f, err := r.facts(ctx)
	if err != nil {
		return false, false, fmt.Sprintf("no Docker or Podman daemon answers at %s", r.dial)
	}
	switch _, err := r.api.ImageInspect(ctx, r.opt.Image); {
	case err == nil:
		return true, true, fmt.Sprintf("%s %s at %s with image %s", f.engine(), f.version, r.dial, r.opt.Image)
	case errdefs.IsNotFound(err):
		return true, false, fmt.Sprintf("%s %s at %s has no image %s; make it with `nanoclaw image build`", f.engine(), f.version, r.dial, r.opt.Image)
	default:
		return true, false, fmt.Sprintf("%s %s at %s does not say whether it has image %s: %v", f.engine(), f.version, r.dial, r.opt.Image, err)
	}
}

// Probe is the question of sandbox.Choose: the reason why this runtime can be used, or what is missing.
func (r *Runtime) Probe(ctx context.Context) (string, error) {
	daemon, image, detail := r.Available(ctx)
	if !daemon || !image {
		return "", errors.New(detail)
	}
	return detail, nil
}

// facts of a daemon that do not change while it runs.
type facts struct {
	podman, rootless, remapped, selinux, seccomp bool
	memory, pids, cpu                            bool
	cgroup, version, arch, runtime               string
	runtimes                                     []string
}

type limit struct {
	name     string
	enforced bool
}

func (f *facts) limits() []limit {
	return []limit{{"memory", f.memory}, {"pids", f.pids}, {"cpu", f.cpu}}
}

func (f *facts) engine() string {
	if f.podman {
		return "podman"
	}
	return "docker"
}

// facts asks the daemon once; a failure is not remembered.
func (r *Runtime) facts(ctx context.Context) (*facts, error) {
	r.mu.Lock()
	f := r.known
	r.mu.Unlock()
	if f != nil {
		return f, nil
	}
	v, err := r.api.ServerVersion(ctx, client.ServerVersionOptions{})
	if err != nil {
		return nil, r.failure("ask the daemon for its version", err)
	}
	i, err := r.api.Info(ctx, client.InfoOptions{})
	if err != nil {
		return nil, r.failure("ask the daemon what it can do", err)
	}
	f = &facts{
		memory: i.Info.MemoryLimit, pids: i.Info.PidsLimit, cpu: i.Info.CPUCfsQuota,
		cgroup: i.Info.CgroupVersion, version: i.Info.ServerVersion, arch: i.Info.Architecture, runtime: i.Info.DefaultRuntime,
	}
	for _, c := range v.Components {
		f.podman = f.podman || strings.Contains(c.Name, "Podman")
	}
	for _, o := range i.Info.SecurityOptions {
		name, _, _ := strings.Cut(strings.TrimPrefix(o, "name="), ",")
		switch name {
		case "rootless":
			f.rootless = true
		case "userns":
			f.remapped = true
		case "selinux":
			f.selinux = true
		case "seccomp":
			f.seccomp = true
		}
	}
	for name := range i.Info.Runtimes {
		f.runtimes = append(f.runtimes, name)
	}
	r.mu.Lock()
	r.known = f
	r.mu.Unlock()
	return f, nil
}

// hold keeps a second Start in this process away from a container name.
func (r *Runtime) hold(name string) (release func(), ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.starting[name] {
		return nil, false
	}
	r.starting[name] = true
	return func() {
		r.mu.Lock()
		delete(r.starting, name)
		r.mu.Unlock()
	}, true
}

// known handles are shared, so that the end of a sandbox is collected once.
func (r *Runtime) adopt(name, containerID string, labels sandbox.Labels) *handle {
	r.mu.Lock()
	defer r.mu.Unlock()
	if h := r.live[name]; h != nil && h.id == containerID {
		return h
	}
	h := &handle{r: r, name: name, id: containerID, labels: labels}
	r.live[name] = h
	return h
}

func (r *Runtime) lookup(name, containerID string) *handle {
	r.mu.Lock()
	defer r.mu.Unlock()
	if h := r.live[name]; h != nil && h.id == containerID {
		return h
	}
	return nil
}

func (r *Runtime) forget(h *handle) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.live[h.name] == h {
		delete(r.live, h.name)
	}
}

// running wraps sandbox.ErrRunning with the session's name.
func running(l sandbox.Labels) error {
	return fmt.Errorf("start sandbox of session %s: %w", l.Session, sandbox.ErrRunning)
}

var errRemapped = errors.New("the daemon maps user ids, so files of the sandbox would belong to another user than the host")
