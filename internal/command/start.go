package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"syscall"
	"time"

	"nanoclaw/internal/control"
	"nanoclaw/internal/store"
)

// keyVariables are the environment variables that hold keys of people. They leave the environment of this process
// before anything is started.
var keyVariables = []struct{ variable, name, kind string }{
	{"ANTHROPIC_API_KEY", control.SecretAnthropic, control.SecretAPIKey},
	{"CLAUDE_CODE_OAUTH_TOKEN", control.SecretAnthropic, control.SecretOAuthToken},
	{"OPENAI_API_KEY", control.SecretOpenAI, control.SecretAPIKey},
	{"NANOCLAW_HF_TOKEN", control.SecretHuggingFace, control.SecretAPIKey},
}

// startTime is how long a host may take until it answers.
const startTime = 20 * time.Second

// LogName of a background host in <home>/logs.
const LogName = "nanoclaw.log"

// takeKeys removes the keys from the environment and returns the first one of each name.
func (a *app) takeKeys() ([]control.Secret, error) {
	var keys []control.Secret
	seen := map[string]bool{}
	for _, k := range keyVariables {
		if v := strings.TrimSpace(a.Getenv(k.variable)); v != "" && !seen[k.name] {
			seen[k.name] = true
			keys = append(keys, control.Secret{Name: k.name, Kind: k.kind, Value: v})
		}
		if err := a.Unsetenv(k.variable); err != nil {
			return nil, fmt.Errorf("clear %s: %w", k.variable, err)
		}
	}
	return keys, nil
}

// withoutKeys is the environment for a child.
func withoutKeys(environ []string) []string {
	var out []string
	for _, e := range environ {
		name, _, _ := strings.Cut(e, "=")
		keep := true
		for _, k := range keyVariables {
			keep = keep && name != k.variable
		}
		if keep {
			out = append(out, e)
		}
	}
	return out
}

// ensureHost makes sure that a host answers on the home, and starts one in the background if none does and start allows
// it. Every failure has exit code 6.
func (a *app) ensureHost(ctx context.Context, c *control.Client, home string, start bool) error {
	st, err := c.Status(ctx)
	switch {
	case err == nil:
		a.warnIgnored(st)
		return nil
	case !control.Temporary(err):
		return err
	case !start:
		return &exitError{exitUnreachable, err}
	}
	var ended <-chan error
	logPath := filepath.Join(home, "logs", LogName)
	offset := fileSize(logPath)
	if _, held := store.LockOwner(home); !held { // else one is just starting
		if err := os.MkdirAll(filepath.Dir(logPath), 0o700); err != nil {
			return &exitError{exitUnreachable, fmt.Errorf("start the host: %w", err)}
		}
		fmt.Fprintf(a.err, "starting the host on %s (log: %s)\n", home, logPath)
		if ended, err = a.Spawn(a.serveArgs(home), withoutKeys(a.Environ()), logPath); err != nil {
			return &exitError{exitUnreachable, fmt.Errorf("start the host: %w", err)}
		}
	}
	return a.awaitHost(ctx, c, home, logPath, offset, ended)
}

// serveArgs is the command line of the background host.
func (a *app) serveArgs(home string) []string {
	args := []string{"serve", "--home", home}
	names := map[string]string{"sandbox.kind": "--sandbox"}
	var keys []string
	for k := range a.flags {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	for _, k := range keys {
		if f := names[k]; f != "" {
			args = append(args, f, a.flags[k])
		}
	}
	return args
}

// warnIgnored says which flags a running host does not take.
func (a *app) warnIgnored(st control.Status) {
	if want := a.flags["sandbox.kind"]; want != "" && want != "auto" && want != st.Sandbox.Kind {
		fmt.Fprintf(a.err, "the running host uses %s; --sandbox %s counts from its next start (nanoclaw stop)\n", st.Sandbox.Kind, want)
	}
}

// awaitHost waits until the host answers. A host that ended lost the race against another one, which then answers, or
// failed: its last log lines are the reason.
func (a *app) awaitHost(ctx context.Context, c *control.Client, home, logPath string, offset int64, ended <-chan error) error {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	const look = 5 * time.Millisecond
	t := time.NewTicker(look)
	defer t.Stop()
	for {
		_, err := c.Status(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil && !control.Temporary(err) {
			return err
		}
		select {
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), context.Canceled) {
				return context.Canceled
			}
			return &exitError{exitUnreachable, fmt.Errorf("start the host: it does not answer after %v%s", startTime, logTail(logPath, offset))}
		case err := <-ended:
			ended = nil
			if _, held := store.LockOwner(home); held {
				continue // another host has the home
			}
			if err == nil {
				err = errors.New("it ended at once")
			}
			return &exitError{exitUnreachable, fmt.Errorf("start the host: %w%s", err, logTail(logPath, offset))}
		case <-t.C:
		}
	}
}

func fileSize(path string) int64 {
	fi, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return fi.Size()
}

// logTail is the last lines of the log behind offset, indented, for an error text.
func logTail(path string, offset int64) string {
	const most, lines = 8 << 10, 8
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	size := fileSize(path)
	if size-offset > most {
		offset = size - most
	}
	b, err := io.ReadAll(io.NewSectionReader(f, offset, most))
	b = bytes.TrimSpace(b)
	if err != nil || len(b) == 0 {
		return ""
	}
	all := strings.Split(string(b), "\n")
	if len(all) > lines {
		all = all[len(all)-lines:]
	}
	return "; the log says:\n  " + strings.Join(all, "\n  ")
}

// spawn starts this program again as a session leader of its own.
func spawn(args, env []string, logPath string) (<-chan error, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	out, err := os.OpenFile(logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the log: %w", err)
	}
	defer func() { _ = out.Close() }()
	cmd := exec.Command(self, args...)
	cmd.Env, cmd.Stdout, cmd.Stderr, cmd.Dir = env, out, out, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	return ended, nil
}
