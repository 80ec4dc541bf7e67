// Package mcpclient makes the tools of MCP servers tools of the native loop.
package mcpclient

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"nanoclaw/internal/config/container"
	"nanoclaw/internal/obs"
	"nanoclaw/internal/provider"
	"nanoclaw/internal/provider/native/tool"
)

const (
	listWait   = 10 * time.Second
	cancelWait = time.Second
	closeWait  = time.Second // for a stdio server to end by itself
	retryAfter = 30 * time.Second
	maxName    = 64
	maxTools   = 256
	maxError   = 4_000   // bytes
	maxOutput  = 100_000 // about 25,000 tokens
)

// Options of a set.
type Options struct {
	Client *http.Client // for servers with a URL
	// Environ adds what finds a process again to the environment of a stdio server.
	Environ func(env map[string]string) []string
	Cwd     string
	Output  func() string // folder for results that are too long
	Wait    time.Duration // for the servers to be there before the first turn
	Log     *slog.Logger
}

// Set is the servers of one query. Close must be called.
type Set struct {
	opt     Options
	servers []*server
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup
	watches sync.WaitGroup // each ends with its session
}

// server is one of them, connected or not.
type server struct {
	set    *Set
	conf   provider.MCPServer
	prefix string

	connecting sync.Mutex    // held by whoever connects or lists
	told       chan struct{} // receives when the server was told that a call is cancelled

	mu      sync.Mutex
	session *mcp.ClientSession
	tools   []tool.Tool
	stale   bool // the list must be read again
	tried   time.Time
}

// Connect starts to connect to all servers at once and returns when all are there, or failed, or Options.Wait is over; a slow one
// appears later. Cancelling ctx ends everything, as Close does.
func Connect(ctx context.Context, servers []provider.MCPServer, opt Options) *Set {
	s := &Set{opt: opt}
	s.ctx, s.cancel = context.WithCancel(ctx)
	ready := make(chan struct{})
	var all sync.WaitGroup
	for _, conf := range servers {
		v := &server{set: s, conf: conf, told: make(chan struct{}, 16), prefix: "mcp__" + container.CleanServerName(conf.Name) + "__"}
		s.servers = append(s.servers, v)
		all.Add(1)
		s.running.Go(func() {
			defer all.Done()
			v.refresh(s.ctx)
		})
	}
	s.running.Go(func() { all.Wait(); close(ready) })
	t := time.NewTimer(opt.Wait)
	defer t.Stop()
	select {
	case <-ready:
	case <-t.C:
		opt.Log.Warn("not all tool servers are there yet; their tools come later")
	case <-ctx.Done():
	}
	return s
}

// Tools are the tools of all servers that are connected, in the order of the servers and of their lists. A list that changed is read
// again; a server that was lost is connected again. Of tools whose cleaned names are equal the first counts; there are maxTools at most.
func (s *Set) Tools(ctx context.Context) []tool.Tool {
	var out []tool.Tool
	seen := map[string]bool{}
	for _, v := range s.servers {
		for _, t := range v.list(ctx) {
			if seen[t.Name] || len(seen) >= maxTools { // an API refuses a list with two of one name
				continue
			}
			seen[t.Name] = true
			out = append(out, t)
		}
	}
	return out
}

// Close ends every connection and every stdio server.
func (s *Set) Close() {
	s.cancel()
	s.running.Wait()
	var all sync.WaitGroup
	for _, v := range s.servers {
		v.mu.Lock()
		session := v.session
		v.session = nil
		v.mu.Unlock()
		if session != nil {
			all.Go(func() { _ = session.Close() }) // it is gone either way
		}
	}
	all.Wait()
	s.watches.Wait()
}

func (v *server) list(ctx context.Context) []tool.Tool {
	if v.connecting.TryLock() { // else somebody is at it; what is known counts until then
		v.mu.Lock()
		due := v.session != nil && v.stale || v.session == nil && time.Since(v.tried) > retryAfter
		v.mu.Unlock()
		v.connecting.Unlock()
		if due {
			v.refresh(ctx)
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.session == nil {
		return nil
	}
	return v.tools
}

// refresh connects if need be and reads the list. A failure is logged: the agent works without that server.
func (v *server) refresh(ctx context.Context) {
	v.connecting.Lock()
	defer v.connecting.Unlock()
	ctx, cancel := context.WithTimeout(ctx, listWait)
	defer cancel()
	v.mu.Lock()
	session := v.session
	v.stale, v.tried = false, time.Now()
	v.mu.Unlock()
	var err error
	if session == nil {
		if session, err = v.connect(ctx); err != nil {
			if v.set.ctx.Err() == nil {
				v.set.opt.Log.Warn("a tool server cannot be reached", slog.String(obs.KeyServer, v.conf.Name), obs.Error(err))
			}
			return
		}
	}
	var tools []tool.Tool
	for t, e := range session.Tools(ctx, nil) {
		if e != nil {
			err = e
			break
		}
		if made, ok := v.tool(t); ok {
			tools = append(tools, made)
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if err != nil {
		v.set.opt.Log.Warn("the tools of a server cannot be listed", slog.String(obs.KeyServer, v.conf.Name), obs.Error(err))
		v.stale = true
		return
	}
	v.tools = tools
}

func (v *server) connect(ctx context.Context) (*mcp.ClientSession, error) {
	client := mcp.NewClient(&mcp.Implementation{Name: "nanoclaw", Version: "1"}, &mcp.ClientOptions{
		Capabilities: &mcp.ClientCapabilities{},
		ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) {
			v.mu.Lock()
			defer v.mu.Unlock()
			v.stale = true
		},
	})
	var transport mcp.Transport
	if v.conf.URL != "" {
		c := *v.set.opt.Client
		c.Transport = &carrier{next: c.Transport, add: v.conf.Headers, told: v.told}
		transport = &mcp.StreamableClientTransport{Endpoint: v.conf.URL, HTTPClient: &c}
	} else {
		cmd := exec.Command(v.conf.Command, v.conf.Args...)
		cmd.Dir = v.set.opt.Cwd
		if v.conf.Cwd != "" {
			cmd.Dir = v.conf.Cwd
		}
		cmd.Env = v.set.opt.Environ(v.conf.Env)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		transport = &mcp.CommandTransport{Command: cmd, TerminateDuration: closeWait}
	}
	session, err := client.Connect(ctx, transport, nil)
	if err != nil {
		return nil, err
	}
	v.mu.Lock()
	v.session = session
	v.mu.Unlock()
	v.set.watches.Go(func() {
		_ = session.Wait() // why it ended does not matter
		v.mu.Lock()
		defer v.mu.Unlock()
		if v.session == session {
			v.session, v.tools = nil, nil
		}
	})
	return session, nil
}

// tool makes one tool. ok is false for one that the model may not call or that has no usable schema.
func (v *server) tool(t *mcp.Tool) (made tool.Tool, ok bool) {
	if len(v.conf.Only) > 0 && !slices.Contains(v.conf.Only, t.Name) || slices.Contains(v.conf.Without, t.Name) {
		return made, false
	}
	name := t.Name
	made.Name = shorten(v.prefix + container.CleanServerName(name))
	made.Description, made.Schema = t.Description, schemaOf(t)
	made.ReadOnly = t.Annotations != nil && t.Annotations.ReadOnlyHint
	made.Run = func(ctx context.Context, args json.RawMessage) tool.Result { return v.call(ctx, name, args) }
	return made, true
}

// schemaOf a tool is one that every API takes: it describes an object. One that does not would make each request fail.
func schemaOf(t *mcp.Tool) json.RawMessage {
	var fields map[string]json.RawMessage
	b, err := json.Marshal(t.InputSchema)
	if err != nil || json.Unmarshal(b, &fields) != nil || fields == nil {
		return json.RawMessage(`{"type":"object"}`)
	}
	if string(fields["type"]) == `"object"` {
		return b
	}
	fields["type"] = json.RawMessage(`"object"`)
	if b, err = json.Marshal(fields); err != nil {
		return json.RawMessage(`{"type":"object"}`)
	}
	return b
}

// shorten keeps a name within what every API takes.
func shorten(name string) string {
	if len(name) <= maxName {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return name[:maxName-9] + "_" + hex.EncodeToString(sum[:4])
}

// call has no time limit of its own: a question to a person may take hours.
func (v *server) call(ctx context.Context, name string, args json.RawMessage) tool.Result {
	v.mu.Lock()
	session := v.session
	v.mu.Unlock()
	if session == nil {
		return tool.Result{Text: "The tool server " + v.conf.Name + " is not connected.", IsError: true}
	}
	res, err := session.CallTool(ctx, &mcp.CallToolParams{Name: name, Arguments: args})
	switch {
	case ctx.Err() != nil:
		v.wait()
		return tool.Result{Text: "The call was interrupted.", IsError: true}
	case err != nil:
		if errors.Is(err, mcp.ErrConnectionClosed) {
			v.mu.Lock()
			v.tried = time.Time{}
			v.mu.Unlock()
		}
		return tool.Result{Text: "The call failed: " + tool.Cut(err.Error(), v.set.opt.Output(), container.CleanServerName(v.conf.Name), maxError), IsError: true}
	}
	return v.result(res)
}

func (v *server) result(res *mcp.CallToolResult) tool.Result {
	out := tool.Result{IsError: res.IsError}
	text := ""
	add := func(s string) {
		if text != "" && s != "" {
			text += "\n"
		}
		text += s
	}
	for _, c := range res.Content {
		switch c := c.(type) {
		case *mcp.TextContent:
			add(c.Text)
		case *mcp.ImageContent:
			out.Files = append(out.Files, tool.File{Name: "picture", MimeType: c.MIMEType, Content: c.Data})
		case *mcp.AudioContent:
			add(fmt.Sprintf("[a sound (%s, %d bytes), which you cannot hear]", c.MIMEType, len(c.Data)))
		case *mcp.ResourceLink:
			add("[" + c.Name + ": " + c.URI + "]")
		case *mcp.EmbeddedResource:
			switch {
			case c.Resource == nil:
			case c.Resource.Text != "":
				add(c.Resource.Text)
			default:
				add(fmt.Sprintf("[%s (%s, %d bytes)]", c.Resource.URI, c.Resource.MIMEType, len(c.Resource.Blob)))
			}
		}
	}
	if text == "" && len(out.Files) == 0 && res.StructuredContent != nil {
		if b, err := json.Marshal(res.StructuredContent); err == nil {
			text = string(b)
		}
	}
	out.Text = tool.Cut(text, v.set.opt.Output(), container.CleanServerName(v.conf.Name), maxOutput)
	return out
}

// wait lets the word that a call is cancelled reach the server: the library sends it aside, and closing the connection would
// overtake it.
func (v *server) wait() {
	if v.conf.URL == "" {
		return // a stdio server ends with its connection
	}
	t := time.NewTimer(cancelWait)
	defer t.Stop()
	select {
	case <-v.told:
	case <-t.C:
	}
}

// carrier adds the server's own headers to each request, and notices cancellations.
type carrier struct {
	next http.RoundTripper
	add  map[string]string
	told chan<- struct{}
}

func (c *carrier) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	for k, value := range c.add {
		r.Header.Set(k, value)
	}
	next := c.next
	if next == nil {
		next = http.DefaultTransport
	}
	res, err := next.RoundTrip(r)
	if cancels(r) {
		select {
		case c.told <- struct{}{}:
		default:
		}
	}
	return res, err
}

func cancels(r *http.Request) bool {
	const short = 4 << 10
	if r.GetBody == nil || r.ContentLength <= 0 || r.ContentLength > short {
		return false
	}
	body, err := r.GetBody()
	if err != nil {
		return false
	}
	defer func() { _ = body.Close() }()
	var m struct {
		Method string `json:"method"`
	}
	return json.NewDecoder(body).Decode(&m) == nil && m.Method == "notifications/cancelled"
}
