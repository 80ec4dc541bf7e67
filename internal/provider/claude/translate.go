package claude

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"nanoclaw/internal/config/container"
	"nanoclaw/internal/obs"
	"nanoclaw/internal/provider"
)

const (
	syntheticModel = "<synthetic>"
	deltaEvery     = time.Second // activity of a streaming answer, at most
)

var deltaStart = []byte(`{"type":"stream_event"`)

// read translates a line. It never blocks on the reader of the events.
func (q *query) read(line []byte, tooLong bool) {
	q.heard()
	if bytes.HasPrefix(line, deltaStart) {
		if now := time.Now(); now.Sub(q.turn.lastDelta) >= deltaEvery {
			q.turn.lastDelta = now
			q.events.Put(provider.Event{Kind: provider.Activity})
		}
		return
	}
	q.events.Put(provider.Event{Kind: provider.Activity})
	if tooLong {
		q.log.Warn("claude: skipped a line that is too long")
		return
	}
	q.line(line)
}

// heard puts off the watch.
func (q *query) heard() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ready {
		q.armLocked()
	}
}

func (q *query) line(line []byte) {
	var head lineHead
	if len(line) == 0 {
		return
	}
	if err := json.Unmarshal(line, &head); err != nil {
		q.log.Warn("claude: a line that is no object", obs.Error(err), obs.KeyCount, len(line))
		return
	}
	if q.turn.over && head.Type != "result" && head.Type != "control_response" {
		return
	}
	var err error
	switch head.Type {
	case "system":
		err = q.system(head.Subtype, line)
	case "assistant":
		err = decode(line, q.assistant)
	case "user":
		q.toolResult(line)
	case "result":
		err = decode(line, q.result)
	case "command_lifecycle":
		err = decode(line, q.lifecycle)
	case "rate_limit_event":
		err = decode(line, q.rateLimit)
	case "control_request":
		q.request(line)
	case "control_response":
		err = decode(line, q.answer)
	}
	if err != nil {
		q.log.Warn("claude: a line could not be read", obs.KeyType, head.Type, obs.KeySubtype, head.Subtype, obs.Error(err))
	}
}

func decode[T any](line []byte, use func(T)) error {
	var v T
	if err := json.Unmarshal(line, &v); err != nil {
		return err
	}
	use(v)
	return nil
}

func (q *query) system(subtype string, line []byte) error {
	switch subtype {
	case "init":
		return decode(line, q.turnBegins)
	case "api_retry":
		return decode(line, func(r retryLine) {
			q.events.Put(provider.Event{
				Kind: provider.Error, Class: classOf(r.ErrorStatus, r.Error), Retryable: true,
				Message: fmt.Sprintf("the API answered %d (%s); try %d of %d", r.ErrorStatus, r.Error, r.Attempt, r.MaxRetries),
			})
		})
	case "compact_boundary":
		q.log.Info("claude: the conversation was compacted")
		q.turn.compacted = true
		q.events.Put(provider.Event{Kind: provider.Compacted})
	case "task_notification":
		return decode(line, func(t taskLine) { q.progress(t.Summary) })
	case "background_tasks_changed":
		return decode(line, func(t tasksLine) {
			q.mu.Lock()
			defer q.mu.Unlock()
			q.background = len(t.Tasks)
			q.armLocked()
		})
	case "model_fallback":
		return decode(line, func(f fallbackLine) {
			q.log.Warn("claude: another model answers", obs.KeyModel, f.Fallback, obs.KeyInstead, f.Original, obs.KeyReason, f.Trigger)
			q.progress(fmt.Sprintf("%s answers instead of %s (%s)", f.Fallback, f.Original, f.Trigger))
		})
	case "status":
		return decode(line, q.status)
	}
	return nil
}

func (q *query) status(s statusLine) {
	q.mu.Lock()
	if q.compacts = s.Status == "compacting"; q.compacts {
		q.alive.Reset(q.p.opt.KeepAlive)
	}
	q.mu.Unlock()
	if s.Status == "compacting" {
		q.progress("compacting the conversation")
	}
	if s.CompactError != "" {
		q.turn.compactError = s.CompactError
	}
}

func (q *query) progress(text string) {
	if text != "" {
		q.events.Put(provider.Event{Kind: provider.Progress, Message: text})
	}
}

// turnBegins comes at every turn, also at one nobody asked for.
func (q *query) turnBegins(s systemLine) {
	q.mu.Lock()
	if !q.began {
		q.interrupted, q.silent = false, false // they were for the turn before
	}
	q.running, q.began = true, true
	q.notify()
	q.armLocked()
	q.mu.Unlock()
	if s.SessionID != "" && s.SessionID != q.turn.continuation {
		q.turn.continuation = s.SessionID
		q.events.Put(provider.Event{Kind: provider.Init, Continuation: s.SessionID})
	}
	ours := "missing"
	for _, m := range s.MCPServers {
		if m.Name == container.ReservedMCPServer {
			ours = m.Status
		}
		if m.Status != "connected" {
			q.log.Warn("claude: a tool server is not there", obs.KeyServer, m.Name, obs.KeyStatus, m.Status)
		}
	}
	// without our own tools no turn may run (spec/bugs.md MCP-2); the CLI has waited for them
	if _, wanted := q.setup.MCPServers[container.ReservedMCPServer]; wanted && ours != "connected" {
		err := &provider.QueryError{
			Op: "reach the tool server " + container.ReservedMCPServer, Class: provider.ClassOther, Retryable: true,
			Err: fmt.Errorf("the CLI reports it as %s, and without its tools no turn may run", ours),
		}
		q.turn.over = true
		q.fail(err) // first, so that nobody pushes into it after the result
		q.events.Put(provider.Event{Kind: provider.Result, IsError: true, Class: err.Class, Retryable: true, Message: err.Error(), Notice: noTools, Usage: &provider.Usage{}})
	}
}

// assistant is one finished block of the answer.
func (q *query) assistant(a assistantLine) {
	if a.ParentToolUseID != nil {
		return // a sub-agent talks to its caller
	}
	if a.Message.Model == syntheticModel {
		q.turn.synthetic = true
		q.mu.Lock()
		command := q.command
		q.mu.Unlock()
		for _, b := range a.Message.Content {
			if command && b.Text != "" { // it is given with the result
				q.turn.output = append(q.turn.output, b.Text)
			}
		}
		return
	}
	q.turn.spoke = true
	if a.Message.Model != q.turn.model && a.Message.Model != "" {
		q.log.Info("claude: the model that answers", obs.KeyModel, a.Message.Model)
		q.turn.model = a.Message.Model
	}
	for _, b := range a.Message.Content {
		if b.Type == "text" && b.Text != "" {
			q.events.Put(provider.Event{Kind: provider.Text, Text: b.Text})
		}
	}
}

// toolResult ends tools whose hook did not come.
func (q *query) toolResult(line []byte) {
	q.mu.Lock()
	var over []string
	for id := range q.tools {
		if id != "" && bytes.Contains(line, []byte(id)) {
			over = append(over, id)
		}
	}
	q.mu.Unlock()
	for _, id := range over {
		q.toolEnd(id)
	}
}

func (q *query) lifecycle(l lifecycleLine) {
	if l.State != "started" && l.State != "completed" {
		return
	}
	q.mu.Lock()
	in, ours := q.inputs[l.CommandUUID]
	delete(q.inputs, l.CommandUUID)
	if ours && !q.turn.spoke && !q.turn.synthetic {
		q.command = in.command != ""
	}
	q.mu.Unlock()
	if ours {
		q.events.Put(provider.Event{Kind: provider.Taken, InputID: in.ID})
	}
}

// rateLimit is telemetry unless the request was rejected (spec/bugs.md PRV-1).
func (q *query) rateLimit(r rateLimitLine) {
	switch {
	case r.Info.Status == "allowed_warning":
		q.log.Warn("claude: close to a usage limit", obs.KeyLimit, r.Info.Type)
		return
	case r.Info.Status != "rejected":
		return
	case r.Info.UsingOverage:
		q.log.Warn("claude: a usage limit is reached, and paid beyond", obs.KeyLimit, r.Info.Type)
		return
	}
	e := provider.Event{Kind: provider.Error, Class: provider.ClassRateLimit, ResetsAt: instant(r.Info.ResetsAt)}
	if r.Info.ErrorCode == "credits_required" || r.Info.OverageErrCode == "credits_required" || r.Info.OverageReason == "out_of_credits" {
		e.Class = provider.ClassQuota
	}
	e.Message = "usage limit reached: " + r.Info.Type
	if !e.ResetsAt.IsZero() {
		e.Message += ", resets at " + e.ResetsAt.Format(time.RFC3339)
	}
	q.turn.limit = &e
	q.events.Put(e)
}

// instant reads seconds or milliseconds since 1970.
func instant(n float64) time.Time {
	switch {
	case n <= 0 || n > 1e15:
		return time.Time{}
	case n < 1e12:
		return time.Unix(int64(n), 0).UTC()
	}
	return time.UnixMilli(int64(n)).UTC()
}

func (q *query) answer(a answerLine) {
	q.mu.Lock()
	defer q.mu.Unlock()
	waiting := q.answers[a.Response.RequestID]
	delete(q.answers, a.Response.RequestID)
	if waiting == nil {
		return
	}
	if a.Response.Subtype == "error" {
		waiting <- fmt.Errorf("%w: %s", errAnswer, q.redact(a.Response.Error))
		return
	}
	var first struct {
		Version string `json:"claude_code_version"`
	}
	if json.Unmarshal(a.Response.Response, &first) == nil && first.Version != "" && !tested(first.Version) {
		q.log.Warn("claude: this version was not tested", obs.KeyVersion, first.Version, obs.KeyTested, OldestTested+" to "+NewestTested)
	}
	waiting <- nil
}

// result ends a turn.
func (q *query) result(r resultLine) {
	q.endTools()
	if q.turn.over {
		q.mu.Lock()
		q.running = false
		q.notify()
		q.mu.Unlock()
		return
	}
	t := q.turn
	q.turn = turn{continuation: t.continuation, model: t.model, lastDelta: t.lastDelta, turns: t.turns + 1, cost: r.TotalCostUSD}
	q.mu.Lock()
	interrupted, silent, command := q.interrupted, q.silent, q.command
	q.mu.Unlock()

	e := provider.Event{Kind: provider.Result, Text: r.Result, Usage: &provider.Usage{
		InputTokens: r.Usage.Input, OutputTokens: r.Usage.Output,
		CacheReadTokens: r.Usage.CacheRead, CacheCreationTokens: r.Usage.CacheCreation, CostUSD: max(0, r.TotalCostUSD-t.cost),
	}}
	aborted := strings.HasPrefix(r.TerminalReason, "aborted")
	switch {
	case silent && aborted:
		e.Text, e.IsError, e.Class, e.Retryable, e.Message = "", true, provider.ClassNetwork, true, silentError(q.p.opt.Silence).Error()
	case aborted, interrupted && r.Subtype == "error_during_execution":
		e.Text, e.Interrupted = "", true
		e.Message = strings.Join(r.Errors, "; ")
	case r.IsError:
		q.failed(&e, r, t)
	case command && t.compactError != "":
		q.failed(&e, resultLine{Result: t.compactError}, t)
	case command:
		e.Text = r.Result
		if e.Text == "" {
			e.Text = strings.Join(t.output, "\n")
		}
		if e.Text == "" && t.compacted {
			e.Text = "The conversation so far was summarised."
		}
	case t.synthetic && !t.spoke && !command:
		// the CLI answered without asking the model (spec/bugs.md FMT-1)
		e.IsError, e.Class, e.Retryable, e.Message, e.Text = true, provider.ClassOther, true, "the CLI did not ask the model: "+q.redact(r.Result), ""
	}
	if e.Class == provider.ClassInvalidSession {
		q.turn.over = true
		q.fail(&provider.QueryError{Op: "go on with the conversation", Class: e.Class, Retryable: true, Err: errors.New(e.Message)})
		return // nothing ran: the end of the query says it
	}
	q.events.Put(e)

	q.mu.Lock()
	defer q.mu.Unlock()
	// an input that is not taken yet opens the next turn
	q.running, q.began, q.interrupted, q.silent, q.compacts = len(q.inputs) > 0, false, false, false, false
	q.commanding = q.commanding && !command
	q.command = false
	q.flush()
	q.notify()
	q.armLocked()
}
