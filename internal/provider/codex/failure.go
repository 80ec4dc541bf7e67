package codex

import (
	"encoding/json"
	"regexp"
	"strings"
	"time"

	"nanoclaw/internal/provider"
)

// words of codexErrorInfo.
func wordClass(word string) provider.Class {
	switch word {
	case "unauthorized":
		return provider.ClassAuth
	case "usageLimitExceeded":
		return provider.ClassQuota
	case "rateLimitExceeded":
		return provider.ClassRateLimit
	case "serverOverloaded", "flexUnavailable", "policyCapacityUnavailable":
		return provider.ClassOverloaded
	case "contextWindowExceeded", "sessionBudgetExceeded":
		return provider.ClassContext
	case "httpConnectionFailed", "responseStreamConnectionFailed", "responseStreamDisconnected", "responseTooManyFailedAttempts":
		return provider.ClassNetwork
	}
	return provider.ClassOther
}

func statusClass(status int) provider.Class {
	switch {
	case status == 401, status == 403:
		return provider.ClassAuth
	case status == 402:
		return provider.ClassQuota
	case status == 413:
		return provider.ClassContext
	case status == 429:
		return provider.ClassRateLimit
	case status == 503, status == 529:
		return provider.ClassOverloaded
	}
	return provider.ClassOther
}

// phrases of messages that come without a telling word, in this order.
var phrases = []struct {
	text  string
	class provider.Class
}{
	{"quota", provider.ClassQuota},
	{"billing", provider.ClassQuota},
	{"context window", provider.ClassContext},
	{"context length", provider.ClassContext},
	{"context_length_exceeded", provider.ClassContext},
	{"api key", provider.ClassAuth},
	{"not logged in", provider.ClassAuth},
	{"stream disconnected", provider.ClassNetwork},
	{"connection failed", provider.ClassNetwork},
	{"timed out", provider.ClassNetwork},
	{"idle timeout", provider.ClassNetwork},
}

// notices are the words for a person, by class. They name no provider's internals.
var notices = map[provider.Class]string{
	provider.ClassAuth:       "The model's provider did not accept the key. The owner must check it.",
	provider.ClassQuota:      "The account at the model's provider has no credit left.",
	provider.ClassRateLimit:  "The limit at the model's provider is reached.",
	provider.ClassOverloaded: "The model's provider is overloaded.",
	provider.ClassContext:    "This conversation has grown too long for the model.",
	provider.ClassNetwork:    "The model's provider could not be reached.",
}

const unknownModel = "The model's provider does not offer the chosen model to this account. The owner must check the setting."

// info takes codexErrorInfo apart.
func info(raw json.RawMessage) (word string, status int) {
	if json.Unmarshal(raw, &word) == nil {
		return word, 0
	}
	var object map[string]struct {
		Status int `json:"httpStatusCode"`
	}
	if json.Unmarshal(raw, &object) == nil && len(object) == 1 {
		for word, v := range object {
			return word, v.Status
		}
	}
	return "", 0
}

// classify says why a request failed, and whether it is worth another try.
func (e turnError) classify() (class provider.Class, status int, retryable bool) {
	word, status := info(e.Info)
	class = statusClass(status)
	if class == provider.ClassOther && status == 0 {
		class = wordClass(word)
	}
	low := strings.ToLower(e.Message)
	for _, p := range phrases {
		if (class == provider.ClassOther || class == provider.ClassRateLimit && p.class == provider.ClassQuota) && strings.Contains(low, p.text) {
			class = p.class
			break
		}
	}
	switch class {
	case provider.ClassRateLimit, provider.ClassOverloaded, provider.ClassNetwork:
		retryable = true
	case provider.ClassOther:
		retryable = status >= 500 || word == "internalServerError"
	}
	return class, status, retryable
}

// failed fills the result of a failed turn. limit is when a used-up allowance comes back, if that is known.
func (e turnError) failed(out *provider.Event, limit time.Time) {
	class, status, retryable := e.classify()
	word, _ := info(e.Info)
	out.IsError, out.Text, out.Message = true, "", strings.TrimSpace(e.Message+" "+e.Details)
	out.Class, out.Retryable = class, retryable
	if (word == "usageLimitExceeded" || class == provider.ClassRateLimit) && !limit.IsZero() {
		out.Class, out.ResetsAt, out.Retryable = provider.ClassRateLimit, limit, false // asking again before is no use
	}
	out.Notice = notices[out.Class]
	if status == 404 || word == "modelNotFound" {
		out.Notice = unknownModel
	}
	if !out.ResetsAt.IsZero() {
		out.Notice += " It resets at " + out.ResetsAt.Format("15:04 MST on 2 January") + "."
	}
}

// resets is when the used-up window comes back; zero while none is used up.
func (l limitsNote) resets() time.Time {
	var at time.Time
	for _, w := range []*window{l.Limits.Primary, l.Limits.Secondary} {
		if w != nil && w.Used >= 100 && w.ResetsAt > 0 {
			if t := time.Unix(w.ResetsAt, 0).UTC(); t.After(at) {
				at = t
			}
		}
	}
	return at
}

// gone are the answers to a thread that cannot be resumed because it is not there.
var gone = regexp.MustCompile(`(?i)no rollout found|invalid (session|thread) id|thread not found`)

var secretName = regexp.MustCompile(`(?i)(key|token|secret|password|auth|proxy)`)

// redact removes every value that could be a secret from a text.
func (q *query) redact(text string) string {
	hide := func(v string) {
		if len(v) >= 6 {
			text = strings.ReplaceAll(text, v, "[secret]")
		}
	}
	hide(q.p.opt.Key)
	for k, v := range q.p.opt.Env {
		if secretName.MatchString(k) {
			hide(v)
		}
	}
	for _, s := range q.servers {
		for _, v := range s.Headers {
			hide(v)
			_, bare, _ := strings.Cut(v, " ") // "Bearer …"
			hide(bare)
		}
		for k, v := range s.Env {
			if secretName.MatchString(k) {
				hide(v)
			}
		}
	}
	return text
}
