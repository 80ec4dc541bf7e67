package command

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"nanoclaw/container"
	"nanoclaw/internal/config"
	"nanoclaw/internal/sandbox/docker"
)

// imageTime is how long a build may take unless told otherwise.
const imageTime = 30 * time.Minute

func imageCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "image",
		Short: "The agent image of the docker sandbox",
		Args:  cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownCommand(cmd, args[0])
			}
			return cmd.Help()
		},
	}
	cmd.AddCommand(imageBuildCommand())
	return cmd
}

// imageBuild is the command line of `nanoclaw image build`.
type imageBuild struct {
	base, network, ca string
	tags, args        []string
	noCache           bool
	limit             time.Duration
}

func imageBuildCommand() *cobra.Command {
	var o imageBuild
	cmd := &cobra.Command{
		Use:   "build",
		Short: "Build the agent image",
		Long: `Builds the agent image with the Docker or Podman daemon and prints its tag. The image there was stays until the new one is
complete. Steps that did not change since the last build are not run again.

The image starts from debian:bookworm-slim. Where no registry is at hand, name another Debian image with --base, for example
one made by debootstrap and docker import. The steps download Debian packages and npm packages: a daemon without a
network of its own needs --network host, and a network with a proxy of its own --build-arg http_proxy=… and --ca FILE.

The image has the programs of the providers claude, codex and opencode, in the versions that were tested: 1.4 GB with all
three; --build-arg PROGRAMS=claude leaves the others out (0.8 GB).`,
		Example: `  nanoclaw image build
  nanoclaw image build --base my-debian:12 --network host
  nanoclaw image build --build-arg PROGRAMS="claude codex"
  nanoclaw image build --build-arg CLAUDE_VERSION=VERSION --tag nanoclaw-agent:next`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	f := cmd.Flags()
	f.StringVar(&o.base, "base", "", "image to start from (default debian:bookworm-slim)")
	f.StringArrayVar(&o.tags, "tag", nil, "name of the image; may be given more than once (default the setting sandbox.image)")
	f.StringVar(&o.network, "network", "", "network of the build steps: host, none, or the daemon's default")
	f.StringArrayVar(&o.args, "build-arg", nil, "NAME=VALUE for the Dockerfile, for example NODE_VERSION or http_proxy; may be given more than once")
	f.StringVar(&o.ca, "ca", "", "PEM file of certificates that downloads during the build trust in addition")
	f.BoolVar(&o.noCache, "no-cache", false, "run every step again")
	f.DurationVar(&o.limit, "timeout", imageTime, "give up after this")
	return cmd
}

func (o imageBuild) run(cmd *cobra.Command) error {
	s, err := imageSettings(cmd)
	if err != nil {
		return usage(err)
	}
	build, err := o.options(s.Image)
	if err != nil {
		return usage(err)
	}
	rt, err := docker.New(docker.Options{Host: s.DockerHost, Image: s.Image})
	if err != nil {
		return usage(err)
	}
	defer func() { _ = rt.Close() }()
	ctx, cancel := context.WithTimeoutCause(cmd.Context(), o.limit, fmt.Errorf("not done after %v (--timeout)", o.limit))
	defer cancel()
	begin := time.Now()
	out := cmd.ErrOrStderr()
	err = rt.Build(ctx, build, func(st docker.Step) { printStep(out, st) })
	if err != nil {
		_, _ = fmt.Fprintln(out)
		return buildAdvice(err)
	}
	_, _ = fmt.Fprintf(out, "built in %.1f s\n", time.Since(begin).Seconds())
	for _, tag := range build.Tags {
		if _, err := fmt.Fprintln(cmd.OutOrStdout(), tag); err != nil {
			return err
		}
	}
	return nil
}

// buildAdvice adds what usually helps against the two failures that are no fault of the Dockerfile.
func buildAdvice(err error) error {
	var failed *docker.BuildError
	if !errors.As(err, &failed) {
		return err
	}
	text := strings.ToLower(strings.Join(failed.Lines, "\n"))
	for _, a := range []struct{ sign, advice string }{
		{"self-signed certificate", "a proxy of this network signs its own certificates: give them with --ca FILE"},
		{"unable to get local issuer certificate", "a proxy of this network signs its own certificates: give them with --ca FILE"},
		{"temporary failure resolving", "the daemon gives its build steps no working network: try --network host"},
		{"network is unreachable", "the daemon gives its build steps no working network: try --network host"},
		{"eai_again", "the daemon gives its build steps no working network: try --network host"},
	} {
		if strings.Contains(text, a.sign) {
			return fmt.Errorf("%w\n%s", err, a.advice)
		}
	}
	return err
}

// printStep gives each step one line: what it is when it begins, how long it took at its end.
func printStep(w io.Writer, st docker.Step) {
	switch {
	case !st.Done && st.Stage != "":
		_, _ = fmt.Fprintf(w, "[%s %d/%d] %s", st.Stage, st.N, st.Of, st.Text)
	case !st.Done:
		_, _ = fmt.Fprintf(w, "[%*d/%d] %s", len(fmt.Sprint(st.Of)), st.N, st.Of, st.Text)
	case st.Cached:
		_, _ = fmt.Fprintln(w, "  cached")
	default:
		_, _ = fmt.Fprintf(w, "  %.1f s\n", st.Elapsed.Seconds())
	}
}

func (o imageBuild) options(image string) (docker.BuildOptions, error) {
	build := docker.BuildOptions{Tags: o.tags, Args: map[string]string{"PROGRAMS": strings.Join(container.Programs(runtime.GOARCH), " ")}, Network: o.network, NoCache: o.noCache}
	if len(build.Tags) == 0 {
		build.Tags = []string{image}
	}
	for _, a := range o.args {
		name, value, ok := strings.Cut(a, "=")
		if !ok || name == "" {
			return build, fmt.Errorf("--build-arg %q: give it as NAME=VALUE", a)
		}
		build.Args[name] = value
	}
	if o.base != "" {
		build.Args["BASE"] = o.base
	}
	if o.limit <= 0 {
		return build, fmt.Errorf("--timeout %v: must be above zero", o.limit)
	}
	var ca []byte
	if o.ca != "" {
		var err error
		if ca, err = os.ReadFile(o.ca); err != nil {
			return build, fmt.Errorf("--ca: %w", err)
		}
		if block, _ := pem.Decode(ca); block == nil || block.Type != "CERTIFICATE" {
			return build, fmt.Errorf("--ca %s: not a PEM file that begins with a certificate", o.ca)
		}
	}
	build.Files = container.Files(ca)
	return build, nil
}

// imageSettings are those of the home that --home or the environment names; the home need not exist.
func imageSettings(cmd *cobra.Command) (config.Settings, error) {
	env := os.Getenv
	if flag := cmd.Flag("home"); flag != nil && flag.Value.String() != "" {
		env = func(k string) string {
			if k == "NANOCLAW_HOME" {
				return flag.Value.String()
			}
			return os.Getenv(k)
		}
	}
	home, err := config.Home(env)
	if err != nil {
		return config.Settings{}, err
	}
	return config.Load(home, env, nil)
}
