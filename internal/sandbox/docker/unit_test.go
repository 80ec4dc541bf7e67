package docker

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"nanoclaw/internal/sandbox"
)

func readFile(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// fakeDaemon answers the API on a socket of its own; info is added to what it says of itself.
func fakeDaemon(t *testing.T, info map[string]any, more func(*http.ServeMux)) *Runtime {
	t.Helper()
	dir, err := os.MkdirTemp("", "fake") // short: a socket's path is limited
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "d.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	say := func(pattern string, v any) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Api-Version", "1.41")
			_ = json.NewEncoder(w).Encode(v)
		})
	}
	say("/_ping", "OK")
	say("/v1.41/version", map[string]any{"Version": "1"})
	all := map[string]any{"MemoryLimit": true, "PidsLimit": true, "CpuCfsQuota": true, "CgroupVersion": "2", "SecurityOptions": []string{"name=seccomp,profile=default"}}
	for k, v := range info {
		all[k] = v
	}
	say("/v1.41/info", all)
	if more != nil {
		more(mux)
	}
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	go func() { _ = srv.Serve(l) }()
	r, err := New(Options{Host: "unix://" + path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = r.Close()
		_ = srv.Close()
		_ = os.RemoveAll(dir)
	})
	return r
}

func TestMappedUsersAreRefused(t *testing.T) {
	t.Parallel()
	for _, option := range []string{"name=userns", "name=rootless"} {
		r := fakeDaemon(t, map[string]any{"SecurityOptions": []string{option}}, nil)
		spec, _ := shell(t, "test-install", "true")
		_, err := r.Start(deadline(t), spec)
		if failureClass(err) != sandbox.Denied || !strings.Contains(err.Error(), "maps user ids") {
			t.Errorf("%s: %v", option, err)
		}
		findings := r.Check(deadline(t))
		if len(findings) == 0 || !strings.Contains(findings[0].What, "maps user ids") || !findings[0].Fatal {
			t.Errorf("%s: %+v", option, findings)
		}
	}
}

func TestNoDaemon(t *testing.T) {
	t.Parallel()
	r, err := New(Options{Host: filepath.Join(t.TempDir(), "nobody.sock")})
	if err != nil {
		t.Fatal(err)
	}
	spec, _ := shell(t, "test-install", "true")
	_, err = r.Start(deadline(t), spec)
	if failureClass(err) != sandbox.RuntimeUnavailable || !strings.Contains(err.Error(), "nobody.sock") {
		t.Errorf("start: %v", err)
	}
	if _, err := r.List(deadline(t), "test-install"); failureClass(err) != sandbox.RuntimeUnavailable {
		t.Errorf("list: %v", err)
	}
	if daemon, image, detail := r.Available(deadline(t)); daemon || image || !strings.Contains(detail, "nobody.sock") {
		t.Errorf("available: %v %v %s", daemon, image, detail)
	}
	if _, err := r.Probe(deadline(t)); err == nil {
		t.Error("Probe takes an absent daemon for a present one")
	}
	if got := r.Limits(); got != "none" {
		t.Errorf("limits %q", got)
	}
	if f := r.Check(deadline(t)); len(f) != 1 || !f[0].Fatal || f[0].Hint == "" {
		t.Errorf("check: %+v", f)
	}
}

func TestSilentDaemon(t *testing.T) {
	t.Parallel()
	gate := make(chan struct{})
	r := fakeDaemon(t, nil, func(mux *http.ServeMux) {
		mux.HandleFunc("/v1.41/containers/json", func(_ http.ResponseWriter, req *http.Request) {
			select {
			case <-gate:
			case <-req.Context().Done():
			}
		})
	})
	defer close(gate)
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	_, err := r.List(ctx, "test-install")
	if failureClass(err) != sandbox.RuntimeUnavailable || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

// TestWaitOutlivesTheConnection cuts the wait twice, as a daemon does that is restarted.
func TestWaitOutlivesTheConnection(t *testing.T) {
	t.Parallel()
	var waits atomic.Int32
	r := fakeDaemon(t, nil, func(mux *http.ServeMux) {
		mux.HandleFunc("/v1.41/containers/c1/wait", func(w http.ResponseWriter, _ *http.Request) {
			if waits.Add(1) <= 2 {
				conn, _, err := http.NewResponseController(w).Hijack()
				if err == nil {
					_ = conn.Close()
				}
				return
			}
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"StatusCode":4}`))
		})
		mux.HandleFunc("/v1.41/containers/c1/json", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte(`{"message":"No such container: c1"}`))
		})
	})
	h := r.adopt("name", "c1", sandbox.Labels{})
	exit, err := h.Wait(deadline(t))
	if err != nil || exit.Code != 4 || waits.Load() != 3 {
		t.Errorf("got %+v, %v after %d waits", exit, err, waits.Load())
	}
}

func TestDaemonSockets(t *testing.T) {
	t.Parallel()
	env := func(pairs ...string) func(string) string {
		return func(k string) string {
			for i := 0; i < len(pairs); i += 2 {
				if pairs[i] == k {
					return pairs[i+1]
				}
			}
			return ""
		}
	}
	for _, c := range []struct {
		host string
		env  func(string) string
		uid  int
		want []string
	}{
		{"/a/b.sock", env("DOCKER_HOST", "unix:///c"), 0, []string{"/a/b.sock"}},
		{"unix:///a//b.sock", env(), 0, []string{"/a/b.sock"}},
		{"", env("DOCKER_HOST", "unix:///c"), 0, []string{"/c"}},
		{"", env(), 0, []string{"/var/run/docker.sock", "/run/podman/podman.sock"}},
		{"", env(), 7, []string{"/var/run/docker.sock", "/run/user/7/podman/podman.sock", "/run/user/7/docker.sock"}},
		{"", env("XDG_RUNTIME_DIR", "/x"), 7, []string{"/var/run/docker.sock", "/x/podman/podman.sock", "/x/docker.sock"}},
		{"tcp://127.0.0.1:2375", env(), 0, nil},
		{"", env("DOCKER_HOST", "ssh://there"), 0, nil},
		{"relative.sock", env(), 0, nil},
	} {
		d, err := newDialer(c.host, c.env, c.uid)
		if (err == nil) != (c.want != nil) {
			t.Errorf("%q: error %v", c.host, err)
			continue
		}
		if err == nil {
			if diff := cmp.Diff(c.want, d.paths); diff != "" {
				t.Errorf("%q: %s", c.host, diff)
			}
		}
	}
}

func TestContainerNames(t *testing.T) {
	t.Parallel()
	part := rapid.StringMatching(`[a-z0-9-]{1,60}`)
	rapid.Check(t, func(t *rapid.T) {
		a := sandbox.Labels{Install: part.Draw(t, "install"), Session: part.Draw(t, "session")}
		b := sandbox.Labels{Install: part.Draw(t, "other install"), Session: part.Draw(t, "other session")}
		if a != b && containerName(a) == containerName(b) {
			t.Errorf("%+v and %+v share the name %s", a, b, containerName(a))
		}
		if n := containerName(a); len(n) > 63 {
			t.Errorf("name %s has %d characters", n, len(n))
		}
		a.AgentGroup, a.Incarnation = "ag", rapid.Int64Range(0, 1<<40).Draw(t, "incarnation")
		if back, ok := parseLabels(labelsOf(a)); !ok || back != a {
			t.Errorf("labels come back as %+v", back)
		}
	})
}

func TestRelabel(t *testing.T) {
	t.Parallel()
	spec := sandbox.Spec{UID: 5, GID: 6, Command: []string{"/x"}, Mounts: []sandbox.Mount{
		{Class: sandbox.ClassHostBox, Source: "/h", Target: "/workspace/in", Writable: true}, // the class wins
		{Class: sandbox.ClassAgent, Source: "/a", Target: "/workspace/out", Writable: true},
	}}
	c, err := createOptions(spec, nil, Options{Relabel: true}, &facts{})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"/h:/workspace/in:ro,z", "/a:/workspace/out:rw,z"}, c.HostConfig.Binds); d != "" || len(c.HostConfig.Mounts) > 0 {
		t.Errorf("binds %s, mounts %v", d, c.HostConfig.Mounts)
	}
	spec.Mounts[0].Source = "/h:x"
	if _, err := createOptions(spec, nil, Options{Relabel: true}, &facts{}); failureClass(err) != sandbox.SpecInvalid {
		t.Errorf("a colon in the path: %v", err)
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	fine := facts{memory: true, pids: true, cpu: true, seccomp: true, runtimes: []string{"runc", "runsc"}, runtime: "runc"}
	for name, c := range map[string]struct {
		change func(*facts)
		opt    Options
		want   string // part of the one finding; empty: none
	}{
		"fine":            {func(*facts) {}, Options{Runtime: "runsc"}, ""},
		"no pids":         {func(f *facts) { f.pids = false }, Options{}, "no limit on pids"},
		"no runtime":      {func(*facts) {}, Options{Runtime: "kata"}, "no OCI runtime kata"},
		"Podman runtime":  {func(f *facts) { f.podman = true }, Options{Runtime: "runsc"}, "does not use the OCI runtime runsc"},
		"SELinux":         {func(f *facts) { f.selinux = true }, Options{}, "docker.relabel is off"},
		"SELinux, set":    {func(f *facts) { f.selinux = true }, Options{Relabel: true}, ""},
		"no seccomp":      {func(f *facts) { f.seccomp = false }, Options{}, "filters no system calls"},
		"rootless docker": {func(f *facts) { f.rootless = true }, Options{}, "maps user ids"},
		"rootless podman": {func(f *facts) { f.rootless, f.podman = true, true }, Options{}, ""},
	} {
		f := fine
		c.change(&f)
		got := f.check(c.opt, 1000)
		switch {
		case c.want == "" && len(got) > 0:
			t.Errorf("%s: %+v", name, got)
		case c.want != "" && (len(got) != 1 || !strings.Contains(got[0].What, c.want) || got[0].Hint == ""):
			t.Errorf("%s: %+v, want one with %q", name, got, c.want)
		}
	}
}
