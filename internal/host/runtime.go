package host

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"

	"nanoclaw/internal/config"
	"nanoclaw/internal/sandbox"
	"nanoclaw/internal/sandbox/bubblewrap"
	"nanoclaw/internal/sandbox/docker"
	"nanoclaw/internal/sandbox/limit"
	"nanoclaw/internal/sandbox/process"
)

// processCandidate is the process runtime for sandbox.Choose: only ever by explicit choice.
type processCandidate struct{}

func (processCandidate) Name() string { return sandbox.Process }
func (processCandidate) Probe(context.Context) (string, error) {
	return "it isolates nothing and serves the terminal only", nil
}

// unusable stands for a runtime that cannot even be asked.
type unusable struct {
	name string
	err  error
}

func (u unusable) Name() string                          { return u.name }
func (u unusable) Probe(context.Context) (string, error) { return "", u.err }

// places is how many sandboxes run at a time.
func places(s config.Settings) int {
	if s.MaxLive > 0 {
		return s.MaxLive
	}
	return limit.Places(limit.MachineMemory())
}

// chooseRuntime applies the rule of design.md section 4 and says in one line why.
func chooseRuntime(ctx context.Context, s config.Settings, log *slog.Logger) (sandbox.Runtime, string, error) {
	d, dockerErr := docker.New(docker.Options{Host: s.DockerHost, Image: s.Image, Runtime: s.DockerRuntime, Relabel: s.DockerRelabel, Log: log})
	var dockerCandidate sandbox.Candidate = d
	if dockerErr != nil {
		dockerCandidate = unusable{sandbox.Docker, dockerErr}
	}
	name, why, err := sandbox.Choose(ctx, s.Sandbox, dockerCandidate, bubblewrap.Candidate{}, processCandidate{})
	if err != nil {
		if dockerErr == nil {
			err = errors.Join(err, d.Close())
		}
		return nil, "", err
	}
	if name == sandbox.Docker {
		return d, why, nil
	}
	if dockerErr == nil {
		if err := d.Close(); err != nil {
			return nil, "", err
		}
	}
	limits := limit.Detect(log)
	records := filepath.Join(s.Home, "run", "sandboxes")
	if name == sandbox.Process {
		return process.New(process.Options{RecordsDir: records, Limits: limits, Log: log}), why, nil
	}
	b, err := bubblewrap.New(bubblewrap.Options{RecordsDir: records, Limits: limits, Log: log})
	if err != nil {
		return nil, "", err
	}
	return b, why, nil
}
