package claude_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"nanoclaw/internal/provider"
	"nanoclaw/internal/provider/claude"
)

// driver starts the fake CLI in a mode.
func driver(t *testing.T, mode string, change ...func(*claude.Options)) *claude.Provider {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	opt := options(self, t.TempDir(), "http://127.0.0.1:9")
	opt.Env[fakeMode] = mode
	opt.InitWait, opt.InterruptWait, opt.CloseWait, opt.TermWait = 30*time.Second, time.Second, time.Second, 200*time.Millisecond
	for _, c := range change {
		c(&opt)
	}
	p, err := claude.New(opt)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func query(t *testing.T, p *claude.Provider, text string) provider.Query {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	t.Cleanup(cancel)
	q, err := p.Query(ctx, provider.QueryInput{Cwd: t.TempDir(), Input: provider.Input{ID: "first", Text: text}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		q.Abort()
		for range q.Events() { // the reader must drain
		}
	})
	return q
}

// collect reads to the end; react sees each event.
func collect(q provider.Query, react func(provider.Event)) (all []provider.Event) {
	for e := range q.Events() {
		all = append(all, e)
		if react != nil {
			react(e)
		}
	}
	return all
}

func only(kind provider.Kind, all []provider.Event) (out []provider.Event) {
	for _, e := range all {
		if e.Kind == kind {
			out = append(out, e)
		}
	}
	return out
}

func endAfterResult(q provider.Query) func(provider.Event) {
	return func(e provider.Event) {
		if e.Kind == provider.Result {
			q.End()
		}
	}
}

// A recorded session gives the same events however its lines are cut.
func TestReplay(t *testing.T) {
	t.Parallel()
	path, err := filepath.Abs("testdata/session.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	want := strings.TrimSpace(`
init fdf298d3-6c31-46cd-b14d-3bbf6dc12ec4
text <message to="family">Let me add.</message>
tool_start mcp__nanoclaw__add
tool_end mcp__nanoclaw__add
tool_start mcp__nanoclaw__fail
tool_end mcp__nanoclaw__fail
text <message to="family">The sum is 5.</message>
result <message to="family">The sum is 5.</message>
text Napping.
tool_start mcp__nanoclaw__nap
tool_end mcp__nanoclaw__nap
taken milk
text <message to="family">Awake, and I saw the new message.</message>
result <message to="family">Awake, and I saw the new message.</message>
text Starting.
tool_start mcp__nanoclaw__nap
tool_end mcp__nanoclaw__nap
result  interrupted
text <message to="family">Yes.</message>
result <message to="family">Yes.</message>`)
	for seed := range 4 {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			q := query(t, driver(t, fmt.Sprintf("replay:%s,%d", path, seed)), "What is 2+3?")
			naps, results := 0, 0
			push := func(id, text string) {
				if err := q.Push(t.Context(), provider.Input{ID: id, Text: text}); err != nil {
					t.Error(err)
				}
			}
			var got strings.Builder
			var cost float64
			for e := range q.Events() {
				switch e.Kind {
				case provider.Activity:
					continue
				case provider.ToolStart:
					if strings.HasSuffix(e.Tool, "nap") {
						if naps++; naps == 1 {
							push("milk", "And buy milk.")
						} else if err := q.Interrupt(t.Context()); err != nil {
							t.Error(err)
						}
					}
				case provider.Result:
					cost += e.Usage.CostUSD
					if results++; results < 4 {
						push("next", []string{"Take a nap.", "Long one.", "Still there?"}[results-1])
					} else {
						q.End()
					}
				}
				fmt.Fprintf(&got, "%s %s%s%s%s", e.Kind, e.Continuation, e.Text, e.Tool, e.Message)
				if e.Kind == provider.Taken {
					got.WriteString(e.InputID)
				}
				if e.Interrupted {
					got.Reset()
					got.WriteString(strings.SplitAfter(want, "interrupted")[0]) // its message is a diagnostic
				}
				got.WriteByte('\n')
			}
			if g := strings.TrimSpace(got.String()); g != want {
				t.Errorf("events:\n%s\nwant:\n%s", g, want)
			}
			if err := q.Err(); err != nil {
				t.Error(err)
			}
			if cost < 0.0754 || cost > 0.0755 { // the process total, told turn by turn
				t.Errorf("cost %f", cost)
			}
		})
	}
}

func TestBigLines(t *testing.T) {
	t.Parallel()
	q := query(t, driver(t, "big"), "hi")
	all := collect(q, endAfterResult(q))
	texts := only(provider.Text, all)
	if len(texts) != 1 || len(texts[0].Text) != 5<<20 {
		t.Errorf("%d texts", len(texts))
	}
	if results := only(provider.Result, all); len(results) != 1 || results[0].Text != "over" {
		t.Errorf("results: %+v", results)
	}
	if err := q.Err(); err != nil {
		t.Error(err)
	}
}

// What the driver does not know is activity and nothing else; requests are always answered.
func TestStrangeLines(t *testing.T) {
	t.Parallel()
	q := query(t, driver(t, "strange"), "hi")
	all := collect(q, endAfterResult(q))
	if texts := only(provider.Text, all); len(texts) != 1 || texts[0].Text != "still here" {
		t.Errorf("texts: %+v", texts)
	}
	tools := only(provider.ToolStart, all)
	if len(tools) != 1 || tools[0].Tool != "Bash" || tools[0].Timeout != 90*time.Second {
		t.Errorf("tools: %+v", tools)
	}
	if len(only(provider.ToolEnd, all)) != 1 {
		t.Error("the tool did not end with the turn")
	}
	if err := q.Err(); err != nil {
		t.Error(err)
	}
}

func failure(t *testing.T, q provider.Query) *provider.QueryError {
	t.Helper()
	var qe *provider.QueryError
	if err := q.Err(); !errors.As(err, &qe) {
		t.Fatalf("Err: %v", err)
	}
	return qe
}

func TestExitInMidLine(t *testing.T) {
	t.Parallel()
	p := driver(t, "midline")
	q := query(t, p, "hi")
	all := collect(q, nil)
	if len(only(provider.Result, all)) != 0 || len(only(provider.Text, all)) != 1 {
		t.Errorf("events: %+v", all)
	}
	qe := failure(t, q)
	if !qe.Retryable || p.IsSessionInvalid(qe) || !strings.Contains(qe.Error(), "exit status 7") || !strings.Contains(qe.Error(), "[secret] is bad") {
		t.Errorf("%+v: %v", qe, qe)
	}
	if strings.Contains(qe.Error(), placeholder) {
		t.Errorf("the key in an error: %v", qe)
	}
	if err := q.Push(t.Context(), provider.Input{ID: "x"}); !errors.Is(err, provider.ErrEnded) {
		t.Errorf("Push: %v", err)
	}
	if err := q.Interrupt(t.Context()); err != nil && !errors.Is(err, provider.ErrEnded) {
		t.Errorf("Interrupt: %v", err)
	}
}

// An exit in mid-turn is an error even with code 0, unless End was called: then the CLI chose to be done.
func TestExitInMidTurn(t *testing.T) {
	t.Parallel()
	q := query(t, driver(t, "leave"), "hi")
	collect(q, nil)
	if qe := failure(t, q); !qe.Retryable {
		t.Errorf("%+v", qe)
	}
}

func TestSetUpRefused(t *testing.T) {
	t.Parallel()
	q := query(t, driver(t, "refuse"), "hi")
	collect(q, nil)
	if qe := failure(t, q); !strings.Contains(qe.Error(), "bad set-up [secret]") {
		t.Errorf("%v", qe)
	}
}

func TestNoAnswerAtAll(t *testing.T) {
	t.Parallel()
	q := query(t, driver(t, "mute", func(o *claude.Options) { o.InitWait, o.CloseWait = 300*time.Millisecond, 100*time.Millisecond }), "hi")
	collect(q, nil)
	if qe := failure(t, q); !qe.Retryable || !strings.Contains(qe.Error(), "no answer within") {
		t.Errorf("%v", qe)
	}
}

// A turn that goes silent is interrupted and reported as worth a retry; one that does not react ends the process.
func TestPRV3Silence(t *testing.T) {
	t.Parallel()
	short := func(o *claude.Options) {
		o.Silence, o.InterruptWait, o.CloseWait = 300*time.Millisecond, 2*time.Second, 100*time.Millisecond
	}
	t.Run("interrupted", func(t *testing.T) {
		t.Parallel()
		q := query(t, driver(t, "quiet", short), "hi")
		all := collect(q, endAfterResult(q))
		if r := only(provider.Result, all); len(r) != 1 || !r[0].IsError || !r[0].Retryable || r[0].Interrupted {
			t.Errorf("result: %+v", r)
		}
		if err := q.Err(); err != nil {
			t.Error(err)
		}
	})
	t.Run("ended", func(t *testing.T) {
		t.Parallel()
		q := query(t, driver(t, "hang", short), "hi")
		all := collect(q, nil)
		if len(only(provider.Result, all)) != 0 {
			t.Errorf("events: %+v", all)
		}
		if qe := failure(t, q); !qe.Retryable || !strings.Contains(qe.Error(), "nothing was heard") {
			t.Errorf("%v", qe)
		}
	})
}

func TestStaysAfterEnd(t *testing.T) {
	t.Parallel()
	q := query(t, driver(t, "stay", func(o *claude.Options) { o.EndWait, o.CloseWait = 200*time.Millisecond, 100*time.Millisecond }), "hi")
	all := collect(q, endAfterResult(q))
	if r := only(provider.Result, all); len(r) != 1 || r[0].Text != "done" {
		t.Errorf("result: %+v", r)
	}
	if err := q.Err(); err != nil {
		t.Error(err)
	}
}

// Abort is bounded although the CLI reads nothing, ignores SIGTERM, and megabytes wait for it.
func TestAbortOfADeafCLI(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"deaf", "hang", "mute"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			q := query(t, driver(t, mode), strings.Repeat("long ", 1<<20))
			for range 3 {
				if err := q.Push(t.Context(), provider.Input{ID: "more", Text: strings.Repeat("more ", 1<<20)}); err != nil {
					t.Error(err)
				}
			}
			start := time.Now()
			q.Abort()
			if took := time.Since(start); took > 10*time.Second {
				t.Errorf("it took %s", took)
			}
			collect(q, nil)
			if err := q.Err(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A CLI that is killed leaves shells with sessions of their own; they even hold its output open.
func TestOrphans(t *testing.T) {
	t.Parallel()
	fifo := filepath.Join(t.TempDir(), "pid")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	q := query(t, driver(t, "orphan:"+fifo), "hi")
	var pid int
	collect(q, func(e provider.Event) {
		if e.Kind != provider.Text {
			return
		}
		f, err := os.Open(fifo)
		if err != nil {
			t.Error(err)
			return
		}
		if _, err := fmt.Fscan(f, &pid); err != nil {
			t.Error(err)
		}
		_ = f.Close()
		if err := q.Push(t.Context(), provider.Input{ID: "die", Text: "die"}); err != nil {
			t.Error(err)
		}
	})
	if qe := failure(t, q); !qe.Retryable || !strings.Contains(qe.Error(), "killed") {
		t.Errorf("%v", qe)
	}
	if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil && !strings.Contains(string(b), ") Z ") {
		t.Errorf("process %d is still there: %s", pid, b)
	}
}

// turns makes the fake write lines for each prompt.
func turns(t *testing.T, lines ...[]string) string {
	t.Helper()
	raw := make([][]json.RawMessage, len(lines))
	for i, turn := range lines {
		for _, l := range turn {
			raw[i] = append(raw[i], json.RawMessage(l))
		}
	}
	b, err := json.Marshal(raw)
	if err != nil {
		t.Fatal(err)
	}
	return "script:" + string(b)
}

const (
	begin     = `{"type":"system","subtype":"init","session_id":"fdf298d3-6c31-46cd-b14d-3bbf6dc12ec4"}`
	taken     = `{"type":"command_lifecycle","command_uuid":"$uuid","state":"started"}`
	synthetic = `{"type":"assistant","parent_tool_use_id":null,"message":{"model":"<synthetic>","content":[{"type":"text","text":"No response requested."}]}}`
)

func errorResult(text string, status int) string {
	return fmt.Sprintf(`{"type":"result","subtype":"success","is_error":true,"result":%q,"terminal_reason":"api_error","api_error_status":%d}`, text, status)
}

func TestFMT1PRV1Results(t *testing.T) {
	t.Parallel()
	limit := func(fields string) string { return `{"type":"rate_limit_event","rate_limit_info":{` + fields + `}}` }
	ok := `{"type":"result","subtype":"success","is_error":false,"result":"fine"}`
	spoke := `{"type":"assistant","parent_tool_use_id":null,"message":{"model":"m","content":[{"type":"text","text":"fine"}]}}`
	when := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		prompt string
		lines  []string
		want   provider.Event
		errors int // error events
		texts  int
	}{
		"a placeholder is no answer":   {"hi", []string{synthetic, `{"type":"result","subtype":"success","is_error":false,"result":"No response requested."}`}, provider.Event{IsError: true, Class: provider.ClassOther, Retryable: true}, 0, 0},
		"a command answers by itself":  {"/cost", []string{synthetic, ok}, provider.Event{Text: "fine"}, 0, 0},
		"silent on purpose":            {"hi", []string{`{"type":"result","subtype":"success","is_error":false,"result":""}`}, provider.Event{}, 0, 0},
		"no credit":                    {"hi", []string{errorResult("Credit balance is too low", 400)}, provider.Event{IsError: true, Class: provider.ClassQuota}, 0, 0},
		"too long":                     {"hi", []string{errorResult("Prompt is too long", 400)}, provider.Event{IsError: true, Class: provider.ClassContext}, 0, 0},
		"no network":                   {"hi", []string{errorResult("API Error: Connection error.", 0)}, provider.Event{IsError: true, Class: provider.ClassNetwork, Retryable: true}, 0, 0},
		"status in the text":           {"hi", []string{errorResult(`API Error: 529 {"type":"error"}`, 0)}, provider.Event{IsError: true, Class: provider.ClassOverloaded, Retryable: true}, 0, 0},
		"not logged in":                {"hi", []string{errorResult("Not logged in · Please run /login", 0)}, provider.Event{IsError: true, Class: provider.ClassAuth}, 0, 0},
		"close to the limit is no end": {"hi", []string{limit(`"status":"allowed_warning","resetsAt":1796126400`), limit(`"status":"allowed"`), spoke, ok}, provider.Event{Text: "fine"}, 0, 1},
		"limit in seconds":             {"hi", []string{limit(`"status":"rejected","resetsAt":1796126400,"rateLimitType":"five_hour"`), errorResult("You've hit your 5-hour limit", 429)}, provider.Event{IsError: true, Class: provider.ClassRateLimit, ResetsAt: when}, 1, 0},
		"limit in milliseconds":        {"hi", []string{limit(`"status":"rejected","resetsAt":1796126400000`), errorResult("limit", 429)}, provider.Event{IsError: true, Class: provider.ClassRateLimit, ResetsAt: when}, 1, 0},
		"paid beyond the limit":        {"hi", []string{limit(`"status":"rejected","resetsAt":1796126400,"isUsingOverage":true`), spoke, ok}, provider.Event{Text: "fine"}, 0, 1},
		"out of credits":               {"hi", []string{limit(`"status":"rejected","overageDisabledReason":"out_of_credits"`), errorResult("limit", 429)}, provider.Event{IsError: true, Class: provider.ClassQuota}, 1, 0},
		"retries are told":             {"hi", []string{`{"type":"system","subtype":"api_retry","attempt":1,"max_retries":2,"error_status":500,"error":"server_error"}`, spoke, ok}, provider.Event{Text: "fine"}, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := query(t, driver(t, turns(t, append([]string{taken, begin}, c.lines...))), c.prompt)
			all := collect(q, endAfterResult(q))
			results := only(provider.Result, all)
			if len(results) != 1 {
				t.Fatalf("results: %+v", results)
			}
			got := results[0]
			if got.IsError && got.Message == "" {
				t.Error("no diagnostic")
			}
			if got.Usage, got.Message, got.Notice = nil, "", ""; true {
				c.want.Kind = provider.Result
			}
			if got != c.want {
				t.Errorf("result %+v, want %+v", got, c.want)
			}
			if n := len(only(provider.Error, all)); n != c.errors {
				t.Errorf("%d error events", n)
			}
			if n := len(only(provider.Text, all)); n != c.texts {
				t.Errorf("%d texts", n)
			}
			if err := q.Err(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A turn nobody asked for is a result like any other, and /clear changes the continuation.
func TestSpontaneousTurnAndReset(t *testing.T) {
	t.Parallel()
	ok := `{"type":"result","subtype":"success","is_error":false,"result":"x"}`
	again := `{"type":"system","subtype":"init","session_id":"00000000-0000-4000-8000-000000000001"}`
	q := query(t, driver(t, turns(t, []string{
		taken, begin, ok, `{"type":"system","subtype":"task_notification","summary":"build finished"}`, begin, ok,
		`{"type":"conversation_reset"}`, `{"type":"system","subtype":"compact_boundary","compact_metadata":{}}`, again, ok,
	})), "hi")
	n := 0
	all := collect(q, func(e provider.Event) {
		if e.Kind == provider.Result {
			if n++; n == 3 {
				q.End()
			}
		}
	})
	if inits := only(provider.Init, all); len(inits) != 2 || inits[1].Continuation != "00000000-0000-4000-8000-000000000001" {
		t.Errorf("inits: %+v", inits)
	}
	if p := only(provider.Progress, all); len(p) != 1 || p[0].Message != "build finished" {
		t.Errorf("progress: %+v", p)
	}
	if len(only(provider.Compacted, all)) != 1 || n != 3 {
		t.Errorf("events: %+v", all)
	}
}

func TestRefusedBeforeTheStart(t *testing.T) {
	t.Parallel()
	url := provider.MCPServer{Name: "my.server", URL: "http://127.0.0.1:9"}
	for name, c := range map[string]struct {
		in      provider.QueryInput
		program string
		invalid bool
	}{
		"names collide":       {in: provider.QueryInput{MCP: []provider.MCPServer{url, {Name: "my_server", Command: "x"}}}},
		"neither URL nor cmd": {in: provider.QueryInput{MCP: []provider.MCPServer{{Name: "x"}}}},
		"an option as id":     {in: provider.QueryInput{Continuation: "--help"}, invalid: true},
		"another's id":        {in: provider.QueryInput{Continuation: "mock-3"}, invalid: true},
		"no program":          {program: "/nonexistent/claude"},
		"a folder":            {program: "/"},
		"no such cwd":         {in: provider.QueryInput{Cwd: "/nonexistent/folder"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := driver(t, "mute", func(o *claude.Options) {
				if c.program != "" {
					o.Program = c.program
				}
			})
			q, err := p.Query(t.Context(), c.in)
			if err == nil {
				q.Abort()
				t.Fatal("it started")
			}
			var qe *provider.QueryError
			if !errors.As(err, &qe) || p.IsSessionInvalid(err) != c.invalid {
				t.Errorf("%v", err)
			}
		})
	}
	if _, err := claude.New(claude.Options{Program: "claude", Home: "/x"}); err == nil {
		t.Error("a relative program was accepted")
	}
	if _, err := claude.New(claude.Options{Program: "/claude", Home: "x"}); err == nil {
		t.Error("a relative home was accepted")
	}
}
