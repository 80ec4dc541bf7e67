// Package e2e runs the real programs: host, runner and client, in every sandbox the machine has.
package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"nanoclaw/internal/control"
)

// programs is the folder of the binaries that TestMain builds: with crash points, without cgo, as they are released otherwise.
func programs(t *testing.T) string {
	t.Helper()
	dir := os.Getenv(programsVariable)
	if dir == "" {
		t.Fatal("the programs were not built")
	}
	return dir
}

const programsVariable = "NANOCLAW_E2E_PROGRAMS"

// patience is how long a test waits for what must come: long, since the heaviest program of an agent takes a minute for its first
// words on a machine that compiles beside it.
const patience = 3 * time.Minute

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "nanoclaw-e2e")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	// The uid of sandboxes must be able to reach its programs, as it can in a real installation.
	if err := os.Chmod(dir, 0o755); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	build := exec.Command("go", "build", "-tags", "crashpoint", "-trimpath", "-ldflags", "-s -w", "-o", dir+"/", "../cmd/nanoclaw", "../cmd/ncl", "../cmd/agent-runner")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build programs: %v\n%s", err, out)
		return 1
	}
	if err := os.Setenv(programsVariable, dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// missing skips a test for want of a tool, or fails it in CI.
func missing(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf("%s is missing, and in CI nothing may be", what)
	}
	t.Skipf("%s is missing", what)
}

// machine is one home with its host.
type machine struct {
	t      *testing.T
	home   string
	env    []string
	client *control.Client
	log    *syncBuffer

	cmd   *exec.Cmd
	ended chan error
}

// setup makes a home with the given settings (nanoclaw.toml) and starts no host yet.
func setup(t *testing.T, settings string) *machine {
	t.Helper()
	home := filepath.Join(t.TempDir(), "home")
	if err := os.Mkdir(home, 0o711); err != nil {
		t.Fatal(err)
	}
	for dir := filepath.Dir(home); dir != os.TempDir() && len(dir) > 1; dir = filepath.Dir(dir) {
		_ = os.Chmod(dir, 0o755) // test folders are private; parents of a real home are not
	}
	if err := os.WriteFile(filepath.Join(home, "nanoclaw.toml"), []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	m := &machine{t: t, home: home, client: control.NewClient(home), log: &syncBuffer{}}
	t.Cleanup(func() {
		m.stop()
		m.client.Close()
		if t.Failed() {
			t.Logf("log of the host:\n%s", m.log.tail(12_000))
		}
	})
	return m
}

// script gives the mock provider of the first agent its lines.
func (m *machine) script(lines ...string) {
	m.t.Helper()
	dir := filepath.Join(m.home, "groups", "main")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "mock.jsonl"), []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
		m.t.Fatal(err)
	}
}

// environment of the programs: nothing of a model or of this test's own.
func (m *machine) environment() []string {
	return append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + m.home, "NANOCLAW_HOME=" + m.home, "TZ=Europe/Paris", "TMPDIR=" + os.TempDir()}, m.env...)
}

// start runs a host and waits until it answers and the first agent is there.
func (m *machine) start() {
	m.t.Helper()
	m.launch()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err := control.Repeat(ctx, func(ctx context.Context) error {
		select {
		case err := <-m.ended:
			m.ended <- err
			return fmt.Errorf("the host ended: %w", err)
		default:
		}
		_, err := m.client.Bootstrap(ctx, control.BootstrapRequest{})
		return err
	})
	if err != nil {
		m.t.Fatalf("start host: %v\n%s", err, m.log.tail(4000))
	}
}

// launch starts the host's process and waits for nothing.
func (m *machine) launch() {
	m.t.Helper()
	m.cmd = exec.Command(filepath.Join(programs(m.t), "nanoclaw"), "serve")
	m.cmd.Env = m.environment()
	m.cmd.Stdout, m.cmd.Stderr = m.log, m.log
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := m.cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	m.ended = make(chan error, 1)
	cmd, ended := m.cmd, m.ended
	go func() { ended <- cmd.Wait() }()
}

// kill is SIGKILL for the host; sandboxes go on.
func (m *machine) kill() {
	m.t.Helper()
	_ = m.cmd.Process.Kill()
	<-m.ended
	m.cmd = nil
}

// died reports whether the host's process has ended by itself.
func (m *machine) died() bool {
	select {
	case <-m.ended:
		m.cmd = nil
		return true
	default:
		return false
	}
}

// stop ends host and sandboxes, and fails the test if that is not possible.
func (m *machine) stop() {
	m.t.Helper()
	if m.cmd == nil || m.died() {
		m.env = nil
		m.launch()
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err := control.Repeat(ctx, func(ctx context.Context) error {
		_, err := m.client.Stop(ctx, true)
		return err
	})
	if err != nil {
		m.t.Errorf("stop host: %v", err)
		_ = m.cmd.Process.Kill()
	}
	select {
	case <-m.ended:
	case <-time.After(patience):
		m.t.Error("the host did not stop")
		_ = m.cmd.Process.Kill()
		<-m.ended
	}
	m.cmd = nil
}

// answer is what one message led to.
type answer struct {
	texts   []string // of the agent, without notices
	notices []string
	state   string
	reason  string
	at      []time.Time
}

var errDone = errors.New("done")

// await reads the conversation from after until the message has ended.
func (m *machine) await(messageID string, after int64, within time.Duration) (a answer, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	err = m.client.Follow(ctx, control.DefaultConversation, after, func(e control.Event) error {
		switch {
		case e.Kind == control.EventMessage && e.Author == control.AuthorAgent && e.Notice:
			a.notices = append(a.notices, e.Text)
		case e.Kind == control.EventMessage && e.Author == control.AuthorAgent:
			a.texts = append(a.texts, e.Text)
			a.at = append(a.at, time.Now())
		case e.Kind == control.EventSettled && e.Target == messageID:
			a.state, a.reason = e.State, e.Reason
			return errDone
		}
		return nil
	})
	if errors.Is(err, errDone) {
		err = nil
	}
	return a, err
}

// say hands a message over, surviving restarts of the host.
func (m *machine) say(idv, text string) control.Accepted {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var acc control.Accepted
	err := control.Repeat(ctx, func(ctx context.Context) (err error) {
		acc, err = m.client.Say(ctx, control.DefaultConversation, control.Say{ID: idv, Text: text})
		return err
	})
	if err != nil {
		m.t.Fatalf("say %q: %v", text, err)
	}
	return acc
}

// ask says and awaits.
func (m *machine) ask(idv, text string) answer {
	m.t.Helper()
	acc := m.say(idv, text)
	a, err := m.await(idv, acc.Seq, patience)
	if err != nil {
		m.t.Fatalf("no end of %q: %v; so far %+v", text, err, a)
	}
	return a
}

// run runs the client program to its end.
func (m *machine) run(args ...string) (stdout, stderr string, code int) {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(programs(m.t), "nanoclaw"), args...)
	cmd.Env = m.environment()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		m.t.Fatalf("run %v: %v", args, err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// syncBuffer takes the output of a process.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

var _ io.Writer = (*syncBuffer)(nil)

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func (s *syncBuffer) tail(n int) string {
	v := s.String()
	return v[max(0, len(v)-n):]
}

// sandboxes that can be tried, with their settings.
func sandboxes(t *testing.T) map[string]string {
	t.Helper()
	return map[string]string{
		"process":    "[sandbox]\nkind = \"process\"\n",
		"bubblewrap": "[sandbox]\nkind = \"bubblewrap\"\n",
		"docker":     "[sandbox]\nkind = \"docker\"\nimage = \"nanoclaw-agent:test\"\n",
	}
}

// available skips the test of a sandbox that the machine does not have.
func available(t *testing.T, kind string) {
	t.Helper()
	switch kind {
	case "bubblewrap":
		if _, err := exec.LookPath("bwrap"); err != nil {
			missing(t, "bubblewrap")
		}
	case "docker":
		if err := exec.Command("docker", "image", "inspect", "nanoclaw-agent:test").Run(); err != nil {
			missing(t, "a Docker daemon with the image nanoclaw-agent:test")
		}
	}
}

// firstText waits for the first words of the agent after a position.
func (m *machine) firstText(after int64) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var text string
	err := m.client.Follow(ctx, control.DefaultConversation, after, func(e control.Event) error {
		if e.Kind == control.EventMessage && e.Author == control.AuthorAgent {
			text = e.Text
			return errDone
		}
		return nil
	})
	if errors.Is(err, errDone) {
		err = nil
	}
	return text, err
}
