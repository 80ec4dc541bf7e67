package script

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	maxStderr = 500
	// dieWithin bounds the wait for processes that were killed, and for output that somebody outside of the script's session still
	// holds open.
	dieWithin = 5 * time.Second
	drain     = time.Second
)

// run runs a script to its end and returns its last line, which is not empty.
func run(ctx context.Context, o Options, rowID, script string) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("run script: %w", err)
	}
	file, err := store(o.Temp, rowID, script)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrStart, err)
	}
	defer func() { _ = os.Remove(file) }()
	argv, err := command(script, file)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrStart, err)
	}
	out, stderr := &lastLine{max: o.MaxOutput}, &tail{max: maxStderr}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = o.Dir, environ(o), out, stderr, drain
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // a session of its own: one kill reaches all of it
	limited, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrStart, err)
	}
	stopped, err := finish(limited, cmd)
	switch state := cmd.ProcessState; {
	case state != nil && state.Success(): // also one that a background process outlived
	case stopped && ctx.Err() != nil:
		return nil, fmt.Errorf("run script: %w", ctx.Err())
	case stopped:
		return nil, fmt.Errorf("%w (after %s)", ErrTimeout, o.Timeout)
	case state == nil:
		return nil, fmt.Errorf("wait for script: %w", err)
	default:
		return nil, exited(state, stderr)
	}
	line, over := out.text()
	switch {
	case over:
		return nil, fmt.Errorf("%w: more than %d bytes", ErrTooMuch, o.MaxOutput)
	case len(line) == 0:
		return nil, ErrNoOutput
	}
	return line, nil
}

// finish waits for the end of cmd, or stops it when ctx ends. What is left of its session is killed before its pid is given back to
// the system, so the kill can hit nobody else.
func finish(ctx context.Context, cmd *exec.Cmd) (stopped bool, err error) {
	pid := cmd.Process.Pid
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for errors.Is(unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil), unix.EINTR) {
		}
	}()
	select {
	case <-ended:
	case <-ctx.Done():
		stopped = true
		killSession(pid)
		late := time.NewTimer(dieWithin)
		defer late.Stop()
		select {
		case <-ended:
		case <-late.C: // it hangs in the kernel; its end is left to the process that waits for orphans
			return true, errors.New("the script does not end although it was killed")
		}
	}
	killSession(pid)
	return stopped, cmd.Wait()
}

// killSession kills what runs in the session of a script: its own process group at once, then whatever it put into others, as a
// shell does with the jobs of `set -m`. It looks again while there is anything, since a process may fork before it is killed.
func killSession(sid int) {
	const most = 10 // looks: a script that forks faster than we kill is left to the end of the sandbox
	_ = unix.Kill(-sid, unix.SIGKILL)
	for range most {
		found := false
		entries, err := os.ReadDir("/proc")
		if err != nil {
			return
		}
		for _, e := range entries {
			pid, err := strconv.Atoi(e.Name())
			if err != nil || pid == sid || !runsIn(pid, sid) {
				continue
			}
			found = true
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		if !found {
			return
		}
	}
}

// runsIn reports whether a process belongs to a session and has not ended.
func runsIn(pid, sid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	// Behind the name, which may hold anything: state, parent, process group, session.
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	return len(fields) > 3 && fields[0] != "Z" && fields[3] == strconv.Itoa(sid)
}

func exited(state *os.ProcessState, stderr *tail) error {
	e := &ExitError{Code: state.ExitCode(), Stderr: stderr.String()}
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		e.Signal = status.Signal().String()
	}
	return e
}

// store writes the script to a file that only we can read.
func store(dir, rowID, script string) (file string, err error) {
	f, err := os.CreateTemp(dir, "task-script-"+fileName(rowID)+"-*")
	if err != nil {
		return "", fmt.Errorf("write script: %w", err)
	}
	_, err = f.WriteString(script)
	if err = errors.Join(err, f.Chmod(0o700), f.Close()); err != nil {
		_ = os.Remove(f.Name())
		return "", fmt.Errorf("write script: %w", err)
	}
	return f.Name(), nil
}

// fileName is an id as part of a file's name.
func fileName(id string) string {
	const most = 64
	id = strings.Map(func(r rune) rune {
		if r == '-' || r == '_' || (r >= '0' && r <= '9') || (r >= 'a' && r <= 'z') || (r >= 'A' && r <= 'Z') {
			return r
		}
		return '_'
	}, id)
	return id[:min(len(id), most)]
}

// command is how a script is run: by the interpreter that its first line names, with the one argument that may stand there, as the
// kernel does it; else by bash, or by sh where there is no bash. We call the interpreter ourselves because a temporary folder
// may forbid to execute files, and because a file that was just written may still count as open for writing.
func command(script, file string) ([]string, error) {
	first, _, _ := strings.Cut(script, "\n")
	if line, ok := strings.CutPrefix(first, "#!"); ok {
		program, argument, _ := strings.Cut(strings.TrimSpace(strings.ReplaceAll(line, "\t", " ")), " ")
		if program == "" {
			return nil, errors.New("its first line names no interpreter")
		}
		if argument = strings.TrimSpace(argument); argument != "" {
			return []string{program, argument, file}, nil
		}
		return []string{program, file}, nil
	}
	for _, shell := range []string{"bash", "sh"} {
		if path, err := exec.LookPath(shell); err == nil {
			return []string{path, file}, nil
		}
	}
	return nil, errors.New("there is neither bash nor sh")
}

// environ is the whole environment of a script. Keys and proxies of this process are not in it (W30).
func environ(o Options) []string {
	var env []string
	for _, name := range []string{"PATH", "HOME", "TZ", "LANG", "TMPDIR"} {
		v, ok := os.LookupEnv(name)
		switch {
		case name == "PATH" && v == "":
			v = "/usr/local/bin:/usr/bin:/bin"
		case name == "TMPDIR" && o.Temp != "":
			v = o.Temp
		case !ok:
			continue
		}
		env = append(env, name+"="+v)
	}
	return append(env, o.Env...)
}
