package codex

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"nanoclaw/internal/obs"
	"nanoclaw/internal/provider"
)

const deltaEvery = time.Second // activity of a streaming answer, at most

var deltaMark = []byte(`elta","params":`) // item/agentMessage/delta and its like, item/reasoning/textDelta

const headLength = 96 // where the method of a notification stands

// read translates one line. It never blocks on the reader of the events.
func (q *query) read(line []byte, tooLong bool) {
	q.mu.Lock()
	q.arm()
	q.mu.Unlock()
	if bytes.Contains(line[:min(len(line), headLength)], deltaMark) {
		if now := time.Now(); now.Sub(q.lastDelta) >= deltaEvery {
			q.lastDelta = now
			q.events.Put(provider.Event{Kind: provider.Activity})
		}
		return
	}
	q.events.Put(provider.Event{Kind: provider.Activity})
	if tooLong {
		q.log.Warn("codex: skipped a line that is too long")
		return
	}
	if len(line) == 0 {
		return
	}
	var m message
	if err := json.Unmarshal(line, &m); err != nil {
		q.log.Warn("codex: a line that is no object", obs.Error(err), obs.KeyCount, len(line))
		return
	}
	switch {
	case m.Method != "" && len(m.ID) > 0:
		q.asked(m)
	case m.Method != "":
		if err := q.note(m.Method, m.Params); err != nil {
			q.log.Warn("codex: a notification could not be read", obs.KeyMethod, m.Method, obs.Error(err))
		}
	case len(m.ID) > 0:
		q.answered(m)
	}
}

func (q *query) answered(m message) {
	id, err := strconv.ParseInt(string(m.ID), 10, 64)
	q.mu.Lock()
	answer := q.answers[id]
	delete(q.answers, id)
	q.mu.Unlock()
	if err == nil && answer != nil {
		answer(m)
	}
}

// asked answers what the CLI asks. The sandbox is the wall, so it may do everything; nobody is there to fill in a form.
func (q *query) asked(m message) {
	out := response{ID: m.ID}
	switch m.Method {
	case "item/commandExecution/requestApproval", "item/fileChange/requestApproval":
		out.Result = map[string]string{"decision": "accept"}
	case "applyPatchApproval", "execCommandApproval":
		out.Result = map[string]string{"decision": "approved"}
	case "mcpServer/elicitation/request":
		var p approvalParams
		_ = json.Unmarshal(m.Params, &p) // then it is no approval
		if _, approval := p.Meta["codex_approval_kind"]; approval {
			out.Result = map[string]any{"action": "accept", "content": struct{}{}}
		} else {
			out.Result = map[string]string{"action": "decline"}
		}
	case "item/tool/requestUserInput":
		out.Result = map[string]any{"answers": struct{}{}}
	default:
		out.Error = &rpcError{-32601, "not offered"}
	}
	if err := q.child.Send(out); err != nil {
		q.log.Warn("codex: an answer could not be sent", obs.KeyMethod, m.Method, obs.Error(err))
	}
}

func decode[T any](params json.RawMessage, use func(T)) error {
	var v T
	if err := json.Unmarshal(params, &v); err != nil {
		return err
	}
	use(v)
	return nil
}

// note is a notification. Those of other threads, of sub-agents, are activity only.
func (q *query) note(method string, params json.RawMessage) error {
	switch method {
	case "turn/started":
		return decode(params, func(n turnNote) { q.onThread(n.ThreadID, func() { q.begin(n.Turn.ID) }) })
	case "turn/completed":
		return decode(params, func(n turnNote) { q.onTurn(n.ThreadID, n.Turn.ID, func() { q.complete(n) }) })
	case "item/started":
		return decode(params, func(n itemNote) { q.onTurn(n.ThreadID, n.TurnID, func() { q.itemStarted(n.Item) }) })
	case "item/completed":
		return decode(params, func(n itemNote) { q.onTurn(n.ThreadID, n.TurnID, func() { q.itemCompleted(n.Item) }) })
	case "thread/tokenUsage/updated":
		return decode(params, func(n usageNote) { q.onTurn(n.ThreadID, n.TurnID, func() { q.turn.add(n.Usage.Last) }) })
	case "account/rateLimits/updated":
		return decode(params, func(n limitsNote) {
			q.mu.Lock()
			defer q.mu.Unlock()
			q.limit = n.resets()
		})
	case "error":
		return decode(params, q.errorNote)
	case "warning", "configWarning", "deprecationNotice", "guardianWarning":
		return decode(params, func(n warningNote) { q.log.Info("codex: a warning", obs.KeyWhat, q.redact(n.Message)) })
	case "model/rerouted":
		q.events.Put(provider.Event{Kind: provider.Progress, Message: "another model answers"})
	case "mcpServer/startupStatus/updated":
		return decode(params, func(n serverNote) {
			if n.Status == "failed" || n.Status == "cancelled" {
				q.log.Warn("codex: a tool server is not there", obs.KeyName, n.Name, obs.KeyStatus, n.Status, obs.KeyReason, q.redact(string(n.Error)))
			}
		})
	}
	return nil
}

// onThread calls use under mu when the notification is about our thread.
func (q *query) onThread(thread string, use func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if thread == q.thread {
		use()
		q.arm()
	}
}

// onTurn calls use when it is about the running turn.
func (q *query) onTurn(thread, id string, use func()) {
	q.onThread(thread, func() {
		if q.turn != nil && q.turn.id == id {
			use()
		}
	})
}

func (q *query) begin(id string) {
	if id == "" {
		return
	}
	q.endTools()
	q.turn = &turn{id: id, tools: map[string]string{}}
	if len(q.inputs) > 0 && q.inputs[0].command && q.inputs[0].sent {
		q.turn.command = true
		q.take(q.inputs[0])
		q.alive.Reset(q.p.opt.KeepAlive)
	}
	q.notify()
}

func (q *query) take(i *input) {
	q.drop(i)
	q.events.Put(provider.Event{Kind: provider.Taken, InputID: i.ID})
}

// quiet are the items that are no tools.
func quiet(kind string) bool {
	switch kind {
	case "userMessage", "agentMessage", "reasoning", "plan", "hookPrompt", "contextCompaction", "functionCallOutput", "subAgentActivity", "enteredReviewMode", "exitedReviewMode":
		return true
	}
	return false
}

// name of the tool that an item is a call of.
func (i item) name() string {
	switch {
	case i.Type == "mcpToolCall":
		return "mcp__" + i.Server + "__" + i.Tool
	case i.Type == "commandExecution":
		return "shell"
	case i.Tool != "":
		return i.Tool
	}
	return i.Type
}

func (q *query) itemStarted(i item) {
	if quiet(i.Type) {
		return
	}
	q.turn.tools[i.ID] = i.name()
	q.events.Put(provider.Event{Kind: provider.ToolStart, Tool: i.name()})
	q.alive.Reset(q.p.opt.KeepAlive)
}

func (q *query) itemCompleted(i item) {
	switch i.Type {
	case "userMessage":
		for _, in := range q.inputs {
			if in.key != "" && in.key == i.ClientID {
				q.take(in)
				break
			}
		}
	case "agentMessage":
		if strings.TrimSpace(i.Text) != "" && !q.turn.command {
			q.turn.text = i.Text
			q.events.Put(provider.Event{Kind: provider.Text, Text: i.Text})
		}
	case "contextCompaction":
		q.log.Info("codex: the conversation was compacted")
		q.events.Put(provider.Event{Kind: provider.Compacted})
	default:
		if name, open := q.turn.tools[i.ID]; open {
			delete(q.turn.tools, i.ID)
			q.events.Put(provider.Event{Kind: provider.ToolEnd, Tool: name})
		}
	}
}

// endTools ends what has not ended by itself: the tools of an interrupted turn. mu is held.
func (q *query) endTools() {
	if q.turn == nil {
		return
	}
	for id, name := range q.turn.tools {
		delete(q.turn.tools, id)
		q.events.Put(provider.Event{Kind: provider.ToolEnd, Tool: name})
	}
}

func (t *turn) add(u tokens) {
	t.usage.InputTokens += max(u.Input-u.Cached, 0)
	t.usage.CacheReadTokens += u.Cached
	t.usage.CacheCreationTokens += u.CacheWrite
	t.usage.OutputTokens += u.Output
}

// errorNote is about a request that is tried again; what ends a turn comes with its end.
func (q *query) errorNote(n errorNote) {
	if !n.WillRetry {
		return
	}
	q.mu.Lock()
	ours := n.ThreadID == q.thread
	q.mu.Unlock()
	if !ours {
		return
	}
	class, _, _ := n.Error.classify()
	q.events.Put(provider.Event{Kind: provider.Error, Class: class, Retryable: true, Message: q.redact(strings.TrimSpace(n.Error.Message + " " + n.Error.Details))})
}

const compacted = "The conversation was summarised."

// complete ends the running turn.
func (q *query) complete(n turnNote) {
	q.endTools()
	t := q.turn
	e := provider.Event{Kind: provider.Result, Text: t.text, Usage: &t.usage}
	for _, i := range n.Turn.Items {
		if e.Text == "" && i.Type == "agentMessage" && !t.command && strings.TrimSpace(i.Text) != "" {
			e.Text = i.Text
		}
	}
	switch {
	case n.Turn.Status == "interrupted" && t.silent:
		err := q.silentError()
		e.Text, e.IsError, e.Class, e.Retryable, e.Message, e.Notice = "", true, err.Class, true, err.Error(), notices[err.Class]
	case n.Turn.Status == "interrupted":
		e.Interrupted = true
	case n.Turn.Status == "failed":
		var cause turnError
		if n.Turn.Error != nil {
			cause = *n.Turn.Error
		}
		cause.failed(&e, q.limit)
		e.Message = q.redact(e.Message)
	case t.command:
		e.Text = compacted
	}
	q.events.Put(e)
	q.turn, q.past = nil, t.id
	for _, i := range q.inputs { // the CLI has forgotten what it had not taken
		if i.sent && i.turn == t.id {
			i.sent = false
		}
	}
	q.flush()
	q.notify()
}
