package opencode

import (
	"regexp"
	"strings"
	"time"

	"nanoclaw/internal/provider"
)

const aborted = "MessageAbortedError"

func statusClass(status int) provider.Class {
	switch status {
	case 401, 403:
		return provider.ClassAuth
	case 402:
		return provider.ClassQuota
	case 413:
		return provider.ClassContext
	case 429:
		return provider.ClassRateLimit
	case 503, 529:
		return provider.ClassOverloaded
	}
	return provider.ClassOther
}

// phrases of messages, in this order: of a request that is repeated nothing but its message is told.
var phrases = []struct {
	text  string
	class provider.Class
}{
	{"credit balance", provider.ClassQuota},
	{"quota", provider.ClassQuota},
	{"billing", provider.ClassQuota},
	{"prompt is too long", provider.ClassContext},
	{"context window", provider.ClassContext},
	{"context length", provider.ClassContext},
	{"rate limit", provider.ClassRateLimit},
	{"rate_limit", provider.ClassRateLimit},
	{"too many requests", provider.ClassRateLimit},
	{"overloaded", provider.ClassOverloaded},
	{"api key", provider.ClassAuth},
	{"unable to connect", provider.ClassNetwork},
	{"cannot connect", provider.ClassNetwork},
	{"econnrefused", provider.ClassNetwork},
	{"econnreset", provider.ClassNetwork},
	{"connection", provider.ClassNetwork},
	{"socket", provider.ClassNetwork},
	{"timed out", provider.ClassNetwork},
	{"timeout", provider.ClassNetwork},
	{"network", provider.ClassNetwork},
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

// classify says why a request failed, and whether it is worth another try. status is 0 where none is known.
func (f failure) classify() (class provider.Class, retryable bool) {
	class = statusClass(f.Data.Status)
	switch f.Name {
	case "ProviderAuthError":
		class = provider.ClassAuth
	case "ContextOverflowError", "MessageOutputLengthError":
		class = provider.ClassContext
	}
	low := strings.ToLower(f.Data.Message + " " + f.Data.Body)
	for _, p := range phrases {
		// a status says more than words, but for these two
		if (class == provider.ClassOther && f.Data.Status < 500 || p.class == provider.ClassQuota && f.Data.Status != 0 || p.class == provider.ClassContext && f.Data.Status == 400) &&
			strings.Contains(low, p.text) {
			class = p.class
			break
		}
	}
	switch class {
	case provider.ClassRateLimit, provider.ClassOverloaded, provider.ClassNetwork:
		retryable = true
	case provider.ClassOther:
		retryable = f.Data.Retryable || f.Data.Status >= 500
	}
	return class, retryable
}

// failed fills the result of a failed turn. resets is when a limit ends, if that is known.
func (f failure) failed(out *provider.Event, resets time.Time) {
	out.IsError, out.Text = true, ""
	out.Class, out.Retryable = f.classify()
	if out.Message = f.Data.Message; out.Message == "" {
		out.Message = "the turn failed: " + f.Name
	}
	if !resets.IsZero() && (out.Class == provider.ClassRateLimit || out.Class == provider.ClassOverloaded) {
		out.ResetsAt, out.Retryable = resets, false
	}
	out.Notice = notices[out.Class]
	if f.Data.Status == 404 || f.Name == "ProviderModelNotFoundError" {
		out.Notice = unknownModel
	}
	if !out.ResetsAt.IsZero() {
		out.Notice += " It resets at " + out.ResetsAt.Format("15:04 MST on 2 January") + "."
	}
}

var secretName = regexp.MustCompile(`(?i)(key|token|secret|password|auth|proxy)`)

// redact removes every value that could be a secret from a text.
func (q *query) redact(text string) string {
	hide := func(v string) {
		if len(v) >= 6 {
			text = strings.ReplaceAll(text, v, "[secret]")
		}
	}
	hide(q.p.opt.Key)
	hide(q.server.password)
	for k, v := range q.p.opt.Env {
		if secretName.MatchString(k) {
			hide(v)
		}
	}
	for _, s := range q.settings.MCP {
		for _, v := range s.Headers {
			hide(v)
			_, bare, _ := strings.Cut(v, " ") // "Bearer …"
			hide(bare)
		}
		for k, v := range s.Environment {
			if secretName.MatchString(k) {
				hide(v)
			}
		}
	}
	return text
}
