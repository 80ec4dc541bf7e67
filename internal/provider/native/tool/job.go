package tool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// Limits of commands.
const (
	DefaultTimeout = 120 * time.Second
	MaxTimeout     = 600 * time.Second
	maxFile        = 100 << 20 // bytes of output; then the command is ended
	watchEvery     = 250 * time.Millisecond
	killWait       = 5 * time.Second
)

// job is one command. Its output goes to a file, so that a child that outlives the shell holds nothing up.
type job struct {
	id      string
	command string
	mark    string
	cmd     *exec.Cmd
	out     *os.File
	seen    int64 // what BashOutput has told
	done    chan struct{}
	// valid once done is closed
	code int
	why  string // it was ended by us
}

var errClosed = errors.New("the conversation is being closed")

// run starts a command.
func (b *Box) run(command string, background bool) (*job, error) {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return nil, errClosed
	}
	b.next++
	id := fmt.Sprintf("bash_%d", b.next)
	b.mu.Unlock()

	out, err := outputFile(b.opt.Output, id)
	if err != nil {
		return nil, err
	}
	j := &job{id: id, command: command, mark: b.mark + "." + id + ".", out: out, done: make(chan struct{})}
	shell := "/bin/bash"
	if _, err := os.Stat(shell); err != nil {
		shell = "/bin/sh"
	}
	j.cmd = exec.Command(shell, "-c", command)
	j.cmd.Dir = b.opt.Cwd
	j.cmd.Env = list(b.opt.Env, markName+"="+j.mark, "PWD="+b.opt.Cwd)
	j.cmd.Stdout, j.cmd.Stderr = out, out
	j.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // a group of its own, and no terminal
	if err := j.cmd.Start(); err != nil {
		_ = out.Close()
		_ = os.Remove(out.Name())
		return nil, fmt.Errorf("start the shell: %w", err)
	}
	b.mu.Lock()
	b.jobs[id] = j
	closed := b.closed
	b.mu.Unlock()
	go func() {
		_ = j.cmd.Wait() // the state says it
		j.code = j.cmd.ProcessState.ExitCode()
		if status, ok := j.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			j.code = 128 + int(status.Signal())
		}
		b.mu.Lock()
		if background {
			b.ended = append(b.ended, id)
			select {
			case b.changed <- struct{}{}:
			default:
			}
		}
		b.mu.Unlock()
		close(j.done)
	}()
	if closed {
		b.kill(j)
		return nil, errClosed
	}
	return j, nil
}

// kill ends a command with all it started and waits for that.
func (b *Box) kill(j *job) {
	roots := []int{j.cmd.Process.Pid}
	_ = syscall.Kill(-roots[0], syscall.SIGKILL)
	sweep(j.mark, roots, killWait)
	<-j.done
}

// wait watches a command until it has ended; for at most limit if that is not zero. It ends one that must not go on, and says why in j.why.
func (b *Box) wait(ctx context.Context, j *job, limit time.Duration) {
	watch := time.NewTicker(watchEvery)
	defer watch.Stop()
	var over <-chan time.Time
	if limit > 0 {
		t := time.NewTimer(limit)
		defer t.Stop()
		over = t.C
	}
	for {
		why := ""
		select {
		case <-j.done:
			return
		case <-ctx.Done():
			why = "it was interrupted"
		case <-over:
			why = fmt.Sprintf("it did not end within %s", limit)
		case <-watch.C:
			if info, err := j.out.Stat(); err == nil && info.Size() > maxFile {
				why = fmt.Sprintf("it wrote more than %d MB", maxFile>>20)
			}
		}
		if why != "" {
			b.kill(j)
			j.why = why
			return
		}
	}
}

// forget drops a command that has ended; its output stays if keep.
func (b *Box) forget(j *job, keep bool) {
	b.mu.Lock()
	delete(b.jobs, j.id)
	b.mu.Unlock()
	_ = j.out.Close()
	if !keep {
		_ = os.Remove(j.out.Name())
	}
}

// output is what the file of a command holds from an offset on, head and tail of it if it is long. whole says that nothing is
// left out.
func (j *job) output(from int64) (text string, end int64, whole bool) {
	info, err := j.out.Stat()
	if err != nil {
		return "", from, true
	}
	end = info.Size()
	size := end - from
	if size <= MaxOutput {
		return clean(j.part(from, size)), end, true
	}
	half := int64(MaxOutput / 2)
	head, _ := headTail(strings.ToValidUTF8(j.part(from, half), "")+strings.Repeat(" ", int(half)), MaxOutput)
	_, tail := headTail(strings.Repeat(" ", int(half))+j.part(end-half, half), MaxOutput)
	return clean(head) + gap(int(size)-len(head)-len(tail), "The whole output is in "+j.out.Name()+".") + clean(tail), end, false
}

func clean(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

func (j *job) part(from, n int64) string {
	b := make([]byte, n)
	got, err := j.out.ReadAt(b, from)
	if err != nil && !errors.Is(err, io.EOF) {
		return ""
	}
	return string(b[:got])
}

// Changed receives when Ended has something new.
func (b *Box) Changed() <-chan struct{} { return b.changed }

// Ended are the background commands that ended since the last call, as a text for the model; "" if none did.
func (b *Box) Ended() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var lines []string
	for _, id := range b.ended {
		if j := b.jobs[id]; j != nil {
			lines = append(lines, fmt.Sprintf("Background command %s has ended with code %d: %.200s", id, j.code, j.command))
		}
	}
	b.ended = nil
	return strings.Join(lines, "\n")
}

// Close ends every command and all that any of them started, and returns when they are gone.
func (b *Box) Close() {
	b.mu.Lock()
	b.closed = true
	started := b.next
	jobs := make([]*job, 0, len(b.jobs))
	for _, j := range b.jobs {
		jobs = append(jobs, j)
	}
	b.mu.Unlock()
	if started == 0 {
		return
	}
	var roots []int
	for _, j := range jobs {
		select {
		case <-j.done:
		default:
			roots = append(roots, j.cmd.Process.Pid)
			_ = syscall.Kill(-j.cmd.Process.Pid, syscall.SIGKILL)
		}
	}
	sweep(b.mark+".", roots, killWait)
	for _, j := range jobs {
		<-j.done
		b.forget(j, true)
	}
}
