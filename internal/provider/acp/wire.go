package acp

import "encoding/json"

const (
	version      = "2.0"
	protocol     = 1
	authRequired = -32000
	notOffered   = -32601
)

// What is written: JSON-RPC, one object a line.
type (
	request struct {
		Version string `json:"jsonrpc"`
		ID      int64  `json:"id"`
		Method  string `json:"method"`
		Params  any    `json:"params"`
	}
	notification struct {
		Version string `json:"jsonrpc"`
		Method  string `json:"method"`
		Params  any    `json:"params"`
	}
	response struct {
		Version string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Result  any             `json:"result,omitempty"`
		Error   *rpcError       `json:"error,omitempty"`
	}
	initializeParams struct {
		Protocol     int          `json:"protocolVersion"`
		Capabilities capabilities `json:"clientCapabilities"`
	}
	// capabilities say that files and terminals are the agent's own matter.
	capabilities struct {
		FS struct {
			Read  bool `json:"readTextFile"`
			Write bool `json:"writeTextFile"`
		} `json:"fs"`
		Terminal bool `json:"terminal"`
	}
	sessionParams struct {
		SessionID string      `json:"sessionId,omitempty"` // to load one
		Cwd       string      `json:"cwd"`
		Servers   []mcpServer `json:"mcpServers"`
	}
	mcpServer struct {
		Type    string    `json:"type,omitempty"` // http; none for stdio
		Name    string    `json:"name"`
		URL     string    `json:"url,omitempty"`
		Headers *[]named  `json:"headers,omitempty"`
		Command string    `json:"command,omitempty"`
		Args    *[]string `json:"args,omitempty"`
		Env     *[]named  `json:"env,omitempty"`
	}
	named struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	}
	promptParams struct {
		SessionID string    `json:"sessionId"`
		Prompt    []content `json:"prompt"`
	}
	sessionOnly struct {
		SessionID string `json:"sessionId"`
	}
	permissionResult struct {
		Outcome outcome `json:"outcome"`
	}
	outcome struct {
		Outcome  string `json:"outcome"` // selected, cancelled
		OptionID string `json:"optionId,omitempty"`
	}
)

// What is read. Everything else is ignored.
type (
	message struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
		Params json.RawMessage `json:"params"`
		Result json.RawMessage `json:"result"`
		Error  *rpcError       `json:"error"`
	}
	rpcError struct {
		Code    int             `json:"code"`
		Message string          `json:"message"`
		Data    json.RawMessage `json:"data,omitempty"`
	}
	initializeResult struct {
		Protocol     int `json:"protocolVersion"`
		Capabilities struct {
			Load bool `json:"loadSession"`
			MCP  struct {
				HTTP bool `json:"http"`
			} `json:"mcpCapabilities"`
		} `json:"agentCapabilities"`
	}
	promptResult struct {
		StopReason string `json:"stopReason"` // end_turn, max_tokens, max_turn_requests, refusal, cancelled
		Usage      struct {
			Input      int64 `json:"inputTokens"`
			Output     int64 `json:"outputTokens"`
			CacheRead  int64 `json:"cachedReadTokens"`
			CacheWrite int64 `json:"cachedWriteTokens"`
		} `json:"usage"`
	}
	updateParams struct {
		SessionID string `json:"sessionId"`
		Update    update `json:"update"`
	}
	update struct {
		Kind      string          `json:"sessionUpdate"` // agent_message_chunk, tool_call, tool_call_update, …
		MessageID string          `json:"messageId"`
		Content   json.RawMessage `json:"content"` // an object, or of a tool call a list
		ToolID    string          `json:"toolCallId"`
		Title     string          `json:"title"`
		Status    string          `json:"status"` // pending, in_progress, completed, failed
	}
	content struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	permissionParams struct {
		Options []struct {
			ID   string `json:"optionId"`
			Kind string `json:"kind"` // allow_once, allow_always, reject_once, reject_always
		} `json:"options"`
	}
)
