package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"nanoclaw/internal/control"
	"nanoclaw/internal/testkit/modelserver"
)

// programs compares agents that other makers' programs drive with those programs alone, on the same scripted model: a turn, the start
// and the memory.
func programs(ctx context.Context, b *bundle) ([]row, error) {
	var rows []row
	var failed error
	for _, d := range dialects() {
		r, err := b.program(ctx, d)
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", d.name, err))
		}
		rows = append(rows, r...)
	}
	return rows, failed
}

func (b *bundle) program(ctx context.Context, d dialect) ([]row, error) {
	found, err := filepath.Glob(map[string]string{"claude": ".cache/claude-code-*/claude"}[d.name] + map[string]string{"codex": ".cache/codex-*/bin/codex", "opencode": ".cache/opencode-*/bin/opencode"}[d.name])
	if err != nil || len(found) == 0 {
		return nil, errors.Join(err, fmt.Errorf("the program is missing (scripts/fetch-%s)", d.name))
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
	m, _, err := b.host(ctx, filepath.Join(b.work, d.name), fmt.Sprintf("[sandbox]\nkind = \"bubblewrap\"\n[%s]\nprogram = %q\n[anthropic]\nbase_url = %q\n[openai]\nbase_url = %[3]q\n", d.name, program, api.URL()))
	if err != nil {
		return nil, err
	}
	defer m.stop(ctx)
	for _, key := range []string{control.SecretAnthropic, control.SecretOpenAI} {
		if err := m.client.PutSecret(ctx, control.Secret{Name: key, Kind: control.SecretAPIKey, Value: "sk-bench"}); err != nil {
			return nil, err
		}
	}
	f, err := m.client.Admin(ctx, control.AdminRequest{Command: "groups-config-update", Args: map[string]json.RawMessage{"provider": json.RawMessage(fmt.Sprintf("%q", d.name)), "model": json.RawMessage(`"bench"`)}})
	if err != nil || !f.OK {
		return nil, errors.Join(err, fmt.Errorf("choose the provider: %v", f.Error))
	}

	folder := filepath.Join(b.work, d.name+"-alone")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, err
	}
	script := func(name string) string {
		return "hello " + modelserver.Script(modelserver.Step{Text: `<message to="terminal">pong ` + name + `.</message>`})
	}
	// as it stands in JSON
	want := func(name string) string { return `<message to=\"terminal\">pong ` + name + `.</message>` }
	whole := func(name string) (float64, error) {
		began := time.Now()
		if _, err := m.client.Say(ctx, control.DefaultConversation, control.Say{ID: name, Text: script(name)}); err != nil {
			return 0, err
		}
		if err := m.reply(ctx, name); err != nil {
			return 0, err
		}
		took := millis(time.Since(began))
		return took, m.settled(ctx, name)
	}

	began := time.Now()
	alone, err := d.start(ctx, program, folder, api.URL())
	if err != nil {
		return nil, err
	}
	defer alone.stop()
	if _, err := alone.turn(ctx, script("f"), want("f")); err != nil {
		return nil, fmt.Errorf("first turn alone: %w", err)
	}
	theirStart := millis(time.Since(began))
	ourStart, err := whole("o")
	if err != nil {
		return nil, fmt.Errorf("first turn: %w", err)
	}
	const warmUp = 3
	var ours, theirs, cost []float64
	for i := range max(b.n, 20) + warmUp {
		name := fmt.Sprintf("t%d", i)
		t, err := alone.turn(ctx, script(name), want(name))
		if err != nil {
			return nil, fmt.Errorf("turn %d alone: %w", i, err)
		}
		o, err := whole(name)
		if err != nil {
			return nil, fmt.Errorf("turn %d: %w", i, err)
		}
		if i >= warmUp {
			theirs, ours = append(theirs, millis(t)), append(ours, o)
			cost = append(cost, o-millis(t))
		}
	}
	time.Sleep(rest)
	var mb, mine float64
	for _, p := range below(m) {
		switch p.program {
		case "agent-runner", "bwrap":
			mine += p.pss
		default:
			mb += p.pss
		}
	}
	if mb == 0 {
		return nil, errors.New("no process of the program was found")
	}
	return []row{
		result(d.name+": a turn on top of the program's own", "ms", cost, 0, 20, 0, "≤ 20"),
		{Name: d.name + ": a turn, prompt to answer; floor: the program alone", Unit: "ms", P50: quantile(ours, 0.5), P95: quantile(ours, 0.95), Floor: quantile(theirs, 0.5), Goal: "for comparison", OK: true},
		{Name: d.name + ": start to first answer; floor: the program alone", Unit: "ms", P50: ourStart, P95: ourStart, Floor: theirStart, Goal: "for comparison", OK: true},
		{Name: d.name + ": PSS of all processes at rest; floor: the program's part", Unit: "MB", P50: mb + mine, P95: mb + mine, Floor: mb, Goal: "≤ floor + 10", OK: mine <= 10},
	}, nil
}
