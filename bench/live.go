package main

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// live is the memory of one agent in Docker, all of its processes.
func live(ctx context.Context, b *bundle) ([]row, error) {
	m, _, err := b.host(ctx, filepath.Join(b.work, "live"), "[sandbox]\nkind = \"docker\"\nimage = \"nanoclaw-agent:test\"\n")
	if err != nil {
		return nil, err
	}
	defer m.stop(ctx)
	for range 5 {
		if _, err := m.roundTrip(ctx); err != nil {
			return nil, err
		}
	}
	time.Sleep(rest)
	total := 0.0
	for _, p := range below(m) {
		total += p.pss
	}
	return []row{result("memory per live session in Docker, at rest: PSS of all processes", "MB", []float64{total}, 0, 10, 0, "≤ 10")}, nil
}

// process of a sandbox.
type process struct {
	program string
	pss     float64 // MB
}

// below finds the processes of a home's sandboxes by the mount of its session folders: they see the home's paths.
func below(m *machine) (out []process) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() || pid == m.cmd.Process.Pid {
			continue
		}
		mounts, err := os.ReadFile(filepath.Join("/proc", e.Name(), "mountinfo"))
		if err != nil || !strings.Contains(string(mounts), m.home+"/sessions/") || !strings.Contains(string(mounts), " /workspace/in ") {
			continue
		}
		exe, err := os.Readlink(filepath.Join("/proc", e.Name(), "exe"))
		if err != nil {
			continue
		}
		if pss := megabytesIn(filepath.Join("/proc", e.Name(), "smaps_rollup"), "Pss:"); pss > 0 {
			out = append(out, process{filepath.Base(exe), pss})
		}
	}
	return out
}
