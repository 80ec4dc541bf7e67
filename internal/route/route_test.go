package route

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"nanoclaw/internal/channel"
	"nanoclaw/internal/id"
	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/obs"
	"nanoclaw/internal/store"
)

// inbox records what is put, in order with the wakes, and can fail.
type inbox struct {
	events []string
	rows   map[string]mailbox.InRow
	fail   error
	st     *store.Store

	mu      sync.Mutex
	failFor id.AgentGroup // fail for this agent only
	files   map[string]string
	said    map[string]bool
	words   []string // said in chats
	held    []Held
	decide  func(Held) bool // whether it is decided meanwhile; nil: no
}

func discard() *slog.Logger { return obs.Discard() }

func (i *inbox) Put(ctx context.Context, s store.Session, rows ...mailbox.InRow) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.fail != nil && (i.failFor == "" || i.failFor == s.AgentGroupID) {
		return i.fail
	}
	for _, r := range rows {
		if _, err := i.st.MessageByRow(ctx, r.ID); err == nil {
			i.events = append(i.events, "accepted before put")
		}
		i.rows[r.ID] = r
		i.events = append(i.events, "put "+string(s.AgentGroupID))
	}
	return nil
}

func (i *inbox) Wake(id.Session) { i.note("wake") }

func (i *inbox) note(s string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.events = append(i.events, s)
}

func (i *inbox) Attach(_ context.Context, s store.Session, rowID, name string, r io.Reader, most int64) (string, error) {
	b, err := io.ReadAll(r)
	if err != nil {
		return "", err
	}
	if int64(len(b)) > most {
		return "", fmt.Errorf("larger than %d bytes: %w", most, mailbox.ErrInvalid)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	path := "inbox/" + rowID + "/" + name
	i.files[path] = string(b)
	return path, nil
}

func (i *inbox) Say(_ context.Context, d store.Destination, key, text string) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.said[key] {
		i.said[key] = true
		i.words = append(i.words, d.PlatformID+": "+text)
	}
	return nil
}

func (i *inbox) Hold(_ context.Context, h Held) (bool, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.decide != nil {
		if decide := i.decide; decide(h) {
			return true, nil
		}
	}
	if key := "hold" + h.Key + h.Event.ID; !i.said[key] {
		i.said[key] = true
		i.held = append(i.held, h)
	}
	return false, nil
}

func (i *inbox) Settle(_ context.Context, rows ...string) error {
	for range rows {
		i.events = append(i.events, "settle")
	}
	return nil
}

type bundle struct {
	home  string
	st    *store.Store
	inbox *inbox
	r     *Router
	info  channel.Info
}

const chat = "cli:local"

func setup(t testing.TB) *bundle {
	t.Helper()
	home := t.TempDir()
	st, err := store.Open(t.Context(), home)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	if _, err := st.Bootstrap(t.Context(), store.First{Owner: "cli:ann", OwnerName: "Ann", AgentName: "Nano", Folder: "main", Provider: "mock",
		ChannelType: "cli", Instance: "cli", PlatformID: chat, DestinationAs: "terminal"}); err != nil {
		t.Fatal(err)
	}
	i := &inbox{rows: map[string]mailbox.InRow{}, st: st, files: map[string]string{}, said: map[string]bool{}}
	r := New(Options{Store: st, Inbox: i, Ends: i, Voice: i, Keeper: i, MaxAttachment: 100, Log: obs.Discard()})
	return &bundle{home: home, st: st, inbox: i, r: r, info: channel.Info{Type: "cli", Instance: "cli"}}
}

func message(idv, text string) channel.Inbound {
	return channel.Inbound{ID: idv, Kind: "chat", Address: channel.Address{PlatformID: chat}, Text: text, Sender: channel.Sender{ID: "cli:ann", Name: "Ann"}}
}

func TestInboundIsStoredThenAcceptedThenWoken(t *testing.T) {
	t.Parallel()
	b := setup(t)
	v, err := b.r.Inbound(t.Context(), b.info, message("m1", "hello"))
	if err != nil || v.Kind != channel.Stored {
		t.Fatalf("%+v, %v", v, err)
	}
	if len(b.inbox.events) != 2 || !strings.HasPrefix(b.inbox.events[0], "put") || b.inbox.events[1] != "wake" {
		t.Errorf("events %q", b.inbox.events)
	}
	due, _, err := b.st.Due(t.Context(), b.r.opt.Now().Add(1e9), 10)
	if err != nil || len(due) != 1 {
		t.Errorf("due sessions %v, %v", due, err)
	}
	for _, r := range b.inbox.rows {
		if !r.Trigger || r.PlatformMessageID != "m1" || !strings.Contains(string(r.Content), "hello") || r.Timestamp.IsZero() {
			t.Errorf("row %+v", r)
		}
	}
}

// SL-1, B14: the same event again is one row, also when the first try stopped between the two steps of P1.
func TestReplay(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for range 3 {
		if _, err := b.r.Inbound(t.Context(), b.info, message("m1", "hello")); err != nil {
			t.Fatal(err)
		}
	}
	if len(b.inbox.rows) != 1 || len(b.inbox.events) != 2 {
		t.Errorf("rows %d, events %q", len(b.inbox.rows), b.inbox.events)
	}
	v, err := b.r.Inbound(t.Context(), b.info, message("m1", "hello"))
	if err != nil || v.Kind != channel.Duplicate {
		t.Errorf("%+v, %v", v, err)
	}
}

// A host died between the two steps of P1 and the agent answered before the replay: the replay brings the end along.
func TestReplayOfAMessageThatIsAnsweredAlready(t *testing.T) {
	t.Parallel()
	b := setup(t)
	m := message("m1", "hello")
	group, err := b.st.AgentGroups(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	row := id.Inbound("cli", chat, "m1", group[0].ID)
	if _, err := b.st.Ingest(t.Context(), store.Ingest{Ends: []store.End{{RowID: row, State: channel.Answered}, {RowID: "sys-notice", State: channel.Silent}}}); err != nil {
		t.Fatal(err)
	}
	if v, err := b.r.Inbound(t.Context(), b.info, m); err != nil || v.Kind != channel.Stored {
		t.Fatalf("%+v, %v", v, err)
	}
	got, err := b.st.MessageByRow(t.Context(), row)
	if err != nil || got.State != channel.Answered {
		t.Errorf("%+v, %v", got, err)
	}
	if !slices.Contains(b.inbox.events, "settle") {
		t.Errorf("nobody was told: %q", b.inbox.events)
	}
	if due, _, err := b.st.Due(t.Context(), time.Now().Add(time.Second), 10); err != nil || len(due) != 0 {
		t.Errorf("due %v, %v: there is nothing to do", due, err)
	}
}

func TestFailedStoreIsNotAcknowledged(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.inbox.fail = errors.New("disk full")
	if _, err := b.r.Inbound(t.Context(), b.info, message("m1", "hello")); err == nil {
		t.Fatal("a message that was not stored was acknowledged")
	}
	b.inbox.fail = nil
	if v, err := b.r.Inbound(t.Context(), b.info, message("m1", "hello")); err != nil || v.Kind != channel.Stored {
		t.Errorf("the second try: %+v, %v", v, err)
	}
}

func TestDropsHaveReasonsAndStoreNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	stranger := message("m1", "secret words")
	stranger.Sender.ID = "cli:mallory"
	elsewhere := message("m2", "x")
	elsewhere.Address.PlatformID = "cli:nowhere"
	forged := message("m3", "x")
	forged.Sender.ID = "telegram:123"
	bare := message("m4", "x")
	bare.Sender.ID = "cli"
	for name, m := range map[string]channel.Inbound{
		"stranger": stranger, "chat without agent": elsewhere, "sender of another channel (W42)": forged, "sender without prefix": bare,
		"no id": message("", "x"), "empty": message("m5", ""), "too long": message("m6", strings.Repeat("x", maxText+1)),
	} {
		v, err := b.r.Inbound(t.Context(), b.info, m)
		if err != nil || v.Kind != channel.Dropped || v.Reason == "" {
			t.Errorf("%s: %+v, %v", name, v, err)
		}
	}
	if len(b.inbox.events) != 0 {
		t.Errorf("stored: %q", b.inbox.events)
	}
	entries, err := b.st.AuditTail(t.Context(), 20)
	if err != nil || len(entries) != 7 {
		t.Fatalf("%d audit entries, %v", len(entries), err)
	}
	for _, e := range entries {
		if strings.Contains(string(e.Detail), "secret words") {
			t.Error("the text of a refused message was kept")
		}
	}
}
