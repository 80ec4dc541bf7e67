package host

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"nanoclaw/internal/channel"
	"nanoclaw/internal/id"
	"nanoclaw/internal/obs"
	"nanoclaw/internal/sandbox"
	"nanoclaw/internal/sandbox/docker"
	"nanoclaw/internal/store"
)

// Times of images with packages.
const (
	buildTime  = 15 * time.Minute
	buildAgain = 10 * time.Minute // a failed build, or an image that did not start, is tried again after this
)

// imageBuilder makes images; only the docker runtime does.
type imageBuilder interface {
	ImageID(ctx context.Context, name string) (string, error)
	Build(ctx context.Context, opt docker.BuildOptions, step func(docker.Step)) error
}

// images gives agents with packages an image of their own. Its tag is a hash of the shared image and the packages, so that equal
// ones are built once. It is built in the background (spec/host.md W22), and the agent starts with the image it had until the
// new one is there and has started.
type images struct {
	builder imageBuilder // nil: this runtime has no images
	base    string
	network string     // of the build steps
	last    channel.KV // by agent: the image that started last
	ready   func(id.AgentGroup)
	now     func() time.Time
	log     *slog.Logger

	mu     sync.Mutex
	jobs   map[string]*imageJob // by tag
	builds sync.WaitGroup
}

type imageJob struct {
	groups map[id.AgentGroup]string // who waits for it, with names
	step   docker.Step
	err    error
	again  time.Time // after a failure
}

// choose is the image for the next start of an agent, "" for the shared one. It never waits for a build; life ends one.
func (m *images) choose(ctx, life context.Context, g store.AgentGroup) (string, error) {
	if g.Setup.Packages.None() {
		return "", nil
	}
	if m.builder == nil {
		m.log.Warn("an agent's packages are left out: this sandbox has no images", obs.KeyGroup, string(g.ID))
		return "", nil
	}
	base, err := m.builder.ImageID(ctx, m.base)
	if err != nil || base == "" {
		return "", err
	}
	tag := imageTag(base, g.Setup.Packages)
	have, err := m.builder.ImageID(ctx, tag)
	if err != nil {
		return "", err
	}
	m.mu.Lock()
	job := m.jobs[tag]
	resting := job != nil && m.now().Before(job.again)
	if have != "" && !resting {
		m.mu.Unlock()
		return tag, nil
	}
	switch {
	case have != "" || resting:
	case job == nil || job.err != nil:
		job = &imageJob{groups: map[id.AgentGroup]string{g.ID: g.Name}}
		m.jobs[tag] = job
		m.builds.Go(func() { m.build(life, tag, g.Setup.Packages, job) })
	default:
		job.groups[g.ID] = g.Name
	}
	m.mu.Unlock()
	before, ok, err := m.last.Get(ctx, string(g.ID))
	if err != nil || !ok || before == tag {
		return "", err
	}
	if have, err := m.builder.ImageID(ctx, before); err != nil || have == "" {
		return "", err
	}
	return before, nil
}

// started notes how the start with an image went. One that has never started and fails is not used for a while, unless the fault is
// the daemon's.
func (m *images) started(ctx context.Context, g store.AgentGroup, image string, err error) {
	if image == "" {
		return
	}
	before, _, kvErr := m.last.Get(ctx, string(g.ID))
	if err == nil && before != image && kvErr == nil {
		kvErr = m.last.Update(ctx, channel.Pair{Key: string(g.ID), Value: image})
	}
	if kvErr != nil {
		m.log.Warn("the image of an agent cannot be noted", obs.KeyGroup, string(g.ID), obs.Error(kvErr))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var f *sandbox.Failure
	switch {
	case err == nil:
		delete(m.jobs, image)
	case before != image && !(errors.As(err, &f) && (f.Class == sandbox.RuntimeUnavailable || f.Class == sandbox.ResourcesExhausted)):
		m.jobs[image] = &imageJob{groups: map[id.AgentGroup]string{g.ID: g.Name}, err: fmt.Errorf("it did not start: %w", err), again: m.now().Add(buildAgain)}
	}
}

func (m *images) build(life context.Context, tag string, p store.Packages, job *imageJob) {
	ctx, cancel := context.WithTimeoutCause(life, buildTime, fmt.Errorf("not done after %v", buildTime))
	defer cancel()
	m.log.Info("an image with packages is built", obs.KeyWhat, tag)
	err := m.builder.Build(ctx, docker.BuildOptions{Files: map[string][]byte{"Dockerfile": packageFile(p)}, Tags: []string{tag}, Args: map[string]string{"BASE": m.base}, Network: m.network},
		func(s docker.Step) {
			m.mu.Lock()
			defer m.mu.Unlock()
			job.step = s
		})
	m.mu.Lock()
	groups := job.groups
	if err == nil {
		delete(m.jobs, tag)
	} else {
		job.err, job.again = err, m.now().Add(buildAgain)
	}
	m.mu.Unlock()
	switch {
	case life.Err() != nil:
	case err != nil:
		m.log.Error("an image with packages cannot be built; agents go on with what they have", obs.KeyWhat, tag, obs.Error(err))
	default:
		m.log.Info("an image with packages is ready", obs.KeyWhat, tag)
		for g := range groups {
			m.ready(g)
		}
	}
}

// progress are the builds that run, and those that failed, in words.
func (m *images) progress() (running, failed []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, j := range m.jobs {
		var names []string
		for _, n := range j.groups {
			names = append(names, n)
		}
		slices.Sort(names)
		who := strings.Join(names, ", ")
		if j.err != nil {
			failed = append(failed, fmt.Sprintf("image of %s: %v", who, j.err))
			continue
		}
		running = append(running, fmt.Sprintf("image of %s: step %d of %d: %s", who, j.step.N, j.step.Of, j.step.Text))
	}
	slices.Sort(running)
	slices.Sort(failed)
	return running, failed
}

// imageTag names an image by what is in it.
func imageTag(base string, p store.Packages) string {
	h := sha256.New()
	fmt.Fprintf(h, "%s\napt %q\nnpm %q\n", base, sortedCopy(p.Apt), sortedCopy(p.NPM))
	return "nanoclaw-packages:" + hex.EncodeToString(h.Sum(nil))[:24]
}

// packageFile is the Dockerfile on top of the shared image. The names were checked when they were stored. Scripts of npm packages
// do not run: they would as root, with a network.
func packageFile(p store.Packages) []byte {
	var b strings.Builder
	b.WriteString("ARG BASE\nFROM ${BASE}\nUSER 0\n")
	if len(p.Apt) > 0 {
		fmt.Fprintf(&b, "RUN apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends %s && rm -rf /var/lib/apt/lists/* /var/cache/apt/archives/*.deb\n",
			strings.Join(sortedCopy(p.Apt), " "))
	}
	if len(p.NPM) > 0 {
		fmt.Fprintf(&b, "RUN npm install --global --no-audit --no-fund --ignore-scripts %s\n", strings.Join(sortedCopy(p.NPM), " "))
	}
	return []byte(b.String())
}

func sortedCopy(s []string) []string { return slices.Sorted(slices.Values(s)) }
