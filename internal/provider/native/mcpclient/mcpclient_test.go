package mcpclient

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"nanoclaw/internal/obs"
	"nanoclaw/internal/provider"
	"nanoclaw/internal/provider/native/tool"
)

const stdioServer = "NANOCLAW_TEST_MCP_SERVER"

// TestMain is also a stdio server.
func TestMain(m *testing.M) {
	if os.Getenv(stdioServer) != "" {
		if err := newServer().Run(context.Background(), &mcp.StdioTransport{}); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

type sayInput struct {
	Text string `json:"text"`
}

func newServer() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	mcp.AddTool(s, &mcp.Tool{Name: "say", Description: "says it", Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true}},
		func(_ context.Context, _ *mcp.CallToolRequest, in sayInput) (*mcp.CallToolResult, any, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{
				&mcp.TextContent{Text: in.Text + os.Getenv("SHOWN")}, &mcp.ImageContent{Data: []byte("x"), MIMEType: "image/png"}, &mcp.AudioContent{Data: []byte("x"), MIMEType: "audio/ogg"},
				&mcp.ResourceLink{Name: "n", URI: "file:///n"}, &mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: "file:///e", Text: "embedded"}},
			}}, nil, nil
		})
	mcp.AddTool(s, &mcp.Tool{Name: "fail.now"}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
		return nil, nil, fmt.Errorf("it failed")
	})
	return s
}

func web(t *testing.T, server *mcp.Server, each func(http.ResponseWriter, *http.Request) bool) string {
	t.Helper()
	h := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if each == nil || each(w, r) {
			h.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
		for session := range server.Sessions() {
			_ = session.Close()
		}
	})
	return s.URL
}

func connect(t *testing.T, servers ...provider.MCPServer) *Set {
	t.Helper()
	tr := &http.Transport{}
	out := t.TempDir()
	s := Connect(t.Context(), servers, Options{
		Client: &http.Client{Transport: tr}, Cwd: t.TempDir(), Output: func() string { return out }, Wait: 10 * time.Second, Log: obs.Discard(),
		Environ: func(env map[string]string) []string {
			var list []string
			for k, v := range env {
				list = append(list, k+"="+v)
			}
			return list
		},
	})
	t.Cleanup(func() { s.Close(); tr.CloseIdleConnections() })
	return s
}

func names(tools []tool.Tool) []string {
	var out []string
	for _, v := range tools {
		out = append(out, v.Name)
	}
	return out
}

func run(t *testing.T, s *Set, name, args string) tool.Result {
	t.Helper()
	for _, v := range s.Tools(t.Context()) {
		if v.Name == name {
			return v.Run(t.Context(), json.RawMessage(args))
		}
	}
	t.Fatalf("no %s among %v", name, names(s.Tools(t.Context())))
	return tool.Result{}
}

func TestHTTPServer(t *testing.T) {
	t.Parallel()
	url := web(t, newServer(), func(w http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("Authorization") != "Bearer hush" {
			http.Error(w, "no", http.StatusUnauthorized)
			return false
		}
		return true
	})
	h := map[string]string{"Authorization": "Bearer hush"}
	s := connect(t,
		provider.MCPServer{Name: "my.own", URL: url, Headers: h}, provider.MCPServer{Name: "only", URL: url, Headers: h, Only: []string{"say"}},
		provider.MCPServer{Name: "without", URL: url, Headers: h, Without: []string{"say"}}, provider.MCPServer{Name: "locked", URL: url},
		provider.MCPServer{Name: "away", URL: "http://127.0.0.1:1/"}, provider.MCPServer{Name: "none", Command: "/no/such/program"},
	)
	tools := s.Tools(t.Context())
	if got := names(tools); !slices.Equal(got, []string{"mcp__my_own__fail_now", "mcp__my_own__say", "mcp__only__say", "mcp__without__fail_now"}) {
		t.Fatalf("tools %v", got)
	}
	if !tools[1].ReadOnly || tools[0].ReadOnly || tools[1].Description != "says it" || !strings.Contains(string(tools[1].Schema), `"text"`) {
		t.Errorf("%+v", tools[1])
	}
	got := run(t, s, "mcp__my_own__say", `{"text":"hi"}`)
	if got.IsError || got.Text != "hi\n[a sound (audio/ogg, 1 bytes), which you cannot hear]\n[n: file:///n]\nembedded" || len(got.Files) != 1 {
		t.Errorf("%+v", got)
	}
	if got := run(t, s, "mcp__my_own__fail_now", `{}`); !got.IsError || got.Text != "it failed" {
		t.Errorf("%+v", got)
	}
	if got := run(t, s, "mcp__my_own__say", `{"wrong":1}`); !got.IsError {
		t.Errorf("%+v", got)
	}
	long, err := json.Marshal(sayInput{strings.Repeat("line\n", 50_000)})
	if err != nil {
		t.Fatal(err)
	}
	if got := run(t, s, "mcp__only__say", string(long)); len(got.Text) > maxOutput+500 || !strings.Contains(got.Text, "left out") {
		t.Errorf("%d bytes", len(got.Text))
	}
}

func TestStdioServer(t *testing.T) {
	t.Parallel()
	s := connect(t, provider.MCPServer{Name: "child", Command: os.Args[0], Env: map[string]string{stdioServer: "1", "SHOWN": "!"}})
	if got := run(t, s, "mcp__child__say", `{"text":"hi"}`); !strings.HasPrefix(got.Text, "hi!\n") {
		t.Errorf("%+v", got)
	}
}

// A list that changes is read again before the next step.
func TestListChanged(t *testing.T) {
	t.Parallel()
	server := newServer()
	s := connect(t, provider.MCPServer{Name: "x", URL: web(t, server, nil)})
	if n := len(s.Tools(t.Context())); n != 2 {
		t.Fatalf("%d tools", n)
	}
	mcp.AddTool(server, &mcp.Tool{Name: "new"}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
		return nil, nil, nil
	})
	for end := time.Now().Add(20 * time.Second); len(s.Tools(t.Context())) != 3; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the tools are still %v", names(s.Tools(t.Context())))
		}
	}
}

func TestShorten(t *testing.T) {
	t.Parallel()
	long := "mcp__" + strings.Repeat("x", 100)
	if a, b := shorten(long+"a"), shorten(long+"b"); len(a) != maxName || a == b || shorten("mcp__a__b") != "mcp__a__b" {
		t.Errorf("%s, %s", a, b)
	}
}

// A hostile or careless server cannot make every request to the model fail: of equal names one stays, each schema describes an object,
// there are not too many tools, and a long error is cut.
func TestUnusableTools(t *testing.T) {
	t.Parallel()
	// A server of our own making: the library refuses such tools.
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
		}
		if json.NewDecoder(r.Body).Decode(&in) != nil || len(in.ID) == 0 {
			w.WriteHeader(http.StatusAccepted)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		switch in.Method {
		case "initialize":
			_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}}}`, in.ID)
		case "tools/list":
			list := []string{`{"name":"a.b","inputSchema":{}}`, `{"name":"a_b","inputSchema":{"type":"object"}}`, `{"name":"s","inputSchema":{"type":"string"}}`}
			for i := range 400 {
				list = append(list, fmt.Sprintf(`{"name":"n%d","inputSchema":{"type":"object"}}`, i))
			}
			_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"tools":[%s]}}`, in.ID, strings.Join(list, ","))
		default:
			_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-1,"message":"%s"}}`, in.ID, strings.Repeat("e", 1<<20))
		}
	})
	api := httptest.NewServer(h)
	t.Cleanup(api.Close)
	s := connect(t, provider.MCPServer{Name: "x", URL: api.URL})
	tools := s.Tools(t.Context())
	if len(tools) != maxTools {
		t.Fatalf("%d tools", len(tools))
	}
	seen := map[string]bool{}
	for _, v := range tools {
		var schema struct{ Type string }
		if err := json.Unmarshal(v.Schema, &schema); err != nil || schema.Type != "object" {
			t.Errorf("%s: schema %s, %v", v.Name, v.Schema, err)
		}
		if seen[v.Name] {
			t.Errorf("%s stands there twice", v.Name)
		}
		seen[v.Name] = true
	}
	if got := run(t, s, "mcp__x__a_b", `{}`); !got.IsError || len(got.Text) > 2*maxError {
		t.Errorf("%d bytes: %.100s", len(got.Text), got.Text)
	}
}
