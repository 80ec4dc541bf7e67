package opencode

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"nanoclaw/internal/provider"
	"nanoclaw/internal/provider/child"
)

func TestErrorClasses(t *testing.T) {
	t.Parallel()
	later := time.Date(2026, 12, 2, 6, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		failure string
		resets  time.Time
		class   provider.Class
		retry   bool
	}{
		{`{"name":"APIError","data":{"statusCode":400,"message":"scripted invalid_request_error"}}`, time.Time{}, provider.ClassOther, false},
		{`{"name":"APIError","data":{"statusCode":400,"message":"prompt is too long: 210000 tokens"}}`, time.Time{}, provider.ClassContext, false},
		{`{"name":"APIError","data":{"statusCode":400,"message":"Your credit balance is too low"}}`, time.Time{}, provider.ClassQuota, false},
		{`{"name":"APIError","data":{"statusCode":401,"message":"invalid x-api-key"}}`, time.Time{}, provider.ClassAuth, false},
		{`{"name":"ProviderAuthError","data":{"message":"no key"}}`, time.Time{}, provider.ClassAuth, false},
		{`{"name":"APIError","data":{"statusCode":429,"message":"slow down","isRetryable":true}}`, time.Time{}, provider.ClassRateLimit, true},
		{`{"data":{"message":"scripted rate_limit_error"}}`, time.Time{}, provider.ClassRateLimit, true},
		{`{"data":{"message":"scripted rate_limit_error"}}`, later, provider.ClassRateLimit, false},
		{`{"data":{"message":"Overloaded","isRetryable":true}}`, time.Time{}, provider.ClassOverloaded, true},
		{`{"data":{"message":"scripted api_error","isRetryable":true}}`, time.Time{}, provider.ClassOther, true},
		{`{"name":"APIError","data":{"statusCode":500,"message":"connection to the database"}}`, time.Time{}, provider.ClassOther, true},
		{`{"name":"UnknownError","data":{"message":"Unable to connect. Is the computer able to access the url?"}}`, time.Time{}, provider.ClassNetwork, true},
		{`{"name":"ProviderModelNotFoundError","data":{}}`, time.Time{}, provider.ClassOther, false},
		{`{}`, time.Time{}, provider.ClassOther, false},
	} {
		var f failure
		if err := json.Unmarshal([]byte(c.failure), &f); err != nil {
			t.Fatal(err)
		}
		var e provider.Event
		f.failed(&e, c.resets)
		if e.Class != c.class || e.Retryable != c.retry || !e.IsError || e.Message == "" || e.ResetsAt != c.resets {
			t.Errorf("%s: %+v", c.failure, e)
		}
		if strings.ContainsAny(e.Notice, "{}") || e.Class != provider.ClassOther && e.Notice == "" {
			t.Errorf("%s: notice %q", c.failure, e.Notice)
		}
	}
}

// The rules of a server's tools: the last that fits counts, so what is allowed by name stands behind what is denied.
func TestToolRules(t *testing.T) {
	t.Parallel()
	p, err := New(Options{Program: "/bin/true", Home: t.TempDir(), BaseURL: "http://127.0.0.1:1/v1"})
	if err != nil {
		t.Fatal(err)
	}
	c, err := p.settings(provider.QueryInput{MCP: []provider.MCPServer{
		{Name: "my server", URL: "http://127.0.0.1:1", Only: []string{"a", "b.c"}}, {Name: "local", Command: "x", Args: []string{"-y"}, Without: []string{"z"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"permission":{"*":"allow","question":"deny","my_server_*":"deny","my_server_a":"allow","my_server_b_c":"allow","local_z":"deny"}`,
		`"command":["x","-y"]`, `"oauth":false`, `"model":"anthropic/` + DefaultModel + `"`,
	} {
		if !strings.Contains(string(b), want) {
			t.Errorf("%s is not in %s", want, b)
		}
	}
	for _, bad := range []provider.MCPServer{{Name: "both", URL: "u", Command: "c"}, {Name: "none"}, {URL: "http://127.0.0.1:1"}} {
		if _, err := p.settings(provider.QueryInput{MCP: []provider.MCPServer{bad}}); err == nil {
			t.Errorf("%+v was taken", bad)
		}
	}
}

// Events are those of the stream, however it is cut.
func FuzzEvents(f *testing.F) {
	f.Add([]byte("data: {\"a\":1}\n\nevent: x\ndata:b\ndata: c\r\n\r\n: comment\n\ndata: half"))
	f.Fuzz(func(t *testing.T, text []byte) {
		read := func(in io.Reader) (all []string) {
			if err := readEvents(in, func(b []byte) { all = append(all, string(b)) }); err != nil {
				t.Fatal(err)
			}
			return all
		}
		whole := read(bytes.NewReader(text))
		cut := read(iotest.OneByteReader(bytes.NewReader(text)))
		if strings.Join(whole, "\x00") != strings.Join(cut, "\x00") || len(whole) != len(cut) {
			t.Errorf("%q and %q", whole, cut)
		}
	})
}

// Whatever the program says, nothing panics, and starts and ends of tools are even.
func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"type":"message.updated","properties":{"info":{"id":"m","sessionID":"s","role":"assistant"}}}` + "\n" +
		`{"type":"message.part.updated","properties":{"part":{"id":"p","sessionID":"s","messageID":"m","type":"tool","tool":"x","state":{"status":"running"}}}}` + "\n" +
		`{"type":"session.status","properties":{"sessionID":"s","status":{"type":"retry","attempt":9}}}` + "\n" + `{"type":"session.idle","properties":{"sessionID":"s"}}`))
	f.Add([]byte(`{"type":"session.error","properties":{"sessionID":"s","error":{"name":"x"}}}` + "\n[]\n" + `{"type":"session.idle","properties":{"sessionID":"s"}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		q := &query{
			p: &Provider{}, log: slog.New(slog.NewTextHandler(io.Discard, nil)), events: child.NewQueue(), changed: make(chan struct{}), connected: make(chan struct{}),
			server: &server{}, worker: newWorker(), ctx: ctx, session: "s",
		}
		q.watch, q.alive = time.NewTimer(time.Hour), time.NewTimer(time.Hour)
		defer q.watch.Stop()
		defer q.alive.Stop()
		for line := range strings.Lines(string(text)) {
			q.read([]byte(strings.TrimSpace(line)))
		}
		q.mu.Lock()
		q.endTools()
		q.mu.Unlock()
		q.events.Close()
		open := 0
		for e := range q.events.Events() {
			switch e.Kind {
			case provider.ToolStart:
				open++
			case provider.ToolEnd:
				open--
			}
		}
		if open != 0 {
			t.Errorf("%d tools were left", open)
		}
	})
}
