package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/mailbox/sqlite"
	"nanoclaw/internal/obs"
	"nanoclaw/internal/provider/mock"
	"nanoclaw/internal/runner"
	"nanoclaw/internal/runner/prompt"
	"nanoclaw/internal/runner/tool"
)

// tools is what a conversation costs beside the model: a batch out of many rows, a call of a tool, memory over a long life.
func tools(ctx context.Context, b *bundle) ([]row, error) {
	var all []row
	for _, part := range []func(context.Context, *bundle) ([]row, error){batches, calls, life} {
		rows, err := part(ctx, b)
		all = append(all, rows...)
		if err != nil {
			return all, err
		}
	}
	return all, nil
}

// batches fetches and renders ten rows while a hundred thousand wait.
func batches(ctx context.Context, b *bundle) ([]row, error) {
	s, err := b.session(ctx, "batches")
	if err != nil {
		return nil, err
	}
	defer s.end()
	for s.n < 100_000 {
		if err := s.put(ctx, 1000); err != nil {
			return nil, err
		}
	}
	box, err := sqlite.OpenRunner(ctx, s.dir, sqlite.RunnerOptions{Incarnation: 1})
	if err != nil {
		return nil, err
	}
	defer func() { _ = box.Close() }()
	var samples []float64
	for range 5 * b.n {
		began := time.Now()
		batch, err := box.Fetch(ctx, 10)
		if err != nil {
			return nil, err
		}
		prompt.Render(batch.Rows, prompt.Env{Now: began, Name: func(a mailbox.Address) (string, bool) {
			d, ok, err := box.DestinationFor(ctx, a)
			return d.Name, ok && err == nil
		}})
		samples = append(samples, millis(time.Since(began)))
		if len(batch.Rows) != 10 {
			return nil, fmt.Errorf("fetched %d rows, want 10", len(batch.Rows))
		}
	}
	return []row{result("fetch and render 10 of 100,000 waiting rows", "ms", samples, 0, 2, 0, "≤ 2")}, nil
}

// bearer adds the token of the tool server.
type bearer struct{ token string }

func (t bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+t.token)
	return http.DefaultTransport.RoundTrip(r)
}

// calls sends messages by the tool over HTTP, from the call to the answer, which comes when the message is on disk.
func calls(ctx context.Context, b *bundle) ([]row, error) {
	s, err := b.session(ctx, "calls")
	if err != nil {
		return nil, err
	}
	defer s.end()
	box, err := sqlite.OpenRunner(ctx, s.dir, sqlite.RunnerOptions{Incarnation: 1})
	if err != nil {
		return nil, err
	}
	defer func() { _ = box.Close() }()
	bell := sqlite.DialBell(ctx, filepath.Join(s.dir, "run"), 1, obs.Discard())
	defer func() { _ = bell.Close() }()
	loop := runner.New(runner.Options{Mailbox: box, Bell: bell, Provider: mock.New(mock.Options{Log: obs.Discard()}), Words: noWords{}, Limit: 10, Cwd: s.dir})
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- loop.Run(running) }()
	defer func() { stop(); <-ended }()
	server := tool.NewServer(tool.New(tool.Options{Session: loop, Cwd: s.dir}), obs.Discard())
	defer func() { _ = server.Close() }()
	url, token, err := server.URL(ctx)
	if err != nil {
		return nil, err
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "bench", Version: "1"}, nil)
	session, err := client.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: url, HTTPClient: &http.Client{Transport: bearer{token}}}, nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = session.Close() }()
	floor, err := openCommits(filepath.Join(s.dir, "floor.db"))
	if err != nil {
		return nil, err
	}
	least, err := floor.sample(ctx, b.n)
	if err != nil {
		return nil, err
	}
	var samples []float64
	for i := range 10 * b.n {
		began := time.Now()
		res, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "send_message", Arguments: map[string]string{"to": "terminal", "text": fmt.Sprint("number ", i)}})
		if err != nil || res.IsError {
			return nil, fmt.Errorf("call a tool: %w", err)
		}
		samples = append(samples, millis(time.Since(began)))
	}
	return []row{result("tool call over HTTP MCP, message on disk", "ms", samples, least/float64(b.n), 2, 0, "≤ 2")}, nil
}

// noWords is enough for a loop that is asked nothing.
type noWords struct{ runner.Words }

// life is memory: with the tools in use, and after ten thousand exchanges beside a few hundred.
func life(ctx context.Context, b *bundle) ([]row, error) {
	s, err := b.session(ctx, "life")
	if err != nil {
		return nil, err
	}
	defer s.end()
	if err := s.start(b); err != nil {
		return nil, err
	}
	if err := s.listTools(ctx, b); err != nil {
		return nil, err
	}
	time.Sleep(rest)
	idle := megabytes(s.cmd.Process.Pid, "VmRSS:")
	early, err := s.after(ctx, 500)
	if err != nil {
		return nil, err
	}
	late, err := s.after(ctx, 10_000)
	if err != nil {
		return nil, err
	}
	return []row{
		result("runner idle, its tools in use: RSS", "MB", []float64{idle}, 0, 14, 0, "≤ 14"),
		{Name: "runner: RSS after 10,000 further exchanges", Unit: "×", P50: late / early, P95: late / early, Floor: 1, Goal: "≤ 1.1", OK: late/early <= 1.1},
	}, nil
}

// listTools has a client of the runner's socket ask for the tools, and leave.
func (s *session) listTools(ctx context.Context, b *bundle) error {
	if err := s.put(ctx, 1); err != nil {
		return err
	}
	s.bell.Ring()
	if err := s.rowsOut(ctx, 1); err != nil { // the socket is open by now
		return err
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "bench", Version: "1"}, nil)
	session, err := client.Connect(ctx, &mcp.CommandTransport{Command: exec.CommandContext(ctx, filepath.Join(b.bin, "agent-runner"), "mcp", "--root", s.dir)}, nil)
	if err != nil {
		return fmt.Errorf("reach the tools: %w", err)
	}
	defer func() { _ = session.Close() }()
	res, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "send_message", Arguments: json.RawMessage(`{"to":"terminal","text":"by a tool"}`)})
	if err != nil || res.IsError {
		return fmt.Errorf("call a tool: %w", err)
	}
	return s.rowsOut(ctx, 1)
}

// after is the memory of the runner once it has had n more exchanges and rested.
func (s *session) after(ctx context.Context, n int) (float64, error) {
	for range n {
		if _, err := s.sample(ctx); err != nil {
			return 0, err
		}
		if err := s.settle(ctx); err != nil {
			return 0, err
		}
	}
	time.Sleep(rest)
	return megabytes(s.cmd.Process.Pid, "VmRSS:"), nil
}
