package claude

import (
	"regexp"
	"strconv"
	"strings"

	"nanoclaw/internal/provider"
)

const noConversation = "No conversation found with session ID: "

var secretName = regexp.MustCompile(`(?i)(key|token|secret|password|auth|proxy)`)

// classOf maps what the API said to a class.
func classOf(status int, kind string) provider.Class {
	switch {
	case status == 401, status == 403, kind == "authentication_failed":
		return provider.ClassAuth
	case status == 402, kind == "billing_error":
		return provider.ClassQuota
	case status == 429, kind == "rate_limit":
		return provider.ClassRateLimit
	case status == 529, status == 503, kind == "overloaded":
		return provider.ClassOverloaded
	case status == 413:
		return provider.ClassContext
	}
	return provider.ClassOther
}

// phrases of error texts, looked for in this order.
var phrases = []struct {
	text  string
	class provider.Class
}{
	{"credit balance", provider.ClassQuota},
	{"billing", provider.ClassQuota},
	{"spend limit", provider.ClassQuota},
	{"out of credits", provider.ClassQuota},
	{"prompt is too long", provider.ClassContext},
	{"context window", provider.ClassContext},
	{"hit your", provider.ClassRateLimit}, // "You've hit your 5-hour limit · resets …"
	{"not logged in", provider.ClassAuth},
	{"please run /login", provider.ClassAuth},
	{"invalid api key", provider.ClassAuth},
	{"connection error", provider.ClassNetwork},
	{"unable to connect", provider.ClassNetwork},
	{"econnrefused", provider.ClassNetwork},
	{"econnreset", provider.ClassNetwork},
	{"timed out", provider.ClassNetwork},
	{"socket", provider.ClassNetwork},
	{"overloaded", provider.ClassOverloaded},
}

// noTools is said when NanoClaw's own tools could not be reached.
const noTools = "The agent could not reach its own tools."

// unknownModel is said when the API knows no such model, or not for this account.
const unknownModel = "The model's provider does not offer the chosen model to this account. The owner must check the setting."

// poisoned is what the API says of a conversation whose thinking blocks it does not accept any more: so will it of every later turn.
var poisoned = regexp.MustCompile("(?i)`?thinking`? .*(signature|cannot be modified|must start with)|(signature|expected)\\b.*`thinking`")

var apiStatus = regexp.MustCompile(`\b([45]\d\d)\b`)

// notices are the words for a person, by class. They name no provider's internals.
var notices = map[provider.Class]string{
	provider.ClassAuth:       "The model's provider did not accept the key. The owner must check it.",
	provider.ClassQuota:      "The account at the model's provider has no credit left.",
	provider.ClassRateLimit:  "The limit at the model's provider is reached.",
	provider.ClassOverloaded: "The model's provider is overloaded.",
	provider.ClassContext:    "This conversation has grown too long for the model.",
	provider.ClassNetwork:    "The model's provider could not be reached.",
}

// failed fills an error result. The text of the CLI is a diagnostic, whatever its subtype says.
func (q *query) failed(e *provider.Event, r resultLine, t turn) {
	text := strings.Join(r.Errors, "; ")
	if text == "" {
		text = r.Result
	}
	e.Text, e.IsError, e.Message = "", true, q.redact(text)
	if q.resumed != "" && strings.Contains(text, noConversation+q.resumed) {
		e.Class = provider.ClassInvalidSession
		return
	}
	status := r.APIErrorStatus
	if m := apiStatus.FindString(text); status == 0 && m != "" && strings.Contains(text, "API Error") {
		status, _ = strconv.Atoi(m) // three digits
	}
	if status == 400 && (q.resumed != "" || t.turns > 0) && poisoned.MatchString(text) {
		e.Class = provider.ClassInvalidSession
		return
	}
	e.Class = classOf(status, "")
	low := strings.ToLower(text)
	for _, p := range phrases {
		// a status says more than words, but for these two
		if (e.Class == provider.ClassOther || p.class == provider.ClassQuota || p.class == provider.ClassContext) && strings.Contains(low, p.text) {
			e.Class = p.class
			break
		}
	}
	switch e.Class {
	case provider.ClassRateLimit, provider.ClassOverloaded, provider.ClassNetwork:
		e.Retryable = true
	case provider.ClassOther:
		e.Retryable = status >= 500 || status == 0
	}
	if strings.HasPrefix(r.Subtype, "error_max_") {
		e.Retryable = false
	}
	if t.limit != nil { // the window resets by itself; asking again before is no use
		e.Class, e.ResetsAt, e.Retryable = t.limit.Class, t.limit.ResetsAt, false
	}
	e.Notice = notices[e.Class]
	if status == 404 {
		e.Notice = unknownModel
	}
	if !e.ResetsAt.IsZero() {
		e.Notice += " It resets at " + e.ResetsAt.Format("15:04 MST on 2 January") + "."
	}
}

// tested compares versions of the form 1.2.3.
func tested(version string) bool {
	v := number(version)
	return v >= number(OldestTested) && v <= number(NewestTested)
}

func number(version string) int {
	n := 0
	for _, part := range strings.SplitN(version, ".", 3) {
		i, _ := strconv.Atoi(part) // a part that is no number counts as 0: outside the range
		n = n*10_000 + min(i, 9_999)
	}
	return n
}
