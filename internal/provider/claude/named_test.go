package claude_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"nanoclaw/internal/provider"
	"nanoclaw/internal/provider/claude"
)

const resumed = "fdf298d3-6c31-46cd-b14d-3bbf6dc12ec4"

// again asks in a conversation that exists.
func again(t *testing.T, p *claude.Provider, text string) provider.Query {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	q, err := p.Query(ctx, provider.QueryInput{Cwd: t.TempDir(), Continuation: resumed, Input: provider.Input{ID: "first", Text: text}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(q.Abort)
	return q
}

// Only the CLI's own word about this very conversation drops it, and what the API says of one that it will never accept again
// (spec/bugs.md RUN-10, RUN-13).
func TestRUN12WhatDropsAConversation(t *testing.T) {
	t.Parallel()
	gone := func(id string) string {
		return fmt.Sprintf(`{"type":"result","subtype":"error_during_execution","is_error":true,"errors":["No conversation found with session ID: %s"]}`, id)
	}
	signature := "API Error: 400 messages.1.content.0: Invalid `signature` in `thinking` block"
	for name, c := range map[string]struct {
		line    string
		invalid bool
	}{
		"it does not exist":          {gone(resumed), true},
		"another one does not exist": {gone("00000000-0000-4000-8000-000000000000"), false},
		"thinking signed by another": {errorResult(signature, 400), true},
		"thinking that was changed":  {errorResult("API Error: 400 messages.1.content.1: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified.", 400), true},
		"thinking that is missing":   {errorResult("API Error: 400 messages.3.content.0.type: Expected `thinking` or `redacted_thinking`, but found `text`. When `thinking` is enabled, a final `assistant` message must start with a thinking block", 400), true},
		"the same with a retry":      {errorResult(strings.Replace(signature, "400", "529", 1), 529), false},
		"another bad request":        {errorResult("API Error: 400 max_tokens: thinking budget", 400), false},
		"no key":                     {errorResult("Invalid API key · Fix external API key", 401), false},
		"no network":                 {errorResult("API Error: Connection refused (ECONNREFUSED)", 0), false},
		"overloaded":                 {errorResult("API Error: 529 Overloaded.", 529), false},
		"too long":                   {errorResult("Prompt is too long", 400), false},
		"a model's word about it":    {errorResult("API Error: 500 No conversation found with session ID", 500), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := driver(t, turns(t, []string{taken, begin, c.line}))
			q := again(t, p, "hi")
			all := collect(q, endAfterResult(q))
			if got := p.IsSessionInvalid(q.Err()); got != c.invalid {
				t.Errorf("%v: %t", q.Err(), got)
			}
			if results := only(provider.Result, all); c.invalid && len(results) != 0 || !c.invalid && (len(results) != 1 || !results[0].IsError || results[0].Class == provider.ClassInvalidSession) {
				t.Errorf("results: %+v", results)
			}
		})
	}
	// in a conversation without a past it is a bad request like any other: a new one would fare no better
	q := query(t, driver(t, turns(t, []string{taken, begin, errorResult(signature, 400)})), "hi")
	if r := only(provider.Result, collect(q, endAfterResult(q))); len(r) != 1 || r[0].Class != provider.ClassOther || r[0].Retryable {
		t.Errorf("results: %+v", r)
	}
	for _, text := range []string{"exit status 1", "dial tcp: no route", "log in"} {
		p := driver(t, "mute")
		if p.IsSessionInvalid(errors.New(text)) || p.IsSessionInvalid(&provider.QueryError{Class: provider.ClassNetwork, Err: errors.New(text)}) {
			t.Errorf("%s would drop the conversation", text)
		}
	}
}

// Errors of money are told in plain words, are not tried again, and are told apart from a window that resets.
func TestGATE6NoticesAreOurOwnWords(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		line   string
		class  provider.Class
		notice string
	}{
		"spend limit":   {errorResult("Failed to authenticate. API Error: 403 spend limit reached for org-4711", 403), provider.ClassQuota, "no credit"},
		"no credit":     {errorResult("Credit balance is too low", 400), provider.ClassQuota, "no credit"},
		"payment":       {errorResult("API Error: 402 no funds", 402), provider.ClassQuota, "no credit"},
		"forbidden":     {errorResult("Failed to authenticate. API Error: 403 Your organization has disabled", 403), provider.ClassAuth, "key"},
		"unknown model": {errorResult("There's an issue with the selected model (claude-x). It may not exist", 404), provider.ClassOther, "model"},
		"too large":     {errorResult("Request too large (max 32MB).", 413), provider.ClassContext, "too long"},
		"other":         {errorResult("API Error: 400 internal detail 4711", 400), provider.ClassOther, ""},
		"a dump":        {errorResult(`API Error: 418 {"error":{"message":"<html>4711"}}`, 418), provider.ClassOther, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := query(t, driver(t, turns(t, []string{taken, begin, c.line})), "hi")
			r := only(provider.Result, collect(q, endAfterResult(q)))
			if len(r) != 1 || !r[0].IsError || r[0].Retryable || r[0].Class != c.class || r[0].Text != "" {
				t.Fatalf("results: %+v", r)
			}
			if got := r[0].Notice; !strings.Contains(got, c.notice) || c.notice == "" && got != "" || strings.Contains(got, "4711") || strings.Contains(got, "API") {
				t.Errorf("notice %q", got)
			}
		})
	}
}

// A command whose work fails is an error, with the class of what went wrong.
func TestFailedCompaction(t *testing.T) {
	t.Parallel()
	q := query(t, driver(t, turns(t, []string{
		taken, `{"type":"system","subtype":"status","status":"compacting"}`,
		`{"type":"system","subtype":"status","status":null,"compact_result":"failed","compact_error":"Error during compaction: API Error: 529 Overloaded"}`,
		begin, synthetic, `{"type":"result","subtype":"success","is_error":false,"result":""}`,
	})), "/compact")
	r := only(provider.Result, collect(q, endAfterResult(q)))
	if len(r) != 1 || !r[0].IsError || r[0].Class != provider.ClassOverloaded || !r[0].Retryable || r[0].Text != "" {
		t.Errorf("results: %+v", r)
	}
}

// While the CLI summarises, it says nothing; that it lives is told all the same.
func TestActivityWhileCompacting(t *testing.T) {
	t.Parallel()
	q := query(t, driver(t, turns(t, []string{taken, begin, `{"type":"system","subtype":"status","status":"compacting"}`}), func(o *claude.Options) {
		o.KeepAlive = 50 * time.Millisecond
	}), "/compact")
	n, seen := 0, false
	for e := range q.Events() {
		switch {
		case e.Kind == provider.Progress:
			seen = true
		case e.Kind == provider.Activity && seen:
			n++
		}
		if n == 5 {
			q.Abort()
			break
		}
	}
	if n < 5 {
		t.Errorf("%d signs of life", n)
	}
}

// Without our own tools no turn may run: it ends with words for a person, and the next query may try again.
func TestMCP2TheTurnFailsWithoutOurTools(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		servers string
		fails   bool
	}{
		"failed":    {`[{"name":"nanoclaw","status":"failed"}]`, true},
		"pending":   {`[{"name":"nanoclaw","status":"pending"}]`, true},
		"missing":   {`[]`, true},
		"connected": {`[{"name":"nanoclaw","status":"connected"},{"name":"extra","status":"failed"}]`, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			init := `{"type":"system","subtype":"init","session_id":"` + resumed + `","mcp_servers":` + c.servers + `}`
			said := `{"type":"assistant","parent_tool_use_id":null,"message":{"model":"m","content":[{"type":"text","text":"blind"}]}}`
			p := driver(t, turns(t, []string{taken, init, said, okResult}), func(o *claude.Options) { o.InterruptWait = 100 * time.Millisecond })
			q, err := p.Query(t.Context(), provider.QueryInput{Cwd: t.TempDir(), Input: provider.Input{ID: "a", Text: "hi"}, MCP: []provider.MCPServer{
				{Name: "nanoclaw", URL: "http://127.0.0.1:9", AlwaysLoad: true}, {Name: "extra", Command: "/nowhere", AlwaysLoad: true},
			}})
			if err != nil {
				t.Fatal(err)
			}
			all := collect(q, endAfterResult(q))
			r := only(provider.Result, all)
			if len(r) != 1 || r[0].IsError != c.fails || (len(only(provider.Text, all)) == 0) != c.fails || (q.Err() != nil) != c.fails {
				t.Fatalf("events %+v, Err %v", all, q.Err())
			}
			if c.fails && (r[0].Notice == "" || !r[0].Retryable || p.IsSessionInvalid(q.Err())) {
				t.Errorf("result: %+v", r[0])
			}
		})
	}
}

// Abort is bounded whatever the CLI does, and leaves none of its processes: see TestAbortOfADeafCLI, TestOrphans and the suite
// for the parts. Here the limits that users get.
func TestW19AbortIsBounded(t *testing.T) {
	t.Parallel()
	const most = 15 * time.Second // what provider.Query promises
	if sum := claude.DefaultInterruptWait + claude.DefaultCloseWait + claude.DefaultTermWait; sum > most-2*time.Second {
		t.Errorf("the waits of an abort sum up to %s", sum)
	}
	q := query(t, driver(t, "hang"), "hi")
	start := time.Now()
	for range 3 {
		go q.Abort()
	}
	collect(q, nil)
	q.Abort()
	if took := time.Since(start); took > most {
		t.Errorf("it took %s", took)
	}
}
