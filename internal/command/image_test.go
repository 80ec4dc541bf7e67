package command

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"nanoclaw/internal/sandbox/docker"
)

func runImage(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var out, diag bytes.Buffer
	c := imageCommand()
	c.SilenceErrors, c.SilenceUsage = true, true
	c.SetArgs(args)
	c.SetOut(&out)
	c.SetErr(&diag)
	err = c.ExecuteContext(context.Background())
	return out.String(), diag.String(), err
}

func TestImageBuildUsage(t *testing.T) {
	t.Parallel()
	notPEM := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(notPEM, []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"NAME=VALUE":                {"build", "--build-arg", "NODE_VERSION"},
		"must be above zero":        {"build", "--timeout", "0s"},
		"begins with a certificate": {"build", "--ca", notPEM},
		"no such file":              {"build", "--ca", notPEM + ".none"},
		"takes no arguments":        {"build", "now"},
		"unknown command \"biuld\"": {"biuld"},
	} {
		_, _, err := runImage(t, args...)
		if err == nil || !strings.Contains(err.Error(), want) || exitCode(context.Background(), err) != exitUsage {
			t.Errorf("%q: %v (exit %d), want usage error with %q", args, err, exitCode(context.Background(), err), want)
		}
	}
}

func TestImageBuildOptions(t *testing.T) {
	t.Parallel()
	o := imageBuild{base: "local:1", args: []string{"A=b=c", "BASE=other"}, limit: time.Minute, network: "host"}
	got, err := o.options("set:latest")
	if err != nil {
		t.Fatal(err)
	}
	if got.Args["A"] != "b=c" || got.Args["BASE"] != "local:1" || got.Tags[0] != "set:latest" || got.Network != "host" {
		t.Errorf("%+v", got)
	}
	dockerfile := string(got.Files["Dockerfile"])
	if !strings.Contains(dockerfile, "ARG BASE=") || !strings.Contains(dockerfile, "FROM ${BASE}") {
		t.Error("the Dockerfile does not take its base as an argument")
	}
	if _, ok := got.Files["ca/extra.crt"]; ok {
		t.Error("a certificate nobody gave")
	}
}

func TestImageStepsHaveOneLineEach(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	for _, s := range []docker.Step{
		{N: 2, Of: 10, Text: "RUN a"}, {N: 2, Of: 10, Text: "RUN a", Done: true, Elapsed: 1250 * time.Millisecond},
		{N: 3, Of: 10, Text: "RUN b"}, {N: 3, Of: 10, Text: "RUN b", Done: true, Cached: true},
		{N: 1, Of: 2, Stage: "1/2", Text: "RUN c"}, {N: 1, Of: 2, Stage: "1/2", Text: "RUN c", Done: true},
	} {
		printStep(&b, s)
	}
	if want := "[ 2/10] RUN a  1.2 s\n[ 3/10] RUN b  cached\n[1/2 1/2] RUN c  0.0 s\n"; b.String() != want {
		t.Errorf("got %q, want %q", b.String(), want)
	}
}

func TestImageBuildAdvice(t *testing.T) {
	t.Parallel()
	failed := &docker.BuildError{Lines: []string{"npm error code SELF_SIGNED", "Self-signed certificate in chain"}, Err: errors.New("exit code 1")}
	if err := buildAdvice(failed); !errors.Is(err, failed) || !strings.Contains(err.Error(), "--ca FILE") {
		t.Errorf("got %v", err)
	}
	failed.Lines = []string{"E: Temporary failure resolving 'x'"}
	if err := buildAdvice(failed); !strings.Contains(err.Error(), "--network host") {
		t.Errorf("got %v", err)
	}
	failed.Lines = nil
	if err := buildAdvice(failed); err.Error() != failed.Error() {
		t.Errorf("advice where none is known: %v", err)
	}
}
