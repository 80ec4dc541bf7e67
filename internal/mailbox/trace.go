package mailbox

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strings"
	"time"
	"unicode"
)

// Trace is all that a mailbox knows of one inbound row. What was pruned, or never was, is nil or empty.
type Trace struct {
	Row      *InRow
	Ack      *Ack     // the runner's word about it
	With     []string // other rows of the same exchange
	Out      []OutRow // what the exchange wrote
	Usage    []Usage  // what its results cost
	Note     *ExchangeNote
	State    ContainerState
	Beat     time.Time // the runner's last sign of life
	Hostile  bool      // the outbound side was not read: it is not what a runner writes
	Problems []string  // what could not be read, in words
}

// ExchangeNote is what a runner remembers of an exchange that took more than words: its tools, the blocks that did not leave,
// nudge and retries. Nothing in it is message text.
type ExchangeNote struct {
	Exchange string     `json:"exchange"`
	Tools    []ToolNote `json:"tools,omitempty"`
	More     int        `json:"more,omitempty"` // tool calls beyond those listed
	Lost     []LostNote `json:"lost,omitempty"`
	Nudged   bool       `json:"nudged,omitempty"`
	Retries  []string   `json:"retries,omitempty"` // class of each failure that was tried again
	Stopped  bool       `json:"stopped,omitempty"` // a person stopped it
}

// ToolNote is one call of a tool.
type ToolNote struct {
	Name string    `json:"name"`
	At   time.Time `json:"at"`
}

// LostNote is a block that did not leave.
type LostNote struct {
	To  string `json:"to,omitempty"`
	Why string `json:"why"`
}

// Bounds of a note.
const (
	notePrefix = "trace:"
	noteSlots  = 64 // notes that a session keeps, about: a new one takes the place of an older one
	NoteItems  = 40 // of each list
	noteWord   = 80 // bytes of a name
)

// NoteKey is the key of session state that an exchange's note stands under.
func NoteKey(exchange string) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(exchange))
	return fmt.Sprintf("%s%02d", notePrefix, h.Sum32()%noteSlots)
}

// Empty reports whether there is nothing worth keeping.
func (n *ExchangeNote) Empty() bool {
	return n == nil || len(n.Tools)+len(n.Lost)+len(n.Retries) == 0 && !n.Nudged && !n.Stopped
}

// DecodeNote reads the note of an exchange as a sandbox may have written it: bounded, in printable characters; nil if it is of
// another exchange or none at all.
func DecodeNote(exchange, value string) *ExchangeNote {
	var n ExchangeNote
	if json.Unmarshal([]byte(value), &n) != nil || n.Exchange != exchange || exchange == "" {
		return nil
	}
	n.Tools, n.Lost, n.Retries = n.Tools[:min(len(n.Tools), NoteItems)], n.Lost[:min(len(n.Lost), NoteItems)], n.Retries[:min(len(n.Retries), NoteItems)]
	for i := range n.Tools {
		n.Tools[i].Name = NoteWord(n.Tools[i].Name)
	}
	for i := range n.Lost {
		n.Lost[i] = LostNote{NoteWord(n.Lost[i].To), NoteWord(n.Lost[i].Why)}
	}
	for i := range n.Retries {
		n.Retries[i] = NoteWord(n.Retries[i])
	}
	n.More = max(n.More, 0)
	return &n
}

// NoteWord is a name as a note holds it.
func NoteWord(s string) string {
	if len(s) > noteWord {
		s = strings.ToValidUTF8(s[:noteWord], "") + "…"
	}
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}
