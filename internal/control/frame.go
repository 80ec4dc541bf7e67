package control

import "encoding/json"

// Frame answers a command that came from inside a sandbox, through the mailbox. Exactly one of Data and Error counts.
type Frame struct {
	ID    string          `json:"id"` // of the request
	OK    bool            `json:"ok"`
	Data  json.RawMessage `json:"data,omitempty"`
	Human string          `json:"human,omitempty"` // Data in words, printed as it is unless JSON is asked for
	Error *Error          `json:"error,omitempty"`
}
