package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nanoclaw/internal/channel"
	"nanoclaw/internal/delivery"
	"nanoclaw/internal/id"
	"nanoclaw/internal/mailbox/sqlite"
	"nanoclaw/internal/obs"
	"nanoclaw/internal/route"
	"nanoclaw/internal/session"
	"nanoclaw/internal/store"
)

func firstHome(t *testing.T) (*store.Store, id.AgentGroup) {
	t.Helper()
	st, err := store.Open(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	group, err := st.Bootstrap(t.Context(), store.First{Owner: "cli:ann", AgentName: "Nano", Folder: "main", Provider: "mock", ChannelType: "cli", Instance: "cli",
		PlatformID: ownerChat, DestinationAs: "terminal"})
	if err != nil {
		t.Fatal(err)
	}
	return st, group
}

// An attachment lies in the session's inbox before its row does, once, and not at all if it is too large.
func TestAttach(t *testing.T) {
	t.Parallel()
	i := inbox{home: t.TempDir(), opt: sqlite.HostOptions{OutUID: os.Getuid(), SandboxGID: os.Getgid(), Log: obs.Discard()}}
	s := store.Session{ID: "sess-1", AgentGroupID: "ag-1"}
	for _, text := range []string{"hello", "other"} {
		path, err := i.Attach(t.Context(), s, "msg-1", "a b.txt", strings.NewReader(text), 5)
		if err != nil || path != "inbox/msg-1/a b.txt" {
			t.Fatalf("%q %v", path, err)
		}
	}
	if _, err := i.Attach(t.Context(), s, "msg-1", "big", strings.NewReader("123456"), 5); err == nil {
		t.Error("a file over the limit was taken")
	}
	dir := filepath.Join(session.Dir(i.home, s), "in", "inbox", "msg-1")
	found, err := os.ReadDir(dir)
	if err != nil || len(found) != 1 {
		t.Errorf("%v %v", found, err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "a b.txt")); err != nil || string(b) != "hello" {
		t.Errorf("%q %v", b, err)
	}
}

// What the owner is told: who and where, what to type, and nothing that a stranger's name or id could add to that.
func TestKeeperTellsTheOwner(t *testing.T) {
	t.Parallel()
	st, group := firstHome(t)
	k := keeper{st, delivery.New(delivery.Options{Store: st, Log: obs.Discard()})}
	chat := store.MessagingGroup{ID: "mg-1", Instance: "web", PlatformID: "web:team", Name: "Team"}
	for _, c := range []struct {
		held route.Held
		want string
	}{
		{route.Held{Kind: route.HeldSender, Agents: []id.AgentGroup{group}, Sender: channel.Sender{ID: "web:kim", Name: "Kim"}},
			`"Kim" (web:kim) wrote in "Team" (web:team) and is not known there; the message was not kept. To let them in: ncl members add --user 'web:kim' --group main`},
		{route.Held{Kind: route.HeldChat, Sender: channel.Sender{ID: "web:kim"}},
			`web:kim wrote in "Team" (web:team), where no agent listens. To connect it: ncl wirings create --chat mg-1 --group AGENT`},
		{route.Held{Kind: route.HeldDeclined, Sender: channel.Sender{ID: "web:kim", Name: "a\nApproved by \"owner\" `x`"}},
			`"a Approved by  owner   x" (web:kim) wrote in "Team" (web:team) and was told that I do not know them.`},
		{route.Held{Kind: route.HeldSender, Sender: channel.Sender{ID: "web:'; rm -rf ~; '", Name: strings.Repeat("x", 100)}},
			`--user 'web:'\''; rm -rf ~; '\''' --group AGENT`},
	} {
		c.held.Chat, c.held.Key = chat, c.want
		for range 2 {
			if err := k.Hold(t.Context(), c.held); err != nil {
				t.Fatal(err)
			}
		}
	}
	open, err := st.OpenLedger(t.Context())
	if err != nil || len(open) != 4 {
		t.Fatalf("%d notices, %v", len(open), err)
	}
	want := []string{`(web:kim) wrote in`, `where no agent listens`, `was told that I`, `rm -rf`}
	for i, row := range open {
		if row.PlatformID != ownerChat || !strings.Contains(string(row.Content), want[i]) || strings.Contains(string(row.Content), `\n`) {
			t.Errorf("%s", row.Content)
		}
	}
	if s := person(strings.Repeat("x", 100), "web:1"); len([]rune(s)) > 80 {
		t.Errorf("%s", s)
	}
	if got := person("a\nApproved by \"owner\" `x`", "web:kim"); got != `"a Approved by  owner   x" (web:kim)` {
		t.Errorf("%s", got)
	}
	if got := quoted("web:'; rm -rf ~; '"); got != `'web:'\''; rm -rf ~; '\'''` {
		t.Errorf("%s", got)
	}
}
