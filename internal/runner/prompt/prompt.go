// Package prompt puts into words what the model reads: due rows as a prompt, the addressing rules for the system prompt,
// nudges, and the plain notices a person gets when the agent failed (spec/runner.md sections 1.7, 4.7 and 6).
//
// Everything that came from outside is escaped, so no row can close its own element or forge another one. Nothing here
// reads a clock, a file or the mailbox.
package prompt

import (
	"cmp"
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // a sandbox need not have the zone files

	"nanoclaw/internal/mailbox"
)

// Env is what rows are rendered with.
type Env struct {
	Zone *time.Location // of the people; nil is UTC
	Now  time.Time      // current_time of tasks; the zero time leaves it out
	Root string         // folder that paths of attachments are below; empty is DefaultRoot
	// Name finds the destination that stands for an address; the thread does not count. Nil knows none.
	Name func(mailbox.Address) (string, bool)
	// Sent are rows that an earlier run of the same exchange has sent already. The model is told not to repeat them.
	Sent []mailbox.OutRow
}

// DefaultRoot is the session's folder inside a sandbox.
const DefaultRoot = "/workspace"

// Zone is the time zone of a TZ variable: UTC if it is empty or names no zone.
func Zone(tz string) *time.Location {
	name := strings.TrimPrefix(tz, ":")
	if name == "" || name == "Local" {
		return time.UTC
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return time.UTC
	}
	return zone
}

// Render is the prompt for rows: the header with the time zone, always and first, then the chat rows by seq, then each
// task, webhook and system row, then what was sent already. It never fails: content that is not what its kind says is shown
// as plain text (Problem names it). There is no element around the whole (spec/bugs.md FMT-1).
func Render(rows []mailbox.InRow, env Env) string {
	if env.Zone == nil {
		env.Zone = time.UTC
	}
	if env.Root == "" {
		env.Root = DefaultRoot
	}
	var chats, tasks, webhooks, systems []string
	for _, row := range bySeq(rows) {
		switch row.Kind {
		case mailbox.KindTask:
			tasks = append(tasks, env.task(row))
		case mailbox.KindWebhook:
			webhooks = append(webhooks, env.webhook(row))
		case mailbox.KindSystem:
			systems = append(systems, env.system(row))
		default:
			chats = append(chats, env.chat(row))
		}
	}
	var groups []string
	if len(chats) > 0 {
		groups = append(groups, strings.Join(chats, "\n"))
	}
	groups = slices.Concat(groups, tasks, webhooks, systems)
	if sent := env.sent(); sent != "" {
		groups = append(groups, sent)
	}
	return "<context timezone=\"" + attrText(env.Zone.String()) + "\" />\n" + strings.Join(groups, "\n\n")
}

func bySeq(rows []mailbox.InRow) []mailbox.InRow {
	return slices.SortedStableFunc(slices.Values(rows), func(a, b mailbox.InRow) int { return cmp.Compare(a.Seq, b.Seq) })
}

// Problem says in plain words why the content of a row cannot be read as what its kind says, empty if it can. Such a row is
// rendered all the same; a caller may fail it instead.
func Problem(row mailbox.InRow) string {
	o, ok := decode(row.Content)
	if !ok {
		return "its content is not a JSON object"
	}
	var key string
	switch row.Kind {
	case mailbox.KindChat, mailbox.KindChatSDK:
		key = "text"
	case mailbox.KindTask:
		key = "prompt"
	default:
		return ""
	}
	if raw, ok := o[key]; ok && !isNull(raw) && raw[0] != '"' {
		return "its content has no text in " + key
	}
	return ""
}

// from is the name to answer to. Rows of other agents without one have none: they cannot be answered (spec/bugs.md FMT-6).
func (env Env) from(a mailbox.Address) string {
	a.ThreadID = ""
	if a.Zero() {
		return ""
	}
	if env.Name != nil {
		if name, ok := env.Name(a); ok {
			return name
		}
	}
	if a.ChannelType == mailbox.ChannelAgent {
		return ""
	}
	return "unknown:" + a.ChannelType + ":" + a.PlatformID
}

// Layouts of times in a prompt (spec/runner.md section 6.2).
const (
	messageTime = "Jan 2, 2006, 3:04 PM"
	currentTime = "Monday, January 2, 2006, 3:04 PM"
	copyTime    = "2006-01-02 15:04"
)

func (env Env) time(t time.Time, layout string) string {
	if t.IsZero() {
		return ""
	}
	return t.In(env.Zone).Format(layout)
}
