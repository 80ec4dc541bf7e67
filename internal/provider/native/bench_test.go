package native_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"nanoclaw/internal/provider"
	"nanoclaw/internal/provider/native"
	"nanoclaw/internal/provider/native/wire"
	"nanoclaw/internal/testkit/modelserver"
)

// BenchmarkFirstResult is a fresh conversation up to its first result, with a tool server over HTTP and a model that answers at
// once.
func BenchmarkFirstResult(b *testing.B) {
	for name, made := range wires() {
		b.Run(name, func(b *testing.B) {
			api, err := modelserver.Start(modelserver.Options{})
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(api.Close)
			server := mcp.NewServer(&mcp.Implementation{Name: "nanoclaw", Version: "test"}, nil)
			for _, n := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
				mcp.AddTool(server, &mcp.Tool{Name: n, Description: "Does " + n}, func(context.Context, *mcp.CallToolRequest, struct {
					Text string `json:"text"`
				}) (*mcp.CallToolResult, struct{}, error) {
					return nil, struct{}{}, nil
				})
			}
			web := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil))
			b.Cleanup(web.Close)
			c := &http.Client{Transport: &http.Transport{}}
			b.Cleanup(c.CloseIdleConnections)
			home, cwd := b.TempDir(), b.TempDir()
			for b.Loop() {
				p, err := native.New(native.Options{
					Wire: func() wire.Wire { return made(wire.Endpoint{URL: api.URL(), Client: c, First: 1e11, Idle: 1e11}) }, Home: home, HTTP: c,
				})
				if err != nil {
					b.Fatal(err)
				}
				q, err := p.Query(b.Context(), provider.QueryInput{
					Cwd: cwd, Input: provider.Input{ID: "a", Text: "hello " + modelserver.Script(modelserver.Step{Text: "hi"})},
					MCP: []provider.MCPServer{{Name: "nanoclaw", URL: web.URL}},
				})
				if err != nil {
					b.Fatal(err)
				}
				for e := range q.Events() {
					if e.Kind == provider.Result {
						break
					}
				}
				b.StopTimer()
				q.Abort()
				for range q.Events() {
				}
				b.StartTimer()
			}
		})
	}
}
