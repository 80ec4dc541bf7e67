package command

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"nanoclaw/container"
	"nanoclaw/internal/sandbox/limit"
)

// Machine is what set-up and doctor ask of the computer.
type Machine interface {
	UID() int
	LookPath(name string) (string, error)
	// Run runs a program to its end; the text is its output, both streams.
	Run(ctx context.Context, name string, args ...string) (string, error)
	// Stream is Run with the output going to w, for long work.
	Stream(ctx context.Context, w io.Writer, name string, args ...string) error
	// Docker asks the daemon at host (empty: the usual places) for an image.
	Docker(ctx context.Context, host, image string) DockerState
	// Limits is what would bound a sandbox without a daemon: a means of package limit.
	Limits() string
}

// DockerState is what a daemon said.
type DockerState struct {
	Daemon bool
	Image  bool
	Detail string // version, or why there is none
	// Programs of providers that the image has, as its label says; Labeled: it has that label.
	Programs []string
	Labeled  bool
}

type realMachine struct{}

func (realMachine) UID() int                             { return os.Getuid() }
func (realMachine) LookPath(name string) (string, error) { return exec.LookPath(name) }
func (realMachine) Limits() string                       { return limit.Detect(nil).Means() }

func (realMachine) Run(ctx context.Context, name string, args ...string) (string, error) {
	var b bytes.Buffer
	err := realMachine{}.Stream(ctx, &b, name, args...)
	return strings.TrimSpace(b.String()), err
}

func (realMachine) Stream(ctx context.Context, w io.Writer, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdout, cmd.Stderr, cmd.Env = w, w, withoutKeys(os.Environ())
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("run %s: %w", name, err)
	}
	return nil
}

// dockerTime bounds the question to a daemon.
const dockerTime = 3 * time.Second

func (realMachine) Docker(ctx context.Context, host, image string) DockerState {
	network, address := dockerAddress(host)
	if address == "" {
		return DockerState{Detail: "no socket of a daemon"}
	}
	ctx, cancel := context.WithTimeout(ctx, dockerTime)
	defer cancel()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, address)
	}}
	defer transport.CloseIdleConnections()
	get := func(path string) (int, []byte, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://docker"+path, nil)
		if err != nil {
			return 0, nil, err
		}
		res, err := (&http.Client{Transport: transport}).Do(req)
		if err != nil {
			return 0, nil, err
		}
		defer func() { _ = res.Body.Close() }()
		b, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
		return res.StatusCode, b, err
	}
	status, body, err := get("/version")
	var version struct{ Version string }
	switch {
	case err != nil:
		return DockerState{Detail: fmt.Sprintf("no daemon answers at %s: %v", address, err)}
	case status != http.StatusOK || json.Unmarshal(body, &version) != nil:
		return DockerState{Detail: fmt.Sprintf("what answers at %s is no Docker daemon (status %d)", address, status)}
	}
	status, body, err = get("/images/" + url.PathEscape(image) + "/json")
	d := DockerState{Daemon: true, Image: err == nil && status == http.StatusOK, Detail: "version " + version.Version + " at " + address}
	var shape struct {
		Config struct{ Labels map[string]string }
	}
	if d.Image && json.Unmarshal(body, &shape) == nil {
		var programs string
		programs, d.Labeled = shape.Config.Labels[container.ProgramsLabel]
		d.Programs = strings.Fields(programs)
	}
	return d
}

// dockerAddress is the daemon's socket: the setting, else the first that exists of the usual places. Only local sockets
// and plain TCP are looked at here.
func dockerAddress(host string) (network, address string) {
	if rest, ok := strings.CutPrefix(host, "tcp://"); ok {
		return "tcp", rest
	}
	if host != "" {
		return "unix", strings.TrimPrefix(host, "unix://")
	}
	places := []string{"/var/run/docker.sock", "/run/podman/podman.sock"}
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
		places = append(places, filepath.Join(dir, "docker.sock"), filepath.Join(dir, "podman/podman.sock"))
	}
	for _, p := range places {
		if fi, err := os.Stat(p); err == nil && fi.Mode()&os.ModeSocket != 0 {
			return "unix", p
		}
	}
	return "", ""
}
