package turn

import (
	"encoding/json"
	"slices"
	"strings"

	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/runner/block"
)

// Exchange is used by one goroutine: the loop's.
type Exchange struct {
	id    string
	state State
	rows  []mailbox.InRow // by seq

	parser   *block.Parser
	heard    bool // the running turn has brought text
	nudged   bool
	fresh    bool // was tried in a new conversation already
	attempts int
	left     []left
	lost     []Lost
	command  string
	task     bool
	logged   bool     // its run log is written
	joined   []string // exchanges whose rows are this one's now, and that had written something
}

// left is a row that this exchange has written.
type left struct {
	row     mailbox.OutRow
	words   bool   // a message, a file, a question or a card: no notice, no edit, no reaction, nothing for the host
	text    string // with the names of its files; empty: it repeats nothing
	earlier bool   // by an earlier incarnation or an earlier attempt
	tool    bool
}

// New is an exchange over claimed rows. sent are the rows that it wrote in an earlier incarnation, if it is run again.
// An exchange without rows is one nobody asked for: it begins at once.
func New(id string, rows []mailbox.InRow, sent []mailbox.OutRow) *Exchange {
	e := &Exchange{id: id, state: Claimed, rows: slices.Clone(rows), parser: block.New(), task: run(rows)}
	if len(rows) == 0 {
		e.state = Running
	}
	for _, row := range sent {
		e.note(row, row.Segment == 0, true)
	}
	return e
}

// ID of the exchange.
func (e *Exchange) ID() string { return e.id }

// State of the exchange.
func (e *Exchange) State() State { return e.state }

// Step moves the exchange on. An error is a fault in the program; the state is then unchanged.
func (e *Exchange) Step(on Event) error {
	s, err := next(e.state, on)
	if err != nil {
		return err
	}
	switch on {
	case Nudge:
		e.nudged = true
		e.lost, e.heard = nil, false
	case Again:
		e.restart()
	}
	e.state = s
	return nil
}

// restart forgets the unfinished answer: what it has written now counts as written by an earlier attempt.
func (e *Exchange) restart() {
	e.parser.End()
	e.lost, e.heard = nil, false
	for i := range e.left {
		e.left[i].earlier = true
	}
}

// Rows are the inbound rows that the exchange answers for, by seq.
func (e *Exchange) Rows() []mailbox.InRow { return e.rows }

// IDs of the rows.
func (e *Exchange) IDs() []string {
	ids := make([]string, 0, len(e.rows))
	for _, r := range e.rows {
		ids = append(ids, r.ID)
	}
	return ids
}

// Absorb takes over what another exchange stands for, whose prompt the running turn took. Step(Join) of the other is the
// caller's.
func (e *Exchange) Absorb(other *Exchange) {
	e.rows = append(e.rows, other.rows...)
	slices.SortFunc(e.rows, func(a, b mailbox.InRow) int { return int(min(max(a.Seq-b.Seq, -1), 1)) })
	e.nudged = e.nudged || other.nudged
	e.task = e.task && other.task // somebody waits for an answer now
	e.joined = append(e.joined, other.Origins()...)
	for _, l := range other.left {
		l.earlier = l.earlier || l.row.Exchange != e.id
		e.left = append(e.left, l)
	}
}

// Origins are the exchanges under whose ids this one's rows stand in the outbox: its own, if there are any, and those it has joined.
func (e *Exchange) Origins() []string {
	if len(e.left) == 0 {
		return e.joined
	}
	return append([]string{e.id}, e.joined...)
}

// Joined are the exchanges that it has taken over and that had written something.
func (e *Exchange) Joined() []string { return e.joined }

// SetJoined says so after a restart.
func (e *Exchange) SetJoined(ids []string) { e.joined = ids }

// Remember says that an earlier incarnation has nudged, so that the exchange stays at one nudge.
func (e *Exchange) Remember() { e.nudged = true }

// SetCommand makes text, a command of the provider, the whole prompt of the exchange; its result is the answer.
func (e *Exchange) SetCommand(text string) { e.command = text }

// Command is the prompt that is a command; empty: the exchange has an ordinary one.
func (e *Exchange) Command() string { return e.command }

// SetTask says that only tools send, whatever the rows: the session is one of tasks.
func (e *Exchange) SetTask() { e.task = true }

// Task reports whether only tools send and the final text is the run log's (spec/runner.md section 4.10).
func (e *Exchange) Task() bool { return e.task }

// Logged reports whether the run log is written, and says that it is from now on.
func (e *Exchange) Logged() bool {
	was := e.logged
	e.logged = true
	return was
}

// Series is that of the exchange's task; empty: it has none.
func (e *Exchange) Series() string {
	for _, r := range e.rows {
		if r.Kind == mailbox.KindTask && r.SeriesID != "" {
			return r.SeriesID
		}
	}
	return ""
}

// Nudged reports whether the exchange has had its one nudge.
func (e *Exchange) Nudged() bool { return e.nudged }

// Attempt counts a retry after a failure and returns how many there were with this one.
func (e *Exchange) Attempt() int {
	e.attempts++
	return e.attempts
}

// Fresh reports the first time, and only then, that the exchange may be tried in a new conversation.
func (e *Exchange) Fresh() bool {
	first := !e.fresh
	e.fresh = true
	return first
}

// Write gives the parser more of the model's text.
func (e *Exchange) Write(text string) []block.Item {
	e.heard = e.heard || strings.TrimSpace(text) != ""
	return e.parser.Write(text)
}

// Segment says that a tool call stands here.
func (e *Exchange) Segment() []block.Item { return e.parser.Segment() }

// End says that the answer is complete.
func (e *Exchange) End() block.Rest { return e.parser.End() }

// Heard reports whether the running turn has brought any text by Write.
func (e *Exchange) Heard() bool { return e.heard }

// Left notes a row that was written for the exchange: by a tool (or outside any segment), or as a block.
// One that was written while no turn of the exchange runs belongs to the turn before.
func (e *Exchange) Left(row mailbox.OutRow, tool bool) { e.note(row, tool, e.state == Claimed) }

func (e *Exchange) note(row mailbox.OutRow, tool, earlier bool) {
	e.logged = e.logged || row.Kind == mailbox.KindTaskLog
	l := left{row: row, earlier: earlier, tool: tool}
	var c mailbox.ChatOut
	if row.Kind == mailbox.KindChat && json.Unmarshal(row.Content, &c) == nil && !c.Notice && c.Operation == "" {
		l.words, l.text = true, signature(c.Text, c.Files)
	}
	e.left = append(e.left, l)
}

// signature is what makes two messages the same: a file with a caption is no repetition of the caption.
func signature(text string, files []string) string {
	return strings.Join(append([]string{text}, files...), "\x00")
}

// Sent are the messages that left, in the order in which they were written: what the prompt of a re-run lists.
func (e *Exchange) Sent() []mailbox.OutRow {
	out := make([]mailbox.OutRow, 0, len(e.left))
	for _, l := range e.left {
		if l.words {
			out = append(out, l.row)
		}
	}
	return out
}

// Spoke reports whether any message has left in the exchange, by whatever incarnation.
func (e *Exchange) Spoke() bool {
	return slices.ContainsFunc(e.left, func(l left) bool { return l.words })
}

// Acted reports whether the exchange has written anything at all, by whatever incarnation.
func (e *Exchange) Acted() bool { return len(e.left) > 0 }

// Earlier finds a row that an earlier incarnation or attempt has written: what a tool asks for once more is not done twice.
func (e *Exchange) Earlier(same func(mailbox.OutRow) bool) (mailbox.OutRow, bool) {
	for _, l := range e.left {
		if l.earlier && same(l.row) {
			return l.row, true
		}
	}
	return mailbox.OutRow{}, false
}

// answered reports whether what has left counts as an answer: words to another agent are none to a person who waits (W12).
func (e *Exchange) answered() bool {
	_, person := e.Asker()
	return slices.ContainsFunc(e.left, func(l left) bool { return l.words && (!person || l.row.ChannelType != mailbox.ChannelAgent) })
}

// Repeats is the echo guard for a block that closed in segment: the same text to the same place left by a tool, in an earlier
// segment, or in an earlier incarnation or attempt (spec/bugs.md GATE-4).
func (e *Exchange) Repeats(to mailbox.Address, text string, segment int) bool {
	return slices.ContainsFunc(e.left, func(l left) bool {
		return l.same(to, text) && (l.earlier || l.tool || l.row.Segment < segment)
	})
}

// RepeatsText reports whether the exchange has sent this text, to wherever.
func (e *Exchange) RepeatsText(text string) bool {
	return slices.ContainsFunc(e.left, func(l left) bool { return l.words && l.text == text })
}

// RepeatsEarlier is the guard for tools: the row of an earlier incarnation or attempt that said the same.
func (e *Exchange) RepeatsEarlier(to mailbox.Address, text string, files ...string) (mailbox.OutRow, bool) {
	for _, l := range e.left {
		if l.earlier && l.same(to, signature(text, files)) {
			return l.row, true
		}
	}
	return mailbox.OutRow{}, false
}

func (l left) same(to mailbox.Address, text string) bool {
	return l.text != "" && l.text == text && l.row.Address == to
}

// SegmentNumber is the number of the running segment.
func (e *Exchange) SegmentNumber() int { return e.parser.SegmentNumber() }
