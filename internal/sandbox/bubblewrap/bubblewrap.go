// Package bubblewrap runs sandboxes by namespaces, without a daemon. Inside there are /usr and a few named files of the
// machine, read-only, the spec's mounts, and nothing else: no network but loopback, no other process, no capability.
//
// A host that runs as root never lets bubblewrap start as root: its map would make kernel uid 0 the owner inside. It binds
// the session's folders under a tmpfs of a private mount namespace, which the dedicated uid may enter whatever the
// modes of the real parents are, and starts bubblewrap as that uid (design.md section 12).
package bubblewrap

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"

	"nanoclaw/internal/obs"
	"nanoclaw/internal/sandbox"
	"nanoclaw/internal/sandbox/limit"
	"nanoclaw/internal/sandbox/local"
)

// Options of a Runtime.
type Options struct {
	Program    string         // path or name of bubblewrap; "" is bwrap
	RecordsDir string         // private folder of the host in which its sandboxes are recorded, made when needed
	Limits     *limit.Limiter // nil bounds nothing
	Log        *slog.Logger   // nil logs nothing
}

// Runtime is the sandbox.Runtime of this package.
type Runtime struct {
	program string
	limits  *limit.Limiter
	set     *local.Set
}

// New returns the runtime. It fails with a *sandbox.Failure of class runtime-unavailable when the program is not there.
func New(opt Options) (*Runtime, error) {
	program, err := find(opt.Program)
	if err != nil {
		return nil, err
	}
	if opt.Limits == nil {
		opt.Limits = limit.Off()
	}
	if opt.Log == nil {
		opt.Log = obs.Discard()
	}
	r := &Runtime{program: program, limits: opt.Limits}
	r.set = local.NewSet(&driver{program: program}, opt.RecordsDir, opt.Limits, opt.Log)
	return r, nil
}

func find(program string) (string, error) {
	if program == "" {
		program = "bwrap"
	}
	path, err := exec.LookPath(program)
	if err != nil {
		return "", &sandbox.Failure{Class: sandbox.RuntimeUnavailable, Op: "find bubblewrap", Err: err,
			Hint: "install it: apt-get install bubblewrap"}
	}
	return path, nil
}

// Name is bubblewrap.
func (r *Runtime) Name() string { return sandbox.Bubblewrap }

// Limits names the means that bounds memory, processes and cpu.
func (r *Runtime) Limits() string { return r.limits.Means() }

// Start runs spec; the caller has called sandbox.Prepare for it. It returns when every mount is made and the command is about
// to run; a command that cannot be executed ends at once with code 1 and says so in Exit.Stderr.
func (r *Runtime) Start(ctx context.Context, spec sandbox.Spec) (sandbox.Handle, error) {
	return r.set.Start(ctx, spec)
}

// List finds this install's sandboxes by their records.
func (r *Runtime) List(ctx context.Context, install string) ([]sandbox.Handle, error) {
	return r.set.List(ctx, install)
}

// Candidate is bubblewrap for sandbox.Choose.
type Candidate struct{ Program string }

// Name is bubblewrap.
func (Candidate) Name() string { return sandbox.Bubblewrap }

// Probe makes an empty sandbox, which shows whether the machine allows user namespaces.
func (c Candidate) Probe(ctx context.Context) (string, error) {
	program, err := find(c.Program)
	if err != nil {
		return "", errors.New("bwrap is not installed")
	}
	cmd := exec.CommandContext(ctx, program, "--unshare-all", "--unshare-user", "--disable-userns", "--ro-bind", "/", "/", "--", "/usr/bin/true")
	cmd.Env = []string{}
	cmd.SysProcAttr = unprivileged()
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("bwrap does not work here: %s", firstLine(string(out), err))
	}
	return "namespaces work and need no daemon", nil
}

func firstLine(out string, err error) string {
	line, _, _ := strings.Cut(strings.TrimSpace(out), "\n")
	if line == "" {
		return err.Error()
	}
	return line
}

// classify turns bubblewrap's own complaint into a class and a hint.
func classify(out string) (sandbox.FailureClass, string) {
	has := func(parts ...string) bool {
		for _, p := range parts {
			if strings.Contains(out, p) {
				return true
			}
		}
		return false
	}
	switch {
	case has("No permissions to create", "uid map", "gid map", "new namespace"):
		return sandbox.RuntimeUnavailable, "unprivileged user namespaces are not allowed here: see kernel.unprivileged_userns_clone, " +
			"user.max_user_namespaces and kernel.apparmor_restrict_unprivileged_userns"
	case has("No space left", "Cannot allocate memory", "Resource temporarily unavailable", "Too many open files"):
		return sandbox.ResourcesExhausted, ""
	case has("Can't find source path", "Can't create file", "Can't mkdir", "Can't create symlink", "Can't chdir"):
		return sandbox.SpecInvalid, ""
	case has("Unknown option"):
		return sandbox.RuntimeUnavailable, "bubblewrap 0.8 or newer is needed"
	}
	return sandbox.RuntimeUnavailable, ""
}

// root decides everything: a host that is root stages mounts and drops, others run sandboxes as themselves.
func root() bool { return os.Geteuid() == 0 }
