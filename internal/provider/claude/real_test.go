package claude_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"nanoclaw/internal/provider"
	"nanoclaw/internal/provider/claude"
	"nanoclaw/internal/testkit/modelserver"
)

// real is the CLI with a home, a folder and a model of its own.
type real struct {
	t   *testing.T
	p   *claude.Provider
	api *modelserver.Server
	cwd string
}

func newReal(t *testing.T, change ...func(*claude.Options)) *real {
	t.Helper()
	r := &real{t: t, api: model(t), cwd: t.TempDir()}
	opt := options(program(t), t.TempDir(), r.api.URL())
	for _, c := range change {
		c(&opt)
	}
	var err error
	if r.p, err = claude.New(opt); err != nil {
		t.Fatal(err)
	}
	return r
}

// ask starts a query and gives it up when the test ends.
func (r *real) ask(in provider.QueryInput, text string, steps ...modelserver.Step) provider.Query {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	r.t.Cleanup(cancel)
	in.Cwd, in.Input.ID, in.Input.Text = r.cwd, "first", text+modelserver.Script(steps...)
	q, err := r.p.Query(ctx, in)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		q.Abort()
		for range q.Events() { // the reader must drain
		}
	})
	return q
}

// turn asks once and gives the results that tools gave the model.
func (r *real) turn(in provider.QueryInput, steps ...modelserver.Step) (results []modelserver.ToolResult, last modelserver.Request) {
	r.t.Helper()
	q := r.ask(in, "go ", steps...)
	for _, e := range only(provider.Result, collect(q, endAfterResult(q))) {
		if e.IsError {
			r.t.Errorf("result: %+v", e)
		}
	}
	all := r.api.Requests()
	last = all[len(all)-1]
	for _, m := range last.Messages {
		results = append(results, m.Results...)
	}
	return results, last
}

// toolServer is a server over stdio: the fake CLI's process in another role.
func toolServer() {
	s := mcp.NewServer(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	for _, name := range []string{"a", "b", "c", "d.e"} {
		mcp.AddTool(s, &mcp.Tool{Name: name, Description: "Says where it runs."}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
			cwd, err := os.Getwd()
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: name + " in " + cwd}}}, nil, err
		})
	}
	_ = s.Run(context.Background(), &mcp.StdioTransport{})
}

func stdioServer(t *testing.T, name string) provider.MCPServer {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return provider.MCPServer{Name: name, Command: self, Env: map[string]string{fakeMode: "tools", "PATH": "/usr/bin:/bin"}, AlwaysLoad: true}
}

// The settings of a server hold for the model: which tools it may call, where it runs, under which name.
func TestMCP3SettingsOfServers(t *testing.T) {
	t.Parallel()
	r := newReal(t)
	folder, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	some, most := stdioServer(t, "my.some"), stdioServer(t, "most")
	some.Only, some.Cwd = []string{"a", "d.e"}, folder
	most.Without = []string{"b"}
	call := func(names ...string) (step modelserver.Step) {
		for _, n := range names {
			step.Tools = append(step.Tools, modelserver.Tool{Name: n})
		}
		return step
	}
	in := provider.QueryInput{MCP: []provider.MCPServer{some, most}}
	results, last := r.turn(in, call("mcp__my_some__a", "mcp__my_some__d_e", "mcp__my_some__b", "mcp__most__a", "mcp__most__b"), modelserver.Step{Text: "done"})
	want := []string{"a in " + folder, "d.e in " + folder, "It is switched off for this agent.", "a in " + r.cwd, "No such tool available"}
	if len(results) != len(want) {
		t.Fatalf("results: %+v", results)
	}
	for i, w := range want {
		if got := results[i].Text; !strings.Contains(got, w) && !strings.Contains(got, strings.Replace(w, r.cwd, folder, 1)) {
			t.Errorf("call %d gave %q, want %q", i, got, w)
		}
	}
	if slices.Contains(last.Tools, "mcp__most__b") || !slices.Contains(last.Tools, "mcp__most__c") {
		t.Errorf("the model is offered %v", last.Tools)
	}
}

// The CLI's own tools that look like ours do not exist; whoever calls one is told what to use.
func TestMCP6LookAlikesNameOurs(t *testing.T) {
	t.Parallel()
	r := newReal(t)
	results, last := r.turn(provider.QueryInput{}, modelserver.Step{Tools: []modelserver.Tool{
		{Name: "SendMessage", Input: json.RawMessage(`{"to":"family","message":"hi"}`)}, {Name: "CronCreate"}, {Name: "AskUserQuestion"},
	}}, modelserver.Step{Text: "done"})
	for _, res := range results {
		if !res.IsError {
			t.Errorf("it worked: %+v", res)
		}
	}
	for _, want := range []string{"mcp__nanoclaw__send_message", "mcp__nanoclaw__schedule_task", "mcp__nanoclaw__ask_user_question"} {
		if !strings.Contains(string(last.Body), want) {
			t.Errorf("no hint to %s", want)
		}
	}
	for _, tool := range last.Tools {
		if slices.Contains([]string{"SendMessage", "CronCreate", "AskUserQuestion", "ScheduleWakeup", "EnterPlanMode"}, tool) {
			t.Errorf("the model is offered %s", tool)
		}
	}
}

// The model, its effort and the one that takes its place when it is overloaded reach the API (spec/bugs.md PRV-4, PRV-5).
func TestPRV5ModelAndFallback(t *testing.T) {
	t.Parallel()
	r := newReal(t, func(o *claude.Options) {
		o.Model, o.Effort, o.Fallback, o.Env["CLAUDE_CODE_MAX_RETRIES"] = "opus", "high", "haiku", "4"
	})
	q := r.ask(provider.QueryInput{}, "go ", modelserver.Step{Status: 529, Times: 3, Text: "back"})
	all := collect(q, endAfterResult(q))
	if res := only(provider.Result, all); len(res) != 1 || res[0].IsError || res[0].Text != "back" {
		t.Errorf("results: %+v", res)
	}
	requests := r.api.Requests()
	first, last := requests[0], requests[len(requests)-1]
	if !strings.Contains(first.Model, "opus") || !strings.Contains(string(first.Body), `"effort":"high"`) || !strings.Contains(last.Model, "haiku") {
		t.Errorf("asked %s first, %s last", first.Model, last.Model)
	}
	if p := only(provider.Progress, all); len(p) != 1 || !strings.Contains(p[0].Message, "haiku") {
		t.Errorf("it is not told: %+v", p)
	}
}

// The folders of a query are the model's to work in, and a missing one harms nobody.
func TestDirs(t *testing.T) {
	t.Parallel()
	r, more := newReal(t), t.TempDir()
	_, last := r.turn(provider.QueryInput{Dirs: []string{more, "/nonexistent/folder"}}, modelserver.Step{Text: "done"})
	if !strings.Contains(string(last.Body), more) {
		t.Error("the model is not told of the folder")
	}
}

// What was said is archived before it is summarised, the summary keeps the rules of addressing, and nobody is spoken to because
// of it. The next compaction of that day does not overwrite the archive.
func TestGATE12CompactionKeepsTheAddresses(t *testing.T) {
	t.Parallel()
	n := 0
	rule := `End with: only <message to="family"> is sent.`
	r := newReal(t, func(o *claude.Options) { o.Compaction = func() string { n++; return rule } })
	q := r.ask(provider.QueryInput{Instructions: "You are Andy."}, "remember the heron ", modelserver.Step{Text: "I will."}, modelserver.Step{Text: "<summary>A heron.</summary>"})
	results := 0
	all := collect(q, func(e provider.Event) {
		if e.Kind != provider.Result {
			return
		}
		next := []string{"/compact keep birds", "what was it? " + modelserver.Script(modelserver.Step{Text: "A heron."}, modelserver.Step{Text: "<summary>Again.</summary>"}), "/compact"}
		if results < len(next) {
			if err := q.Push(t.Context(), provider.Input{ID: "next", Text: next[results]}); err != nil {
				t.Error(err)
			}
		} else {
			q.End()
		}
		results++
	})
	if err := q.Err(); err != nil {
		t.Error(err)
	}
	res := only(provider.Result, all)
	if len(res) != 4 || res[1].IsError || res[1].Text != "The conversation so far was summarised." || res[2].Text != "A heron." {
		t.Errorf("results: %+v", res)
	}
	if texts := only(provider.Text, all); len(texts) != 2 {
		t.Errorf("texts: %+v", texts)
	}
	if c := only(provider.Compacted, all); len(c) != 2 || n != 2 {
		t.Errorf("%d compactions, instructions given %d times", len(c), n)
	}
	asked := 0
	for _, req := range r.api.Requests() {
		if text := req.LastText("user"); strings.Contains(text, rule) && strings.Contains(text, "<summary>") && !strings.Contains(text, "local-command") {
			asked++
			if asked == 1 && !strings.Contains(text, "keep birds") {
				t.Error("the words of the person are lost")
			}
		}
		if !strings.Contains(req.System, "You are Andy.") && !strings.Contains(req.LastText("user"), rule) {
			t.Error("a request without the instructions")
		}
	}
	if asked != 2 {
		t.Errorf("%d summaries with the rule", asked)
	}
	archives, err := filepath.Glob(filepath.Join(r.cwd, "conversations", "*.md"))
	if err != nil || len(archives) != 2 {
		t.Fatalf("archives: %v, %v", archives, err)
	}
	b, err := os.ReadFile(archives[0])
	if err != nil || !strings.Contains(string(b), "remember the heron") || !strings.Contains(string(b), "I will.") {
		t.Errorf("archive: %s, %v", b, err)
	}
}

// A conversation that was rotated is not resumed: the CLI does not know it any more, and a new one begins.
func TestRotatedConversation(t *testing.T) {
	t.Parallel()
	r := newReal(t, func(o *claude.Options) { o.RotateBytes = 1000 })
	q := r.ask(provider.QueryInput{}, "remember the heron ", modelserver.Step{Text: "I will."})
	var continuation string
	for _, e := range only(provider.Init, collect(q, endAfterResult(q))) {
		continuation = e.Continuation
	}
	reason, err := r.p.Rotate(t.Context(), continuation, r.cwd)
	if reason == "" || err != nil {
		t.Fatalf("%q, %v", reason, err)
	}
	archives, err := filepath.Glob(filepath.Join(r.cwd, "conversations", "*.md"))
	if err != nil || len(archives) != 1 {
		t.Errorf("archives: %v, %v", archives, err)
	}
	q = r.ask(provider.QueryInput{Continuation: continuation}, "and now? ", modelserver.Step{Text: "never"})
	collect(q, nil)
	if err := q.Err(); !r.p.IsSessionInvalid(err) {
		t.Errorf("Err: %v", err)
	}
}

// A conversation of which no turn ever finished goes on, or is unknown; nothing else, so that the caller begins a new one.
func TestRUN13ATurnThatNeverFinished(t *testing.T) {
	t.Parallel()
	r := newReal(t)
	q := r.ask(provider.QueryInput{}, "remember the heron ", modelserver.Step{Gate: "never"})
	var continuation string
	collect(q, func(e provider.Event) {
		if e.Kind == provider.Init {
			continuation = e.Continuation
			q.Abort()
		}
	})
	q = r.ask(provider.QueryInput{Continuation: continuation}, "and now? ", modelserver.Step{Text: "Here."})
	all := collect(q, endAfterResult(q))
	res := only(provider.Result, all)
	if known := len(res) == 1 && res[0].Text == "Here." && q.Err() == nil; !known && !r.p.IsSessionInvalid(q.Err()) {
		t.Errorf("results %+v, Err %v", res, q.Err())
	}
}

// A tool that blocks for more than a minute, as a question to a person does. NANOCLAW_TEST_LONG=1 runs it.
func TestToolOf70Seconds(t *testing.T) {
	if os.Getenv("NANOCLAW_TEST_LONG") == "" {
		t.Skip("takes more than a minute: NANOCLAW_TEST_LONG=1 runs it")
	}
	t.Parallel()
	r := newReal(t, func(o *claude.Options) { o.Silence = 10 * time.Second })
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	q, err := r.p.Query(ctx, provider.QueryInput{Cwd: r.cwd, Input: provider.Input{ID: "a", Text: modelserver.Script(
		modelserver.Step{Tools: []modelserver.Tool{{Name: "Bash", Input: json.RawMessage(`{"command":"read -t 70 line < <(tail -f /dev/null); true","timeout":90000}`)}}},
		modelserver.Step{Text: "Awake."},
	)}})
	if err != nil {
		t.Fatal(err)
	}
	start, last, longest := time.Now(), time.Now(), time.Duration(0)
	all := collect(q, func(e provider.Event) {
		longest, last = max(longest, time.Since(last)), time.Now()
		if e.Kind == provider.Result {
			q.End()
		}
	})
	if res := only(provider.Result, all); len(res) != 1 || res[0].Text != "Awake." || q.Err() != nil {
		t.Errorf("results %+v, Err %v", res, q.Err())
	}
	t.Logf("%s in all, at most %s between two events", time.Since(start).Round(time.Second), longest.Round(time.Second))
	if time.Since(start) < 70*time.Second || longest > 30*time.Second {
		t.Error("too short, or too quiet")
	}
}

// The limits of a subscription, as the API tells them to the CLI: telemetry stops nothing, a rejected request waits for its window,
// and without credit it is told apart from that (spec/bugs.md PRV-1).
func TestPRV1LimitsOfASubscription(t *testing.T) {
	t.Parallel()
	resets := time.Now().Add(time.Hour).Truncate(time.Second)
	limit := func(status string, more ...string) map[string]string {
		const prefix = "anthropic-ratelimit-unified-"
		h := map[string]string{prefix + "status": status, prefix + "reset": strconv.FormatInt(resets.Unix(), 10), prefix + "representative-claim": "five_hour"}
		for i := 0; i < len(more); i += 2 {
			h[prefix+more[i]] = more[i+1]
		}
		return h
	}
	for name, c := range map[string]struct {
		step  modelserver.Step
		class provider.Class // of the result; none: an answer
	}{
		"allowed":     {modelserver.Step{Text: "fine", Headers: limit("allowed")}, provider.ClassNone},
		"warning":     {modelserver.Step{Text: "fine", Headers: limit("allowed_warning")}, provider.ClassNone},
		"rejected":    {modelserver.Step{Status: 429, Headers: limit("rejected")}, provider.ClassRateLimit},
		"no credit":   {modelserver.Step{Status: 429, Headers: limit("rejected", "overage-status", "rejected", "overage-disabled-reason", "out_of_credits")}, provider.ClassQuota},
		"paid beyond": {modelserver.Step{Text: "fine", Headers: limit("rejected", "overage-status", "allowed")}, provider.ClassNone},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newReal(t, func(o *claude.Options) {
				delete(o.Env, "ANTHROPIC_API_KEY")
				o.Env["CLAUDE_CODE_OAUTH_TOKEN"] = placeholder
			})
			q := r.ask(provider.QueryInput{}, "go ", c.step)
			all := collect(q, endAfterResult(q))
			res, failed := only(provider.Result, all), c.class != provider.ClassNone
			if len(res) != 1 || res[0].IsError != failed || res[0].Class != c.class || res[0].Retryable || (len(only(provider.Error, all)) > 0) != failed {
				t.Fatalf("results %+v, errors %+v", res, only(provider.Error, all))
			}
			if failed && (!res[0].ResetsAt.Equal(resets) || res[0].Notice == "") {
				t.Errorf("result: %+v", res[0])
			}
			for _, req := range r.api.Requests() {
				if got := req.Header.Get("Authorization"); req.IsMessages() && got != "Bearer "+placeholder {
					t.Errorf("authorization %q", got)
				}
			}
		})
	}
}

// Our own tool server cannot be reached: the turn ends with words for a person, and nothing that the model says without its
// tools counts.
func TestMCP2OurServerIsAway(t *testing.T) {
	t.Parallel()
	r := newReal(t)
	q := r.ask(provider.QueryInput{MCP: []provider.MCPServer{{Name: "nanoclaw", URL: "http://127.0.0.1:9/", AlwaysLoad: true}}}, "go ", modelserver.Step{Text: "blind"})
	all := collect(q, nil)
	if res := only(provider.Result, all); len(res) != 1 || !res[0].IsError || res[0].Notice == "" || len(only(provider.Text, all)) != 0 || q.Err() == nil {
		t.Errorf("events %+v, Err %v", all, q.Err())
	}
}
