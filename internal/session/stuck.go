package session

import (
	"fmt"
	"time"

	"nanoclaw/internal/mailbox"
)

// Signs are what the stuck decision depends on (spec/host.md section 11.2).
type Signs struct {
	Now         time.Time
	Began       time.Time // start of the sandbox: it stands for a heartbeat that was never written
	Incarnation int64
	State       mailbox.State
	Tolerance   time.Duration // of a claim without any sign since
	Ceiling     time.Duration // of a working runner without any sign
}

// Stuck is pure: it returns why a running sandbox has to be ended, or "". A runner that is idle is never stuck; a shell
// call's own declared timeout widens both limits. Claims of older incarnations and unreadable times are no signs.
func Stuck(s Signs) string {
	var declared time.Duration
	if s.State.Container.CurrentTool == "Bash" {
		declared = s.State.Container.ToolTimeout
	}
	alive := s.State.Heartbeat
	if alive.Before(s.Began) {
		alive = s.Began
	}
	claimed, sign := false, alive
	for _, a := range s.State.Acks {
		if a.Status != mailbox.AckProcessing || a.Incarnation != s.Incarnation || a.StatusChanged.IsZero() {
			continue
		}
		claimed = true
		if a.StatusChanged.After(sign) {
			sign = a.StatusChanged
		}
		age := s.Now.Sub(a.StatusChanged)
		if age > max(s.Tolerance, declared) && !alive.After(a.StatusChanged) {
			return fmt.Sprintf("message %s was claimed %v ago and nothing was heard since", a.MessageID, age.Round(time.Second))
		}
	}
	if silent := s.Now.Sub(sign); claimed && silent > max(s.Ceiling, declared) {
		return fmt.Sprintf("nothing was heard for %v", silent.Round(time.Second))
	}
	return ""
}
