package local

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"nanoclaw/internal/id"
	"nanoclaw/internal/sandbox"
	"nanoclaw/internal/sandbox/limit"
)

// recordVersion is the format that this program writes, and the only one it reads.
const recordVersion = 1

// Record is what a later host needs to find a sandbox again. It is a JSON file, replaced by rename.
type Record struct {
	Version  int            `json:"version"`
	Runtime  string         `json:"runtime"`
	Labels   sandbox.Labels `json:"labels"`
	Boot     string         `json:"boot"`
	Runner   Proc           `json:"runner"`           // the sandbox's first process; zero while it is being set up
	Monitor  Proc           `json:"monitor,omitzero"` // bubblewrap itself; zero if there is none
	StateDir string         `json:"state_dir"`        // of the spec
	Group    *limit.Group   `json:"group,omitempty"`
	Started  time.Time      `json:"started"`
}

// alive reports whether anything of the recorded sandbox may still run.
func (r Record) alive(boot string) bool {
	return r.Boot == boot && (r.Runner.Alive() || r.Monitor.Alive())
}

func key(runtime, install, session string) string {
	return id.Derived("box", runtime, install, session)
}

func writeRecord(dir, key string, r Record) error {
	b, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("write sandbox record: %w", err)
	}
	temporary := filepath.Join(dir, id.New("new"))
	if err := os.WriteFile(temporary, b, 0o600); err != nil {
		return fmt.Errorf("write sandbox record: %w", err)
	}
	if err := os.Rename(temporary, filepath.Join(dir, key+".json")); err != nil {
		_ = os.Remove(temporary)
		return fmt.Errorf("write sandbox record: %w", err)
	}
	return nil
}

func readRecord(path string) (Record, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return Record{}, fmt.Errorf("read sandbox record: %w", err)
	}
	return parseRecord(b)
}

func parseRecord(b []byte) (Record, error) {
	var r Record
	if err := json.Unmarshal(b, &r); err != nil {
		return Record{}, fmt.Errorf("read sandbox record: %w", err)
	}
	if r.Version != recordVersion {
		return Record{}, fmt.Errorf("read sandbox record: version %d, this program knows %d", r.Version, recordVersion)
	}
	if !id.Safe(r.Labels.Install) || !id.Safe(r.Labels.Session) || !filepath.IsAbs(r.StateDir) {
		return Record{}, errors.New("read sandbox record: labels or state folder are broken")
	}
	return r, nil
}

// records lists the files of records in dir; a missing dir has none.
func records(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list sandbox records: %w", err)
	}
	var paths []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".json") && e.Type().IsRegular() {
			paths = append(paths, filepath.Join(dir, e.Name()))
		}
	}
	return paths, nil
}

// lock is held while a sandbox is started or its record removed, also against other processes.
type lock struct {
	f    *os.File
	path string
}

// errLocked: another start of the same session is under way.
var errLocked = errors.New("locked")

func takeLock(dir, key string) (*lock, error) {
	path := filepath.Join(dir, key+".lock")
	for {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return nil, fmt.Errorf("lock sandbox: %w", err)
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			_ = f.Close()
			if errors.Is(err, unix.EWOULDBLOCK) {
				return nil, errLocked
			}
			return nil, fmt.Errorf("lock sandbox: %w", err)
		}
		mine, err1 := f.Stat()
		there, err2 := os.Stat(path)
		if err1 == nil && err2 == nil && os.SameFile(mine, there) {
			return &lock{f, path}, nil
		}
		_ = f.Close() // its last holder removed the file in between
	}
}

func (l *lock) release() {
	_ = os.Remove(l.path)
	_ = l.f.Close()
}
