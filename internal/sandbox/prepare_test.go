package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

type owner struct {
	uid, gid int
	mode     os.FileMode
}

func ownerOf(t *testing.T, path string) owner {
	t.Helper()
	st, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !ok {
		t.Fatal("no owner")
	}
	return owner{int(sys.Uid), int(sys.Gid), st.Mode().Perm()}
}

// prepared is a spec whose uid the test may hand files to.
func prepared(t *testing.T) (s Spec, root bool) {
	t.Helper()
	s = valid(t)
	if root = os.Geteuid() == 0; !root {
		s.UID, s.GID = os.Getuid(), os.Getgid()
	}
	return s, root
}

func TestPrepareHandsOverAndFollowsNoLink(t *testing.T) {
	t.Parallel()
	s, root := prepared(t)
	outside := filepath.Join(t.TempDir(), "precious")
	if err := os.WriteFile(outside, []byte("host"), 0o600); err != nil {
		t.Fatal(err)
	}
	before := ownerOf(t, outside)
	in, group := s.Mounts[1].Source, s.Mounts[3].Source
	for _, dir := range []string{filepath.Join(in, "inbox", "row"), filepath.Join(group, "deep", "er")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(outside, filepath.Join(dir, "link")); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // idempotent
		if err := Prepare(s); err != nil {
			t.Fatal(err)
		}
	}
	host := owner{os.Getuid(), s.GID, 0o750}
	hostFile := owner{os.Getuid(), s.GID, 0o640}
	for path, want := range map[string]owner{
		in: host, filepath.Join(in, "inbox"): host, filepath.Join(in, "inbox", "row"): host, filepath.Join(in, "inbox", "row", "file"): hostFile,
		filepath.Join(in, "container.json"): hostFile,
		group:                               {s.UID, s.GID, 0o700}, filepath.Join(group, "deep", "er"): {s.UID, s.GID, 0o700},
		filepath.Join(group, "deep", "er", "file"): {s.UID, s.GID, 0o600},
		filepath.Join(group, "container.json"):     {s.UID, s.GID, 0o600},
	} {
		if got := ownerOf(t, path); got != want {
			t.Errorf("%s is %+v, want %+v", path, got, want)
		}
	}
	if got := ownerOf(t, outside); got != before {
		t.Errorf("a file behind a link went from %+v to %+v", before, got)
	}
	if root {
		if got := ownerOf(t, s.Mounts[0].Source); got.uid != 0 {
			t.Errorf("the program was given to %d", got.uid)
		}
	}
}

func TestPrepareMakesRoomInHostilePlaces(t *testing.T) {
	t.Parallel()
	s, _ := prepared(t)
	group := s.Mounts[3].Source
	victim := filepath.Join(t.TempDir(), "victim")
	if err := os.WriteFile(victim, []byte("untouched"), 0o600); err != nil {
		t.Fatal(err)
	}
	planted := filepath.Join(group, "container.json")
	if err := os.Symlink(victim, planted); err != nil {
		t.Fatal(err)
	}
	if err := Prepare(s); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Lstat(planted); err != nil || !st.Mode().IsRegular() {
		t.Errorf("a planted link is still where the settings land: %v", err)
	}
	if b, err := os.ReadFile(victim); err != nil || string(b) != "untouched" {
		t.Errorf("the link was followed: %q, %v", b, err)
	}
	if err := os.Remove(planted); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(planted, 0o700); err != nil {
		t.Fatal(err)
	}
	var f *Failure
	if err := Prepare(s); !errors.As(err, &f) || f.Class != Denied {
		t.Errorf("a folder in the way of a file: %v", err)
	}
}

func TestPrepareMakesNestedFolders(t *testing.T) {
	t.Parallel()
	s, _ := prepared(t)
	s.Mounts = append(s.Mounts, Mount{Class: ClassExtra, Source: t.TempDir(), Target: "/workspace/agent/a/b"})
	if err := Prepare(s); err != nil {
		t.Fatal(err)
	}
	for _, sub := range []string{"a", "a/b"} {
		if got := ownerOf(t, filepath.Join(s.Mounts[3].Source, sub)); got.uid != s.UID {
			t.Errorf("%s belongs to %d", sub, got.uid)
		}
	}
}

// A walk that was interrupted leaves the top with the old owner, so that the next one repeats it.
func TestPrepareResumes(t *testing.T) {
	t.Parallel()
	s, root := prepared(t)
	if !root {
		t.Skip("needs root to own files as another user")
	}
	file := filepath.Join(s.Mounts[3].Source, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Prepare(s); err != nil {
		t.Fatal(err)
	}
	s.UID, s.GID = s.UID+1, s.GID+1 // the setting was changed
	if err := Prepare(s); err != nil {
		t.Fatal(err)
	}
	if got := ownerOf(t, file); got.uid != s.UID || got.gid != s.GID {
		t.Errorf("the file stayed with %+v", got)
	}
}
