package wire

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"strings"

	"nanoclaw/internal/provider/native/history"
)

// Call is the block of a tool call whose arguments came as text. Arguments that are no JSON object are empty; Text then holds what
// came, so that the model can be told.
func Call(id, name, args string) history.Block {
	b := history.Block{Kind: history.Call, ID: id, Name: name, Args: json.RawMessage("{}")}
	if strings.TrimSpace(args) == "" {
		return b
	}
	var o map[string]json.RawMessage
	if err := json.Unmarshal([]byte(args), &o); err != nil || o == nil {
		b.Text = args
		return b
	}
	b.Args = json.RawMessage(args)
	return b
}

// Gone stands for a kept file that is not there any more, or that a model cannot see.
func Gone(b history.Block) string {
	return "[file " + b.Name + " (" + b.MimeType + ") cannot be shown]"
}

// NewID is an id for a call that came without one.
func NewID() string {
	var b [12]byte
	_, _ = rand.Read(b[:]) // never fails
	return "call_" + hex.EncodeToString(b[:])
}

// DataURL holds a file in itself.
func DataURL(mimeType string, content []byte) string {
	return "data:" + mimeType + ";base64," + base64.StdEncoding.EncodeToString(content)
}
