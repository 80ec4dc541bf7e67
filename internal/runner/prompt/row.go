package prompt

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"nanoclaw/internal/mailbox"
)

const unknownSender = "Unknown"

func (env Env) chat(row mailbox.InRow) string {
	o, ok := decode(row.Content)
	if row.ChannelType == mailbox.ChannelEcho {
		return env.echo(row, o, ok)
	}
	e := newElement("message")
	if row.Seq > 0 {
		e.attr("id", strconv.FormatInt(row.Seq, 10))
	}
	e.attr("from", env.from(row.Address))
	e.attr("sender", sender(o))
	if row.ChannelType == mailbox.ChannelAgent {
		e.attr("sender_id", o.plain("senderId"))
	}
	e.attr("time", env.time(row.Timestamp, messageTime))
	reply := o.object("replyTo")
	e.attr("reply_to", reply.plain("id"))
	if !ok {
		return e.close(escape(fallback(row.Content)))
	}
	return e.close(quote(reply) + env.body(o, false) + viewing(o))
}

// echo is a row copied from another conversation of the same agent: to be read, not to be answered.
func (env Env) echo(row mailbox.InRow, o object, ok bool) string {
	copied := o.object("echo")
	var e *element
	switch copied.plain("surface") {
	case "dm-timeline":
		e = newElement("dm-history")
	case "channel-timeline":
		e = newElement("channel-history")
	default:
		e = newElement("cross-session-context")
		label := copied.first("label")
		if label == "" {
			label = "another conversation"
		}
		e.attr("from", label)
	}
	e.attr("sender", sender(o))
	e.attr("time", env.time(row.Timestamp, copyTime))
	if !ok {
		return e.close(escape(fallback(row.Content)))
	}
	return e.close(env.body(o, true))
}

func sender(o object) string {
	if s := o.first("sender"); s != "" {
		return s
	}
	if s := o.object("author").first("fullName", "userName"); s != "" {
		return s
	}
	return unknownSender
}

// quote is the message that is answered; both its text and its sender must be known.
func quote(reply object) string {
	text, from := reply.plain("text"), reply.first("sender")
	if text == "" || from == "" {
		return ""
	}
	q := newElement("quoted_message")
	q.attr("from", from)
	return "\n  " + q.close(escape(text)) + "\n"
}

// body is the text, then the links it does not show, then the attachments, each on a line of its own. The files of a copied row
// are in another session: no path here opens them (spec/bugs.md FMT-7, DATA-2).
func (env Env) body(o object, copied bool) string {
	text := o.text("text")
	var b strings.Builder
	b.WriteString(escape(text))
	seen := map[string]bool{}
	for _, raw := range o.list("links") {
		url := strings.TrimSpace(scalar(raw))
		if link, ok := decode(raw); ok {
			url = strings.TrimSpace(link.plain("url"))
		}
		if url != "" && !seen[url] && !strings.Contains(text, url) {
			b.WriteString("\n[link: " + attrText(url) + "]")
		}
		seen[url] = true
	}
	for _, raw := range o.list("attachments") {
		if a, ok := decode(raw); ok {
			b.WriteString("\n" + env.attachment(a, copied))
		}
	}
	return b.String()
}

// viewing is what the sender had open in the app when writing: content.appContext, one object or a list of them, or an object with
// such a list in entities or items. Each has a type and an id (or value, or name); a plain text stands for itself.
func viewing(o object) string {
	raw := o["appContext"]
	all := o.list("appContext")
	if one, ok := decode(raw); ok {
		if all = one.list("entities"); all == nil {
			all = one.list("items")
		}
		if all == nil {
			all = []json.RawMessage{raw}
		}
	}
	var seen []string
	for _, raw := range all {
		entry := ""
		if item, ok := decode(raw); ok {
			entry = item.first("type", "kind") + " " + item.first("id", "value", "name")
		} else if len(raw) > 0 && raw[0] == '"' {
			entry = scalar(raw)
		}
		entry = shorten(oneLine(entry), maxName)
		if entry != "" && !slices.Contains(seen, entry) && len(seen) < maxNames {
			seen = append(seen, entry)
		}
	}
	if len(seen) == 0 {
		return ""
	}
	return "\n(viewing: " + attrText(strings.Join(seen, ", ")) + ")"
}

// maxScriptOutput is how much of a script's data is shown, in bytes: as much as any row may hold.
const maxScriptOutput = mailbox.MaxContent

func (env Env) task(row mailbox.InRow) string {
	due := row.ProcessAfter
	if due.IsZero() {
		due = row.Timestamp
	}
	e := newElement("task")
	e.attr("from", env.from(row.Address))
	e.attr("time", env.time(due, messageTime))
	e.attr("current_time", env.time(env.Now, currentTime))
	o, ok := decode(row.Content)
	if !ok {
		return e.close("Instructions:\n" + escape(fallback(row.Content)))
	}
	var output string
	if raw, ok := o["scriptOutput"]; ok && !isNull(raw) {
		output = "Script output:\n" + escapeJSON(shorten(pretty(raw), maxScriptOutput)) + "\n\n"
	}
	instructions := o.text("prompt")
	if instructions == "" {
		instructions = o.text("text") // tasks of old, made as chat messages
	}
	return e.close(output + "Instructions:\n" + escape(instructions))
}

func (env Env) webhook(row mailbox.InRow) string {
	o, ok := decode(row.Content)
	e := newElement("webhook")
	e.attr("from", env.from(row.Address))
	e.attr("source", o.plain("source"))
	e.attr("event", o.plain("event"))
	payload := row.Content
	if raw, has := o["payload"]; ok && has {
		payload = raw
	}
	return e.close(escapeJSON(pretty(payload)))
}

func (env Env) system(row mailbox.InRow) string {
	o, ok := decode(row.Content)
	e := newElement("system_response")
	e.attr("from", env.from(row.Address))
	e.attr("action", o.plain("action"))
	e.attr("status", o.plain("status"))
	if !ok {
		return e.close(escape(fallback(row.Content)))
	}
	return e.close(escapeJSON(pretty(o["result"])))
}

// maxSent is how much of a row that was sent already is repeated to the model, in bytes.
const maxSent = 500

// sent lists what an earlier run of the exchange has sent, so that it is not said twice.
func (env Env) sent() string {
	var lines []string
	for _, row := range env.Sent {
		o, ok := decode(row.Content)
		if !ok || (row.Kind != mailbox.KindChat && row.Kind != mailbox.KindChatSDK) {
			continue
		}
		text := o.text("text")
		for _, file := range o.list("files") {
			text += "\n[file: " + strings.Join(strings.Fields(scalar(file)), " ") + "]"
		}
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		e := newElement("sent")
		e.attr("to", env.from(row.Address))
		e.attr("time", env.time(row.Timestamp, messageTime))
		lines = append(lines, e.close(escape(shorten(text, maxSent))))
	}
	if len(lines) == 0 {
		return ""
	}
	return "<already_sent>\nYou were interrupted while answering the above. These messages have gone out; go on from there and do not send them again.\n" +
		strings.Join(lines, "\n") + "\n</already_sent>"
}

// shorten cuts text to at most limit bytes and says so by an ellipsis.
func shorten(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "") + "…"
}
