package route

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"nanoclaw/internal/channel"
	"nanoclaw/internal/id"
	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/obs"
	"nanoclaw/internal/store"
)

// Every value of every setting that decides, each cell written by hand (spec/host.md section 25.1).
func TestDecide(t *testing.T) {
	t.Parallel()
	base := Facts{Policy: "strict", Scope: "all", Access: true, Mode: "pattern", Pattern: ".", Ignored: "drop", Text: "hello"}
	with := func(change func(*Facts)) Facts {
		f := base
		change(&f)
		return f
	}
	for name, c := range map[string]struct {
		facts Facts
		want  Action
	}{
		"known sender, every message":    {base, Engage},
		"stranger, strict":               {with(func(f *Facts) { f.Access = false }), Drop},
		"stranger, approval":             {with(func(f *Facts) { f.Access = false; f.Policy = "request_approval" }), Drop},
		"stranger, decline":              {with(func(f *Facts) { f.Access = false; f.Policy = "decline_notify" }), Drop},
		"stranger, public":               {with(func(f *Facts) { f.Access = false; f.Policy = "public" }), Engage},
		"stranger, public, known scope":  {with(func(f *Facts) { f.Access = false; f.Policy = "public"; f.Scope = "known" }), Drop},
		"stranger, public, odd scope":    {with(func(f *Facts) { f.Access = false; f.Policy = "public"; f.Scope = "odd" }), Drop},
		"stranger, odd policy":           {with(func(f *Facts) { f.Access = false; f.Policy = "odd" }), Drop},
		"stranger is not kept (I8)":      {with(func(f *Facts) { f.Access = false; f.Ignored = "accumulate" }), Drop},
		"pattern empty":                  {with(func(f *Facts) { f.Pattern = "" }), Engage},
		"pattern matches":                {with(func(f *Facts) { f.Pattern = "(?i)HELL" }), Engage},
		"pattern does not match":         {with(func(f *Facts) { f.Pattern = "bye" }), Drop},
		"pattern does not match, kept":   {with(func(f *Facts) { f.Pattern = "bye"; f.Ignored = "accumulate" }), Keep},
		"pattern broken: closed":         {with(func(f *Facts) { f.Pattern = "(" }), Drop},
		"mention in a group":             {with(func(f *Facts) { f.Mode = "mention"; f.Group = true; f.Mention = channel.Yes }), Engage},
		"no mention in a group":          {with(func(f *Facts) { f.Mode = "mention"; f.Group = true; f.Mention = channel.No }), Drop},
		"unknown mention in a group":     {with(func(f *Facts) { f.Mode = "mention"; f.Group = true }), Drop},
		"no mention in a group, kept":    {with(func(f *Facts) { f.Mode = "mention"; f.Group = true; f.Ignored = "accumulate" }), Keep},
		"direct message counts":          {with(func(f *Facts) { f.Mode = "mention" }), Engage},
		"sticky, unmentioned, group":     {with(func(f *Facts) { f.Mode = "mention-sticky"; f.Group = true }), Drop},
		"odd engage mode: closed":        {with(func(f *Facts) { f.Mode = "odd" }), Drop},
		"odd ignored policy: not stored": {with(func(f *Facts) { f.Pattern = "bye"; f.Ignored = "odd" }), Drop},
		"command of an admin":            {with(func(f *Facts) { f.Text = "/clear"; f.Admin = true }), Engage},
		"command of a member":            {with(func(f *Facts) { f.Text = " /CLEAR " }), Drop},
		"command of a member, kept":      {with(func(f *Facts) { f.Text = "/clear"; f.Pattern = "bye"; f.Ignored = "accumulate" }), Drop},
		"stop of a member":               {with(func(f *Facts) { f.Text = "/stop" }), Engage},
		"nearly a command (W6)":          {with(func(f *Facts) { f.Text = "/clearx" }), Engage},
		"of a command line program":      {with(func(f *Facts) { f.Text = "/login"; f.Admin = true }), Drop},
	} {
		d := Decide(c.facts)
		if d.Action != c.want || d.Reason == "" {
			t.Errorf("%s: %+v, want %s with a reason", name, d, c.want)
		}
	}
}

// inbox records what is put, in order with the wakes, and can fail.
type inbox struct {
	events []string
	rows   map[string]mailbox.InRow
	fail   error
	st     *store.Store
}

func (i *inbox) Put(ctx context.Context, s store.Session, rows ...mailbox.InRow) error {
	if i.fail != nil {
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

func (i *inbox) Wake(id.Session) { i.events = append(i.events, "wake") }

func (i *inbox) Settle(_ context.Context, rows ...string) error {
	for range rows {
		i.events = append(i.events, "settle")
	}
	return nil
}

type bundle struct {
	st    *store.Store
	inbox *inbox
	r     *Router
	info  channel.Info
}

const chat = "cli:local"

func setup(t *testing.T) *bundle {
	t.Helper()
	st, err := store.Open(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	if _, err := st.Bootstrap(t.Context(), store.First{Owner: "cli:ann", OwnerName: "Ann", AgentName: "Nano", Folder: "main", Provider: "mock",
		ChannelType: "cli", Instance: "cli", PlatformID: chat, DestinationAs: "terminal"}); err != nil {
		t.Fatal(err)
	}
	i := &inbox{rows: map[string]mailbox.InRow{}, st: st}
	return &bundle{st: st, inbox: i, r: New(st, i, i, obs.Discard()), info: channel.Info{Type: "cli", Instance: "cli"}}
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
	due, _, err := b.st.Due(t.Context(), b.r.now().Add(1e9), 10)
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
