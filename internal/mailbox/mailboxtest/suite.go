// Package mailboxtest is the conformance suite of a session's mailbox: the guarantees M1–M12 of spec/host.md section 24.1.
//
//	M1  order, one number space        Order
//	M2  read-your-writes, change signal  Visibility
//	M3  exclusive claim, fence         Claim, Fence
//	M4  idempotent insert              Idempotence
//	M5  atomic steps                   Atomicity
//	M6  the mailbox's clock            Clock
//	M7  payloads by reference          Blobs
//	M8  liveness as data               Liveness
//	M9  authentication                 by the folder that is mounted; the bell's hello is in Bell
//	M10 existence, destroy             Lifecycle
//	M11 retention                      Retention
//	M12 change feed, lossy             Bell, and the whole suite with the bell cut
package mailboxtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/mailbox/sqlite"
)

// Run runs the suite. With bell false no bell is there and both sides find news by looking again.
func Run(t *testing.T, bell bool) {
	for name, test := range map[string]func(*testing.T, *Box){
		"Order": order, "Visibility": visibility, "Claim": claim, "Fence": fence, "Idempotence": idempotence, "Atomicity": atomicity,
		"Clock": dueByClock, "Blobs": blobs, "Liveness": liveness, "Lifecycle": lifecycle, "Retention": retention, "Bell": bells,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, NewBox(t, bell))
		})
	}
}

// Box is one session with both halves in this process.
type Box struct {
	Dir   string
	Host  *sqlite.Host
	Clock *Clock
	bell  *sqlite.Bell // the host's side; nil with the bell cut
	t     *testing.T
}

// Incarnation of the runner that NewBox expects at the bell.
const Incarnation = 7

// NewBox makes a session that ends with the test.
func NewBox(t *testing.T, bell bool) *Box {
	t.Helper()
	b := &Box{Dir: filepath.Join(t.TempDir(), "ag", "sess"), Clock: NewClock(), t: t}
	h, err := sqlite.Create(t.Context(), b.Dir, b.HostOptions())
	if err != nil {
		t.Fatal(err)
	}
	b.Host = h
	t.Cleanup(func() { _ = h.Close() })
	if bell {
		if b.bell, err = sqlite.ListenBell(filepath.Join(b.Dir, "run"), Incarnation, 0o600, nil); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = b.bell.Close() })
	}
	return b
}

// HostOptions of the box.
func (b *Box) HostOptions() sqlite.HostOptions {
	return sqlite.HostOptions{OutUID: -1, SandboxGID: -1, Now: b.Clock.Now}
}

// Runner opens the runner's half.
func (b *Box) Runner(incarnation int64) *sqlite.Runner {
	b.t.Helper()
	r, err := sqlite.OpenRunner(b.t.Context(), b.Dir, sqlite.RunnerOptions{Incarnation: incarnation, Now: b.Clock.Now})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = r.Close() })
	return r
}

// Put stores rows and returns their ids.
func (b *Box) Put(rows ...mailbox.InRow) []string {
	b.t.Helper()
	results, err := b.Host.Put(b.t.Context(), rows...)
	if err != nil {
		b.t.Fatal(err)
	}
	var ids []string
	for _, p := range results {
		ids = append(ids, p.ID)
	}
	return ids
}

// Fetch returns the ids of a batch of at most limit rows.
func (b *Box) Fetch(r *sqlite.Runner, limit int) []string {
	b.t.Helper()
	batch, err := r.Fetch(b.t.Context(), limit)
	if err != nil {
		b.t.Fatal(err)
	}
	var ids []string
	for _, row := range batch.Rows {
		ids = append(ids, row.ID)
	}
	return ids
}

// Chat is a chat row that may wake.
func Chat(text string) mailbox.InRow {
	content, err := json.Marshal(map[string]string{"text": text})
	if err != nil {
		panic(err) // strings always encode
	}
	return mailbox.InRow{
		Kind: mailbox.KindChat, Trigger: true, Content: content,
		Address: mailbox.Address{ChannelType: "cli", PlatformID: "cli:local"},
	}
}

// Say is an outbound chat row.
func Say(text, exchange string) mailbox.OutRow {
	in := Chat(text)
	return mailbox.OutRow{Kind: mailbox.KindChat, Content: in.Content, Address: in.Address, Exchange: exchange, Segment: 1}
}

// Clock is a clock that stands still until it is moved.
type Clock struct{ ms atomic.Int64 }

// NewClock starts at a fixed moment.
func NewClock() *Clock {
	c := &Clock{}
	c.ms.Store(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).UnixMilli())
	return c
}

// Now is the clock's time.
func (c *Clock) Now() time.Time { return time.UnixMilli(c.ms.Load()).UTC() }

// Add moves the clock.
func (c *Clock) Add(d time.Duration) { c.ms.Add(d.Milliseconds()) }

// Until looks again, after every ring and else in short steps, until done or the test is over.
func Until(t *testing.T, bell *sqlite.Bell, done func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var rung <-chan struct{}
	if bell != nil {
		rung = bell.Rung()
	}
	for !done() {
		select {
		case <-ctx.Done():
			t.Fatal("nothing came in time")
		case <-rung:
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantError(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: got %v, want %v", what, err, want)
	}
}

func wantIDs(t *testing.T, what string, got, want []string) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func wantGone(t *testing.T, path string) {
	t.Helper()
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is there: %v", path, err)
	}
}
