// Package admin is the ncl program: one grammar and one printer for the operator, whose commands go over the control socket,
// and for an agent in its sandbox, whose commands go over the runner's socket and the mailbox. What can be done the host says:
// `ncl help` lists it.
package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"nanoclaw/internal/config"
	"nanoclaw/internal/control"
)

// Program is one run of ncl.
type Program struct {
	Args           []string
	Getenv         func(string) string
	Stdin          io.Reader
	Terminal       bool // nothing is piped into stdin
	Stdout, Stderr io.Writer
	// RunnerSocket is where the runner of a sandbox listens; empty: control.RunnerDir.
	RunnerSocket string
}

// ExitUsage is the exit code of a command line that cannot be used.
const ExitUsage = 2

const usage = `ncl gives commands to a nanoclaw host.

  ncl WORDS… [--flag VALUE | --flag=VALUE | --flag]… [--json] [--stdin-json] [--home DIR]

  ncl help         lists the commands; the host knows them
  ncl WORDS --help shows the commands that begin so

  --json           print the answer as it came, as JSON
  --stdin-json     take more flags from standard input: one JSON object of at most 64 KiB
  --home DIR       the host of that home (default $NANOCLAW_HOME, else ~/.nanoclaw)

In a sandbox the commands go to the host through the runner, on behalf of the agent.

Exit codes: 0 done, 1 failed, 2 usage, 4 not found, 5 not allowed, 6 host not reachable, 7 no answer in time, 8 conflict.
`

// way is how a command reaches the host.
type way interface {
	Admin(ctx context.Context, r control.AdminRequest) (control.Frame, error)
	Close()
}

// Execute runs the program and returns its exit code (spec/operator.md 20.3).
func Execute(ctx context.Context, p Program) int {
	l, err := parse(p.Args)
	switch {
	case len(p.Args) == 0 || err == nil && l.help && len(l.words) == 0:
		_, _ = io.WriteString(p.Stdout, usage)
		return 0
	case err == nil && len(l.words) == 0:
		_, _ = io.WriteString(p.Stderr, usage)
		return ExitUsage
	case err == nil && l.stdin:
		err = l.merge(p.Stdin, p.Terminal)
	}
	req := l.request()
	if err == nil {
		err = req.Check()
	}
	if err != nil {
		return p.fail(l, err)
	}
	f, err := p.ask(ctx, l, req)
	if err != nil {
		if l.help {
			_, _ = io.WriteString(p.Stdout, usage)
			return 0
		}
		if req.Command == "version" {
			f, err = ownVersion(err)
		}
	}
	if err != nil {
		return p.fail(l, err)
	}
	return p.show(l, f)
}

// ask sends the request and waits for the answer.
func (p Program) ask(ctx context.Context, l line, req control.AdminRequest) (control.Frame, error) {
	ctx, cancel := context.WithTimeout(ctx, control.AdminPatience+5*time.Second)
	defer cancel()
	w, err := p.way(l.home)
	if err != nil {
		return control.Frame{}, err
	}
	defer w.Close()
	return w.Admin(ctx, req)
}

// way decides where the program runs: inside a sandbox when the runner's socket is named by a variable, or is in its place
// while no home is named; else beside a host.
func (p Program) way(home string) (way, error) {
	if home == "" {
		path := p.Getenv(control.RunnerVariable)
		if path == "" && p.Getenv("NANOCLAW_HOME") == "" {
			path = p.RunnerSocket
			if path == "" {
				path = filepath.Join(control.RunnerDir, control.RunnerSocket)
			}
			if _, err := os.Lstat(path); err != nil {
				path = ""
			}
		}
		if path != "" {
			return control.NewRunner(path), nil
		}
	}
	dir, err := config.Home(func(k string) string {
		if k == "NANOCLAW_HOME" && home != "" {
			return home
		}
		return p.Getenv(k)
	})
	if err != nil {
		return nil, control.Invalid("home", err.Error())
	}
	return control.NewClient(dir), nil
}

// ownVersion answers `ncl version` when no host does.
func ownVersion(err error) (control.Frame, error) {
	if !control.IsCode(err, control.CodeUnreachable, control.CodeUnavailable, control.CodeTimeout) {
		return control.Frame{}, err
	}
	v := control.Version()
	data, err := json.Marshal(struct {
		Client   string `json:"client"`
		Protocol int    `json:"protocol"`
	}{v, control.Protocol})
	return control.Frame{OK: true, Data: data, Human: "ncl " + v + ", no host answers"}, err
}

// show prints an answer and returns the exit code that it means, with --json as without (spec/runner.md W27).
func (p Program) show(l line, f control.Frame) int {
	code := 0
	if !f.OK {
		if f.Error == nil {
			f.Error = &control.Error{Code: control.CodeFailed, Message: "the command failed, and the host did not say why"}
		}
		code = f.Error.Exit()
	}
	var err error
	switch {
	case l.json:
		err = encode(p.Stdout, f)
	case !f.OK:
		_, err = fmt.Fprintln(p.Stderr, "ncl: "+printable(f.Error.Error()))
	default:
		var text, note string
		if text, note, err = render(f, config.Zone("", p.Getenv)); err == nil {
			if note != "" {
				_, _ = fmt.Fprintln(p.Stderr, note)
			}
			_, err = io.WriteString(p.Stdout, text)
		}
	}
	if err != nil {
		return p.fail(l, err)
	}
	return code
}

// fail tells a failure of this side.
func (p Program) fail(l line, err error) int {
	var e *control.Error
	if !errors.As(err, &e) {
		e = &control.Error{Code: control.CodeFailed, Message: err.Error(), Err: err}
	}
	if l.json {
		_ = encode(p.Stderr, control.Envelope(e))
	} else {
		_, _ = fmt.Fprintln(p.Stderr, "ncl: "+printable(e.Error()))
	}
	return e.Exit()
}

// encode writes v as one line of JSON.
func encode[T any](w io.Writer, v T) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}
