package opencode

import "encoding/json"

// What is written.
type (
	newSession struct {
		Title string `json:"title"` // with one the model is not asked for one
	}
	promptBody struct {
		MessageID string `json:"messageID"`
		System    string `json:"system,omitempty"`
		Variant   string `json:"variant,omitempty"`
		Parts     []part `json:"parts"`
	}
	part struct {
		Type     string `json:"type"` // text, file
		Text     string `json:"text,omitempty"`
		Mime     string `json:"mime,omitempty"`
		Filename string `json:"filename,omitempty"`
		URL      string `json:"url,omitempty"`
	}
	summarizeBody struct {
		Provider string `json:"providerID"`
		Model    string `json:"modelID"`
		Auto     bool   `json:"auto"` // the model goes on by itself afterwards
	}
	permissionBody struct {
		Response string `json:"response"`
	}
)

// What is read. Everything else is ignored.
type (
	sessionInfo struct {
		ID      string `json:"id"`
		Version string `json:"version"`
	}
	mcpStatus struct {
		Status string `json:"status"`
		Error  string `json:"error"`
	}
	event struct {
		Type       string          `json:"type"`
		Properties json.RawMessage `json:"properties"`
	}
	messageEvent struct {
		Info struct {
			ID        string      `json:"id"`
			SessionID string      `json:"sessionID"`
			Role      string      `json:"role"`
			ParentID  string      `json:"parentID"`
			Summary   summaryMark `json:"summary"` // of a compaction
			Error     *failure    `json:"error"`
			Time      struct {
				Completed int64 `json:"completed"`
			} `json:"time"`
		} `json:"info"`
	}
	partEvent struct {
		Part struct {
			ID        string `json:"id"`
			SessionID string `json:"sessionID"`
			MessageID string `json:"messageID"`
			Type      string `json:"type"`
			Text      string `json:"text"`
			Tool      string `json:"tool"`
			State     struct {
				Status string `json:"status"`
			} `json:"state"`
			Time struct {
				End int64 `json:"end"`
			} `json:"time"`
			Tokens tokens  `json:"tokens"`
			Cost   float64 `json:"cost"`
		} `json:"part"`
	}
	tokens struct {
		Input     int64 `json:"input"`
		Output    int64 `json:"output"`
		Reasoning int64 `json:"reasoning"`
		Cache     struct {
			Read  int64 `json:"read"`
			Write int64 `json:"write"`
		} `json:"cache"`
	}
	statusEvent struct {
		SessionID string `json:"sessionID"`
		Status    struct {
			Type    string `json:"type"` // busy, retry, idle
			Attempt int    `json:"attempt"`
			Message string `json:"message"`
			Next    int64  `json:"next"` // milliseconds
		} `json:"status"`
	}
	errorEvent struct {
		SessionID string   `json:"sessionID"`
		Error     *failure `json:"error"`
	}
	sessionEvent struct {
		SessionID string `json:"sessionID"`
	}
	askedEvent struct {
		ID        string `json:"id"`
		SessionID string `json:"sessionID"`
	}
	// failure is why a turn or a request failed.
	failure struct {
		Name string `json:"name"`
		Data struct {
			Message   string `json:"message"`
			Status    int    `json:"statusCode"`
			Retryable bool   `json:"isRetryable"`
			Body      string `json:"responseBody"`
		} `json:"data"`
	}
	// summaryMark is true for the answer of a compaction; a prompt has an object there.
	summaryMark bool
)

func (m *summaryMark) UnmarshalJSON(b []byte) error {
	*m = string(b) == "true"
	return nil
}
