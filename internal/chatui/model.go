package chatui

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"charm.land/bubbles/v2/key"
	"charm.land/bubbles/v2/textarea"
	"charm.land/bubbles/v2/viewport"
	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"nanoclaw/internal/control"
	"nanoclaw/internal/id"
)

// Config of a model. Send, Answer and Ack must not block.
type Config struct {
	Agent  string
	Notice string
	Send   func(control.Say)
	Answer func(control.Answer)
	Ack    func(seq int64)
	Now    func() time.Time
}

// Messages to the model.
type (
	// EventMsg is an event of the conversation.
	EventMsg control.Event
	// SentMsg says what became of a message given to Send.
	SentMsg struct {
		ID  string
		Err error
	}
	// AnsweredMsg says what became of an answer given to Answer.
	AnsweredMsg struct {
		Question string
		Err      error
	}
	tickMsg struct{}
)

// maxInput is the most rows the input grows to.
const maxInput = 8

// lookBack is how many of the newest items may hold the notice of a failure that is reported now.
const lookBack = 8

// StopText is what Ctrl-C sends while a turn runs.
const StopText = "/stop"

// Model of the chat.
type Model struct {
	cfg     Config
	st      styles
	view    viewport.Model
	input   textarea.Model
	width   int
	height  int
	items   []*item
	byID    map[string]*item
	lastSeq int64

	open     map[string]bool // messages of the person without an end yet
	work     control.Work
	lost     string // why the host is away; empty: it is there
	stopping bool   // Ctrl-C was pressed in this turn
	ticking  bool
	sent     []string // typed texts, for recall
	recall   int
}

// New makes a model.
func New(cfg Config) *Model {
	in := textarea.New()
	in.ShowLineNumbers = false
	in.Prompt = "> "
	in.Placeholder = "Message"
	in.CharLimit = control.MaxText / 4
	in.DynamicHeight, in.MinHeight, in.MaxHeight, in.MaxContentHeight = true, 1, maxInput, 10_000
	in.KeyMap.InsertNewline = key.NewBinding(key.WithKeys("ctrl+j", "alt+enter", "shift+enter"))
	in.SetVirtualCursor(false) // the terminal's own cursor: input methods of East Asian languages show where it is
	in.Focus()
	v := viewport.New()
	v.KeyMap = viewport.KeyMap{
		PageUp: key.NewBinding(key.WithKeys("pgup")), PageDown: key.NewBinding(key.WithKeys("pgdown")),
		Up: key.NewBinding(key.WithKeys("ctrl+up")), Down: key.NewBinding(key.WithKeys("ctrl+down")),
	}
	m := &Model{cfg: cfg, st: newStyles(), view: v, input: in, width: 80, height: 24, byID: map[string]*item{}, open: map[string]bool{}}
	if cfg.Notice != "" {
		m.add(&item{text: Plain(cfg.Notice)})
	}
	m.layout()
	return m
}

// Load shows an old part of the conversation. What nobody has seen yet is marked.
func (m *Model) Load(h control.History) {
	for _, e := range h.Events {
		if e.Seq > h.Cursor && e.Author == control.AuthorAgent && m.byID["unread"] == nil {
			it := &item{id: "unread", text: "── new while you were away ──"}
			m.byID[it.id] = it
			m.add(it)
		}
		m.take(e)
	}
	m.refresh(true)
}

// Init starts the cursor.
func (m *Model) Init() tea.Cmd { return textarea.Blink }

// Update takes one message.
func (m *Model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		bottom := m.view.AtBottom()
		m.width, m.height = max(msg.Width, 4), max(msg.Height, 3)
		m.layout()
		m.refresh(bottom)
		return m, nil
	case EventMsg:
		bottom := m.view.AtBottom()
		m.take(control.Event(msg))
		m.refresh(bottom)
		return m, m.tick()
	case SentMsg:
		m.onSent(msg)
		return m, nil
	case AnsweredMsg:
		m.onAnswered(msg)
		return m, nil
	case tickMsg:
		m.ticking = false
		return m, m.tick()
	case tea.KeyPressMsg:
		return m.onKey(msg)
	}
	return m.toInput(msg)
}

func (m *Model) toInput(msg tea.Msg) (tea.Model, tea.Cmd) {
	var cmd tea.Cmd
	m.input, cmd = m.input.Update(msg)
	bottom := m.view.AtBottom()
	m.layout()
	if bottom {
		m.view.GotoBottom()
	}
	return m, cmd
}

func (m *Model) onKey(k tea.KeyPressMsg) (tea.Model, tea.Cmd) {
	switch k.String() {
	case "ctrl+c":
		if m.busy() && !m.stopping {
			m.stopping = true
			m.send(StopText)
			return m, m.tick()
		}
		return m, tea.Quit
	case "ctrl+d":
		if m.input.Value() == "" {
			return m, tea.Quit
		}
	case "enter":
		text := m.input.Value()
		switch strings.TrimSpace(text) {
		case "":
			return m, nil
		case "/quit", "/exit":
			return m, tea.Quit
		}
		m.input.Reset()
		m.layout()
		m.sent = append(m.sent, text)
		m.recall = len(m.sent)
		if !m.answer(text) {
			m.send(text)
		}
		return m, m.tick()
	case "pgup", "pgdown", "ctrl+up", "ctrl+down":
		var cmd tea.Cmd
		m.view, cmd = m.view.Update(k)
		return m, cmd
	case "up", "down":
		if m.recalled(k.String()) {
			return m, nil
		}
	}
	return m.toInput(k)
}

// recalled puts an earlier text into the input when the person walks up from an untouched one.
func (m *Model) recalled(direction string) bool {
	current := m.input.Value()
	untouched := current == "" || m.recall < len(m.sent) && current == m.sent[m.recall]
	next := m.recall - 1
	if direction == "down" {
		next = m.recall + 1
	}
	if !untouched || next < 0 || next > len(m.sent) || m.recall == len(m.sent) && direction == "down" {
		return false
	}
	m.recall = next
	text := ""
	if next < len(m.sent) {
		text = m.sent[next]
	}
	m.input.SetValue(text)
	m.layout()
	return true
}

// busy reports whether a turn runs or a message waits for its end.
func (m *Model) busy() bool { return m.work.Working || len(m.open) > 0 }

func (m *Model) send(text string) {
	s := control.Say{ID: id.New(id.PrefixMessage), Text: text}
	it := &item{id: s.ID, author: control.AuthorUser, text: Plain(text), state: stateSending}
	m.byID[control.AuthorUser+s.ID] = it
	m.add(it)
	m.opened(it)
	m.refresh(true)
	m.cfg.Send(s)
}

// answer takes a typed text as an answer to the newest open question that has such an option.
func (m *Model) answer(text string) bool {
	for _, it := range slices.Backward(m.items) {
		if it.question == nil || it.closed || it.pending {
			continue
		}
		i := control.Choice(it.question.Options, text)
		if i < 0 {
			continue
		}
		it.pending, it.reason, it.width = true, "", 0
		m.refresh(true)
		m.cfg.Answer(control.Answer{Question: it.question.ID, Value: it.question.Options[i].Value})
		return true
	}
	return false
}

// onAnswered: that it was taken is shown by its event; a refusal by the host closes the question here.
func (m *Model) onAnswered(msg AnsweredMsg) {
	for _, it := range m.items {
		if it.question == nil || it.question.ID != msg.Question || it.chosen != "" {
			continue
		}
		it.pending = msg.Err == nil // its event follows
		if msg.Err != nil {
			it.reason, it.closed = Plain(msg.Err.Error()), control.IsCode(msg.Err, control.CodeConflict)
		}
		it.width = 0
	}
	m.refresh(m.view.AtBottom())
}

// asked reports whether a question waits for the person.
func (m *Model) asked() bool {
	return slices.ContainsFunc(m.items, func(it *item) bool { return it.question != nil && !it.closed && !it.pending })
}

func (m *Model) onSent(msg SentMsg) {
	it := m.byID[control.AuthorUser+msg.ID]
	if it == nil {
		return
	}
	if it.state == stateSending {
		it.state = ""
	}
	if msg.Err != nil {
		it.state, it.reason = control.StateFailed, "not sent: "+Plain(msg.Err.Error())
		delete(m.open, msg.ID)
	}
	it.width = 0
	m.refresh(m.view.AtBottom())
}

// take applies one event; an entry seen before changes nothing.
func (m *Model) take(e control.Event) {
	if e.Seq > 0 {
		if e.Seq <= m.lastSeq {
			return
		}
		m.lastSeq = e.Seq
		m.cfg.Ack(e.Seq)
	}
	switch e.Kind {
	case control.EventHello:
		m.lost = ""
		m.work = control.Work{}
	case control.EventLost:
		m.lost = e.Reason
		m.work = control.Work{}
	case control.EventWorking:
		if e.Work != nil {
			m.work = *e.Work
		}
	case control.EventMessage:
		m.message(e)
	case control.EventEdit:
		if it := m.byID[control.AuthorAgent+e.Target]; it != nil {
			it.text, it.edited, it.width = Plain(e.Text), true, 0
			it.question, it.card = nil, nil
		} else {
			m.add(&item{author: control.AuthorAgent, text: Plain(e.Text), edited: true})
		}
	case control.EventReaction:
		for _, author := range []string{control.AuthorAgent, control.AuthorUser} {
			if it := m.byID[author+e.Target]; it != nil {
				it.reactions, it.width = append(it.reactions, line(e.Emoji)), 0
				break
			}
		}
	case control.EventAnswer:
		if it := m.byID[control.AuthorAgent+e.Target]; it != nil {
			it.closed, it.pending, it.chosen, it.reason, it.width = true, false, line(e.Text), "", 0
		}
	case control.EventSettled:
		delete(m.open, e.Target)
		if len(m.open) == 0 {
			m.work = control.Work{} // if it goes on, the next word about its work says so
		}
		if it := m.byID[control.AuthorUser+e.Target]; it != nil {
			it.state, it.reason, it.width = e.State, Plain(e.Reason), 0
			if m.told(it.reason) {
				it.reason = ""
			}
		}
	}
	if !m.busy() {
		m.stopping = false
	}
}

func (m *Model) message(e control.Event) {
	if it := m.byID[e.Author+e.ID]; it != nil { // our own, sent from here
		if it.state == stateSending {
			it.state, it.width = "", 0
		}
		if e.Author == control.AuthorUser {
			m.open[e.ID] = true
		}
		return
	}
	it := &item{id: e.ID, author: e.Author, text: Plain(e.Text), notice: e.Notice, marked: e.Marked}
	for _, f := range e.Files {
		it.files = append(it.files, FileLine(f))
	}
	if e.Question != nil {
		it.question = plainQuestion(*e.Question)
	}
	if e.Card != nil {
		it.card = plainCard(*e.Card)
	}
	m.byID[e.Author+e.ID] = it
	m.add(it)
	switch {
	case e.Author == control.AuthorUser:
		m.opened(it)
	case it.notice:
		for _, before := range m.items[max(0, len(m.items)-lookBack):] {
			if before.reason == it.text {
				before.reason, before.width = "", 0
			}
		}
	}
}

// opened notes a message without an end; a stop is for all that were open before it.
func (m *Model) opened(it *item) {
	if it.isStop() {
		for open := range m.open {
			if before := m.byID[control.AuthorUser+open]; before != nil {
				before.stopped = true
			}
		}
	}
	m.open[it.id] = true
}

// told reports whether the agent's own words say already why a message ended as it did.
func (m *Model) told(reason string) bool {
	return slices.ContainsFunc(m.items[max(0, len(m.items)-lookBack):], func(it *item) bool { return it.notice && it.text == reason })
}

func (m *Model) add(it *item) { m.items = append(m.items, it) }

// tick keeps the elapsed time moving while the agent works.
func (m *Model) tick() tea.Cmd {
	if m.ticking || !m.work.Working {
		return nil
	}
	m.ticking = true
	return tea.Tick(time.Second, func(time.Time) tea.Msg { return tickMsg{} })
}

func (m *Model) layout() {
	m.input.MaxHeight = max(min(maxInput, m.height/2), 1)
	m.input.SetWidth(m.width)
	m.view.SetWidth(m.width)
	m.view.SetHeight(max(m.height-m.input.Height()-1, 1))
}

func (m *Model) refresh(bottom bool) {
	var lines []string
	for _, it := range m.items {
		lines = append(lines, it.render(m.width, m.agent(), m.st)...)
	}
	m.view.SetContentLines(lines)
	if bottom {
		m.view.GotoBottom()
	}
}

func (m *Model) agent() string {
	if m.cfg.Agent == "" {
		return "agent"
	}
	return line(m.cfg.Agent)
}

// Status is the text of the status line, without colour.
func (m *Model) Status() string {
	var parts []string
	switch {
	case m.lost != "":
		parts = append(parts, "the host is away, connecting again · nanoclaw serve starts it")
	case m.stopping:
		parts = append(parts, "stopping · Ctrl-C again leaves")
	case m.asked():
		parts = append(parts, m.agent()+" asks you")
	case m.work.Working:
		parts = append(parts, "working")
		if m.work.Tool != "" {
			parts = append(parts, "tool "+line(m.work.Tool))
		}
		if !m.work.Since.IsZero() {
			parts = append(parts, elapsed(m.cfg.Now().Sub(m.work.Since.Time)))
		}
	case len(m.open) > 0:
		parts = append(parts, "waiting for "+m.agent())
	default:
		parts = append(parts, "ready")
	}
	if m.work.Queued > 0 {
		parts = append(parts, fmt.Sprintf("%d queued", m.work.Queued))
	}
	if !m.view.AtBottom() {
		parts = append(parts, "PgDn for newer")
	}
	return strings.Join(parts, " · ")
}

func elapsed(d time.Duration) string {
	d = max(d, 0).Truncate(time.Second)
	if d < time.Minute {
		return fmt.Sprintf("%d s", int(d.Seconds()))
	}
	return fmt.Sprintf("%d min %02d s", int(d.Minutes()), int(d.Seconds())%60)
}

// View draws the screen: conversation, status line, input.
func (m *Model) View() tea.View {
	const keys = "Enter sends · Alt-Enter new line · Ctrl-C stops, leaves"
	status := clip(m.Status(), m.width)
	if gap := m.width - ansi.StringWidth(status) - ansi.StringWidth(keys); gap >= 2 {
		status += strings.Repeat(" ", gap) + keys
	}
	style := m.st.dim
	if m.lost != "" {
		style = m.st.bad
	}
	v := tea.NewView(m.view.View() + "\n" + style.Render(status) + "\n" + m.input.View())
	v.AltScreen = true
	v.WindowTitle = "nanoclaw"
	if c := m.input.Cursor(); c != nil {
		c.Y += m.view.Height() + 1
		v.Cursor = c
	}
	return v
}
