package host

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"nanoclaw/internal/id"
	"nanoclaw/internal/obs"
	"nanoclaw/internal/sandbox"
	"nanoclaw/internal/sandbox/docker"
	"nanoclaw/internal/store"
)

// daemon builds what it is told to when it is let.
type daemon struct {
	mu    sync.Mutex
	have  map[string]string
	built []docker.BuildOptions
	let   chan error
}

func (d *daemon) ImageID(_ context.Context, name string) (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.have[name], nil
}

func (d *daemon) Build(ctx context.Context, opt docker.BuildOptions, step func(docker.Step)) error {
	step(docker.Step{N: 2, Of: 3, Text: "RUN apt-get"})
	select {
	case err := <-d.let:
		d.mu.Lock()
		defer d.mu.Unlock()
		d.built = append(d.built, opt)
		if err == nil {
			d.have[opt.Tags[0]] = "sha256:" + opt.Tags[0]
		}
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// W22: an image is built in the background; the agent starts with the one it had until the new one is there and has started.
func TestW22PackagesAreBuiltInTheBackground(t *testing.T) {
	t.Parallel()
	ctx, end := context.WithCancel(context.Background())
	defer end()
	st, err := store.Open(ctx, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = st.Close() }()
	d := &daemon{have: map[string]string{"agent": "sha256:base"}, let: make(chan error)}
	now := time.Now()
	ready := make(chan id.AgentGroup, 4)
	m := &images{builder: d, base: "agent", network: "host", last: st.KV("image"), now: func() time.Time { return now }, log: obs.Discard(), jobs: map[string]*imageJob{},
		ready: func(g id.AgentGroup) { ready <- g }}
	g := store.AgentGroup{ID: "ag-1", Name: "Nano", Setup: store.Setup{Packages: store.Packages{Apt: []string{"jq", "ffmpeg"}}}}
	choose := func() string {
		t.Helper()
		image, err := m.choose(ctx, ctx, g)
		if err != nil {
			t.Fatal(err)
		}
		return image
	}
	if got := choose() + choose(); got != "" {
		t.Fatalf("started with %q while it is built", got)
	}
	d.let <- errors.New("no such package")
	m.builds.Wait()
	if running, failed := m.progress(); len(running) != 0 || len(failed) != 1 || !strings.Contains(failed[0], "no such package") {
		t.Errorf("after a failed build: %v, %v", running, failed)
	}
	if choose() != "" {
		t.Error("a failed build gave an image")
	}
	now = now.Add(buildAgain)
	choose()
	if running, _ := m.progress(); len(running) != 1 || !strings.Contains(running[0], "image of Nano") {
		t.Errorf("not tried again: %v", running)
	}
	d.let <- nil
	m.builds.Wait()
	if got := <-ready; got != g.ID {
		t.Errorf("told %s", got)
	}
	first := choose()
	if !strings.HasPrefix(first, "nanoclaw-packages:") {
		t.Fatalf("started with %q after it was built", first)
	}
	m.started(ctx, g, first, nil)
	if file := string(d.built[1].Files["Dockerfile"]); d.built[1].Network != "host" || !strings.Contains(file, "install -y --no-install-recommends ffmpeg jq ") {
		t.Errorf("built from %s", file)
	}

	g.Setup.Packages.NPM = []string{"cowsay"}
	if got := choose(); got != first {
		t.Errorf("while the second is built: %q, want the first", got)
	}
	d.let <- nil
	m.builds.Wait()
	second := choose()
	if second == first || second == "" {
		t.Fatalf("second image %q", second)
	}
	m.started(ctx, g, second, &sandbox.Failure{Class: sandbox.RuntimeUnavailable})
	if got := choose(); got != second {
		t.Errorf("the daemon was away, and %q is used", got)
	}
	m.started(ctx, g, second, &sandbox.Failure{Class: sandbox.Died})
	if got := choose(); got != first {
		t.Errorf("the second does not start, and %q is used", got)
	}
	if len(d.built) != 3 {
		t.Errorf("%d builds", len(d.built))
	}
	m.builder = nil
	if got := choose(); got != "" {
		t.Errorf("without images: %q", got)
	}
}

// The tag follows what is in the image, not the order in which it was asked for.
func TestImageTag(t *testing.T) {
	t.Parallel()
	a := imageTag("b", store.Packages{Apt: []string{"x", "y"}})
	var all []string
	for _, p := range []store.Packages{{Apt: []string{"y", "x"}}, {Apt: []string{"x"}, NPM: []string{"y"}}, {Apt: []string{"x y"}}} {
		all = append(all, imageTag("b", p))
	}
	if all[0] != a || slices.Contains(all[1:], a) || all[1] == all[2] || imageTag("c", store.Packages{Apt: []string{"x", "y"}}) == a {
		t.Errorf("%s, %v", a, all)
	}
}
