package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nanoclaw/internal/id"
	"nanoclaw/internal/mailbox/sqlite"
	"nanoclaw/internal/obs"
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
