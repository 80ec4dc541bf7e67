package claude

import (
	"encoding/json"
	"time"

	"nanoclaw/internal/obs"
	"nanoclaw/internal/provider"
)

// denied are tools of the CLI that have no receiver here or look like ours, with what the model is told. The named tool
// set leaves them out already; this holds when a version or a setting brings one back.
var denied = map[string]string{
	"SendMessage":     "It talks to helpers inside the CLI only. To reach a person or another agent use mcp__nanoclaw__send_message.",
	"AskUserQuestion": "Nobody sits at a terminal here. Ask in a message with mcp__nanoclaw__send_message.",
	"CronCreate":      scheduling, "CronDelete": scheduling, "CronList": scheduling, "ScheduleWakeup": scheduling,
	"EnterPlanMode": headless, "ExitPlanMode": headless, "EnterWorktree": headless, "ExitWorktree": headless,
	"DesignSync": noReceiver, "ReportFindings": noReceiver, "TeamCreate": noReceiver, "TeamDelete": noReceiver,
}

const (
	scheduling = "It forgets everything when the session ends. Use NanoClaw's own tasks."
	headless   = "There is no screen here that could show it."
	noReceiver = "Nothing here receives what it reports."
)

type hookAnswer struct {
	Continue *bool     `json:"continue,omitempty"`
	Specific *hookDeny `json:"hookSpecificOutput,omitempty"`
}

type hookDeny struct {
	Event    string `json:"hookEventName"`
	Decision string `json:"permissionDecision"`
	Reason   string `json:"permissionDecisionReason"`
}

// request answers a request of the CLI. An unanswered one would block the tool.
func (q *query) request(line []byte) {
	var r requestLine
	if err := json.Unmarshal(line, &r); err != nil {
		q.log.Warn("claude: a request of the CLI could not be read", obs.Error(err))
		return
	}
	answer := responseContent{Subtype: "success", RequestID: r.RequestID}
	switch r.Request.Subtype {
	case "hook_callback":
		answer.Response = q.hook(r)
	default:
		answer.Subtype, answer.Error = "error", "not supported: "+r.Request.Subtype
	}
	if err := q.stdin.send(controlResponse{Type: "control_response", Response: answer}); err != nil {
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
		if reason, no := denied[in.ToolName]; no {
			q.log.Warn("claude: denied a tool", obs.KeyTool, in.ToolName)
			return hookAnswer{Specific: &hookDeny{Event: hookPre, Decision: "deny", Reason: reason}}
		}
		q.toolStart(id, in.ToolName, in.ToolInput)
	case hookPost, hookFailure:
		q.toolEnd(id)
	}
	return hookAnswer{Continue: &goOn}
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
	q.mu.Unlock()
	q.events.put(e)
}

func (q *query) toolEnd(id string) {
	q.mu.Lock()
	name, open := q.tools[id]
	delete(q.tools, id)
	q.mu.Unlock()
	if open {
		q.events.put(provider.Event{Kind: provider.ToolEnd, Tool: name})
	}
}

// endTools closes what the end of a turn leaves open: an interrupted tool gets no hook.
func (q *query) endTools() {
	q.mu.Lock()
	open := q.tools
	q.tools = map[string]string{}
	q.mu.Unlock()
	for _, name := range open {
		q.events.put(provider.Event{Kind: provider.ToolEnd, Tool: name})
	}
}
