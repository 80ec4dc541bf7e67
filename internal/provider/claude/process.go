package claude

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"nanoclaw/internal/obs"
	"nanoclaw/internal/provider"
)

const (
	stderrTail = 8 << 10
	drainWait  = 2 * time.Second // for the rest of the output of a CLI that has exited
	sweepWait  = 2 * time.Second
	abortLimit = 3 * time.Second // on top of all other waits: processes that even SIGKILL does not end
)

// start spawns the CLI and what reads it.
func (p *Provider) start(ctx context.Context, in provider.QueryInput, setup initializeRequest) (provider.Query, error) {
	fail := func(err error) (provider.Query, error) {
		return nil, &provider.QueryError{Op: "start the claude CLI", Class: provider.ClassOther, Retryable: true, Hint: "program " + p.opt.Program, Err: err}
	}
	var mark [16]byte
	_, _ = rand.Read(mark[:])
	q := &query{
		p: p, log: p.opt.Log, setup: setup, resumed: in.Continuation, mark: hex.EncodeToString(mark[:]),
		changed: make(chan struct{}), exited: make(chan struct{}), gone: make(chan struct{}),
		rules: newRules(in.MCP), inputs: map[string]prompt{}, tools: map[string]string{}, answers: map[string]chan error{}, stderr: tail{max: stderrTail},
	}
	first := q.prepare(in.Input)
	var files [3][2]*os.File // the CLI's end and ours, for its three streams
	closeAll := func() {
		for _, f := range files {
			for _, end := range f {
				if end != nil {
					_ = end.Close()
				}
			}
		}
	}
	for i := range files {
		r, w, err := os.Pipe()
		if err != nil {
			closeAll()
			return fail(err)
		}
		if files[i] = [2]*os.File{w, r}; i == 0 {
			files[i] = [2]*os.File{r, w}
		}
	}
	q.cmd = exec.Command(p.opt.Program, p.arguments(in, q.rules)...)
	q.cmd.Dir, q.cmd.Env = in.Cwd, p.environment(q.mark)
	q.cmd.Stdin, q.cmd.Stdout, q.cmd.Stderr = files[0][0], files[1][0], files[2][0]
	q.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // a terminal's Ctrl-C is for its owner, not for the CLI
	if err := q.cmd.Start(); err != nil {
		closeAll()
		return fail(err)
	}
	for _, f := range files {
		_ = f[0].Close()
	}
	q.log = q.log.With(obs.KeyPID, q.cmd.Process.Pid)
	q.events = newQueue()
	q.stdin = newWriter(files[0][1])
	q.started(first)

	readers := make(chan struct{}, 2)
	go func() { q.read(files[1][1]); readers <- struct{}{} }()
	go func() { _, _ = io.Copy(&q.stderr, files[2][1]); readers <- struct{}{} }()
	stop := context.AfterFunc(ctx, func() { q.Abort() })
	go func() {
		err := q.cmd.Wait()
		close(q.exited)
		if n := sweep(q.mark, q.tree(), sweepWait); n > 0 {
			q.log.Info("claude: ended processes that the CLI left behind", obs.KeyCount, n)
		}
		for _, f := range files[1:] {
			_ = f[1].SetReadDeadline(time.Now().Add(drainWait)) // somebody unknown may still hold the other end
		}
		<-readers
		<-readers
		q.work.Wait()
		_, _ = files[1][1].Close(), files[2][1].Close()
		q.stdin.stop()
		stop()
		q.finished(err)
		close(q.gone)
		q.events.close()
	}()
	return q, nil
}

// tree are the descendants that were seen when the end began.
func (q *query) tree() []processID {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.known
}

// terminate ends the process in steps, each only if the one before did not do it. It returns when the process and all
// that it started are gone, or after a last limit.
func (q *query) terminate(interrupt bool) {
	q.mu.Lock()
	select {
	case <-q.exited: // its number may be another's by now
	default:
		q.known = append(q.known, identify(descendants(q.cmd.Process.Pid))...)
	}
	began := q.running && q.began
	q.mu.Unlock()

	idle := true
	if interrupt && began {
		if _, err := q.control(subtypeOnly{"interrupt"}); err == nil {
			idle = q.wait(q.p.opt.InterruptWait, func() bool { return !q.running })
		}
	}
	q.stdin.finish()
	if !idle || !q.wait(q.p.opt.CloseWait, func() bool { return false }) {
		_ = q.cmd.Process.Signal(syscall.SIGTERM)
		if !q.wait(q.p.opt.TermWait, func() bool { return false }) {
			_ = q.cmd.Process.Kill()
		}
	}
	t := time.NewTimer(abortLimit + sweepWait + drainWait)
	defer t.Stop()
	select {
	case <-q.gone:
	case <-t.C:
		q.log.Error("claude: a process does not end")
	}
}

// wait returns true once the condition holds (checked under the lock) or the process has exited.
func (q *query) wait(limit time.Duration, condition func() bool) bool {
	t := time.NewTimer(limit)
	defer t.Stop()
	for {
		q.mu.Lock()
		ok, changed := condition(), q.changed
		q.mu.Unlock()
		if ok {
			return true
		}
		select {
		case <-changed:
		case <-q.exited:
			return true
		case <-t.C:
			return false
		}
	}
}

// exitError says why the CLI ended before its work was done.
func (q *query) exitError(err error) *provider.QueryError {
	text := q.redact(strings.TrimSpace(q.stderr.String()))
	out := &provider.QueryError{Op: "run the claude CLI", Class: provider.ClassOther, Retryable: true, Err: errors.New("it ended before its work was done")}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		out.Err = fmt.Errorf("it ended before its work was done: %s", exit.ProcessState)
	}
	if text != "" {
		out.Err = fmt.Errorf("%w: %s", out.Err, text)
	}
	switch {
	case q.resumed != "" && strings.Contains(text, noConversation+q.resumed):
		out.Op, out.Class = "resume the conversation", provider.ClassInvalidSession
	case strings.Contains(text, "unknown option"):
		out.Retryable, out.Hint = false, "the driver needs claude "+OldestTested+" or newer"
	case strings.Contains(text, "cannot be used with root"):
		out.Retryable, out.Hint = false, "the sandbox must not run as root"
	case strings.Contains(text, "Not logged in"), strings.Contains(text, "Please run /login"):
		out.Class, out.Retryable, out.Hint = provider.ClassAuth, false, "give the host a key"
	}
	return out
}

// redact removes every value that could be a secret from a text for people.
func (q *query) redact(text string) string {
	for k, v := range q.p.opt.Env {
		if len(v) >= 6 && secretName.MatchString(k) {
			text = strings.ReplaceAll(text, v, "[secret]")
		}
	}
	for _, s := range q.setup.MCPServers {
		for _, v := range s.Headers {
			_, bare, found := strings.Cut(v, " ") // "Bearer …"
			if text = strings.ReplaceAll(text, v, "[secret]"); found && len(bare) >= 6 {
				text = strings.ReplaceAll(text, bare, "[secret]")
			}
		}
		for k, v := range s.Env {
			if len(v) >= 6 && secretName.MatchString(k) {
				text = strings.ReplaceAll(text, v, "[secret]")
			}
		}
	}
	return text
}
