package prompt

import (
	"time"

	"nanoclaw/internal/provider"
)

// Notice tells a person in plain words that the agent could not answer, by class of failure. It never carries diagnostics.
// resetsAt, if known, is when a limit ends; it is shown in zone (nil is UTC).
func Notice(class provider.Class, resetsAt time.Time, zone *time.Location) string {
	until := until(resetsAt, zone)
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
	case provider.ClassMissing:
		return "I could not answer: a program that I need is not installed where I run. The person who runs this system finds out how to get it with `nanoclaw doctor`."
	case provider.ClassNone, provider.ClassOther:
	}
	return "I could not answer: something went wrong. Please ask again; the person who runs this system finds the details in its log."
}

// StandIn tells a person in one line that another provider answers, and why (spec/bugs.md PRV-4). resetsAt and zone are as for Notice.
func StandIn(instead, answers string, class provider.Class, resetsAt time.Time, zone *time.Location) string {
	why := "cannot answer at the moment"
	switch class {
	case provider.ClassAuth:
		why = "refuses its key or log-in"
	case provider.ClassQuota:
		why = "has no budget left"
	case provider.ClassRateLimit:
		why = "takes no more requests for the moment"
	case provider.ClassOverloaded:
		why = "is overloaded"
	case provider.ClassMissing:
		why = "is not installed here"
	}
	return "(" + instead + " " + why + until(resetsAt, zone) + "; " + answers + " answers instead.)"
}

// until is when a limit ends, in words; empty if that is not known.
func until(at time.Time, zone *time.Location) string {
	if at.IsZero() {
		return ""
	}
	if zone == nil {
		zone = time.UTC
	}
	return " until " + at.In(zone).Format("Jan 2, 3:04 PM")
}
