package obs

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// FileOptions of a log file. The zero value of a bound is no bound.
type FileOptions struct {
	MaxBytes int64         // a file that would grow beyond this is put aside first
	MaxAge   time.Duration // lines go when they are between one and two of this old
	Keep     int           // files put aside that stay; 0 is 10
	// Follow is called with every newly opened file, for example to point standard error at it: what a dying program says then
	// stands in the file that people look at. nil: nothing.
	Follow func(*os.File) error
	Now    func() time.Time // nil: time.Now
}

const (
	keptFiles = 10
	// asideLayout is the time in the name of a file put aside: it sorts as text and is one word.
	asideLayout = "20060102T150405.000Z"
)

// File is a log file that is bounded in size and age: `x.log` is put aside as `x-20260102T030405.000Z.log` and begun anew. It
// holds no goroutine and no timer. Write may be called from several goroutines; a line is never split between two files. When a
// file cannot be put aside (a full disk, another owner) writing goes on in the old one.
type File struct {
	path string
	opt  FileOptions

	mu    sync.Mutex
	f     *os.File
	size  int64
	began time.Time // of the first line
	again time.Time // no attempt to put it aside before this
}

// OpenFile opens or makes the file at path, mode 0600, and removes what has become too old beside it.
func OpenFile(path string, opt FileOptions) (*File, error) {
	if opt.Now == nil {
		opt.Now = time.Now
	}
	if opt.Keep <= 0 {
		opt.Keep = keptFiles
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	f := &File{path: path, opt: opt}
	if err := f.open(); err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	f.prune()
	return f, nil
}

func (f *File) open() error {
	file, err := os.OpenFile(f.path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	st, err := file.Stat()
	if err == nil && f.opt.Follow != nil {
		err = f.opt.Follow(file)
	}
	if err != nil {
		_ = file.Close()
		return err
	}
	if f.f != nil {
		_ = f.f.Close()
	}
	f.f, f.size, f.began = file, st.Size(), f.opt.Now()
	if f.size > 0 {
		f.began = firstTime(file, st.ModTime())
	}
	return nil
}

// firstTime is that of a log's first line, else otherwise.
func firstTime(file *os.File, otherwise time.Time) time.Time {
	b := make([]byte, 64)
	n, _ := file.ReadAt(b, 0)
	if i := bytes.Index(b[:n], []byte("time")); i >= 0 {
		word := strings.Trim(string(b[i+len("time"):n]), `=:" `)
		if t, err := time.Parse("2006-01-02T15:04:05.000Z", word[:min(len(word), len("2006-01-02T15:04:05.000Z"))]); err == nil {
			return t
		}
	}
	return otherwise
}

// Write appends b, a whole line.
func (f *File) Write(b []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.f == nil {
		return 0, os.ErrClosed
	}
	now := f.opt.Now()
	large := f.opt.MaxBytes > 0 && f.size+int64(len(b)) > f.opt.MaxBytes
	old := f.opt.MaxAge > 0 && now.Sub(f.began) > f.opt.MaxAge
	if f.size > 0 && (large || old) && !now.Before(f.again) {
		if err := f.aside(now); err != nil {
			f.again = now.Add(time.Minute)
			n, _ := fmt.Fprintf(f.f, "time=%s level=ERROR msg=%q error=%q\n", now.UTC().Format("2006-01-02T15:04:05.000Z"), "the log cannot be put aside", err)
			f.size += int64(n)
		}
	}
	n, err := f.f.Write(b)
	f.size += int64(n)
	return n, err
}

func (f *File) aside(now time.Time) error {
	ext := filepath.Ext(f.path)
	base := strings.TrimSuffix(f.path, ext)
	name := base + "-" + now.UTC().Format(asideLayout) + ext
	for range 1000 { // two in a millisecond
		if _, err := os.Lstat(name); err != nil {
			break
		}
		now = now.Add(time.Millisecond)
		name = base + "-" + now.UTC().Format(asideLayout) + ext
	}
	if err := os.Rename(f.path, name); err != nil {
		return err
	}
	if err := f.open(); err != nil {
		return errors.Join(err, os.Rename(name, f.path))
	}
	f.prune()
	return nil
}

// prune removes files put aside: those of a time too long ago, and the oldest beyond the number that stays. Others beside them
// are left alone.
func (f *File) prune() {
	ext := filepath.Ext(f.path)
	base := strings.TrimSuffix(filepath.Base(f.path), ext) + "-"
	entries, err := os.ReadDir(filepath.Dir(f.path))
	if err != nil {
		return
	}
	type put struct {
		name string
		at   time.Time
	}
	var all []put
	for _, e := range entries {
		word, ok := strings.CutPrefix(e.Name(), base)
		if at, err := time.Parse(asideLayout, strings.TrimSuffix(word, ext)); ok && err == nil && e.Type().IsRegular() {
			all = append(all, put{e.Name(), at})
		}
	}
	slices.SortFunc(all, func(a, b put) int { return cmp.Compare(b.name, a.name) })
	for i, p := range all {
		if i >= f.opt.Keep || f.opt.MaxAge > 0 && f.opt.Now().Sub(p.at) > f.opt.MaxAge {
			_ = os.Remove(filepath.Join(filepath.Dir(f.path), p.name))
		}
	}
}

// Reopen begins the file at its path again: somebody else has moved it. What is too old beside it goes.
func (f *File) Reopen() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.f == nil {
		return os.ErrClosed
	}
	if err := f.open(); err != nil {
		return fmt.Errorf("open log again: %w", err)
	}
	f.prune()
	return nil
}

// Close ends writing.
func (f *File) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.f == nil {
		return nil
	}
	err := f.f.Close()
	f.f = nil
	return err
}
