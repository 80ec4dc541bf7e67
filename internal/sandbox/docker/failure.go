package docker

import (
	"context"
	"errors"
	"io/fs"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"nanoclaw/internal/sandbox"
)

const buildHint = "make the agent image with `nanoclaw image build`"

// failure classes an error of the API. An error that already has a class keeps it.
func (r *Runtime) failure(op string, err error) error {
	var f *sandbox.Failure
	if errors.As(err, &f) || errors.Is(err, sandbox.ErrRunning) {
		return err
	}
	class, hint := classify(err)
	if class == sandbox.RuntimeUnavailable && hint == "" {
		hint = "start Docker or Podman, or set docker.host; tried " + r.dial.String()
	}
	return &sandbox.Failure{Class: class, Op: op, Hint: hint, Err: err}
}

// gone: the daemon has no such container. Podman reports one that goes away meanwhile as an internal error.
func gone(err error) bool {
	if err == nil {
		return false
	}
	text := strings.ToLower(err.Error())
	return errdefs.IsNotFound(err) || strings.Contains(text, "container not known") || strings.Contains(text, "no such container") ||
		strings.Contains(text, "no container with name or id")
}

// classify goes by the kind of the error, and by its words where daemons and OCI runtimes report everything as an
// internal error.
func classify(err error) (sandbox.FailureClass, string) {
	text := strings.ToLower(err.Error())
	has := func(parts ...string) bool {
		for _, p := range parts {
			if strings.Contains(text, p) {
				return true
			}
		}
		return false
	}
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return sandbox.RuntimeUnavailable, "the daemon did not answer in time"
	case errors.Is(err, fs.ErrPermission), has("permission denied while trying to connect"):
		return sandbox.Denied, "let this user use the daemon's socket, for example by the group docker"
	case client.IsErrConnectionFailed(err), has("cannot connect to the docker daemon", "connection refused", "connection reset", "broken pipe", "unexpected eof"):
		return sandbox.RuntimeUnavailable, ""
	case has("no such image", "image not known", "no such object: image"), errdefs.IsNotFound(err) && has("image"):
		return sandbox.ImageUnavailable, buildHint
	case has("no space left", "cannot allocate memory", "out of memory", "resource temporarily unavailable", "too many open files", "disk quota", "max depth exceeded"):
		return sandbox.ResourcesExhausted, "free memory or disk, or lower sandbox.max"
	case has("unknown runtime", "unknown or invalid runtime", "runtime name", "invalid runtime", "default oci runtime"):
		return sandbox.SpecInvalid, "docker.runtime names an OCI runtime that the daemon does not have"
	case has("executable file not found", "no such file or directory", "exec format error", "not a directory"):
		return sandbox.SpecInvalid, "the command or a mounted path does not exist, or is for another processor"
	case errdefs.IsPermissionDenied(err), errdefs.IsUnauthorized(err), has("permission denied", "operation not permitted", "authorization denied"):
		return sandbox.Denied, ""
	case errdefs.IsInvalidArgument(err):
		return sandbox.SpecInvalid, ""
	case errdefs.IsUnavailable(err):
		return sandbox.RuntimeUnavailable, ""
	default:
		return sandbox.Died, ""
	}
}
