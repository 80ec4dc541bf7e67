package docker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/containerd/errdefs"

	"nanoclaw/internal/sandbox"
)

// Finding is one thing that keeps sandboxes from running, or from running as they should.
type Finding struct {
	What  string // what is wrong, in one clause
	Why   string // what follows from it
	Hint  string // what the operator can do
	Fatal bool   // no sandbox can start
}

const remapHint = "turn userns-remap off, or use rootless Podman, which keeps the host user's id"

// Check looks at the daemon for `doctor`. No finding is good news.
func (r *Runtime) Check(ctx context.Context) []Finding {
	f, err := r.facts(ctx)
	if err != nil {
		var failure *sandbox.Failure
		if errors.As(err, &failure) {
			return []Finding{{What: "no daemon can be used", Why: failure.Err.Error(), Hint: failure.Hint, Fatal: true}}
		}
		return []Finding{{What: "no daemon can be used", Why: err.Error(), Fatal: true}}
	}
	findings := f.check(r.opt, os.Getuid())
	image, err := r.api.ImageInspect(ctx, r.opt.Image)
	switch {
	case errdefs.IsNotFound(err):
		findings = append(findings, Finding{What: "the agent image " + r.opt.Image + " is missing", Why: "sandboxes start from it", Hint: buildHint, Fatal: true})
	case err != nil:
		findings = append(findings, Finding{What: "the daemon does not say whether it has image " + r.opt.Image, Why: err.Error()})
	case image.Architecture != "" && image.Architecture != runtime.GOARCH:
		findings = append(findings, Finding{
			What: fmt.Sprintf("the agent image %s is for %s", r.opt.Image, image.Architecture),
			Why:  "this machine runs " + runtime.GOARCH, Hint: buildHint, Fatal: true,
		})
	}
	for _, marker := range []string{"/.dockerenv", "/run/.containerenv"} {
		if _, err := os.Stat(marker); err == nil {
			findings = append(findings, Finding{
				What: "the host runs in a container itself", Why: "the daemon looks for the mounted folders on the outer machine",
				Hint: "give the home folder the same path outside and inside",
			})
			break
		}
	}
	return findings
}

func (f *facts) check(opt Options, uid int) (findings []Finding) {
	if f.remapped || f.rootless && !f.podman {
		findings = append(findings, Finding{
			What:  "the daemon maps user ids",
			Why:   fmt.Sprintf("uid %d of this machine is another one in a container: agent and host could not read each other's files", uid),
			Hint:  remapHint,
			Fatal: true,
		})
	}
	var missing []string
	for _, l := range f.limits() {
		if !l.enforced {
			missing = append(missing, l.name)
		}
	}
	if len(missing) > 0 {
		findings = append(findings, Finding{
			What: "no limit on " + strings.Join(missing, ", "), Why: "the daemon cannot enforce it, so one agent can use up the machine",
			Hint: "give the daemon these cgroup controllers (rootless: delegate them to the user)",
		})
	}
	switch {
	case opt.Runtime == "":
	case f.podman && opt.Runtime != f.runtime:
		findings = append(findings, Finding{
			What: "Podman does not use the OCI runtime " + opt.Runtime, Why: "its API starts every container with its own default, " + f.runtime,
			Hint: "start its service with --runtime " + opt.Runtime + ", or unset docker.runtime", Fatal: true,
		})
	case !f.podman && !slices.Contains(f.runtimes, opt.Runtime):
		findings = append(findings, Finding{
			What: "the daemon has no OCI runtime " + opt.Runtime, Why: "docker.runtime names it; the daemon has " + strings.Join(sorted(f.runtimes), ", "),
			Hint: "register it with the daemon or unset docker.runtime", Fatal: true,
		})
	}
	if f.selinux && !opt.Relabel {
		findings = append(findings, Finding{
			What: "SELinux is on and docker.relabel is off", Why: "the mounted folders may be unreadable in the sandbox", Hint: "set docker.relabel = true",
		})
	}
	if !f.seccomp {
		findings = append(findings, Finding{
			What: "the daemon filters no system calls", Why: "a sandbox reaches more of the kernel than it should", Hint: "use a daemon with seccomp",
		})
	}
	return findings
}

func sorted(s []string) []string { return slices.Sorted(slices.Values(s)) }
