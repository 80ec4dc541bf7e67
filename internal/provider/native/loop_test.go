package native_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"nanoclaw/internal/provider"
	"nanoclaw/internal/provider/native"
	"nanoclaw/internal/testkit/modelserver"
)

// agent is a folder, a home and a model, over the anthropic wire unless a test says otherwise.
type agent struct {
	*testing.T
	api  *modelserver.Server
	opt  native.Options
	cwd  string
	seen []provider.Event
}

func newAgent(t *testing.T, change ...func(*native.Options)) *agent {
	t.Helper()
	t.Parallel()
	a := &agent{T: t, api: model(t, modelserver.Options{}), cwd: t.TempDir()}
	a.opt = options(t, t.TempDir(), a.api.URL(), wires()["anthropic"])
	for _, c := range change {
		c(&a.opt)
	}
	return a
}

func (a *agent) query(continuation string, in provider.Input) provider.Query {
	a.Helper()
	q, err := make1(a.T, a.opt).Query(a.Context(), provider.QueryInput{Cwd: a.cwd, Continuation: continuation, Input: in})
	if err != nil {
		a.Fatal(err)
	}
	a.Cleanup(func() {
		q.Abort()
		for range q.Events() {
		}
	})
	return q
}

// result reads to the next result.
func (a *agent) result(q provider.Query) provider.Event {
	a.Helper()
	e := a.until(q, provider.Result)
	return e
}

func (a *agent) until(q provider.Query, kind provider.Kind) provider.Event {
	a.Helper()
	limit := time.After(time.Minute)
	for {
		select {
		case e, ok := <-q.Events():
			if !ok {
				a.Fatalf("the events ended before %s", kind)
			}
			a.seen = append(a.seen, e)
			if e.Kind == kind {
				return e
			}
		case <-limit:
			a.Fatalf("no %s within a minute: %+v", kind, a.seen)
		}
	}
}

// ask sends one prompt in a conversation of its own and gives its result and the continuation.
func (a *agent) ask(continuation, text string, steps ...modelserver.Step) (provider.Event, string) {
	a.Helper()
	q := a.query(continuation, provider.Input{ID: "p", Text: prompt(text, steps...)})
	e := a.result(q)
	q.End()
	for range q.Events() {
	}
	return e, a.seen[slices.IndexFunc(a.seen, func(e provider.Event) bool { return e.Kind == provider.Init })].Continuation
}

func prompt(text string, steps ...modelserver.Step) string {
	if len(steps) == 0 {
		return text
	}
	return text + " " + modelserver.Script(steps...)
}

func (a *agent) lastRequest() modelserver.Request {
	all := a.api.Requests()
	return all[len(all)-1]
}

func (a *agent) results() []modelserver.ToolResult {
	var out []modelserver.ToolResult
	for _, m := range a.lastRequest().Messages {
		out = append(out, m.Results...)
	}
	return out
}

func (a *agent) count(kind provider.Kind) int {
	n := 0
	for _, e := range a.seen {
		if e.Kind == kind {
			n++
		}
	}
	return n
}

func say(text string) modelserver.Step { return modelserver.Step{Text: text} }

func do(tools ...modelserver.Tool) modelserver.Step { return modelserver.Step{Tools: tools} }

func TestRetries(t *testing.T) {
	for name, c := range map[string]struct {
		step  modelserver.Step
		class provider.Class
		ok    bool
		tries int
	}{
		"overloaded, then fine":  {modelserver.Step{Status: 529, Times: 2, Text: "up"}, "", true, 3},
		"limit, then fine":       {modelserver.Step{Status: 429, Times: 1, Text: "up"}, "", true, 2},
		"500 for ever":           {modelserver.Step{Status: 500}, provider.ClassOther, false, 3},
		"401 at once":            {modelserver.Step{Status: 401}, provider.ClassAuth, false, 1},
		"a long wait is no wait": {modelserver.Step{Status: 429, Headers: map[string]string{"retry-after": "3600"}}, provider.ClassRateLimit, false, 1},
		"no credit":              {modelserver.Step{Status: 400, Message: "Your credit balance is too low"}, provider.ClassQuota, false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAgent(t, func(o *native.Options) { o.Tries = 3 })
			e, _ := a.ask("", "go", c.step)
			if e.IsError == c.ok || e.Class != c.class {
				t.Errorf("result: %+v", e)
			}
			if n := len(a.api.Requests()); n != c.tries {
				t.Errorf("%d requests, want %d", n, c.tries)
			}
			if n := a.count(provider.Error); n != c.tries-1 {
				t.Errorf("%d errors were told of %d tries", n, c.tries)
			}
			if wait := c.step.Headers["retry-after"]; wait != "" && time.Until(e.ResetsAt).Round(time.Hour) != time.Hour {
				t.Errorf("resets at %v", e.ResetsAt)
			}
		})
	}
}

// The API says how long to wait, and that long it is.
func TestRetryAfter(t *testing.T) {
	a := newAgent(t)
	start := time.Now()
	if e, _ := a.ask("", "go", modelserver.Step{Status: 429, Times: 1, Headers: map[string]string{"retry-after-ms": "300"}, Text: "up"}); e.Text != "up" {
		t.Errorf("result: %+v", e)
	}
	if took := time.Since(start); took < 300*time.Millisecond {
		t.Errorf("asked again after %s", took)
	}
}

func TestPRV4FallbackModel(t *testing.T) {
	a := newAgent(t, func(o *native.Options) { o.Model, o.Fallback = "first", "second" })
	if e, _ := a.ask("", "go", modelserver.Step{Status: 529, Times: 2, Text: "here"}); e.IsError || e.Text != "here" {
		t.Errorf("result: %+v", e)
	}
	var models []string
	for _, r := range a.api.Requests() {
		models = append(models, r.Model)
	}
	if !slices.Equal(models, []string{"first", "first", "second"}) || a.count(provider.Progress) != 1 {
		t.Errorf("asked %v; events %+v", models, a.seen)
	}
	// the other one is asked no more than the first
	b := newAgentNow(t, func(o *native.Options) { o.Model, o.Fallback = "first", "second" })
	if e, _ := b.ask("", "go", modelserver.Step{Status: 529}); e.Class != provider.ClassOverloaded || len(b.api.Requests()) != 4 {
		t.Errorf("result %+v after %d requests", e, len(b.api.Requests()))
	}
}

// newAgentNow is a second agent of a test that is parallel already.
func newAgentNow(t *testing.T, change ...func(*native.Options)) *agent {
	t.Helper()
	a := &agent{T: t, api: model(t, modelserver.Options{}), cwd: t.TempDir()}
	a.opt = options(t, t.TempDir(), a.api.URL(), wires()["anthropic"])
	for _, c := range change {
		c(&a.opt)
	}
	return a
}

func TestPRV5ModelIsInTheRequest(t *testing.T) {
	a := newAgent(t, func(o *native.Options) { o.Model, o.Effort = "opus", "high" })
	a.ask("", "go", say("hi"))
	r := a.lastRequest()
	if r.Model != "claude-opus-5-5" || !strings.Contains(string(r.Body), `"effort":"high"`) {
		t.Errorf("model %s, body %s", r.Model, r.Body)
	}
}

// A conversation that the API finds too long is summarised once; what it was about goes on, and the queue too.
func TestPRV6ContextOverflow(t *testing.T) {
	a := newAgent(t)
	_, c := a.ask("", "remember the word heron", say("I will."))
	a.seen = nil
	over := modelserver.Step{Status: 400, Times: 1, Message: "prompt is too long: 200001 tokens > 200000 maximum", Text: "after"}
	e, _ := a.ask(c, "which word?", over)
	if e.IsError || e.Text != "after" || a.count(provider.Compacted) != 1 {
		t.Errorf("result %+v, %d compactions", e, a.count(provider.Compacted))
	}
	last := a.lastRequest()
	if len(last.Messages) != 1 || !last.Contains("which word?") || last.Contains("remember the word heron") {
		t.Errorf("after the summary: %+v", last.Messages)
	}
	archived, err := filepath.Glob(filepath.Join(a.cwd, "conversations", "*.md"))
	if err != nil || len(archived) != 1 {
		t.Fatalf("archive: %v, %v", archived, err)
	}
	if b, err := os.ReadFile(archived[0]); err != nil || !strings.Contains(string(b), "remember the word heron") {
		t.Errorf("archive: %s, %v", b, err)
	}
	// too long for ever: one summary, then an error that a person can read, and the next prompt works
	a.seen = nil
	over.Times = 0
	if e, _ = a.ask(c, "again", over); e.Class != provider.ClassContext || e.Notice == "" || a.count(provider.Compacted) != 1 {
		t.Errorf("result %+v, %d compactions", e, a.count(provider.Compacted))
	}
	if e, _ = a.ask(c, "and now?", say("fine")); e.Text != "fine" || a.lastRequest().Contains("again") {
		t.Errorf("result %+v; messages %+v", e, a.lastRequest().Messages)
	}
}

// The measured size decides; the list and the prompt survive.
func TestCompactionFromUsage(t *testing.T) {
	a := newAgent(t, func(o *native.Options) { o.Window = 10_000 })
	todo := call("TodoWrite", map[string]any{"todos": []map[string]string{{"content": "feed the heron", "status": "in_progress"}}})
	_, c := a.ask("", "first", do(todo), modelserver.Step{Text: "done", InputTokens: 9_000})
	if a.count(provider.Compacted) != 0 {
		t.Error("summarised too early")
	}
	q := a.query(c, provider.Input{ID: "a", Text: prompt("second", modelserver.Step{Text: "large", InputTokens: 9_000})})
	a.result(q)
	if err := q.Push(t.Context(), provider.Input{ID: "b", Text: prompt("third", say("small"))}); err != nil {
		t.Fatal(err)
	}
	e := a.result(q)
	if e.Text != "small" || a.count(provider.Compacted) != 1 {
		t.Errorf("result %+v, %d compactions", e, a.count(provider.Compacted))
	}
	last := a.lastRequest()
	if len(last.Messages) != 1 || !last.Contains("[>] feed the heron") || !last.Contains("third") || last.Contains("second") {
		t.Errorf("after the summary: %+v", last.Messages)
	}
	if e.Usage.InputTokens != 200 {
		t.Errorf("usage of the turn with its summary: %+v", e.Usage)
	}
}

// Within a turn the model is told what it works on.
func TestCompactionWithinATurn(t *testing.T) {
	a := newAgent(t)
	over := modelserver.Step{Status: 400, Times: 1, Message: "input is too long", Text: "after"}
	e, _ := a.ask("", "count the files", do(call("Glob", map[string]string{"pattern": "*"})), over)
	if e.Text != "after" || a.count(provider.Compacted) != 1 {
		t.Errorf("result %+v, %d compactions", e, a.count(provider.Compacted))
	}
	if r := a.lastRequest(); !r.Contains("You are still working on this") || !r.Contains("count the files") {
		t.Errorf("messages: %+v", r.Messages)
	}
}

func TestCompactCommand(t *testing.T) {
	a := newAgent(t)
	a.opt.Compaction = func() string { return "Keep the names of birds." }
	q := a.query("", provider.Input{ID: "a", Text: prompt("remember the heron", say("I will."))})
	a.result(q)
	if err := q.Push(t.Context(), provider.Input{ID: "b", Text: "/compact birds above all"}); err != nil {
		t.Fatal(err)
	}
	if e := a.result(q); e.IsError || !strings.Contains(e.Text, "summarised") {
		t.Errorf("result: %+v", e)
	}
	asked := a.lastRequest()
	if !asked.Contains("birds above all") || !asked.Contains("Keep the names of birds.") || !strings.Contains(string(asked.Body), `"tool_choice":{"type":"none"}`) {
		t.Errorf("asked: %+v", asked.Messages)
	}
	if err := q.Push(t.Context(), provider.Input{ID: "c", Text: "/context"}); err != nil {
		t.Fatal(err)
	}
	if e := a.result(q); !strings.Contains(e.Text, "of 200000 tokens") {
		t.Errorf("result: %+v", e)
	}
}

func TestLoopDetection(t *testing.T) {
	a := newAgent(t)
	var steps []modelserver.Step
	for range 20 {
		steps = append(steps, do(call("Glob", map[string]string{"pattern": "*.none"})))
	}
	e, _ := a.ask("", "go", steps...)
	if !e.IsError || e.Retryable || e.Notice == "" {
		t.Errorf("result: %+v", e)
	}
	if n := len(a.api.Requests()); n != 9 {
		t.Errorf("%d requests", n)
	}
	all := a.results()
	if strings.Contains(all[2].Text, "same call") || !strings.Contains(all[3].Text, "same call") {
		t.Errorf("results: %+v", all)
	}
	if !a.lastRequest().Contains("Call no more tools") {
		t.Error("the model was not told to end")
	}
}

func TestStepLimit(t *testing.T) {
	a := newAgent(t, func(o *native.Options) { o.Steps = 3 })
	var steps []modelserver.Step
	for i := range 3 {
		steps = append(steps, do(call("Glob", map[string]string{"pattern": fmt.Sprint(i)})))
	}
	e, _ := a.ask("", "go", append(steps, say("that far I came"))...)
	if e.IsError || e.Text != "that far I came" || len(a.api.Requests()) != 4 {
		t.Errorf("result %+v after %d requests", e, len(a.api.Requests()))
	}
}

// Calls that only read run at once, the others one after the other; the results keep the order of the calls.
func TestParallelCalls(t *testing.T) {
	a := newAgent(t)
	wait := func(file, other string) modelserver.Tool {
		return call("Bash", map[string]string{"command": fmt.Sprintf("echo %s > %s; test ! -e %s && echo alone", file, file, other)})
	}
	for i := range 6 {
		if err := os.WriteFile(filepath.Join(a.cwd, fmt.Sprint("r", i)), []byte(fmt.Sprint("text ", i)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tools := []modelserver.Tool{wait("first", "second")}
	for i := range 6 {
		tools = append(tools, call("Read", map[string]string{"file_path": fmt.Sprint("r", i)}))
	}
	tools = append(tools, wait("second", "third"))
	a.ask("", "go", do(tools...), say("done"))
	all := a.results()
	if len(all) != 8 || all[0].Text != "alone" || all[7].Text != "alone" {
		t.Fatalf("results: %+v", all)
	}
	for i := range 6 {
		if !strings.Contains(all[i+1].Text, fmt.Sprint("text ", i)) {
			t.Errorf("result %d: %s", i+1, all[i+1].Text)
		}
	}
}

// A call whose arguments are nonsense is a failed call, not a failed turn.
func TestBadArguments(t *testing.T) {
	a := newAgent(t)
	e, _ := a.ask("", "go", do(call("Read", map[string]int{"path": 1}), call("Read", []string{}), modelserver.Tool{Name: "Bash", Input: json.RawMessage(`"text"`)}), say("done"))
	if e.Text != "done" {
		t.Errorf("result: %+v", e)
	}
	for i, r := range a.results() {
		if !r.IsError {
			t.Errorf("result %d: %+v", i, r)
		}
	}
}

// A prompt that no model takes does not stay in the way, and an API that was away gets it once when it is asked again.
func TestUnansweredPromptIsTakenBack(t *testing.T) {
	a := newAgent(t)
	_, c := a.ask("", "one", say("first"))
	if e, _ := a.ask(c, "poison", modelserver.Step{Status: 400}); !e.IsError {
		t.Errorf("result: %+v", e)
	}
	a.ask(c, "two", say("second"))
	if r := a.lastRequest(); r.Contains("poison") || !r.Contains("one") {
		t.Errorf("messages: %+v", r.Messages)
	}
	// but work that was done is kept
	a.ask(c, "three", do(call("Glob", map[string]string{"pattern": "*"})), modelserver.Step{Status: 400})
	a.ask(c, "four", say("fourth"))
	if r := a.lastRequest(); !r.Contains("three") {
		t.Errorf("messages: %+v", r.Messages)
	}
}

// What was said before an interrupt stays in the conversation, and the model is told.
func TestInterruptKeepsWords(t *testing.T) {
	a := newAgent(t)
	q := a.query("", provider.Input{ID: "a", Text: prompt("go", modelserver.Step{Text: "I begin.", Tools: []modelserver.Tool{call("Bash", map[string]any{"command": "sleep 600"})}})})
	a.until(q, provider.ToolStart)
	if err := q.Interrupt(t.Context()); err != nil {
		t.Fatal(err)
	}
	if e := a.result(q); !e.Interrupted || e.IsError {
		t.Errorf("result: %+v", e)
	}
	if err := q.Push(t.Context(), provider.Input{ID: "b", Text: prompt("go on", say("yes"))}); err != nil {
		t.Fatal(err)
	}
	a.result(q)
	r := a.lastRequest()
	if !r.Contains("I begin.") || !r.Contains("interrupted you here") || !a.results()[0].IsError || len(r.Messages) != 3 {
		t.Errorf("messages: %+v", r.Messages)
	}
}

// An interrupt that comes before the waiting turn has begun stops that turn.
func TestInterruptBeforeTheTurn(t *testing.T) {
	a := newAgent(t)
	q := a.query("", provider.Input{ID: "a", Text: prompt("one", modelserver.Step{Text: "never", Gate: "never"})})
	if err := q.Interrupt(t.Context()); err != nil {
		t.Fatal(err)
	}
	if e := a.result(q); !e.Interrupted {
		t.Errorf("result: %+v", e)
	}
}

func TestDeclaredTimeout(t *testing.T) {
	a := newAgent(t)
	a.ask("", "go", do(call("Bash", map[string]any{"command": "true", "timeout": 5000}), call("Bash", map[string]any{"command": "true"}), call("Bash", map[string]any{"command": "true", "timeout": 9_000_000})), say("done"))
	var got []time.Duration
	for _, e := range a.seen {
		if e.Kind == provider.ToolStart {
			got = append(got, e.Timeout)
		}
	}
	if !slices.Equal(got, []time.Duration{5 * time.Second, 2 * time.Minute, 10 * time.Minute}) {
		t.Errorf("declared: %v", got)
	}
}

// A helper reads with a conversation of its own; only its last words come back, and only to the model.
func TestHelper(t *testing.T) {
	a := newAgent(t)
	steps := []modelserver.Step{{Text: "Let me see.", Tools: []modelserver.Tool{call("Read", map[string]string{"file_path": "bird"}), call("Bash", map[string]string{"command": "touch made"})}}, say("It is a heron.")}
	a.api = model(t, modelserver.Options{Steps: steps}) // for the helper, whose prompt has no script
	a.opt = options(t, t.TempDir(), a.api.URL(), wires()["anthropic"])
	if err := os.WriteFile(filepath.Join(a.cwd, "bird"), []byte("heron"), 0o600); err != nil {
		t.Fatal(err)
	}
	e, _ := a.ask("", "go", do(call("Task", map[string]string{"prompt": "HELP"}), call("Task", map[string]string{"prompt": "HELP TOO"})), say("done"))
	if all := a.results(); e.Text != "done" || all[0].Text != "It is a heron." || all[1].Text != "It is a heron." {
		t.Errorf("result %+v, %+v", e, all)
	}
	if a.count(provider.Text) != 1 || e.Usage.InputTokens != 600 {
		t.Errorf("%d texts, usage %+v", a.count(provider.Text), e.Usage)
	}
	if _, err := os.Stat(filepath.Join(a.cwd, "made")); err == nil {
		t.Error("a helper changed something")
	}
	helpers := 0
	for _, r := range a.api.Requests() {
		if strings.HasPrefix(r.LastText("user"), "HELP") {
			helpers++
			if slices.Contains(r.Tools, "Bash") || slices.Contains(r.Tools, "Task") || !slices.Contains(r.Tools, "Grep") {
				t.Errorf("the helper has %v", r.Tools)
			}
		}
	}
	if helpers != 4 {
		t.Errorf("%d requests of helpers", helpers)
	}
}

func TestSkillsAndMemory(t *testing.T) {
	a := newAgent(t)
	dir := filepath.Join(a.cwd, "skills", "birds")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for path, text := range map[string]string{
		filepath.Join(dir, "SKILL.md"):      "---\nname: birds\ndescription: all about herons\n---\nHerons eat fish.",
		filepath.Join(a.cwd, "CLAUDE.md"):   "You are Andy. @notes.md",
		filepath.Join(a.cwd, "notes.md"):    "Note of the owner.",
		filepath.Join(a.cwd, "AGENTS.md"):   "never read",
		filepath.Join(a.cwd, "picture.png"): "",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	a.ask("", "go", do(call("Skill", map[string]string{"skill": "birds"}), call("Skill", map[string]string{"skill": "fish"})), say("done"))
	r := a.lastRequest()
	for _, want := range []string{"- birds: all about herons", "You are Andy.", "Note of the owner."} {
		if !strings.Contains(r.System, want) {
			t.Errorf("the system prompt lacks %q", want)
		}
	}
	if strings.Contains(r.System, "Herons eat fish") || strings.Contains(r.System, "never read") {
		t.Error("the system prompt holds too much")
	}
	if all := a.results(); !strings.Contains(all[0].Text, "Herons eat fish.") || !all[1].IsError {
		t.Errorf("results: %+v", all)
	}
}

// The beginning of a request never changes within a conversation: only so the API's cache is of use.
func TestPrefixIsStable(t *testing.T) {
	a := newAgent(t)
	_, c := a.ask("", "one", do(call("Glob", map[string]string{"pattern": "*"})), say("first"))
	a.ask(c, "two", say("second"))
	all := a.api.Requests()
	strip := func(r modelserver.Request) string {
		body := strings.ReplaceAll(string(r.Body), `,"cache_control":{"type":"ephemeral"}`, "")
		var in struct{ System, Tools, Messages json.RawMessage }
		if err := json.Unmarshal([]byte(body), &in); err != nil {
			t.Fatal(err)
		}
		return string(in.Tools) + string(in.System) + strings.TrimSuffix(string(in.Messages), "]")
	}
	for i := 1; i < len(all); i++ {
		if !strings.HasPrefix(strip(all[i]), strip(all[i-1])) {
			t.Errorf("request %d does not begin as the one before:\n%s\n%s", i, strip(all[i-1]), strip(all[i]))
		}
		if n := strings.Count(string(all[i].Body), `"cache_control"`); n < 3 || n > 4 {
			t.Errorf("request %d has %d marks", i, n)
		}
	}
}
