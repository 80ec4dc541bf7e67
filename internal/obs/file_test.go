package obs

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

func names(t *testing.T, dir string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

// A log is bounded: in the size of a file, in the number of files, in age; a line is never split.
func TestFileIsBounded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	now := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	path := filepath.Join(dir, "logs", "x.log")
	var followed []string
	f, err := OpenFile(path, FileOptions{MaxBytes: 100, MaxAge: 48 * time.Hour, Keep: 3, Now: func() time.Time { return now },
		Follow: func(f *os.File) error { followed = append(followed, f.Name()); return nil }})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "logs", "x-mine.log"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for i := range 40 {
		now = now.Add(time.Second)
		if _, err := fmt.Fprintf(f, "line %02d 2345678901\n", i); err != nil {
			t.Fatal(err)
		}
	}
	if got := names(t, filepath.Dir(path)); len(got) != 5 || len(followed) != 8 {
		t.Errorf("files %q, opened %d times; want 3 put aside, the current one and the stranger", got, len(followed))
	}
	for _, n := range names(t, filepath.Dir(path)) {
		b, err := os.ReadFile(filepath.Join(dir, "logs", n))
		if err != nil || len(b) > 100 || len(b)%19 != 0 {
			t.Errorf("%s has %d bytes, %v", n, len(b), err)
		}
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
	now = now.Add(49 * time.Hour) // the current file is old, those put aside are too old
	if _, err := f.Write([]byte("late\n")); err != nil {
		t.Fatal(err)
	}
	if got := names(t, filepath.Dir(path)); len(got) != 3 {
		t.Errorf("after two days: %q; want what was just put aside, the stranger and the new file", got)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if _, err := f.Write(nil); !errors.Is(err, os.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// A host that starts again goes on in its file, and knows how old that is from the first line.
func TestFileGoesOn(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "x.log")
	now := time.Now()
	for _, json := range []bool{false, true} {
		var b bytes.Buffer
		Logger(&b, nil, json).Info("first")
		old := strings.Replace(b.String(), now.UTC().Format("2006"), "2020", 1)
		if err := os.WriteFile(path, []byte(old), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := OpenFile(path, FileOptions{MaxAge: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write([]byte("second\n")); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != "second\n" {
			t.Errorf("%q, %v: lines of years ago stay", got, err)
		}
		_ = f.Close()
	}
}

// Somebody else may move the file, and a file that cannot be put aside goes on growing: no line is lost.
func TestFileLosesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "x.log")
	fail := false
	f, err := OpenFile(path, FileOptions{MaxBytes: 10, Follow: func(*os.File) error {
		if fail {
			return errors.New("no")
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	write := func(s string) {
		t.Helper()
		if _, err := f.Write([]byte(s)); err != nil {
			t.Fatal(err)
		}
	}
	write("one\n")
	if err := os.Rename(path, filepath.Join(dir, "moved")); err != nil {
		t.Fatal(err)
	}
	if err := f.Reopen(); err != nil {
		t.Fatal(err)
	}
	write("two\n")
	fail = true
	write("three too large\n")
	write("four\n")
	b, err := os.ReadFile(path)
	if err != nil || !strings.HasPrefix(string(b), "two\n") || !strings.HasSuffix(string(b), "three too large\nfour\n") || strings.Count(string(b), "put aside") != 1 {
		t.Errorf("%q, %v", b, err)
	}
}

func TestFileTakesManyWriters(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f, err := OpenFile(filepath.Join(dir, "x.log"), FileOptions{MaxBytes: 4000, Keep: 1000})
	if err != nil {
		t.Fatal(err)
	}
	log := Logger(f, nil, false)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 100 {
				log.Info("x", KeyName, "y")
			}
		})
	}
	all.Wait()
	_ = f.Close()
	lines := 0
	for _, n := range names(t, dir) {
		b, err := os.ReadFile(filepath.Join(dir, n))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(b)) {
			if strings.Contains(line, "name=y\n") {
				lines++
			}
		}
	}
	if lines != 800 {
		t.Errorf("%d lines of 800", lines)
	}
}

// P7: a value that is known to be secret is replaced wherever it stands, also in loggers derived before it was known.
func TestHide(t *testing.T) {
	t.Parallel()
	const value = "sk-marker-1234"
	for _, json := range []bool{false, true} {
		var b bytes.Buffer
		log := Logger(&b, slog.LevelDebug, json)
		derived := log.With(KeyComponent, "x").WithGroup("g")
		Hide(log, NewSecret(value))
		Hide(log, NewSecret(value))
		Hide(log, NewSecret("short"))
		derived.Info("key "+value, KeyReason, "Bearer "+value, Error(errors.New("401: "+value)), KeyWhat, struct{ A []string }{[]string{value}})
		derived.With(KeyName, value).Warn("short")
		if s := b.String(); strings.Contains(s, value) || strings.Count(s, redacted) != 5 || strings.Count(s, "short") != 1 {
			t.Errorf("%s", s)
		}
	}
	Hide(slog.Default(), NewSecret(value)) // not ours: nothing happens
}

func TestLevels(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	log := Logger(&b, slog.LevelWarn, false)
	derived := log.With(KeyComponent, "x")
	derived.Info("first")
	if Level(derived) != slog.LevelWarn || !SetLevel(log, slog.LevelDebug) || Level(derived) != slog.LevelDebug {
		t.Error("the level did not change for what was derived")
	}
	derived.Debug("two")
	if s := b.String(); strings.Contains(s, "first") || !strings.Contains(s, "two") {
		t.Errorf("%q", s)
	}
	if SetLevel(Discard(), slog.LevelDebug) || Level(Discard()) != slog.LevelInfo {
		t.Error("a foreign logger took a level")
	}
	for _, l := range []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError} {
		if got, err := ParseLevel(LevelName(l)); err != nil || got != l {
			t.Errorf("%v: %v %v", l, got, err)
		}
	}
	if _, err := ParseLevel("INFO+2"); err == nil {
		t.Error("a strange level was taken")
	}
}
