package program

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"nanoclaw/internal/config/container"
	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/mailbox/sqlite"
	"nanoclaw/internal/obs"
)

// selfName makes this test binary the program under test.
const selfName = "NANOCLAW_TEST_AGENT_RUNNER"

func TestMain(m *testing.M) {
	if os.Getenv(selfName) != "" {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		os.Exit(Execute(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	if os.Getenv(reaperName) != "" {
		if err := reaper(); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

const patience = 30 * time.Second

var me = mailbox.Address{ChannelType: "cli", PlatformID: "me"}

// rig is a session folder with a host that the test plays, and runners as processes.
type rig struct {
	t    testing.TB
	dir  string
	host *sqlite.Host
	bell *sqlite.Bell
	conf container.Config
}

func newRig(t testing.TB, script ...string) *rig {
	t.Helper()
	r := &rig{t: t, dir: t.TempDir(), conf: container.Config{Provider: "mock", AssistantName: "Andy", Incarnation: 1}}
	var err error
	if r.host, err = sqlite.Create(t.Context(), r.dir, sqlite.HostOptions{OutUID: -1, SandboxGID: -1}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.host.Close() })
	r.must(r.host.SetDestinations(t.Context(), []mailbox.Destination{
		{Name: "me", Type: mailbox.DestinationChannel, ChannelType: "cli", PlatformID: "me"},
		{Name: "family", Type: mailbox.DestinationChannel, ChannelType: "telegram", PlatformID: "42"},
	}))
	r.must(r.host.SetRouting(t.Context(), me))
	r.must(os.MkdirAll(filepath.Join(r.dir, "agent"), 0o700))
	if len(script) > 0 {
		r.must(os.WriteFile(filepath.Join(r.dir, "agent", "mock.jsonl"), []byte(strings.Join(script, "\n")), 0o600))
	}
	r.configure()
	return r
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) configure() {
	r.t.Helper()
	b, err := json.Marshal(r.conf)
	r.must(err)
	r.must(os.WriteFile(filepath.Join(r.dir, "agent", "container.json"), b, 0o600))
}

// listen opens the host's bell for the incarnation.
func (r *rig) listen() {
	r.t.Helper()
	var err error
	r.bell, err = sqlite.ListenBell(filepath.Join(r.dir, "run"), r.conf.Incarnation, 0o600, obs.Logger(r.t.Output(), slog.LevelWarn, false))
	r.must(err)
	r.t.Cleanup(func() { _ = r.bell.Close() })
}

func message(id, text string) mailbox.InRow {
	content, _ := mailbox.EncodeContent(mailbox.ChatIn{Text: text, Sender: "Ann"})
	return mailbox.InRow{ID: id, Kind: mailbox.KindChat, Trigger: true, Address: me, Content: content, Timestamp: time.Now()}
}

func (r *rig) put(rows ...mailbox.InRow) {
	r.t.Helper()
	_, err := r.host.Put(r.t.Context(), rows...)
	r.must(err)
	if r.bell != nil {
		r.bell.Ring()
	}
}

func (r *rig) out() []mailbox.OutRow {
	r.t.Helper()
	all, err := r.host.Outbound(r.t.Context(), 0, 1000)
	r.must(err)
	var rows []mailbox.OutRow
	for _, o := range all {
		r.must(o.Err)
		rows = append(rows, o.Row)
	}
	return rows
}

func (r *rig) said() []string {
	r.t.Helper()
	var s []string
	for _, row := range r.out() {
		var c mailbox.ChatOut
		r.must(json.Unmarshal(row.Content, &c))
		s = append(s, row.PlatformID+":"+c.Text)
	}
	return s
}

func (r *rig) ack(id string) mailbox.Ack {
	r.t.Helper()
	st, err := r.host.State(r.t.Context())
	r.must(err)
	for _, a := range st.Acks {
		if a.MessageID == id {
			return a
		}
	}
	return mailbox.Ack{}
}

// process is a running agent-runner.
type process struct {
	*exec.Cmd
	t      testing.TB
	stderr *bytes.Buffer
	once   sync.Once
	err    error
}

// spawn starts this test binary, or another program, as agent-runner.
func (r *rig) spawn(program string, env []string, args ...string) *process {
	r.t.Helper()
	if program == "" {
		program = os.Args[0]
	}
	cmd := exec.CommandContext(r.t.Context(), program, append([]string{"--root", r.dir}, args...)...)
	cmd.Env = append([]string{selfName + "=1", "HOME=" + filepath.Join(r.dir, "home"), "PATH=" + os.Getenv("PATH"), "TZ=UTC"}, env...)
	p := &process{Cmd: cmd, t: r.t, stderr: &bytes.Buffer{}}
	cmd.Stderr = p.stderr
	cmd.Stdout = p.stderr
	r.must(cmd.Start())
	r.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = p.wait()
	})
	return p
}

func (p *process) wait() error {
	p.once.Do(func() { p.err = p.Wait() })
	return p.err
}

// code waits for the end and returns the exit code, or -1 for a signal.
func (p *process) code() int {
	p.t.Helper()
	timer := time.AfterFunc(patience, func() { _ = p.Process.Kill() })
	defer timer.Stop()
	_ = p.wait()
	return p.ProcessState.ExitCode()
}

// until waits for something that the runner does; it looks again at each ring.
func (r *rig) until(what string, cond func() bool) {
	r.t.Helper()
	deadline := time.After(patience)
	for !cond() {
		select {
		case <-r.bell.Rung():
		case <-deadline:
			r.t.Fatalf("did not happen: %s", what)
		}
	}
}

func line(events ...string) string { return `{"events":[` + strings.Join(events, ",") + `]}` }

func say(text string) string { return fmt.Sprintf(`{"type":"text","text":%q}`, text) }

func send(to, text string) string {
	return fmt.Sprintf(`{"type":"tool","name":"send_message","args":{"to":%q,"text":%q}}`, to, text)
}

func block(to, text string) string { return `<message to="` + to + `">` + text + `</message>` }
