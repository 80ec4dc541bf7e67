package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"nanoclaw/internal/control"
	"nanoclaw/internal/testkit/modelserver"
)

// claude is an agent with the real CLI: what our part costs in memory beside the CLI's own.
func claude(ctx context.Context, b *bundle) ([]row, error) {
	found, err := filepath.Glob(".cache/claude-code-*/claude")
	if err != nil || len(found) == 0 {
		return nil, errors.Join(err, errors.New("the claude CLI is missing (scripts/fetch-claude)"))
	}
	program, err := filepath.Abs(found[len(found)-1])
	if err != nil {
		return nil, err
	}
	api, err := modelserver.Start(modelserver.Options{})
	if err != nil {
		return nil, err
	}
	defer api.Close()
	m, _, err := b.host(ctx, filepath.Join(b.work, "claude"), fmt.Sprintf("[sandbox]\nkind = \"bubblewrap\"\n[claude]\nprogram = %q\n[anthropic]\nbase_url = %q\n", program, api.URL()))
	if err != nil {
		return nil, err
	}
	defer m.stop(ctx)
	if err := m.client.PutSecret(ctx, control.Secret{Name: control.SecretAnthropic, Kind: control.SecretAPIKey, Value: "sk-bench"}); err != nil {
		return nil, err
	}
	if _, err := m.client.Bootstrap(ctx, control.BootstrapRequest{}); err != nil {
		return nil, err
	}
	for i := range 3 {
		name := fmt.Sprintf("c%d", i)
		text := modelserver.Script(modelserver.Step{Text: `<message to="terminal">pong ` + name + `.</message>`})
		if _, err := m.client.Say(ctx, control.DefaultConversation, control.Say{ID: name, Text: text}); err != nil {
			return nil, err
		}
		if err := m.reply(ctx, name); err != nil {
			return nil, err
		}
	}
	time.Sleep(rest)
	cli, ours := 0.0, 0.0
	for _, p := range below(m) {
		if p.program == "claude" {
			cli += p.pss
		} else {
			ours += p.pss
		}
	}
	if cli == 0 {
		return nil, errors.New("no claude process was found")
	}
	return []row{{Name: "agent with the claude CLI, at rest: PSS of all its processes", Unit: "MB", P50: cli + ours, P95: cli + ours, Floor: cli, Goal: "≤ floor (the CLI) + 10", OK: ours <= 10}}, nil
}

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
