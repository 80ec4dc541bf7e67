package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/moby/moby/client"

	"nanoclaw/internal/sandbox"
)

// BuildOptions say what an image is made of.
type BuildOptions struct {
	Files   map[string][]byte // the build context by path; must have "Dockerfile"
	Tags    []string
	Args    map[string]string // build arguments; TARGETARCH is the daemon's own unless given
	Network string            // of the steps: "host", "none" or empty for the daemon's default
	NoCache bool
}

// Step of a build. Each step is reported twice: when it begins, and when it has ended (Done, with Elapsed and Cached set).
type Step struct {
	N, Of   int
	Stage   string // of a build in stages, where the daemon says so
	Text    string // the instruction, on one line
	Done    bool
	Cached  bool
	Elapsed time.Duration
}

// BuildError names the step that failed and the last lines it printed.
type BuildError struct {
	Step  Step
	Lines []string
	Err   error
}

func (e *BuildError) Error() string {
	s := "build the image: "
	if e.Step.N > 0 {
		s += fmt.Sprintf("step %d/%d failed (%s): ", e.Step.N, e.Step.Of, e.Step.Text)
	}
	s += e.Err.Error()
	if len(e.Lines) > 0 {
		s += "\n  " + strings.Join(e.Lines, "\n  ")
	}
	return s
}

func (e *BuildError) Unwrap() error { return e.Err }

// errorLines is how many of a failed step's last lines a BuildError keeps.
const errorLines = 15

// Build makes an image with the daemon's own builder and calls step, in order and from the calling goroutine, as the steps
// begin and end. It blocks until the image is tagged, the build failed (*BuildError) or ctx ended, which stops the build;
// what was there under the tags before stays until the end.
func (r *Runtime) Build(ctx context.Context, opt BuildOptions, step func(Step)) error {
	const op = "build the image"
	f, err := r.facts(ctx)
	if err != nil {
		return err
	}
	bundle, err := pack(opt.Files)
	if err != nil {
		return &sandbox.Failure{Class: sandbox.SpecInvalid, Op: op, Err: err}
	}
	args := map[string]*string{}
	for k, v := range opt.Args {
		args[k] = &v
	}
	if arch := debianArch(f.arch); args["TARGETARCH"] == nil && arch != "" {
		args["TARGETARCH"] = &arch // only newer builders set it themselves
	}
	res, err := r.api.ImageBuild(ctx, bundle, client.ImageBuildOptions{
		Tags: opt.Tags, BuildArgs: args, NetworkMode: opt.Network, NoCache: opt.NoCache, Dockerfile: "Dockerfile",
		Remove: true, ForceRemove: true,
	})
	if err != nil {
		return r.failure(op, err)
	}
	defer func() { _ = res.Body.Close() }()
	if err := follow(res.Body, time.Now, step); err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("%s: %w", op, context.Cause(ctx))
		}
		return err
	}
	return nil
}

func debianArch(machine string) string {
	switch machine {
	case "x86_64", "amd64":
		return "amd64"
	case "aarch64", "arm64":
		return "arm64"
	}
	return ""
}

// pack makes the context with fixed times and owners: the daemon's cache goes by content.
func pack(files map[string][]byte) (io.Reader, error) {
	if _, ok := files["Dockerfile"]; !ok {
		return nil, errors.New("the build context has no Dockerfile")
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(files[name])), ModTime: time.Unix(0, 0)}); err != nil {
			return nil, fmt.Errorf("pack %s: %w", name, err)
		}
		if _, err := w.Write(files[name]); err != nil {
			return nil, fmt.Errorf("pack %s: %w", name, err)
		}
	}
	return &b, w.Close()
}

// follow reads the daemon's messages to their end. A stream that ends without the daemon having named the image is an
// error too: the connection broke.
func follow(r io.Reader, now func() time.Time, step func(Step)) error {
	p := progress{now: now, step: step}
	dec := json.NewDecoder(r)
	for {
		var m struct {
			Stream      string
			Aux         struct{ ID string }
			Error       string
			ErrorDetail struct{ Message string }
		}
		err := dec.Decode(&m)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return p.fail(fmt.Errorf("read the daemon's messages: %w", err))
		}
		if m.Error != "" || m.ErrorDetail.Message != "" {
			p.flush()
			text := m.ErrorDetail.Message
			if text == "" {
				text = m.Error
			}
			return p.fail(errors.New(strings.TrimSpace(text)))
		}
		p.built = p.built || m.Aux.ID != ""
		p.write(m.Stream)
	}
	p.flush()
	if !p.built {
		return p.fail(errors.New("the daemon ended the build without an image"))
	}
	p.finish()
	return nil
}
