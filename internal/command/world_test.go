package command

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"nanoclaw/internal/channel"
	"nanoclaw/internal/channel/channeltest"
	"nanoclaw/internal/channel/cli"
	"nanoclaw/internal/config"
	"nanoclaw/internal/control"
	"nanoclaw/internal/control/server"
)

var update = flag.Bool("update", false, "write golden files")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a home with a host that is real as far as the control socket and the terminal channel go; what an agent would
// do is a function.
type world struct {
	*testing.T
	home  string
	env   map[string]string
	store *channeltest.Host

	// agent answers a message; nil answers nothing. Set it through does.
	agent func(w *world, a *cli.Adapter, m channel.Inbound)
	// spawn is what starting a host does; nil starts one of this world.
	spawn func(logPath string) (<-chan error, error)

	machine  fakeMachine
	serveErr error // of Serve
	left     int   // sandboxes of a host that is gone

	mu        sync.Mutex
	spawned   [][]string
	spawnEnv  []string
	secrets   []control.Secret
	bootstrap []control.BootstrapRequest
	state     string
	keepBoxes bool
	stopHost  func()
	agents    sync.WaitGroup
	served    config.Settings
}

func newWorld(t *testing.T) *world {
	w := &world{T: t, home: t.TempDir(), store: channeltest.NewHost(), env: map[string]string{}, state: control.HostRunning}
	w.machine = fakeMachine{uid: 0, programs: map[string]string{"bwrap": "/usr/bin/bwrap"}}
	w.agent = echo
	t.Cleanup(func() { w.stop(); w.agents.Wait() })
	return w
}

func (w *world) does(agent func(w *world, a *cli.Adapter, m channel.Inbound)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.agent = agent
}

func echo(w *world, a *cli.Adapter, m channel.Inbound) {
	w.reply(a, m, "re: "+m.Text)
	w.settle(a, m, channel.Answered, "")
}

func (w *world) reply(a *cli.Adapter, m channel.Inbound, text string) string {
	return w.deliver(a, m, channel.Op{Kind: channel.OpText, Text: text, ReplyTo: m.ID}, m.ID+text)
}

func (w *world) deliver(a *cli.Adapter, m channel.Inbound, op channel.Op, key string) string {
	r, err := a.Deliver(context.Background(), m.Address, op, key)
	if err != nil {
		w.Errorf("deliver: %v", err)
		return ""
	}
	return r.IDs[0]
}

func (w *world) settle(a *cli.Adapter, m channel.Inbound, state channel.SettleState, reason string) {
	if err := a.Settled(context.Background(), channel.Settlement{Address: m.Address, MessageID: m.ID, State: state, Reason: reason}); err != nil {
		w.Errorf("settle: %v", err)
	}
}

// agentHost lets the world's agent answer what was stored, in order.
type agentHost struct {
	*channeltest.Host
	todo chan<- channel.Inbound
}

func (h agentHost) Inbound(ctx context.Context, m channel.Inbound) (channel.Verdict, error) {
	v, err := h.Host.Inbound(ctx, m)
	if err == nil && v.Kind == channel.Stored {
		h.todo <- m
	}
	return v, err
}

// start runs a host. It is ready on return.
func (w *world) start() {
	w.Helper()
	l, err := server.Listen(w.home)
	if err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	todo := make(chan channel.Inbound, 100)
	a := cli.New("ann", "Ann", filepath.Join(w.home, "files"))
	var parts sync.WaitGroup
	parts.Go(func() { _ = a.Run(ctx, agentHost{w.store, todo}) })
	for a.Status().State != channel.Connected {
		runtime.Gosched()
	}
	w.agents.Go(func() {
		for {
			select {
			case m := <-todo:
				w.mu.Lock()
				agent := w.agent
				w.mu.Unlock()
				if agent != nil {
					agent(w, a, m)
				}
			case <-ctx.Done():
				return
			}
		}
	})
	parts.Go(func() {
		if err := server.New(server.Options{Backend: backend{w, cancel}, Chat: a, Version: control.Version()}).Serve(ctx, l); err != nil {
			w.Errorf("serve: %v", err)
		}
	})
	w.mu.Lock()
	w.stopHost = func() { cancel(); parts.Wait() }
	w.mu.Unlock()
}

func (w *world) stop() {
	w.mu.Lock()
	stop := w.stopHost
	w.stopHost = nil
	w.mu.Unlock()
	if stop != nil {
		stop()
	}
}

type backend struct {
	w   *world
	end func()
}

func (b backend) Status(context.Context) (control.Status, error) {
	b.w.mu.Lock()
	defer b.w.mu.Unlock()
	return control.Status{State: b.w.state, Version: control.Version(), PID: 42, Home: b.w.home, Started: control.At(time.Unix(1_700_000_000, 0)),
		Sandbox: control.SandboxStatus{Kind: "bubblewrap", Reason: "no daemon"}, Provider: control.ProviderStatus{Name: "mock"},
		Channels: []control.ChannelStatus{{Type: "cli", Instance: "cli", State: "connected"}}, Sessions: []control.SessionStatus{}, Warnings: []string{}}, nil
}

func (b backend) Stop(_ context.Context, sandboxes bool) error {
	b.w.mu.Lock()
	b.w.keepBoxes = !sandboxes
	b.w.mu.Unlock()
	b.end()
	return nil
}

func (b backend) PutSecret(_ context.Context, s control.Secret) error {
	b.w.mu.Lock()
	defer b.w.mu.Unlock()
	b.w.secrets = append(b.w.secrets, s)
	return nil
}

func (b backend) Bootstrap(_ context.Context, r control.BootstrapRequest) (control.Bootstrap, error) {
	b.w.mu.Lock()
	defer b.w.mu.Unlock()
	b.w.bootstrap = append(b.w.bootstrap, r)
	return control.Bootstrap{Created: len(b.w.bootstrap) == 1, Conversation: r.Conversation, AgentName: "Nano", Provider: "mock",
		Offline: len(b.w.secrets) == 0, Sandbox: "bubblewrap", SandboxWhy: "no daemon"}, nil
}

func (b backend) Admin(context.Context, control.AdminRequest) (control.Frame, error) {
	return control.Frame{OK: true}, nil
}

// fakeMachine answers from a table.
type fakeMachine struct {
	uid      int
	programs map[string]string // name or path → path
	broken   map[string]string // path → what it prints before it fails
	docker   DockerState
	limits   string
	ran      *[]string
	onRun    func(line string) error
}

func (f fakeMachine) UID() int { return f.uid }
func (f fakeMachine) LookPath(name string) (string, error) {
	if p := f.programs[name]; p != "" {
		return p, nil
	}
	return "", errors.New("not found")
}

func (f fakeMachine) Run(_ context.Context, name string, args ...string) (string, error) {
	line := strings.Join(append([]string{name}, args...), " ")
	if f.ran != nil {
		*f.ran = append(*f.ran, line)
	}
	if out, ok := f.broken[name]; ok {
		return out, errors.New("exit status 1")
	}
	if f.onRun != nil {
		return "", f.onRun(line)
	}
	return "1.2.3", nil
}

func (f fakeMachine) Stream(ctx context.Context, w io.Writer, name string, args ...string) error {
	out, err := f.Run(ctx, name, args...)
	_, _ = io.WriteString(w, out)
	return err
}

func (f fakeMachine) Limits() string { return f.limits }

func (f fakeMachine) Docker(context.Context, string, string) DockerState { return f.docker }

func (w *world) deps() Deps {
	return Deps{
		Getenv: func(k string) string {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.env[k]
		},
		Unsetenv: func(k string) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			delete(w.env, k)
			return nil
		},
		Environ: func() []string {
			return []string{"PATH=/bin", "ANTHROPIC_API_KEY=sk-leak", "CLAUDE_CODE_OAUTH_TOKEN=leak", "LANG=C"}
		},
		Serve: func(_ context.Context, s config.Settings, log *slog.Logger, ready func()) error {
			w.served = s
			ready()
			return w.serveErr
		},
		StopLeft: func(context.Context, config.Settings, *slog.Logger) (int, error) { return w.left, nil },
		Spawn: func(args, env []string, logPath string) (<-chan error, error) {
			w.mu.Lock()
			w.spawned, w.spawnEnv = append(w.spawned, args), env
			w.mu.Unlock()
			if w.spawn != nil {
				return w.spawn(logPath)
			}
			w.start()
			return make(chan error), nil
		},
		Terminal: func(any) bool { return false },
		Machine:  w.machine,
	}
}

// result of one command line.
type result struct {
	out, err string
	code     int
}

func (w *world) runIn(ctx context.Context, stdin io.Reader, args ...string) result {
	w.Helper()
	var out, errs bytes.Buffer
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	code := Run(ctx, w.deps(), append([]string{"--home", w.home}, args...), stdin, &out, &errs)
	return result{out.String(), errs.String(), code}
}

func (w *world) run(args ...string) result {
	w.Helper()
	return w.runIn(w.Context(), strings.NewReader(""), args...)
}

// want checks a result: the code, the exact standard output, and parts of standard error.
func (w *world) want(r result, code int, out string, errParts ...string) {
	w.Helper()
	if r.code != code || r.out != out {
		w.Errorf("exit %d, stdout %q, want %d and %q; stderr: %s", r.code, r.out, code, out, r.err)
	}
	for _, p := range errParts {
		if !strings.Contains(r.err, p) {
			w.Errorf("stderr lacks %q: %s", p, r.err)
		}
	}
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
