// Package program is agent-runner: it reads the settings, opens the mailbox and the sockets, and runs the loop until it is
// told to stop.
package program

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"nanoclaw/internal/config/container"
	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/obs"
	"nanoclaw/internal/runner/prompt"
	"nanoclaw/internal/runner/tool"
)

// Exit codes.
const (
	ExitOK    = 0
	ExitFatal = 1
	// ExitAgain asks for a fresh process: this one can no longer read the mailbox (EX_TEMPFAIL).
	ExitAgain = 75
	// ExitUsage: the arguments cannot be used.
	ExitUsage = 2
)

const usage = `agent-runner runs the agent of one session inside its sandbox.

  agent-runner [--root DIR] [--config FILE] [--once]
  agent-runner mcp [--root DIR]      its tools for any MCP client, over stdin and stdout

  --root DIR     folder of the session (in/ out/ run/ agent/) instead of /workspace
  --config FILE  settings instead of agent/container.json below it
  --once         end when nothing due is left and the last exchange has ended

Exit codes: 0 ended in order, 1 failed, 2 bad usage, 75 a fresh process is needed.
`

// insideSockets and insideHost are the folders of the runner's and the host's sockets in a sandbox.
const (
	insideSockets = "/run/nanoclaw"
	insideHost    = "/run/nanoclaw-host"
)

// paths of a session as the runner sees them.
type paths struct {
	root    string
	agent   string // the agent's folder
	own     bool   // it is the session's, not only where the program was started
	extra   string // below it are further folders that the agent may work in
	config  string
	files   string // below it are the attachments that prompts name
	host    string // the host's sockets
	sockets string // our own
}

func pathsOf(root, configFile string) (paths, error) {
	p := paths{root: prompt.DefaultRoot, host: insideHost, sockets: insideSockets}
	if root != "" {
		abs, err := filepath.Abs(root)
		if err != nil {
			return p, fmt.Errorf("find folder: %w", err)
		}
		if _, err := os.Stat(abs); err != nil {
			return p, fmt.Errorf("find the session's folder: %w", err)
		}
		p.root = abs
		p.host = filepath.Join(abs, "run")
		p.sockets = p.host
	}
	p.files = p.root
	if _, err := os.Stat(filepath.Join(p.root, "inbox")); err != nil { // neither mounted nor linked
		p.files = filepath.Join(p.root, "in")
	}
	p.extra = filepath.Join(p.root, "extra")
	p.agent, p.own = filepath.Join(p.root, "agent"), true
	if info, err := os.Stat(p.agent); err != nil || !info.IsDir() {
		p.own = false // Without a folder of its own the agent is at home where it was started.
		if p.agent, err = os.Getwd(); err != nil {
			return p, fmt.Errorf("find the agent's folder: %w", err)
		}
	}
	if p.config = configFile; p.config == "" {
		p.config = filepath.Join(p.agent, "container.json")
	}
	return p, nil
}

// Execute runs the program and returns its exit code. ctx ends at SIGTERM.
func Execute(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	client := len(args) > 0 && args[0] == "mcp"
	if client {
		args = args[1:]
	}
	flags := flag.NewFlagSet("agent-runner", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	root := flags.String("root", "", "")
	var configFile string
	var once bool
	if !client {
		flags.StringVar(&configFile, "config", "", "")
		flags.BoolVar(&once, "once", false, "")
	}
	err := flags.Parse(args)
	if err == nil && flags.NArg() > 0 {
		err = fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if err != nil {
		if errors.Is(err, flag.ErrHelp) {
			_, _ = io.WriteString(stdout, usage)
			return ExitOK
		}
		_, _ = fmt.Fprintf(stderr, "agent-runner: %v\n\n%s", err, usage)
		return ExitUsage
	}
	p, err := pathsOf(*root, configFile)
	if err == nil {
		if client {
			err = tool.Stdio(ctx, p.sockets, stdin, stdout)
		} else {
			err = serve(ctx, p, once, obs.Logger(stderr, slog.LevelInfo, false))
		}
	}
	if err == nil {
		return ExitOK
	}
	_, _ = fmt.Fprintf(stderr, "agent-runner: %v\n", err)
	switch {
	case errors.Is(err, mailbox.ErrCorrupt):
		return ExitAgain
	case errors.Is(err, errNoProgram):
		return container.ExitNoProgram
	}
	return ExitFatal
}

// loadConfig reads container.json. A file that is missing or unusable is fatal: the host writes it before each start.
func loadConfig(p paths, log *slog.Logger) (container.Config, error) {
	c, warnings, err := container.Load(p.config)
	if err != nil {
		return c, err
	}
	for _, w := range warnings {
		log.Warn("a setting cannot be used", slog.String(obs.KeySetting, w))
	}
	return c, nil
}
