package host

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"nanoclaw/internal/channel"
	"nanoclaw/internal/channel/channeltest"
	"nanoclaw/internal/channel/cli"
	"nanoclaw/internal/control"
	"nanoclaw/internal/delivery"
	"nanoclaw/internal/id"
	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/mailbox/sqlite"
	"nanoclaw/internal/obs"
	"nanoclaw/internal/session"
	"nanoclaw/internal/store"
)

// lineOut is a mailbox written as a runner does, delivered to a terminal.
type lineOut struct {
	*testing.T
	home     string
	dir      string // of the session
	session  store.Session
	store    *store.Store
	runner   *sqlite.Runner
	box      box
	service  *delivery.Service
	terminal *cli.Adapter
	seq      int64

	mu   sync.Mutex
	told []string
}

func newLineOut(t *testing.T, limit int64) *lineOut {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	l := &lineOut{T: t, home: t.TempDir()}
	var err error
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	l.store, err = store.Open(ctx, l.home)
	must(err)
	group, err := l.store.Bootstrap(ctx, store.First{Owner: "cli:ann", AgentName: "Nano", Folder: "main", Provider: "mock", ChannelType: cli.Type, Instance: cli.Type,
		PlatformID: ownerChat, DestinationAs: "terminal"})
	must(err)
	chat, err := l.store.MessagingGroup(ctx, cli.Type, ownerChat)
	must(err)
	l.session, err = l.store.ResolveSession(ctx, "k", group, chat.ID, "")
	must(err)
	l.dir = session.Dir(l.home, l.session)
	h, err := sqlite.Create(ctx, l.dir, sqlite.HostOptions{OutUID: -1, SandboxGID: -1, Log: obs.Discard()})
	must(err)
	l.box = box{h}
	l.runner, err = sqlite.OpenRunner(ctx, l.dir, sqlite.RunnerOptions{Incarnation: 1})
	must(err)
	l.terminal = cli.New("ann", "Ann", filepath.Join(l.home, "files"))
	var running sync.WaitGroup
	running.Go(func() { _ = l.terminal.Run(ctx, channeltest.NewHost()) })
	for l.terminal.Status().State != channel.Connected {
		runtime.Gosched()
	}
	l.service = delivery.New(delivery.Options{Store: l.store, Adapters: map[string]channel.Adapter{cli.Type: l.terminal}, Log: obs.Discard(), Closed: func(id.Session) {},
		Files: outboxes{l.home, sqlite.HostOptions{OutUID: -1, MaxBytes: limit}},
		Tell: func(_ context.Context, _ id.Session, _, text string) error {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.told = append(l.told, text)
			return nil
		},
		Owner: func(context.Context) (store.Destination, bool) { return store.Destination{}, false },
	})
	must(l.service.Start(ctx))
	t.Cleanup(func() {
		cancel()
		l.service.Wait()
		running.Wait()
		_ = l.runner.Close()
		_ = l.box.Close()
		_ = l.store.Close()
	})
	return l
}

// write puts a row into the outbox as a tool does; names are attached as they are.
func (l *lineOut) write(rowID, text string, names ...string) {
	l.Helper()
	content, err := mailbox.EncodeContent(mailbox.ChatOut{Text: text, Files: names})
	if err == nil {
		_, err = l.runner.Write(l.Context(), mailbox.OutRow{ID: rowID, Timestamp: time.Now(), Kind: mailbox.KindChat, Content: content,
			Address: mailbox.Address{ChannelType: cli.Type, PlatformID: ownerChat}})
	}
	if err != nil {
		l.Fatal(err)
	}
}

// deliver takes over what is in the outbox and waits until row is final.
func (l *lineOut) deliver(rowID string) store.Ledger {
	l.Helper()
	page, err := l.box.Outbox(l.Context(), 1, l.seq, 0)
	if err != nil {
		l.Fatal(err)
	}
	l.seq = page.OutboundSeq
	if err := l.service.TakeOver(l.Context(), l.session, page); err != nil {
		l.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(l.Context(), 20*time.Second)
	defer cancel()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for ; ; <-tick.C {
		rows, err := l.store.Ledgers(ctx, l.session.ID, 100)
		if err != nil {
			l.Fatalf("row %s is not final: %v", rowID, err)
		}
		left, err := l.store.LeftFiles(ctx, 1)
		if err != nil {
			l.Fatal(err)
		}
		for _, r := range rows {
			if r.OutboundID == rowID && r.State.Final() && len(left) == 0 && !r.Files {
				return r
			}
		}
	}
}

func (l *lineOut) shown() []control.Event {
	l.Helper()
	h, err := l.terminal.History(l.Context(), ownerChat, 0, 100)
	if err != nil {
		l.Fatal(err)
	}
	return h.Events
}

func TestFileOfARunnerArrivesWithTheSameBytes(t *testing.T) {
	t.Parallel()
	l := newLineOut(t, maxAttachment)
	want := bytes.Repeat([]byte{0, 1, 0xff, '\n'}, 100_000)
	if err := l.runner.PutOutBlob(t.Context(), "out-1", "odd «name».bin", bytes.NewReader(want), int64(len(want))); err != nil {
		t.Fatal(err)
	}
	l.write("out-1", "see", "odd «name».bin")
	if r := l.deliver("out-1"); r.State != store.Sent {
		t.Fatalf("%+v", r)
	}
	events := l.shown()
	if len(events) != 1 || len(events[0].Files) != 1 {
		t.Fatalf("the terminal shows %+v", events)
	}
	f, size, err := l.terminal.File(t.Context(), ownerChat, events[0].ID, "odd «name».bin")
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(f)
	if err != nil || !bytes.Equal(got, want) || size != int64(len(want)) {
		t.Errorf("%d bytes arrived (%d), %d were sent; %v", len(got), size, len(want), err)
	}
	_ = f.Close()
	if st, err := os.Stat(events[0].Files[0].Path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st, err)
	}
	if _, err := os.Stat(filepath.Join(l.dir, "out", "outbox", "out-1")); err == nil {
		t.Error("the file stays in the outbox")
	}
}

// P6: what the sandbox has put in a file's place is not sent, nothing outside of the outbox is read or removed, and the agent is
// told why.
func TestHostileFilesOfAnOutbox(t *testing.T) {
	t.Parallel()
	const limit = 1000
	for name, c := range map[string]struct {
		name string
		make func(folder, path, secret string) error
		told string
	}{
		"a link to a file":        {"a", func(_, path, secret string) error { return os.Symlink(secret, path) }, "link"},
		"a second name of a file": {"a", func(_, path, secret string) error { return os.Link(secret, path) }, "2 links"},
		"a folder":                {"a", func(_, path, _ string) error { return os.Mkdir(path, 0o700) }, "not a regular file"},
		"a pipe":                  {"a", func(_, path, _ string) error { return unix.Mkfifo(path, 0o600) }, "not a regular file"},
		"too large":               {"a", func(_, path, _ string) error { return os.WriteFile(path, make([]byte, limit+1), 0o600) }, "1001 bytes, at most 1000"},
		"nothing":                 {"a", func(string, string, string) error { return nil }, "not there"},
		"a folder that is a link": {"secret", func(folder, _, secret string) error {
			if err := os.Remove(folder); err != nil {
				return err
			}
			return os.Symlink(filepath.Dir(secret), folder)
		}, "link"},
		"a path upwards":      {"../../../secret", func(string, string, string) error { return nil }, "starts with a dot"},
		"a path from the top": {"/etc/passwd", func(string, string, string) error { return nil }, "path parts"},
		"dots":                {"..", func(string, string, string) error { return nil }, "starts with a dot"},
		"an escape sequence":  {"a\x1b[2J", func(string, string, string) error { return nil }, "control character"},
		"an 8-bit escape":     {"a\u009b2J", func(_, path, _ string) error { return os.WriteFile(path, nil, 0o600) }, "control characters"},
		"no name":             {"", func(string, string, string) error { return nil }, "empty"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLineOut(t, limit)
			folder := filepath.Join(l.dir, "out", "outbox", "out-1")
			secret := filepath.Join(l.home, "vault", "secret")
			for _, d := range []string{folder, filepath.Dir(secret)} {
				if err := os.MkdirAll(d, 0o700); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.WriteFile(secret, []byte("of the host"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := c.make(folder, filepath.Join(folder, c.name), secret); err != nil {
				t.Fatal(err)
			}
			l.write("out-1", "see", c.name)
			if r := l.deliver("out-1"); r.State != store.Refused || !strings.Contains(r.Reason, c.told) {
				t.Errorf("%s: %s, want it to say %q", r.State, r.Reason, c.told)
			}
			if len(l.shown()) != 0 {
				t.Errorf("the terminal shows %+v", l.shown())
			}
			l.mu.Lock()
			if len(l.told) != 1 || !strings.Contains(l.told[0], c.told) || strings.Contains(l.told[0], l.home) {
				t.Errorf("the agent was told %q", l.told)
			}
			l.mu.Unlock()
			if b, err := os.ReadFile(secret); err != nil || string(b) != "of the host" {
				t.Errorf("the host's own file: %q, %v", b, err)
			}
			if _, err := os.Lstat(folder); err == nil {
				t.Error("what the row had stays in the outbox")
			}
		})
	}
}
