package codex

import "encoding/json"

// What is written: JSON-RPC without its version member, one object a line.
type (
	request struct {
		ID     int64  `json:"id"`
		Method string `json:"method"`
		Params any    `json:"params"`
	}
	notification struct {
		Method string `json:"method"`
	}
	response struct {
		ID     json.RawMessage `json:"id"`
		Result any             `json:"result,omitempty"`
		Error  *rpcError       `json:"error,omitempty"`
	}
	initializeParams struct {
		ClientInfo clientInfo `json:"clientInfo"`
	}
	clientInfo struct {
		Name    string `json:"name"`
		Title   string `json:"title"`
		Version string `json:"version"`
	}
	// threadParams start a thread, or with ThreadID resume one.
	threadParams struct {
		ThreadID         string       `json:"threadId,omitempty"`
		ExcludeTurns     bool         `json:"excludeTurns,omitempty"`
		Cwd              string       `json:"cwd"`
		Model            string       `json:"model,omitempty"`
		Sandbox          string       `json:"sandbox"`
		ApprovalPolicy   string       `json:"approvalPolicy"`
		BaseInstructions string       `json:"baseInstructions"`
		Config           threadConfig `json:"config"`
	}
	// threadConfig goes with the thread and not with the arguments, which every process can read: it holds keys of tool servers.
	threadConfig struct {
		MCPServers map[string]mcpServer `json:"mcp_servers,omitempty"`
		Effort     string               `json:"model_reasoning_effort,omitempty"`
	}
	mcpServer struct {
		URL          string            `json:"url,omitempty"`
		Headers      map[string]string `json:"http_headers,omitempty"`
		Command      string            `json:"command,omitempty"`
		Args         []string          `json:"args,omitempty"`
		Env          map[string]string `json:"env,omitempty"`
		Cwd          string            `json:"cwd,omitempty"`
		Enabled      []string          `json:"enabled_tools,omitempty"`
		Disabled     []string          `json:"disabled_tools,omitempty"`
		ToolTimeout  int               `json:"tool_timeout_sec"`
		StartTimeout int               `json:"startup_timeout_sec"`
		Required     bool              `json:"required,omitempty"`
	}
	turnParams struct {
		ThreadID string      `json:"threadId"`
		ClientID string      `json:"clientUserMessageId"`
		Input    []userInput `json:"input"`
	}
	userInput struct {
		Type string `json:"type"`
		Text string `json:"text,omitempty"`
		URL  string `json:"url,omitempty"`
	}
	threadOnly struct {
		ThreadID string `json:"threadId"`
	}
	interruptParams struct {
		ThreadID string `json:"threadId"`
		TurnID   string `json:"turnId"`
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
		Code    int    `json:"code"`
		Message string `json:"message"`
	}
	threadResult struct {
		Thread struct {
			ID         string `json:"id"`
			CLIVersion string `json:"cliVersion"`
		} `json:"thread"`
	}
	turnResult struct {
		Turn struct {
			ID string `json:"id"`
		} `json:"turn"`
	}
	turnNote struct {
		ThreadID string `json:"threadId"`
		Turn     struct {
			ID     string     `json:"id"`
			Status string     `json:"status"` // completed, interrupted, failed, inProgress
			Error  *turnError `json:"error"`
			Items  []item     `json:"items"`
		} `json:"turn"`
	}
	turnError struct {
		Message string          `json:"message"`
		Info    json.RawMessage `json:"codexErrorInfo"` // a word, or an object with one key
		Details string          `json:"additionalDetails"`
	}
	itemNote struct {
		ThreadID string `json:"threadId"`
		TurnID   string `json:"turnId"`
		Item     item   `json:"item"`
	}
	item struct {
		ID       string `json:"id"`
		Type     string `json:"type"`
		ClientID string `json:"clientId"` // userMessage
		Text     string `json:"text"`     // agentMessage
		Server   string `json:"server"`   // mcpToolCall
		Tool     string `json:"tool"`     // mcpToolCall, dynamicToolCall, collabAgentToolCall
	}
	errorNote struct {
		ThreadID  string    `json:"threadId"`
		Error     turnError `json:"error"`
		WillRetry bool      `json:"willRetry"`
	}
	usageNote struct {
		ThreadID string `json:"threadId"`
		TurnID   string `json:"turnId"`
		Usage    struct {
			Last tokens `json:"last"`
		} `json:"tokenUsage"`
	}
	tokens struct {
		Input      int64 `json:"inputTokens"` // with what was read from the cache
		Cached     int64 `json:"cachedInputTokens"`
		CacheWrite int64 `json:"cacheWriteInputTokens"`
		Output     int64 `json:"outputTokens"`
	}
	limitsNote struct {
		Limits struct {
			Primary   *window `json:"primary"`
			Secondary *window `json:"secondary"`
		} `json:"rateLimits"`
	}
	window struct {
		Used     float64 `json:"usedPercent"`
		ResetsAt int64   `json:"resetsAt"` // seconds
	}
	warningNote struct {
		Message string `json:"message"`
	}
	serverNote struct {
		Name   string          `json:"name"`
		Status string          `json:"status"`
		Error  json.RawMessage `json:"error"`
	}
	approvalParams struct {
		Meta map[string]json.RawMessage `json:"_meta"`
	}
)
