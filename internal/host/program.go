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
)

// programs are our own programs as sandboxes get them: copied at start to <home>/bin/<sha256>/ and checked before each
// spawn, so that a rebuilt or damaged file never runs by surprise (design.md section 3).
type programs struct {
	dir string // <home>/bin
	sum map[string]string
}

// Our programs inside a sandbox: the one that runs there, and the admin client for the agent's shell.
const (
	runnerName = "agent-runner"
	clientName = "ncl"
)

// installPrograms copies the named programs from the folder of this executable.
func installPrograms(home, from string, names ...string) (*programs, error) {
	p := &programs{dir: filepath.Join(home, "bin"), sum: map[string]string{}}
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
	if have, err := fileSum(target); err == nil && have == sum {
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

// path of a program whose bytes are still those that were installed.
func (p *programs) path(name string) (string, error) {
	sum := p.sum[name]
	path := filepath.Join(p.dir, sum, name)
	have, err := fileSum(path)
	if err != nil {
		return "", fmt.Errorf("check program %s: %w", name, err)
	}
	if have != sum {
		return "", fmt.Errorf("check program %s: its bytes have changed since the host started (restart the host)", name)
	}
	return path, nil
}

// paths of several programs, checked at the same time: each spawn waits for it.
func (p *programs) paths(names ...string) ([]string, error) {
	out, errs := make([]string, len(names)), make([]error, len(names))
	var wait sync.WaitGroup
	for i, name := range names {
		wait.Go(func() { out[i], errs[i] = p.path(name) })
	}
	wait.Wait()
	return out, errors.Join(errs...)
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
