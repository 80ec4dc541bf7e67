package claude_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"nanoclaw/internal/provider"
	"nanoclaw/internal/provider/claude"
	"nanoclaw/internal/testkit/modelserver"
)

// A CLI that is killed between a tool call and its result leaves no process, and its conversation goes on in a new one
// (spec/bugs.md PRV-7).
func TestPRV7KilledInATool(t *testing.T) {
	t.Parallel()
	cli, home, cwd, api := program(t), t.TempDir(), t.TempDir(), model(t)
	p, err := claude.New(options(cli, home, api.URL()))
	if err != nil {
		t.Fatal(err)
	}
	pipe := filepath.Join(cwd, "pids")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	command, err := json.Marshal(map[string]string{"command": fmt.Sprintf("echo $$ $PPID > %s; while :; do sleep 60; done", pipe)})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(continuation, text string, steps ...modelserver.Step) provider.Query {
		q, err := p.Query(t.Context(), provider.QueryInput{Cwd: cwd, Continuation: continuation, Input: provider.Input{ID: "a", Text: text + modelserver.Script(steps...)}})
		if err != nil {
			t.Fatal(err)
		}
		return q
	}
	q := ask("", "remember the heron ", modelserver.Step{Text: "Working.", Tools: []modelserver.Tool{{Name: "Bash", Input: command}}})
	var continuation string
	var shell, parent int
	for e := range q.Events() {
		switch e.Kind {
		case provider.Init:
			continuation = e.Continuation
		case provider.ToolStart:
			f, err := os.Open(pipe)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := fmt.Fscan(f, &shell, &parent); err != nil {
				t.Fatal(err)
			}
			_ = f.Close()
			if err := syscall.Kill(parent, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		case provider.Result:
			t.Errorf("a result of a dead CLI: %+v", e)
		}
	}
	if qe := failure(t, q); !qe.Retryable || p.IsSessionInvalid(qe) {
		t.Errorf("%v", qe)
	}
	if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", shell)); err == nil && !strings.Contains(string(b), ") Z ") {
		t.Errorf("the shell %d is still there", shell)
	}

	q = ask(continuation, "and now? ", modelserver.Step{Text: "Going on."})
	all := collect(q, endAfterResult(q))
	if r := only(provider.Result, all); len(r) != 1 || r[0].IsError || r[0].Text != "Going on." {
		t.Errorf("results: %+v", r)
	}
	if err := q.Err(); err != nil {
		t.Error(err)
	}
	requests := api.Requests()
	if !requests[len(requests)-1].Contains("remember the heron") {
		t.Error("the conversation was not resumed")
	}
}

// BenchmarkFirstTurn is the time from Query to the first result of a new conversation, and the memory of the idle CLI.
func BenchmarkFirstTurn(b *testing.B) {
	cli, err := filepath.Abs(os.Getenv("NANOCLAW_TEST_CLAUDE"))
	if err != nil || os.Getenv("NANOCLAW_TEST_CLAUDE") == "" {
		b.Skip("NANOCLAW_TEST_CLAUDE names no CLI")
	}
	api, err := modelserver.Start(modelserver.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer api.Close()
	p, err := claude.New(options(cli, b.TempDir(), api.URL()))
	if err != nil {
		b.Fatal(err)
	}
	cwd := b.TempDir()
	var first, resident float64
	for b.Loop() {
		start := time.Now()
		q, err := p.Query(b.Context(), provider.QueryInput{Cwd: cwd, Input: provider.Input{ID: "a", Text: "hi"}})
		if err != nil {
			b.Fatal(err)
		}
		for e := range q.Events() {
			if e.Kind == provider.Result {
				first += time.Since(start).Seconds()
				resident += residentMB(b)
				q.End()
			}
		}
	}
	b.ReportMetric(first/float64(b.N), "s/first-result")
	b.ReportMetric(resident/float64(b.N), "MB/rss")
}

// residentMB is the memory of our largest child.
func residentMB(b *testing.B) float64 {
	b.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/children", os.Getpid()))
	if err != nil {
		b.Skip(err)
	}
	largest := 0.0
	threads, _ := filepath.Glob("/proc/self/task/*/children")
	for _, t := range threads {
		list, err := os.ReadFile(t)
		if err == nil {
			raw = append(raw, list...)
		}
	}
	for _, pid := range strings.Fields(string(raw)) {
		var total, pages float64
		if statm, err := os.ReadFile("/proc/" + pid + "/statm"); err == nil {
			if _, err := fmt.Sscan(string(statm), &total, &pages); err == nil {
				largest = max(largest, pages*float64(os.Getpagesize())/(1<<20))
			}
		}
	}
	return largest
}
