// Package child runs the program that a provider drives: its process, its lines and what it leaves behind. A provider says what
// the lines mean.
package child

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"nanoclaw/internal/obs"
)

// Defaults of Options.
const (
	DefaultCloseWait = 3 * time.Second
	DefaultTermWait  = 4 * time.Second
)

const (
	stderrTail = 8 << 10
	drainWait  = 2 * time.Second // for the rest of the output of a program that has exited
	sweepWait  = 2 * time.Second
	endLimit   = 3 * time.Second // on top of all other waits: processes that even SIGKILL does not end
)

// Options of a process.
type Options struct {
	Program string // absolute path
	Args    []string
	Dir     string
	Env     []string // the whole environment; nothing is inherited
	Log     *slog.Logger
	// OnLine gets every line of the output, in order, from one goroutine. The line is valid until it returns; one that is too long is
	// empty and tooLong.
	OnLine func(line []byte, tooLong bool)

	CloseWait time.Duration // for the program to exit once its input is closed
	TermWait  time.Duration // between SIGTERM and SIGKILL
}

// Process is a running program with a session of its own. All methods may be called from any goroutine.
type Process struct {
	opt    Options
	mark   string
	cmd    *exec.Cmd
	stdin  *writer
	stderr tail // owned by its reader until the process is gone
	exited chan struct{}
	gone   chan struct{}
	err    error // of the exit; valid once exited is closed

	ending sync.Once
	mu     sync.Mutex
	known  []processID // descendants that were seen up to the begin of the end
}

// Start spawns the program. An error means that none runs.
func Start(opt Options) (*Process, error) {
	for _, d := range []struct {
		value    *time.Duration
		fallback time.Duration
	}{{&opt.CloseWait, DefaultCloseWait}, {&opt.TermWait, DefaultTermWait}} {
		if *d.value <= 0 {
			*d.value = d.fallback
		}
	}
	var mark [16]byte
	_, _ = rand.Read(mark[:])
	p := &Process{opt: opt, mark: hex.EncodeToString(mark[:]), exited: make(chan struct{}), gone: make(chan struct{}), stderr: tail{max: stderrTail}}
	var files [3][2]*os.File // the program's end and ours, for its three streams
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
			return nil, fmt.Errorf("open a pipe: %w", err)
		}
		if files[i] = [2]*os.File{w, r}; i == 0 {
			files[i] = [2]*os.File{r, w}
		}
	}
	p.cmd = exec.Command(opt.Program, opt.Args...)
	p.cmd.Dir, p.cmd.Env = opt.Dir, append(append([]string(nil), opt.Env...), markName+"="+p.mark)
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = files[0][0], files[1][0], files[2][0]
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // a terminal's Ctrl-C is for its owner, not for the program
	if err := p.cmd.Start(); err != nil {
		closeAll()
		return nil, fmt.Errorf("start %s: %w", opt.Program, err)
	}
	for _, f := range files {
		_ = f[0].Close()
	}
	p.opt.Log = opt.Log.With(obs.KeyPID, p.cmd.Process.Pid)
	p.stdin = newWriter(files[0][1])
	readers := make(chan struct{}, 2)
	go func() { p.read(files[1][1]); readers <- struct{}{} }()
	go func() { _, _ = io.Copy(&p.stderr, files[2][1]); readers <- struct{}{} }()
	go func() {
		p.err = p.cmd.Wait()
		close(p.exited)
		if n := sweep(p.mark, p.tree(), sweepWait); n > 0 {
			p.opt.Log.Info("ended processes that a provider's program left behind", obs.KeyCount, n)
		}
		for _, f := range files[1:] {
			_ = f[1].SetReadDeadline(time.Now().Add(drainWait)) // somebody unknown may still hold the other end
		}
		<-readers
		<-readers
		_, _ = files[1][1].Close(), files[2][1].Close()
		p.stdin.stop()
		close(p.gone)
	}()
	return p, nil
}

func (p *Process) read(r io.Reader) {
	lines := NewLineReader(r)
	for {
		line, tooLong, err := lines.Next()
		if err != nil {
			return
		}
		p.opt.OnLine(line, tooLong)
	}
}

func (p *Process) tree() []processID {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.known
}

// Send writes v as a line of JSON, without waiting for the program to read it. To a program that has gone it is lost.
func (p *Process) Send(v any) error { return p.stdin.send(v) }

// CloseInput closes the input behind what was sent.
func (p *Process) CloseInput() { p.stdin.finish() }

// Exited is closed when the program has ended.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Gone is closed when all that it started has ended too and its output is read.
func (p *Process) Gone() <-chan struct{} { return p.gone }

// PID of the program, for the log.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Exit says how the program ended and the end of what it wrote to its standard error. Valid once Gone is closed.
func (p *Process) Exit() (stderr string, err error) {
	var exit *exec.ExitError
	if errors.As(p.err, &exit) {
		err = errors.New(exit.ProcessState.String())
	} else {
		err = p.err
	}
	return strings.TrimSpace(p.stderr.String()), err
}

// Remember notes what the program has started so far, so that End also ends those who lose their parent before it is called: an
// interrupted program lets go of its tools.
func (p *Process) Remember() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.exited: // its number may be another's by now
	default:
		p.known = append(p.known, identify(descendants(p.cmd.Process.Pid))...)
	}
}

// End ends the program in steps, each only if the one before did not do it: its input is closed, SIGTERM, SIGKILL. With hurry it
// does not wait for the first. It returns when the program and all that it started are gone, or after a last limit.
func (p *Process) End(hurry bool) {
	p.ending.Do(func() {
		p.Remember()
		p.stdin.finish()
		if hurry || !p.within(p.opt.CloseWait) {
			_ = p.cmd.Process.Signal(syscall.SIGTERM)
			if !p.within(p.opt.TermWait) {
				_ = p.cmd.Process.Kill()
			}
		}
	})
	t := time.NewTimer(p.opt.CloseWait + p.opt.TermWait + endLimit + sweepWait + drainWait)
	defer t.Stop()
	select {
	case <-p.gone:
	case <-t.C:
		p.opt.Log.Error("a process of a provider does not end")
	}
}

func (p *Process) within(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-p.exited:
		return true
	case <-t.C:
		return false
	}
}
