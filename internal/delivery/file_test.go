package delivery

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"nanoclaw/internal/channel"
	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/store"
)

// shelf is an outbox in a folder, with scripted failures.
type shelf struct {
	dir      string
	mu       sync.Mutex
	open     []error // of the next opens; nil and none left is success
	remove   []error // of the next removals
	removals int
}

func newShelf(t *testing.T, files map[string]string) *shelf {
	s := &shelf{dir: t.TempDir()}
	for name, content := range files {
		path := filepath.Join(s.dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func (s *shelf) Open(_ store.Session, rowID, name string) (*os.File, int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.open) > 0 {
		err := s.open[0]
		s.open = s.open[1:]
		if err != nil {
			return nil, 0, err
		}
	}
	f, err := os.Open(filepath.Join(s.dir, rowID, name))
	if err != nil {
		return nil, 0, fmt.Errorf("%w: %s", mailbox.ErrNotExist, name)
	}
	st, err := f.Stat()
	if err != nil {
		return nil, 0, err
	}
	return f, st.Size(), nil
}

func (s *shelf) Remove(_ store.Session, rowID string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removals++
	if len(s.remove) > 0 {
		err := s.remove[0]
		s.remove = s.remove[1:]
		if err != nil {
			return err
		}
	}
	return os.RemoveAll(filepath.Join(s.dir, rowID))
}

func (s *shelf) has(rowID string) bool {
	_, err := os.Stat(filepath.Join(s.dir, rowID))
	return err == nil
}

func fileRow(seq int64, content string) mailbox.OutRow {
	r := row(seq, chat, "")
	r.Content = []byte(content)
	return r
}

// left is how many final rows still count files as lying in the outbox.
func (b *bundle) left(t *testing.T) int {
	t.Helper()
	rows, err := b.st.LeftFiles(t.Context(), 10)
	if err != nil {
		t.Fatal(err)
	}
	return len(rows)
}

func TestFilesGoWithTheirMessage(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		script []error // of the platform
		open   []error
		caps   channel.Caps
		seen   []string
		state  store.LedgerState
		told   string
	}{
		"sent": {caps: allCaps, seen: []string{chat + " see a.txt=one b=two"}, state: store.Sent},
		"tried again: opened again, removed only at the end": {caps: allCaps, script: []error{outcome(channel.Transient, 0)},
			seen: []string{chat + " see a.txt=one b=two", chat + " see a.txt=one b=two"}, state: store.Sent},
		"refused by the platform": {caps: allCaps, script: []error{outcome(channel.Permanent, 0)}, seen: []string{chat + " see a.txt=one b=two"},
			state: store.Refused, told: "scripted"},
		"cannot be opened now": {caps: allCaps, open: []error{errors.New("too many open files")}, seen: []string{chat + " see a.txt=one b=two"}, state: store.Sent},
		"hostile": {caps: allCaps, open: []error{nil, fmt.Errorf("%w: outbox/out-1/b has 2 links", mailbox.ErrHostile)}, state: store.Refused,
			told: "outbox/out-1/b has 2 links"},
		"missing": {caps: allCaps, open: []error{mailbox.ErrNotExist}, state: store.Refused, told: "not there any more"},
		"a name that is none": {caps: allCaps, open: []error{&mailbox.FieldError{Field: "file name", Reason: "has path parts"}}, state: store.Refused,
			told: "has path parts"},
		"a chat without files": {seen: []string{chat + " see\n\n[This chat takes no files. Not sent: a.txt, b]"}, state: store.Sent, told: "arrived without its files"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				shelf := newShelf(t, map[string]string{"out-1/a.txt": "one", "out-1/b": "two", "out-3/a.txt": "other"})
				shelf.open = c.open
				b := setupWith(t, &platform{caps: c.caps, script: map[string][]error{"see": c.script}}, t.TempDir(), shelf, &putErr{})
				b.take(t, mailbox.Page{Rows: []mailbox.OutRow{fileRow(1, `{"text":"see","files":["a.txt","b"]}`)}})
				synctest.Wait()
				if len(c.script) > 0 && c.state == store.Sent && !shelf.has("out-1") {
					t.Error("the files went before the message was final")
				}
				wait(time.Minute)
				if got := b.states(t)["out-1"]; got != c.state {
					t.Errorf("state %s, want %s", got, c.state)
				}
				if d := cmp.Diff(c.seen, b.p.log()); d != "" {
					t.Error(d)
				}
				if told := strings.Join(b.told, "|"); c.told == "" && told != "" || !strings.Contains(told, c.told) || c.told != "" && len(b.told) != 1 {
					t.Errorf("the agent was told %q, want %q", told, c.told)
				}
				if shelf.has("out-1") || !shelf.has("out-3") || b.left(t) != 0 {
					t.Errorf("of the row: %v, of another row: %v, noted: %d", shelf.has("out-1"), shelf.has("out-3"), b.left(t))
				}
				b.end()
			})
		})
	}
}

// DLV-3: a clean-up that fails after a good send never sends again; the next start finishes it. So it does when a host was
// killed between the two.
func TestDLV3CleanUpNeverResends(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		home := t.TempDir()
		shelf := newShelf(t, map[string]string{"out-1/a": "one", "out-3/a": "two"})
		shelf.remove = []error{errors.New("read-only file system"), errors.New("read-only file system")}
		b := setupWith(t, &platform{caps: allCaps}, home, shelf, &putErr{})
		refused := fileRow(3, `{"files":["a"]}`)
		refused.PlatformID = "cli:nowhere"
		b.take(t, mailbox.Page{Rows: []mailbox.OutRow{fileRow(1, `{"text":"hi","files":["a"]}`), refused}})
		wait(time.Hour)
		if got := b.p.log(); len(got) != 1 || shelf.removals != 2 || b.left(t) != 2 {
			t.Fatalf("%q, %d removals, %d left", got, shelf.removals, b.left(t))
		}
		b.end()
		again := setupWith(t, &platform{caps: allCaps}, home, shelf, &putErr{})
		wait(time.Hour)
		if got := again.p.log(); len(got) != 0 || shelf.has("out-1") || shelf.has("out-3") || again.left(t) != 0 {
			t.Errorf("after a restart: %q, files left %v %v, noted %d", got, shelf.has("out-1"), shelf.has("out-3"), again.left(t))
		}
		again.end()
	})
}

// P3: a message that was being sent when the host died still has its files for the next try.
func TestFilesOutliveARestartInMidSend(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		home := t.TempDir()
		shelf := newShelf(t, map[string]string{"out-1/a": "one"})
		first := &platform{caps: allCaps, idempotent: true, hold: make(chan struct{})}
		b := setupWith(t, first, home, shelf, &putErr{})
		b.take(t, mailbox.Page{Rows: []mailbox.OutRow{fileRow(1, `{"text":"hi","files":["a"]}`)}})
		synctest.Wait()
		again := setupWith(t, &platform{caps: allCaps, idempotent: true}, home, shelf, &putErr{})
		wait(time.Second)
		if d := cmp.Diff([]string{chat + " hi a=one"}, again.p.log()); d != "" || shelf.has("out-1") {
			t.Errorf("files left: %v; %s", shelf.has("out-1"), d)
		}
		again.end()
		close(first.hold)
		b.end()
	})
}
