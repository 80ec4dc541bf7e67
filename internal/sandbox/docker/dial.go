package docker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"

	"nanoclaw/internal/socket"
)

// dialer finds the daemon among the places where it may listen, at the first connection, and stays with it.
type dialer struct {
	paths  []string
	chosen atomic.Pointer[string]
}

func newDialer(host string, env func(string) string, uid int) (*dialer, error) {
	from := "docker.host"
	if host == "" {
		host, from = env("DOCKER_HOST"), "DOCKER_HOST"
	}
	if host != "" {
		path, isUnix := strings.CutPrefix(host, "unix://")
		if !isUnix && strings.Contains(host, "://") || !filepath.IsAbs(path) {
			return nil, fmt.Errorf("use %s %q: a local socket is needed, given as unix:///path; sandboxes mount folders and sockets of this machine", from, host)
		}
		return &dialer{paths: []string{filepath.Clean(path)}}, nil
	}
	paths := []string{"/var/run/docker.sock"}
	if uid == 0 {
		paths = append(paths, "/run/podman/podman.sock")
	} else {
		dir := env("XDG_RUNTIME_DIR")
		if dir == "" {
			dir = "/run/user/" + strconv.Itoa(uid)
		}
		// rootless Podman keeps the user's id; rootless Docker cannot, so it comes last
		paths = append(paths, filepath.Join(dir, "podman/podman.sock"), filepath.Join(dir, "docker.sock"))
	}
	return &dialer{paths: paths}, nil
}

func (d *dialer) dialContext(ctx context.Context, _, _ string) (net.Conn, error) {
	paths := d.paths
	if p := d.chosen.Load(); p != nil {
		paths = []string{*p}
	}
	var errs []error
	for _, p := range paths {
		c, err := socket.Dial(ctx, filepath.Dir(p), filepath.Base(p))
		if err == nil {
			d.chosen.Store(&p)
			return c, nil
		}
		errs = append(errs, err)
	}
	for _, err := range errs {
		if errors.Is(err, fs.ErrPermission) { // says more than "no such file" elsewhere
			return nil, err
		}
	}
	return nil, errors.Join(errs...)
}

// String names the socket in use, or those that were tried.
func (d *dialer) String() string {
	if p := d.chosen.Load(); p != nil {
		return *p
	}
	return strings.Join(d.paths, ", ")
}
