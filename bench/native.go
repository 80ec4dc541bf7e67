package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"nanoclaw/internal/control"
	"nanoclaw/internal/provider"
	"nanoclaw/internal/provider/native"
	"nanoclaw/internal/provider/native/wire"
	"nanoclaw/internal/provider/native/wire/anthropic"
	"nanoclaw/internal/testkit/modelserver"
)

// loop is our own agent loop on a scripted model: how soon a fresh conversation has its first result, and what an agent weighs
// after a hundred turns with a command each.
func loop(ctx context.Context, b *bundle) ([]row, error) {
	api, err := modelserver.Start(modelserver.Options{})
	if err != nil {
		return nil, err
	}
	defer api.Close()
	first, err := firstResults(ctx, b, api.URL())
	if err != nil {
		return nil, err
	}
	m, _, err := b.host(ctx, filepath.Join(b.work, "native"), fmt.Sprintf("[sandbox]\nkind = \"bubblewrap\"\n[anthropic]\nbase_url = %q\n", api.URL()))
	if err != nil {
		return first, err
	}
	defer m.stop(ctx)
	if err := m.client.PutSecret(ctx, control.Secret{Name: control.SecretAnthropic, Kind: control.SecretAPIKey, Value: "sk-bench"}); err != nil {
		return first, err
	}
	if _, err := m.client.Bootstrap(ctx, control.BootstrapRequest{}); err != nil {
		return first, err
	}
	f, err := m.client.Admin(ctx, control.AdminRequest{Command: "groups-config-update", Args: map[string]json.RawMessage{"provider": json.RawMessage(`"anthropic"`), "model": json.RawMessage(`"bench"`)}})
	if err != nil || !f.OK {
		return first, fmt.Errorf("choose the provider: %w %v", err, f.Error)
	}
	for i := range 100 {
		name := fmt.Sprintf("n%d", i)
		text := modelserver.Script(
			modelserver.Step{Tools: []modelserver.Tool{{Name: "Bash", Input: json.RawMessage(`{"command":"seq 200"}`)}}},
			modelserver.Step{Text: `<message to="terminal">pong ` + name + `.</message>`})
		if _, err := m.client.Say(ctx, control.DefaultConversation, control.Say{ID: name, Text: text}); err != nil {
			return first, err
		}
		if err := m.reply(ctx, name); err != nil {
			return first, err
		}
	}
	time.Sleep(rest)
	sum := 0.0
	for _, p := range below(m) {
		sum += p.pss
	}
	return append(first, result("agent with our own loop after 100 turns with a command, at rest: PSS", "MB", []float64{sum}, 0, 30, 0, "≤ 30")), nil
}

func firstResults(ctx context.Context, b *bundle, url string) ([]row, error) {
	c := &http.Client{Transport: &http.Transport{}}
	defer c.CloseIdleConnections()
	var samples []float64
	for i := range b.n {
		home := filepath.Join(b.work, fmt.Sprintf("loop-%d", i))
		if err := os.MkdirAll(home, 0o700); err != nil {
			return nil, err
		}
		began := time.Now()
		p, err := native.New(native.Options{Wire: func() wire.Wire {
			return anthropic.New(anthropic.Options{Endpoint: wire.Endpoint{URL: url, Client: c, First: time.Minute, Idle: time.Minute}})
		}, Home: home, HTTP: c})
		if err != nil {
			return nil, err
		}
		q, err := p.Query(ctx, provider.QueryInput{Cwd: home, Input: provider.Input{ID: "a", Text: "hello " + modelserver.Script(modelserver.Step{Text: "hi"})}})
		if err != nil {
			return nil, err
		}
		for e := range q.Events() {
			if e.Kind == provider.Result {
				samples = append(samples, millis(time.Since(began)))
				break
			}
		}
		q.Abort()
		for range q.Events() {
		}
	}
	return []row{result("our own loop: a new conversation to its first result", "ms", samples, 0, 30, 0, "≤ 30")}, nil
}
