package control

// TraceQuery says what to follow. One of ID and Last is set.
type TraceQuery struct {
	ID      string // of a message (ours or the platform's), a delivery, or an outbound row
	Last    bool   // the newest message
	Session string // with Last: of this session; with ID: where to look for a row that is no chat message
	Text    bool   // with message text
}

// Trace is the way of a message: one entry for each agent it went to, or one for a message that was dropped, or for a delivery
// that answers none.
type Trace struct {
	Ways []Way `json:"ways"`
}

// Way is what became of one message for one agent.
type Way struct {
	Message   string      `json:"message"` // id of our row; empty if none was made
	Session   string      `json:"session,omitempty"`
	Agent     string      `json:"agent,omitempty"`
	Outcome   string      `json:"outcome"` // one of the outcomes below
	Verdict   string      `json:"verdict"` // in words
	ElapsedMS int64       `json:"elapsed_ms,omitempty"`
	Steps     []TraceStep `json:"steps"`
}

// Outcomes of a way.
const (
	TraceAnswered    = "answered"    // and the platform took at least one answer
	TraceSilent      = "silent"      // on purpose
	TraceStopped     = "stopped"     // by a person
	TraceFailed      = "failed"      // the agent gave up, and said why
	TraceDead        = "dead"        // tried too often
	TraceRefused     = "refused"     // by the host
	TraceDropped     = "dropped"     // by a rule, before it was stored
	TraceContext     = "context"     // stored, wakes nobody
	TraceWaiting     = "waiting"     // not at its end
	TraceUndelivered = "undelivered" // answered, but nothing reached the platform
	TraceSent        = "sent"        // a delivery that answers no message
	TraceUnknown     = "unknown"     // its parts are pruned
)

// TraceStep is one thing that happened, or that is known. At is zero when the time is not.
type TraceStep struct {
	At      Time   `json:"at"`
	AfterMS int64  `json:"after_ms"` // since the first step
	Step    string `json:"step"`     // received, routed, inbox, claimed, tool, …
	ID      string `json:"id,omitempty"`
	State   string `json:"state,omitempty"`
	Reason  string `json:"reason,omitempty"`
	What    string `json:"what"`           // in words
	Text    string `json:"text,omitempty"` // of the message, if it was asked for
}
