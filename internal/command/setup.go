package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"nanoclaw/internal/config"
)

// choice is the runtime that would be used, or why there is none.
type choice struct {
	kind string // empty: none works
	why  string
	fix  string // of none: exactly what to do
}

// chooseSandbox applies the rule of `auto`: docker if a daemon answers and the agent image exists, else bubblewrap. It
// builds and installs nothing.
func (a *app) chooseSandbox(ctx context.Context, s config.Settings) choice {
	switch s.Sandbox {
	case "process":
		return choice{kind: "process", why: "asked for; no isolation, terminal only"}
	case "docker":
		d := a.dockerState(ctx, s)
		switch {
		case !d.Daemon:
			return choice{why: "docker: " + d.Detail, fix: "start Docker or Podman, or use --sandbox bubblewrap"}
		case !d.Image:
			return choice{why: "docker: the image " + s.Image + " does not exist", fix: "build it with: nanoclaw image build"}
		}
		return choice{kind: "docker", why: "asked for; " + d.Detail}
	case "bubblewrap":
		return a.chooseBubblewrap(ctx, "asked for")
	}
	d := a.dockerState(ctx, s)
	if d.Daemon && d.Image {
		return choice{kind: "docker", why: "a daemon answers and the image " + s.Image + " exists"}
	}
	why := "no Docker daemon answers"
	if d.Daemon {
		why = "the image " + s.Image + " is not built"
	}
	return a.chooseBubblewrap(ctx, why)
}

func (a *app) dockerState(ctx context.Context, s config.Settings) DockerState {
	host := s.DockerHost
	if host == "" {
		host = a.Getenv("DOCKER_HOST")
	}
	return a.Machine.Docker(ctx, host, s.Image)
}

const installBubblewrap = "install bubblewrap (Debian: apt-get install bubblewrap), or start Docker and run: nanoclaw image build"

func (a *app) chooseBubblewrap(ctx context.Context, why string) choice {
	path, err := a.Machine.LookPath("bwrap")
	if err != nil {
		return choice{why: why + "; bubblewrap is not installed", fix: installBubblewrap}
	}
	if out, err := a.Machine.Run(ctx, path, "--unshare-all", "--ro-bind", "/", "/", "true"); err != nil {
		return choice{why: fmt.Sprintf("%s; %s cannot make a sandbox: %s", why, path, firstLine(out, err)),
			fix: "allow user namespaces (kernel.unprivileged_userns_clone=1, or the AppArmor profile of bwrap), or use Docker"}
	}
	return choice{kind: "bubblewrap", why: why}
}

func firstLine(out string, err error) string {
	line, _, _ := strings.Cut(out, "\n")
	if line == "" {
		return err.Error()
	}
	return line
}

// setup gets what the sandbox needs, where that is possible without a question: bubblewrap from the distribution, when
// root on Debian. It says in one line what will be used.
func (a *app) setup(ctx context.Context, s config.Settings) error {
	c := a.chooseSandbox(ctx, s)
	_, missing := a.Machine.LookPath("bwrap")
	if c.kind == "" && missing != nil && (s.Sandbox == "auto" || s.Sandbox == "bubblewrap") {
		_, apt := a.Machine.LookPath("apt-get")
		if a.Machine.UID() != 0 || apt != nil {
			return &exitError{exitUnreachable, errors.New("no sandbox: " + c.why + ". " + a.bubblewrapAdvice(apt == nil))}
		}
		fmt.Fprintf(a.err, "sandbox: %s; installing bubblewrap with apt-get\n", c.why)
		if err := a.install(ctx, "bubblewrap"); err != nil {
			return &exitError{exitUnreachable, fmt.Errorf("install bubblewrap: %w; %s", err, installBubblewrap)}
		}
		c = a.chooseSandbox(ctx, s)
	}
	if c.kind == "" {
		return &exitError{exitUnreachable, fmt.Errorf("no sandbox: %s; %s", c.why, c.fix)}
	}
	fmt.Fprintf(a.err, "sandbox: %s (%s)\n", c.kind, c.why)
	return nil
}

func (a *app) bubblewrapAdvice(apt bool) string {
	if apt {
		return "Run: sudo apt-get install bubblewrap"
	}
	return "Install bubblewrap with your package manager, or start Docker and run: nanoclaw image build"
}

// install installs a package of the distribution, and asks for fresh package lists only if that fails.
func (a *app) install(ctx context.Context, name string) error {
	install := []string{"env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "-y", "--no-install-recommends", name}
	if _, err := a.Machine.Run(ctx, install[0], install[1:]...); err == nil {
		return nil
	}
	if err := a.Machine.Stream(ctx, a.err, "apt-get", "update"); err != nil {
		return err
	}
	return a.Machine.Stream(ctx, a.err, install[0], install[1:]...)
}

// executableDir is the folder of this program, where its companions are.
func executableDir() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find this program: %w", err)
	}
	return filepath.Dir(self), nil
}
