package host

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// programs are our own programs as sandboxes get them: copied at start to <home>/bin/<sha256>/ and checked before each
// spawn, so that a rebuilt or damaged file never runs by surprise (design.md section 3).
type programs struct {
	dir     string // <home>/bin
	sum     map[string]string
	settled time.Duration

	mu    sync.Mutex
	known map[string]stamp // files whose bytes were right when they looked like this
}

// stamp is how a file looks. Nobody can set the time of the last change (ctim), and every write moves it on; only a write
// within the same tick of the clock does not, so a stamp counts once it is older than settled.
type stamp struct {
	dev, ino   uint64
	size       int64
	mtim, ctim unix.Timespec
}

// settled is far above any tick of a file system's clock.
const settled = 2 * time.Second

// runnerName is the program inside a sandbox.
const runnerName = "agent-runner"

// installPrograms copies the named programs from the folder of this executable.
func installPrograms(home, from string, names ...string) (*programs, error) {
	p := &programs{dir: filepath.Join(home, "bin"), sum: map[string]string{}, settled: settled, known: map[string]stamp{}}
	for _, name := range names {
		sum, err := p.install(filepath.Join(from, name), name)
		if err != nil {
			return nil, fmt.Errorf("install %s: %w", name, err)
		}
		p.sum[name] = sum
	}
	return p, nil
}

func (p *programs) install(source, name string) (string, error) {
	sum, err := fileSum(source)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("%w (the three programs belong into one folder; build them with `make`)", err)
		}
		return "", err
	}
	target := filepath.Join(p.dir, sum, name)
	if err := p.check(target, sum); err == nil {
		return sum, nil
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return "", err
	}
	in, err := os.Open(source)
	if err != nil {
		return "", err
	}
	defer func() { _ = in.Close() }()
	tmp, err := os.CreateTemp(filepath.Dir(target), "."+name)
	if err != nil {
		return "", err
	}
	defer func() { _ = os.Remove(tmp.Name()) }()
	if _, err := io.Copy(tmp, in); err != nil {
		return "", errors.Join(err, tmp.Close())
	}
	if err := errors.Join(tmp.Chmod(0o755), tmp.Close()); err != nil {
		return "", err
	}
	return sum, os.Rename(tmp.Name(), target)
}

var errChanged = errors.New("its bytes have changed since the host started (restart the host)")

// path of a program whose bytes are still those that were installed.
func (p *programs) path(name string) (string, error) {
	sum := p.sum[name]
	path := filepath.Join(p.dir, sum, name)
	if err := p.check(path, sum); err != nil {
		return "", fmt.Errorf("check program %s: %w", name, err)
	}
	return path, nil
}

// check reads the whole file, which costs 10 to 15 ms, unless nothing about it has changed since it was read.
func (p *programs) check(path, sum string) error {
	before, err := look(path)
	if err != nil {
		return err
	}
	p.mu.Lock()
	right := p.known[path] == before
	p.mu.Unlock()
	if right {
		return nil
	}
	began := time.Now()
	have, err := fileSum(path)
	if err != nil {
		return err
	}
	if have != sum {
		return errChanged
	}
	after, err := look(path)
	if err != nil || after != before || began.Sub(time.Unix(before.ctim.Unix())) < p.settled {
		return err
	}
	p.mu.Lock()
	p.known[path] = before
	p.mu.Unlock()
	return nil
}

func look(path string) (stamp, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return stamp{}, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	return stamp{dev: st.Dev, ino: st.Ino, size: st.Size, mtim: st.Mtim, ctim: st.Ctim}, nil
}

func fileSum(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
