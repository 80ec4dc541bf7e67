package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"nanoclaw/internal/sandbox/local"
	"nanoclaw/internal/session"
)

// keepWords keeps what a sandbox said last in the session's folder, where the runtime keeps no file itself; what the one before
// said stays beside it.
func keepWords(dir, words string) error {
	state := filepath.Join(dir, "sandbox")
	if words == "" {
		return nil
	}
	if err := os.MkdirAll(state, 0o700); err != nil {
		return err
	}
	f, err := local.OpenLog(state)
	if err != nil {
		return err
	}
	_, err = f.WriteString(words)
	return errors.Join(err, f.Close())
}

// pruneWords removes the logs of sandboxes whose last line is older than the setting log.max_age_days. That of a running sandbox
// stays: it still writes there.
func (h *Host) pruneWords(now time.Time) error {
	age := h.opt.Settings.LogMaxAge
	if age <= 0 {
		return nil
	}
	running := map[string]bool{}
	for _, l := range h.sessions.Live() {
		running[string(l.Session)] = l.State != session.Absent
	}
	return pruneLogs(filepath.Join(h.opt.Settings.Home, "sessions"), now.Add(-age), running)
}

func pruneLogs(sessions string, before time.Time, running map[string]bool) error {
	groups, err := os.ReadDir(sessions)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("prune logs: %w", err)
	}
	for _, g := range groups {
		all, err := os.ReadDir(filepath.Join(sessions, g.Name()))
		if err != nil {
			continue // no folder
		}
		for _, s := range all {
			current := local.LogPath(filepath.Join(sessions, g.Name(), s.Name(), "sandbox"))
			paths := []string{current + ".1"}
			if !running[s.Name()] {
				paths = append(paths, current)
			}
			for _, path := range paths {
				if st, err := os.Lstat(path); err != nil || !st.Mode().IsRegular() || !st.ModTime().Before(before) {
					continue
				}
				if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
					return fmt.Errorf("prune logs: %w", err)
				}
			}
		}
	}
	return nil
}
