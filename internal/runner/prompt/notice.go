package prompt

import (
	"time"

	"nanoclaw/internal/provider"
)

// Notice tells a person in plain words that the agent could not answer, by class of failure. It never carries diagnostics.
// resetsAt, if known, is when a limit ends; it is shown in zone (nil is UTC).
func Notice(class provider.Class, resetsAt time.Time, zone *time.Location) string {
	until := ""
	if !resetsAt.IsZero() {
		if zone == nil {
			zone = time.UTC
		}
		until = " until " + resetsAt.In(zone).Format("Jan 2, 3:04 PM")
	}
	switch class {
	case provider.ClassAuth:
		return "I could not answer: I am not allowed to use the model. The person who runs this system has to check its key or log-in."
	case provider.ClassQuota:
		return "I could not answer: the budget for the model is used up" + until + ". The person who runs this system can raise it."
	case provider.ClassRateLimit:
		if until != "" {
			return "I could not answer: the model takes no more requests" + until + ". Please ask again after that."
		}
		return "I could not answer: the model takes no more requests for the moment. Please ask again in a few minutes."
	case provider.ClassOverloaded:
		return "I could not answer: the model is overloaded. Please ask again in a few minutes."
	case provider.ClassContext:
		return "I could not answer: this conversation has become too long for the model. Please start a new one, or ask with less text."
	case provider.ClassInvalidSession:
		return "I could not answer: I have lost the thread of our earlier conversation. Please ask again; I will start afresh."
	case provider.ClassNetwork:
		return "I could not answer: the model cannot be reached. Please ask again later."
	case provider.ClassNone, provider.ClassOther:
	}
	return "I could not answer: something went wrong. Please ask again; the person who runs this system finds the details in its log."
}
