package providertest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"nanoclaw/internal/provider"
)

// Tools are the tools of one test: add gives the sum of a and b, block returns once Release is called or the call is
// cancelled. They are served over streamable HTTP with a bearer token, as the runner's are.
type Tools struct {
	url      string
	release  chan struct{}
	once     sync.Once
	Blocked  chan struct{} // receives when block was called
	Canceled chan struct{} // receives when a call of block was cancelled
}

const bearer = "Bearer providertest-0123456789"

type addInput struct {
	A int `json:"a"`
	B int `json:"b"`
}

type addOutput struct {
	Sum int `json:"sum"`
}

func newTools(t *testing.T) *Tools {
	tools := &Tools{release: make(chan struct{}), Blocked: make(chan struct{}, 8), Canceled: make(chan struct{}, 8)}
	server := mcp.NewServer(&mcp.Implementation{Name: "nanoclaw", Version: "test"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "add", Description: "Adds two numbers."},
		func(_ context.Context, _ *mcp.CallToolRequest, in addInput) (*mcp.CallToolResult, addOutput, error) {
			return nil, addOutput{Sum: in.A + in.B}, nil
		})
	mcp.AddTool(server, &mcp.Tool{Name: "block", Description: "Waits."},
		func(ctx context.Context, _ *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, struct{}, error) {
			return nil, struct{}{}, tools.block(ctx)
		})
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != bearer {
			http.Error(w, "no token", http.StatusUnauthorized)
			return
		}
		handler.ServeHTTP(w, r)
	}))
	tools.url = web.URL
	t.Cleanup(func() {
		tools.Release()
		web.CloseClientConnections()
		web.Close()
		for s := range server.Sessions() {
			_ = s.Close()
		}
	})
	return tools
}

// Server is how a provider reaches the tools.
func (t *Tools) Server() provider.MCPServer {
	return provider.MCPServer{Name: "nanoclaw", URL: t.url, Headers: map[string]string{"Authorization": bearer}, AlwaysLoad: true}
}

// Release lets every call of block return.
func (t *Tools) Release() { t.once.Do(func() { close(t.release) }) }

func (t *Tools) block(ctx context.Context) error {
	t.Blocked <- struct{}{}
	select {
	case <-t.release:
		return nil
	case <-ctx.Done():
		t.Canceled <- struct{}{}
		return ctx.Err()
	}
}

// Call runs a tool directly, for providers that live in the runner's process.
func (t *Tools) Call(ctx context.Context, name string, args json.RawMessage) (string, error) {
	switch name {
	case "add":
		var in addInput
		if err := json.Unmarshal(args, &in); err != nil {
			return "", err
		}
		return fmt.Sprintf(`{"sum":%d}`, in.A+in.B), nil
	case "block":
		return "", t.block(ctx)
	}
	return "", errors.New("unknown tool " + name)
}
