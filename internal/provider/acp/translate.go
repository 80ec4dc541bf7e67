package acp

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"nanoclaw/internal/obs"
	"nanoclaw/internal/provider"
)

const chunkEvery = time.Second // activity of a streaming answer, at most

// read translates one line. It never blocks on the reader of the events.
func (q *query) read(line []byte, tooLong bool) {
	q.mu.Lock()
	q.arm()
	q.mu.Unlock()
	var m message
	if !tooLong && len(line) > 0 {
		if err := json.Unmarshal(line, &m); err != nil {
			q.log.Warn("acp: a line that is no object", obs.Error(err), obs.KeyCount, len(line))
		}
	}
	if m.Method != "session/update" {
		q.events.Put(provider.Event{Kind: provider.Activity})
	}
	switch {
	case tooLong:
		q.log.Warn("acp: skipped a line that is too long")
	case m.Method == "session/update":
		q.update(m.Params)
	case m.Method != "" && len(m.ID) > 0:
		q.asked(m)
	case m.Method == "" && len(m.ID) > 0:
		id, err := strconv.ParseInt(string(m.ID), 10, 64)
		q.mu.Lock()
		answer := q.answers[id]
		delete(q.answers, id)
		q.mu.Unlock()
		if err == nil && answer != nil {
			answer(m)
		}
	}
}

// asked answers what the agent asks. The sandbox is the wall, so it may do everything; files and terminals are its own matter.
func (q *query) asked(m message) {
	out := response{Version: version, ID: m.ID, Error: &rpcError{Code: notOffered, Message: "not offered"}}
	if m.Method == "session/request_permission" {
		var p permissionParams
		_ = json.Unmarshal(m.Params, &p) // then there is nothing to choose
		q.mu.Lock()
		chosen := outcome{Outcome: "cancelled"}
		if q.turn == nil || !q.turn.cancelled {
			for _, kind := range []string{"allow_once", "allow_always"} { // the last that is there
				for _, o := range p.Options {
					if o.Kind == kind {
						chosen = outcome{"selected", o.ID}
					}
				}
			}
		}
		q.mu.Unlock()
		out.Result, out.Error = permissionResult{chosen}, nil
	}
	if err := q.child.Send(out); err != nil {
		q.log.Warn("acp: an answer could not be sent", obs.KeyMethod, m.Method, obs.Error(err))
	}
}

func (q *query) update(params json.RawMessage) {
	var u updateParams
	if err := json.Unmarshal(params, &u); err != nil {
		q.log.Warn("acp: an update could not be read", obs.Error(err))
	}
	chunk := strings.HasSuffix(u.Update.Kind, "_chunk")
	if now := time.Now(); !chunk || now.Sub(q.lastChunk) >= chunkEvery {
		q.lastChunk = now
		q.events.Put(provider.Event{Kind: provider.Activity})
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.turn == nil || u.SessionID != q.session {
		return // what a loaded session held, or a turn that is over
	}
	switch u.Update.Kind {
	case "agent_message_chunk":
		var c content
		if err := json.Unmarshal(u.Update.Content, &c); err != nil || c.Type != "text" {
			return
		}
		if u.Update.MessageID != q.turn.message {
			q.say()
			q.turn.message = u.Update.MessageID
		}
		q.turn.open += c.Text
	case "tool_call", "tool_call_update":
		q.say()
		q.tool(u.Update)
	default:
		q.say()
	}
	q.arm()
}

// say ends the message that is being said; mu is held.
func (q *query) say() {
	text := q.turn.open
	q.turn.open = ""
	if strings.TrimSpace(text) != "" {
		q.turn.text = text
		q.events.Put(provider.Event{Kind: provider.Text, Text: text})
	}
}

func (q *query) tool(u update) {
	name, open := q.turn.tools[u.ToolID]
	switch u.Status {
	case "completed", "failed":
		if open {
			delete(q.turn.tools, u.ToolID)
			q.events.Put(provider.Event{Kind: provider.ToolEnd, Tool: name})
		}
	default:
		if !open && (u.Kind == "tool_call" || u.Title != "") {
			if name = u.Title; name == "" {
				name = "tool"
			}
			q.turn.tools[u.ToolID] = name
			q.events.Put(provider.Event{Kind: provider.ToolStart, Tool: name})
			q.alive.Reset(q.p.opt.KeepAlive)
		}
	}
}

// endTools ends what has not ended by itself. mu is held.
func (q *query) endTools() {
	if q.turn == nil {
		return
	}
	for id, name := range q.turn.tools {
		delete(q.turn.tools, id)
		q.events.Put(provider.Event{Kind: provider.ToolEnd, Tool: name})
	}
}

// complete is the answer to a prompt.
func (q *query) complete(t *turn, m message) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.turn != t {
		return
	}
	if m.Error == nil && !t.cancelled {
		q.say()
	}
	q.endTools()
	var r promptResult
	_ = json.Unmarshal(m.Result, &r) // then no usage is known
	e := provider.Event{Kind: provider.Result, Text: t.text, Usage: &provider.Usage{
		InputTokens: r.Usage.Input, OutputTokens: r.Usage.Output, CacheReadTokens: r.Usage.CacheRead, CacheCreationTokens: r.Usage.CacheWrite,
	}}
	switch {
	case t.silent:
		err := q.silentError()
		e.Text, e.IsError, e.Class, e.Retryable, e.Message, e.Notice = "", true, err.Class, true, err.Error(), notices[err.Class]
	case t.cancelled:
		e.Interrupted = true
	case m.Error != nil:
		m.Error.failed(&e)
		e.Message = q.redact(e.Message)
	}
	q.events.Put(e)
	q.turn = nil
	q.flush()
	q.arm()
	q.notify()
}

// phrases of error messages, in this order; the protocol has no classes.
var phrases = []struct {
	text  string
	class provider.Class
}{
	{"credit balance", provider.ClassQuota},
	{"quota", provider.ClassQuota},
	{"billing", provider.ClassQuota},
	{"too long", provider.ClassContext},
	{"context window", provider.ClassContext},
	{"context length", provider.ClassContext},
	{"rate limit", provider.ClassRateLimit},
	{"rate_limit", provider.ClassRateLimit},
	{"429", provider.ClassRateLimit},
	{"overloaded", provider.ClassOverloaded},
	{"api key", provider.ClassAuth},
	{"authentication", provider.ClassAuth},
	{"unauthorized", provider.ClassAuth},
	{"401", provider.ClassAuth},
	{"connect", provider.ClassNetwork},
	{"socket", provider.ClassNetwork},
	{"timed out", provider.ClassNetwork},
	{"timeout", provider.ClassNetwork},
	{"network", provider.ClassNetwork},
}

// notices are the words for a person, by class.
var notices = map[provider.Class]string{
	provider.ClassAuth:       "The model's provider did not accept the key. The owner must check it.",
	provider.ClassQuota:      "The account at the model's provider has no credit left.",
	provider.ClassRateLimit:  "The limit at the model's provider is reached.",
	provider.ClassOverloaded: "The model's provider is overloaded.",
	provider.ClassContext:    "This conversation has grown too long for the model.",
	provider.ClassNetwork:    "The model's provider could not be reached.",
}

// failed fills the result of a failed turn.
func (r *rpcError) failed(e *provider.Event) {
	e.IsError, e.Text, e.Class = true, "", provider.ClassOther
	if e.Message = r.Message; e.Message == "" {
		e.Message = fmt.Sprintf("error %d", r.Code)
	}
	if r.Code == authRequired {
		e.Class = provider.ClassAuth
	}
	low := strings.ToLower(r.Message + " " + string(r.Data))
	for _, p := range phrases {
		if e.Class == provider.ClassOther && strings.Contains(low, p.text) {
			e.Class = p.class
		}
	}
	switch e.Class {
	case provider.ClassRateLimit, provider.ClassOverloaded, provider.ClassNetwork:
		e.Retryable = true
	}
	e.Notice = notices[e.Class]
}

func list(m map[string]string) *[]named {
	out := []named{}
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, named{k, m[k]})
	}
	return &out
}

var secretName = regexp.MustCompile(`(?i)(key|token|secret|password|auth|proxy)`)

// redact removes every value that could be a secret from a text.
func (q *query) redact(text string) string {
	hide := func(v string) {
		if len(v) >= 6 {
			text = strings.ReplaceAll(text, v, "[secret]")
		}
	}
	for k, v := range q.p.opt.Env {
		if secretName.MatchString(k) {
			hide(v)
		}
	}
	for _, s := range q.in.MCP {
		for _, v := range s.Headers {
			hide(v)
			_, bare, _ := strings.Cut(v, " ") // "Bearer …"
			hide(bare)
		}
		for k, v := range s.Env {
			if secretName.MatchString(k) {
				hide(v)
			}
		}
	}
	return text
}
