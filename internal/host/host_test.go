package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"nanoclaw/internal/channel"
	"nanoclaw/internal/config"
	"nanoclaw/internal/config/container"
	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/mailbox/sqlite"
	"nanoclaw/internal/obs"
	"nanoclaw/internal/sandbox"
	"nanoclaw/internal/store"
	"nanoclaw/internal/vault"
)

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
		t.Fatal(err)
	}
}

// design.md section 3: what runs in a sandbox is what was installed, byte for byte.
func TestProgramsAreCheckedBeforeEachSpawn(t *testing.T) {
	t.Parallel()
	home, from := t.TempDir(), t.TempDir()
	write(t, filepath.Join(from, runnerName), "program one")
	p, err := installPrograms(home, from, runnerName)
	if err != nil {
		t.Fatal(err)
	}
	path, err := p.path(runnerName)
	if err != nil || !strings.HasPrefix(path, filepath.Join(home, "bin")) {
		t.Fatalf("%s, %v", path, err)
	}
	write(t, filepath.Join(from, runnerName), "program two")
	if again, err := p.path(runnerName); err != nil || again != path {
		t.Errorf("a rebuild beside the host changed what runs: %s, %v", again, err)
	}
	newer, err := installPrograms(home, from, runnerName)
	if err != nil {
		t.Fatal(err)
	}
	if other, err := newer.path(runnerName); err != nil || other == path {
		t.Errorf("another program has the same place: %s, %v", other, err)
	}
	write(t, path, "program 0ne")
	if _, err := p.path(runnerName); err == nil {
		t.Error("changed bytes were not noticed")
	}
	if _, err := installPrograms(home, t.TempDir(), runnerName); err == nil || !strings.Contains(err.Error(), "make") {
		t.Errorf("a missing program: %v; want a hint", err)
	}
}

func TestInstallID(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	first, err := installID(home)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := installID(home); err != nil || again != first {
		t.Errorf("%s, then %s, %v", first, again, err)
	}
	if other, err := installID(t.TempDir()); err != nil || other == first {
		t.Errorf("two homes share %s, %v", other, err)
	}
	write(t, filepath.Join(home, "install-id"), "../../x")
	if _, err := installID(home); err == nil {
		t.Error("a damaged id was accepted: its sandboxes would be lost")
	}
}

func TestContainerSettingsAreReplacedWhole(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for i := range 3 {
		want := container.Config{Provider: "mock", Incarnation: int64(i), MaxMessagesPerPrompt: 10}
		if err := writeContainer(dir, want, os.Getgid()); err != nil {
			t.Fatal(err)
		}
		got, warnings, err := container.Load(filepath.Join(dir, containerName))
		if err != nil || len(warnings) > 0 || got.Incarnation != int64(i) {
			t.Errorf("%+v, %q, %v", got, warnings, err)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

type named struct {
	sandbox.Runtime
	name string
}

func (n named) Name() string { return n.name }

// A missing claude program is told at once and with what to do; as soon as it is there, the next spawn has it.
func TestMissingClaudeProgram(t *testing.T) {
	t.Parallel()
	v, err := vault.Open(filepath.Join(t.TempDir(), "secrets"))
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "claude")
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	configured := func(runtime, provider, claude string) (container.Config, error) {
		settings := config.Settings{ClaudeProgram: claude}
		l := &launcher{runtime: named{name: runtime}, vault: v, supply: supply{settings: settings}}
		if runtime == sandbox.Docker {
			l.supply = supply{settings, shipped{"": "claude"}}
		}
		group := store.AgentGroup{Provider: provider}
		fit, err := l.outfit(t.Context(), chain(group), "")
		if err != nil {
			return container.Config{}, err
		}
		return l.container(t.Context(), store.Session{}, group, 1, fit)
	}
	for _, runtime := range []string{sandbox.Bubblewrap, sandbox.Process} {
		_, err := configured(runtime, providerReal, filepath.Join(filepath.Dir(program), "none"))
		var f *sandbox.Failure
		if !errors.As(err, &f) || f.Class.Retryable() || !strings.Contains(f.Hint, "nanoclaw doctor") {
			t.Errorf("%s: %v; want a failure that waiting does not mend", runtime, err)
		}
		if _, err := configured(runtime, providerMock, program+"-none"); err != nil {
			t.Errorf("%s: the offline provider needs no claude: %v", runtime, err)
		}
		if c, err := configured(runtime, providerReal, program); err != nil || c.Programs["claude"] == "" {
			t.Errorf("%s: %v, %v", runtime, c.Programs, err)
		}
	}
	if c, err := configured(sandbox.Docker, providerReal, ""); err != nil || c.Programs["claude"] != "claude" {
		t.Errorf("docker: %v, %v; the image has its own", c.Programs, err)
	}
}

// P6: a link that an agent put in place of its outbox is removed, not followed.
func TestLinkInPlaceOfTheOutbox(t *testing.T) {
	t.Parallel()
	dir, victim := t.TempDir(), t.TempDir()
	path := filepath.Join(dir, "outbox")
	if err := os.Symlink(victim, path); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := ownFolder(path); err != nil {
			t.Fatal(err)
		}
		if st, err := os.Lstat(path); err != nil || !st.IsDir() {
			t.Errorf("%v, %v; want a folder", st, err)
		}
	}
	if _, err := os.Stat(victim); err != nil {
		t.Errorf("what the link named: %v", err)
	}
}

// An ack and the rows of its exchange are never seen apart the wrong way round: acks wait while there are more rows.
func TestOutboxKeepsAcksBehindTheirRows(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	dir := t.TempDir()
	h, err := sqlite.Create(ctx, dir, sqlite.HostOptions{OutUID: -1, SandboxGID: -1, Log: obs.Discard()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = h.Close() }()
	if _, err := h.Put(ctx, mailbox.InRow{ID: "msg-1", Kind: mailbox.KindChat, Timestamp: time.Now(), Trigger: true, Content: []byte(`{}`)}); err != nil {
		t.Fatal(err)
	}
	r, err := sqlite.OpenRunner(ctx, dir, sqlite.RunnerOptions{Incarnation: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	if err := r.Claim(ctx, "ex-1", []string{"msg-1"}); err != nil {
		t.Fatal(err)
	}
	f := mailbox.Finish{Completed: []string{"msg-1"}}
	const rows = 2*rowsPerPage + 7
	for i := range rows {
		content, err := json.Marshal(mailbox.ChatOut{Text: fmt.Sprint(i)})
		if err != nil {
			t.Fatal(err)
		}
		f.Out = append(f.Out, mailbox.OutRow{ID: fmt.Sprintf("out-%d", i), Timestamp: time.Now(), Kind: mailbox.KindChat, Exchange: "ex-1", Content: content,
			Address: mailbox.Address{ChannelType: "cli", PlatformID: "cli:local"}})
	}
	if _, err := r.Finish(ctx, f); err != nil {
		t.Fatal(err)
	}
	seen, acked := 0, false
	var seq, change int64
	for more := true; more; {
		page, err := box{h}.Outbox(ctx, 1, seq, change)
		if err != nil {
			t.Fatal(err)
		}
		seen += len(page.Rows)
		if len(page.Acks) > 0 {
			acked = true
			if seen != rows {
				t.Errorf("the ack came after %d of %d rows", seen, rows)
			}
		}
		seq, change, more = page.OutboundSeq, page.AckChange, page.More
	}
	if seen != rows || !acked {
		t.Errorf("%d rows, acked %v", seen, acked)
	}
}

// failing is an adapter whose Run ends as scripted.
type failing struct {
	runs chan struct{}
	err  error
}

func (f *failing) Info() channel.Info { return channel.Info{Type: "x", Instance: "x"} }
func (f *failing) Run(ctx context.Context, _ channel.Host) error {
	f.runs <- struct{}{}
	return f.err
}
func (f *failing) Deliver(context.Context, channel.Address, channel.Op, string) (channel.Receipt, error) {
	return channel.Receipt{}, nil
}
func (f *failing) Status() channel.Status { return channel.Status{} }

// ALL-2: a channel that fails is run again without end; one that needs a person is not.
func TestSupervisor(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err  error
		want int
	}{
		"failure": {errors.New("network is down"), 2},
		"fatal":   {&channel.FatalError{Hint: "renew the token", Err: errors.New("401")}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			a := &failing{runs: make(chan struct{}, 10), err: c.err}
			done := make(chan struct{})
			go func() {
				defer close(done)
				supervise(ctx, []channel.Adapter{a}, map[string]*desk{"x": {log: obs.Discard()}})
			}()
			for range c.want {
				<-a.runs
			}
			if c.want == 1 {
				<-done
			}
			cancel()
			<-done
			if len(a.runs) > 0 {
				t.Error("it was run once more")
			}
		})
	}
}
