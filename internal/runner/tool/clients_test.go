package tool

import (
	"context"
	"fmt"
	"io"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"nanoclaw/internal/runner/door"
)

// W16: all clients, over HTTP and over stdio, work on one session in one process: every message arrives once and has a number
// of its own, however many write at the same time.
func TestW16ClientsShareOneSession(t *testing.T) {
	t.Parallel()
	const clients, each = 3, 20
	f, dir := &fake{}, t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	r := serve(t, New(Options{Session: f}))
	opened, err := door.Listen(ctx, dir, nil, r.Handler())
	must(t, err)
	var running sync.WaitGroup
	defer func() {
		cancel()
		opened.Wait()
		running.Wait()
	}()
	stdio := func() *mcp.ClientSession {
		inR, inW := io.Pipe()
		outR, outW := io.Pipe()
		running.Go(func() {
			_ = Stdio(ctx, dir, inR, outW)
			_ = outW.Close()
			_ = inR.Close()
		})
		return connect(t, &mcp.IOTransport{Reader: outR, Writer: inW})
	}
	var mu sync.Mutex
	numbers := map[string]string{}
	var writers sync.WaitGroup
	for c := range 2 * clients {
		client := stdio
		if c%2 == 0 {
			client = func() *mcp.ClientSession { return r.connect(t, nil) }
		}
		s := client()
		writers.Go(func() {
			for i := range each {
				text := fmt.Sprintf("%d of %d", i, c)
				res, err := s.CallTool(ctx, &mcp.CallToolParams{Name: "send_message", Arguments: map[string]any{"to": "me", "text": text}})
				if err != nil || res.IsError {
					t.Errorf("%s: %v", text, err)
					return
				}
				mu.Lock()
				if other, ok := numbers[res.Content[0].(*mcp.TextContent).Text]; ok {
					t.Errorf("%s and %s have one number", text, other)
				}
				numbers[res.Content[0].(*mcp.TextContent).Text] = text
				mu.Unlock()
			}
			_ = s.Close()
		})
	}
	writers.Wait()
	seen := map[string]int{}
	for _, one := range f.did {
		seen[one.(Message).Text]++
	}
	if len(seen) != 2*clients*each || len(f.did) != len(seen) {
		t.Errorf("%d messages, %d different, want %d", len(f.did), len(seen), 2*clients*each)
	}
}
