package claude

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"nanoclaw/internal/obs"
	"nanoclaw/internal/provider"
)

type hookAnswer struct {
	Continue      *bool         `json:"continue,omitempty"`
	Specific      *hookSpecific `json:"hookSpecificOutput,omitempty"`
	SystemMessage string        `json:"systemMessage,omitempty"` // of PreCompact: instructions for the summary
}

type hookSpecific struct {
	Event    string `json:"hookEventName"`
	Decision string `json:"permissionDecision,omitempty"`       // of PreToolUse
	Reason   string `json:"permissionDecisionReason,omitempty"` // of PreToolUse
	Context  string `json:"additionalContext,omitempty"`        // of PostToolBatch: told to the model
}

// compactTimeout is how long the CLI waits for the archive of a conversation that it is about to summarise, in seconds.
const compactTimeout = 60

// request answers a request of the CLI. An unanswered one would block the tool.
func (q *query) request(line []byte) {
	var r requestLine
	if err := json.Unmarshal(line, &r); err != nil {
		q.log.Warn("claude: a request of the CLI could not be read", obs.Error(err))
		return
	}
	switch {
	case r.Request.Subtype != "hook_callback":
		q.respond(responseContent{Subtype: "error", RequestID: r.RequestID, Error: "not supported: " + r.Request.Subtype})
	case r.Request.CallbackID == hookCompact: // it reads the whole transcript: not in the reader's way
		q.work.Go(func() {
			q.respond(responseContent{Subtype: "success", RequestID: r.RequestID, Response: q.compacting(r)})
		})
	default:
		q.respond(responseContent{Subtype: "success", RequestID: r.RequestID, Response: q.hook(r)})
	}
}

func (q *query) respond(answer responseContent) {
	if err := q.stdin.Send(controlResponse{Type: "control_response", Response: answer}); err != nil {
		q.log.Warn("claude: a request of the CLI could not be answered", obs.Error(err))
	}
}

func (q *query) hook(r requestLine) hookAnswer {
	goOn := true
	in := r.Request.Input
	id := in.ToolUseID
	if id == "" {
		id = r.Request.ToolUseID
	}
	switch r.Request.CallbackID {
	case hookPre:
		if reason := q.rules.refused(in.ToolName); reason != "" {
			q.log.Warn("claude: denied a tool", obs.KeyTool, in.ToolName)
			return hookAnswer{Specific: &hookSpecific{Event: hookPre, Decision: "deny", Reason: reason}}
		}
		q.toolStart(id, in.ToolName, in.ToolInput)
	case hookPost, hookFailure:
		q.toolEnd(id)
	case hookBatch:
		// a tool that does not exist fails without any other hook; the model is told what to use instead
		var hints []string
		for _, call := range in.ToolCalls {
			if reason := q.rules.denied[call.ToolName]; reason != "" {
				hints = append(hints, call.ToolName+" is not available. "+reason)
			}
		}
		if len(hints) > 0 {
			slices.Sort(hints)
			return hookAnswer{Continue: &goOn, Specific: &hookSpecific{Event: hookBatch, Context: strings.Join(slices.Compact(hints), "\n")}}
		}
	}
	return hookAnswer{Continue: &goOn}
}

// compacting archives the conversation that is about to be summarised and says what the summary must keep, so that the model still
// knows how to address afterwards (spec/bugs.md GATE-12).
func (q *query) compacting(r requestLine) hookAnswer {
	goOn := true
	answer := hookAnswer{Continue: &goOn}
	if q.p.opt.Compaction != nil {
		answer.SystemMessage = q.p.opt.Compaction()
	}
	if err := q.p.archive(r.Request.Input.SessionID, q.cwd); err != nil {
		q.log.Warn("claude: the conversation could not be archived", obs.Error(err))
	}
	return answer
}

func (q *query) toolStart(id, name string, input json.RawMessage) {
	e := provider.Event{Kind: provider.ToolStart, Tool: name}
	if name == "Bash" {
		var bash struct {
			Timeout float64 `json:"timeout"` // ms
		}
		if json.Unmarshal(input, &bash) == nil && bash.Timeout > 0 && bash.Timeout < 1e9 {
			e.Timeout = time.Duration(bash.Timeout * float64(time.Millisecond))
		}
	}
	q.mu.Lock()
	q.tools[id] = name
	q.alive.Reset(q.p.opt.KeepAlive)
	q.mu.Unlock()
	q.events.Put(e)
}

func (q *query) toolEnd(id string) {
	q.mu.Lock()
	name, open := q.tools[id]
	delete(q.tools, id)
	q.mu.Unlock()
	if open {
		q.events.Put(provider.Event{Kind: provider.ToolEnd, Tool: name})
	}
}

// endTools closes what the end of a turn leaves open: an interrupted tool gets no hook.
func (q *query) endTools() {
	q.mu.Lock()
	open := q.tools
	q.tools = map[string]string{}
	q.mu.Unlock()
	for _, name := range open {
		q.events.Put(provider.Event{Kind: provider.ToolEnd, Tool: name})
	}
}
