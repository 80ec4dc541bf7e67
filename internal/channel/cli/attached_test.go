package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"

	"nanoclaw/internal/channel"
	"nanoclaw/internal/channel/channeltest"
	"nanoclaw/internal/control"
)

func file(name, content string) channel.File {
	return channel.File{Name: name, Size: int64(len(content)), Open: func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader([]byte(content))), nil
	}}
}

// consuming takes every message for an answer.
type consuming struct{ *channeltest.Host }

func (h consuming) Inbound(ctx context.Context, m channel.Inbound) (channel.Verdict, error) {
	v, err := h.Host.Inbound(ctx, m)
	v.Kind = channel.Consumed
	return v, err
}

// A message that answered a question has ended: nobody else tells its end. So it is when it comes again after a lost write.
func TestMessageThatAnsweredAQuestionHasEnded(t *testing.T) {
	t.Parallel()
	for lost := range 3 {
		h := channeltest.NewHost()
		a := New("ann", "Ann", t.TempDir())
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- a.Run(ctx, consuming{h}) }()
		for a.Status().State != channel.Connected {
			runtime.Gosched()
		}
		h.LoseWrites(lost)
		for range lost {
			if _, err := a.Say(t.Context(), local, control.Say{ID: "m1", Text: "1"}); err == nil {
				t.Error("a message was accepted whose entries may be lost")
			}
		}
		for i := range 2 {
			if _, err := a.Say(t.Context(), local, control.Say{ID: "m1", Text: "1"}); err != nil {
				t.Errorf("try %d: %v", i, err)
			}
		}
		want := []string{"1 message user:1", "2 settled answered"}
		if d := cmp.Diff(want, collect(t, a, 0)); d != "" {
			t.Errorf("%d writes lost: %s", lost, d)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// A copy that was killed half way leaves nothing that could be taken for the file, and the next try is whole.
func TestHalfCopiedFiles(t *testing.T) {
	t.Parallel()
	a, _ := running(t, channeltest.NewHost())
	entry := outbound("local", "k")
	for _, dir := range []string{staging(entry), entry} {
		dir = filepath.Join(a.files, "local", dir)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"a", "of another try"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte("ha"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	r, err := a.Deliver(t.Context(), channel.Address{PlatformID: local}, channel.Op{Kind: channel.OpText, Files: []channel.File{file("a", "half")}}, "k")
	if err != nil || r.IDs[0] != entry {
		t.Fatal(r, err)
	}
	left, err := filepath.Glob(filepath.Join(a.files, "local", "*", "*"))
	if err != nil || len(left) != 1 {
		t.Errorf("left: %v, %v", left, err)
	}
	if hidden, _ := filepath.Glob(filepath.Join(a.files, "local", ".*")); len(hidden) > 0 {
		t.Errorf("left: %v", hidden)
	}
	if b, err := os.ReadFile(filepath.Join(a.files, "local", entry, "a")); err != nil || string(b) != "half" {
		t.Errorf("%q, %v", b, err)
	}
}

// Files go with their entries, and only then.
func TestFilesAreKeptAsLongAsTheirMessages(t *testing.T) {
	t.Parallel()
	a, _ := running(t, channeltest.NewHost())
	place := channel.Address{PlatformID: local}
	names := func() int {
		all, err := filepath.Glob(filepath.Join(a.files, "local", "*", "a"))
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	r, err := a.Deliver(t.Context(), place, channel.Op{Kind: channel.OpText, Files: []channel.File{file("a", "old")}}, "old")
	if err != nil {
		t.Fatal(err)
	}
	for i := range keepEntries + pruneEvery {
		if i == keepEntries {
			if _, err := a.Deliver(t.Context(), place, channel.Op{Kind: channel.OpText, Files: []channel.File{file("a", "new")}}, "new"); err != nil {
				t.Fatal(err)
			}
		}
		deliver(t, a, fmt.Sprint(i), "x")
	}
	if names() != 2 {
		t.Fatalf("%d files before anything was acknowledged, want 2", names())
	}
	if err := a.Ack(t.Context(), local, keepEntries); err != nil {
		t.Fatal(err)
	}
	for i := range pruneEvery {
		deliver(t, a, fmt.Sprint("more", i), "x")
	}
	if names() != 1 {
		t.Errorf("%d files, want the new one", names())
	}
	if _, _, err := a.File(t.Context(), local, r.IDs[0], "a"); !control.IsCode(err, control.CodeNotFound) {
		t.Errorf("the old file: %v", err)
	}
}

// Nothing but a file of an entry can be read, whatever is asked for.
func TestOnlyFilesOfEntriesAreServed(t *testing.T) {
	t.Parallel()
	a, _ := running(t, channeltest.NewHost())
	r, err := a.Deliver(t.Context(), channel.Address{PlatformID: local}, channel.Op{Kind: channel.OpText, Files: []channel.File{file("a", "x")}}, "k")
	if err != nil {
		t.Fatal(err)
	}
	entry := r.IDs[0]
	secret := filepath.Join(a.files, "secret")
	if err := os.WriteFile(secret, []byte("s"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(secret, filepath.Join(a.files, "local", entry, "link")); err != nil {
		t.Fatal(err)
	}
	for _, c := range [][3]string{{local, entry, "../../secret"}, {local, "..", "secret"}, {local, entry, "link"}, {local, entry, ""}, {local, entry, "."}, {"cli:..", entry, "a"},
		{"cli:other", entry, "a"}, {local, "", "a"}, {local, entry, "b"}, {"slack:x", entry, "a"}} {
		if f, _, err := a.File(t.Context(), c[0], c[1], c[2]); err == nil {
			_ = f.Close()
			t.Errorf("%q is served", c)
		}
	}
}
