package turn

import (
	"encoding/json"

	"nanoclaw/internal/mailbox"
)

// person reports whether a chat row comes from somebody who can be written back to and is no agent.
func person(r mailbox.InRow) bool {
	return r.Trigger && (r.Kind == mailbox.KindChat || r.Kind == mailbox.KindChatSDK) &&
		r.ChannelType != "" && r.PlatformID != "" && r.ChannelType != mailbox.ChannelAgent && r.ChannelType != mailbox.ChannelEcho
}

// run reports whether rows are a task's run: at least one task, and nothing else but copies of other conversations.
func run(rows []mailbox.InRow) bool {
	task := false
	for _, r := range rows {
		if r.Kind != mailbox.KindTask && r.ChannelType != mailbox.ChannelEcho {
			return false
		}
		task = task || r.Kind == mailbox.KindTask
	}
	return task
}

// Asker is the row of the person who waits: the newest human chat row that may wake, never a context, agent or task row.
func (e *Exchange) Asker() (mailbox.InRow, bool) {
	for i := len(e.rows) - 1; i >= 0; i-- {
		if person(e.rows[i]) {
			return e.rows[i], true
		}
	}
	return mailbox.InRow{}, false
}

// Waiters are the newest rows of each address that must hear of a failure: people, and agents whose request was not itself
// a notice of a failure.
func (e *Exchange) Waiters() []mailbox.InRow {
	var out []mailbox.InRow
	told := map[mailbox.Address]bool{}
	for i := len(e.rows) - 1; i >= 0; i-- {
		r := e.rows[i]
		agent := r.Trigger && r.ChannelType == mailbox.ChannelAgent && r.PlatformID != "" && r.Kind == mailbox.KindChat && !notice(r)
		if told[r.Address] || !person(r) && !agent {
			continue
		}
		told[r.Address] = true
		out = append(out, r)
	}
	return out
}

func notice(r mailbox.InRow) bool {
	var c struct {
		Notice json.RawMessage `json:"notice"`
	}
	return json.Unmarshal(r.Content, &c) == nil && string(c.Notice) == "true"
}

// AnsweredFrom is the message that a row for destination to answers, if one of the exchange came from there: its thread and id
// win over the newest row of that chat.
func (e *Exchange) AnsweredFrom(to mailbox.Address) (mailbox.InRow, bool) {
	for i := len(e.rows) - 1; i >= 0; i-- {
		r := e.rows[i]
		if r.Trigger && r.ChannelType == to.ChannelType && r.PlatformID == to.PlatformID {
			return r, true
		}
	}
	return mailbox.InRow{}, false
}
