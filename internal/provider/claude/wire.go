package claude

import (
	"encoding/json"
	"errors"
	"fmt"

	"nanoclaw/internal/config/container"
	"nanoclaw/internal/provider"
)

// The lines that we write. One JSON object each.

type userLine struct {
	Type            string      `json:"type"`
	Message         userMessage `json:"message"`
	ParentToolUseID *string     `json:"parent_tool_use_id"`
	SessionID       string      `json:"session_id"`
	UUID            string      `json:"uuid"` // asks for receipts
}

type userMessage struct {
	Role    string  `json:"role"`
	Content content `json:"content"`
}

// content is a text, or a list of blocks that begins with it.
type content struct {
	text  string
	media []block
}

type block struct {
	Type   string  `json:"type"` // text, image or document
	Text   string  `json:"text,omitempty"`
	Source *source `json:"source,omitempty"`
}

type source struct {
	Type      string `json:"type"` // base64
	MediaType string `json:"media_type"`
	Data      string `json:"data"`
}

func (c content) MarshalJSON() ([]byte, error) {
	if len(c.media) == 0 {
		return json.Marshal(c.text)
	}
	return json.Marshal(append([]block{{Type: "text", Text: c.text}}, c.media...))
}

type controlRequest struct {
	Type      string `json:"type"`
	RequestID string `json:"request_id"`
	Request   any    `json:"request"` // initializeRequest or subtypeOnly
}

type subtypeOnly struct {
	Subtype string `json:"subtype"`
}

type initializeRequest struct {
	Subtype              string                   `json:"subtype"`
	Hooks                map[string][]hookMatcher `json:"hooks"`
	MCPServers           map[string]mcpServer     `json:"mcpServers"`
	AppendSystemPrompt   string                   `json:"appendSystemPrompt,omitempty"`
	SystemPromptSnapshot bool                     `json:"systemPromptSnapshot"` // false: a resume sees the current text
}

type hookMatcher struct {
	HookCallbackIDs []string `json:"hookCallbackIds"`
	Timeout         int      `json:"timeout,omitempty"` // seconds
}

type mcpServer struct {
	Type       string            `json:"type"`
	URL        string            `json:"url,omitempty"`
	Headers    map[string]string `json:"headers,omitempty"`
	Command    string            `json:"command,omitempty"`
	Args       []string          `json:"args,omitempty"`
	Env        map[string]string `json:"env,omitempty"`
	AlwaysLoad bool              `json:"alwaysLoad,omitempty"`
}

type controlResponse struct {
	Type     string          `json:"type"`
	Response responseContent `json:"response"`
}

type responseContent struct {
	Subtype   string `json:"subtype"` // success or error
	RequestID string `json:"request_id"`
	Response  any    `json:"response,omitempty"` // hookAnswer
	Error     string `json:"error,omitempty"`
}

// The callback ids are the names of the events.
const (
	hookPre     = "PreToolUse"
	hookPost    = "PostToolUse"
	hookFailure = "PostToolUseFailure"
	hookBatch   = "PostToolBatch"
	hookCompact = "PreCompact"
)

// initialize makes the first request. Servers travel in it because they may carry secrets.
func initialize(in provider.QueryInput) (initializeRequest, error) {
	req := initializeRequest{
		Subtype: "initialize", Hooks: map[string][]hookMatcher{}, MCPServers: map[string]mcpServer{}, AppendSystemPrompt: in.Instructions,
	}
	for _, h := range []string{hookPre, hookPost, hookFailure, hookBatch, hookCompact} {
		req.Hooks[h] = []hookMatcher{{HookCallbackIDs: []string{h}}}
	}
	req.Hooks[hookCompact][0].Timeout = compactTimeout
	for _, s := range in.MCP {
		// the CLI makes the names of tools from the cleaned name; two servers must not share it
		name := container.CleanServerName(s.Name)
		if _, twice := req.MCPServers[name]; twice || name == "" {
			return req, fmt.Errorf("tool server %q: its name as the model sees it (%q) is empty or taken", s.Name, name)
		}
		if (s.URL == "") == (s.Command == "") {
			return req, fmt.Errorf("tool server %q: needs either a URL or a command", s.Name)
		}
		entry := mcpServer{Type: "stdio", Command: s.Command, Args: s.Args, Env: s.Env, AlwaysLoad: s.AlwaysLoad}
		if s.Command != "" && s.Cwd != "" { // the CLI knows no folder of a server
			entry.Command, entry.Args = "/bin/sh", append([]string{"-c", `cd -- "$1" && shift && exec "$@"`, "sh", s.Cwd, s.Command}, s.Args...)
		}
		if s.URL != "" {
			entry = mcpServer{Type: "http", URL: s.URL, Headers: s.Headers, AlwaysLoad: s.AlwaysLoad}
		}
		req.MCPServers[name] = entry
	}
	return req, nil
}

// The lines that we read. Only the fields that are used; every value that other lines could give another type stays raw.

type lineHead struct {
	Type    string `json:"type"`
	Subtype string `json:"subtype"`
}

type systemLine struct {
	SessionID  string `json:"session_id"`
	Version    string `json:"claude_code_version"`
	MCPServers []struct {
		Name   string `json:"name"`
		Status string `json:"status"`
	} `json:"mcp_servers"`
}

type retryLine struct {
	Attempt     int    `json:"attempt"`
	MaxRetries  int    `json:"max_retries"`
	ErrorStatus int    `json:"error_status"`
	Error       string `json:"error"`
}

type taskLine struct {
	Summary string `json:"summary"`
}

type tasksLine struct {
	Tasks []struct {
		ID string `json:"task_id"`
	} `json:"tasks"`
}

type statusLine struct {
	Status       string `json:"status"` // requesting, compacting, or null
	CompactError string `json:"compact_error"`
}

type fallbackLine struct {
	Trigger  string `json:"trigger"`
	Original string `json:"original_model"`
	Fallback string `json:"fallback_model"`
}

type assistantLine struct {
	ParentToolUseID *string `json:"parent_tool_use_id"`
	Message         struct {
		Model   string `json:"model"`
		Content []struct {
			Type string `json:"type"`
			Text string `json:"text"`
		} `json:"content"`
	} `json:"message"`
}

type resultLine struct {
	Subtype        string   `json:"subtype"`
	IsError        bool     `json:"is_error"`
	Result         string   `json:"result"`
	Errors         []string `json:"errors"`
	TerminalReason string   `json:"terminal_reason"`
	APIErrorStatus int      `json:"api_error_status"`
	TotalCostUSD   float64  `json:"total_cost_usd"` // of the process
	Usage          struct {
		Input         int64 `json:"input_tokens"`
		Output        int64 `json:"output_tokens"`
		CacheRead     int64 `json:"cache_read_input_tokens"`
		CacheCreation int64 `json:"cache_creation_input_tokens"`
	} `json:"usage"`
}

type lifecycleLine struct {
	CommandUUID string `json:"command_uuid"`
	State       string `json:"state"`
}

type rateLimitLine struct {
	Info struct {
		Status         string  `json:"status"`
		ResetsAt       float64 `json:"resetsAt"`
		Type           string  `json:"rateLimitType"`
		OverageReason  string  `json:"overageDisabledReason"`
		ErrorCode      string  `json:"errorCode"`
		OverageErrCode string  `json:"overageErrorCode"`
		UsingOverage   bool    `json:"isUsingOverage"` // the limit is reached, and the account pays for what goes beyond
	} `json:"rate_limit_info"`
}

type answerLine struct {
	Response struct {
		Subtype   string          `json:"subtype"`
		RequestID string          `json:"request_id"`
		Error     string          `json:"error"`
		Response  json.RawMessage `json:"response"`
	} `json:"response"`
}

type requestLine struct {
	RequestID string `json:"request_id"`
	Request   struct {
		Subtype    string `json:"subtype"`
		CallbackID string `json:"callback_id"`
		ToolUseID  string `json:"tool_use_id"`
		Input      struct {
			ToolName  string          `json:"tool_name"`
			ToolUseID string          `json:"tool_use_id"`
			ToolInput json.RawMessage `json:"tool_input"`
			ToolCalls []struct {
				ToolName string `json:"tool_name"`
			} `json:"tool_calls"` // of a batch
			SessionID string `json:"session_id"`
			Trigger   string `json:"trigger"` // of a compaction: manual or auto
		} `json:"input"`
	} `json:"request"`
}

var errAnswer = errors.New("the CLI refused the request")
