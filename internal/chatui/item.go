package chatui

import (
	"fmt"
	"strings"

	"charm.land/lipgloss/v2"

	"nanoclaw/internal/control"
)

// item is one message on the screen.
type item struct {
	id        string
	author    string // control.AuthorUser, control.AuthorAgent, or empty for our own lines
	text      string
	edited    bool
	notice    bool
	marked    bool
	reactions []string
	state     string // of a person's message: empty, sending, or how it ended
	stopped   bool   // a stop came while it was open
	reason    string

	files    []string // a line for each
	card     *control.Card
	question *control.Question // plain
	pending  bool              // an answer to it is on its way
	closed   bool
	chosen   string // what to show once it is answered

	width int // lines were made for this width; 0: must be made
	lines []string
}

const stateSending = "sending"

// styles are plain values; the program reduces them to what the terminal can show.
type styles struct {
	you, agent, notice, dim, bad lipgloss.Style
}

func newStyles() styles {
	return styles{
		you:    lipgloss.NewStyle().Bold(true).Foreground(lipgloss.Color("6")),
		agent:  lipgloss.NewStyle().Bold(true).Foreground(lipgloss.Color("5")),
		notice: lipgloss.NewStyle().Foreground(lipgloss.Color("3")),
		dim:    lipgloss.NewStyle().Faint(true),
		bad:    lipgloss.NewStyle().Foreground(lipgloss.Color("1")),
	}
}

// render gives the item's lines for a width, from the last call where nothing changed.
func (it *item) render(width int, agent string, st styles) []string {
	if it.width == width && width > 0 {
		return it.lines
	}
	const indent = 2
	var out []string
	body := func(style *lipgloss.Style, text string) {
		for _, l := range wrap(text, width-indent) {
			if style != nil {
				l = style.Render(l)
			}
			out = append(out, strings.Repeat(" ", indent)+l)
		}
	}
	switch it.author {
	case control.AuthorUser:
		if it.isStop() {
			body(&st.dim, "── stop ──")
			break
		}
		head := st.you.Render("you")
		if it.state == stateSending {
			head += st.dim.Render(" · sending")
		}
		out = append(out, head)
		body(nil, it.text)
	case control.AuthorAgent:
		head := st.agent.Render(clip(agent, width))
		if it.edited {
			head += st.dim.Render(" · edited")
		}
		if it.marked {
			head += st.dim.Render(" · may be a repeat")
		}
		out = append(out, clip(head, width))
		switch {
		case it.question != nil:
			it.renderQuestion(body, st)
		case it.card != nil:
			renderCard(body, *it.card, st)
		case it.notice:
			body(&st.notice, it.text)
		case it.text != "" || len(it.files) == 0:
			body(nil, it.text)
		}
		for _, f := range it.files {
			body(&st.notice, f)
		}
	default:
		out = append(out, "")
		body(&st.dim, it.text)
	}
	if len(it.reactions) > 0 {
		body(&st.dim, strings.Join(it.reactions, " "))
	}
	switch it.state {
	case control.StateFailed, control.StateRefused, control.StateDead:
		text := it.state
		if it.reason != "" {
			text += ": " + it.reason
		}
		body(&st.bad, text)
	case control.StateSilent:
		switch {
		case it.isStop():
		case it.stopped:
			body(&st.dim, "(stopped)")
		default:
			body(&st.dim, "(no answer, on purpose)")
		}
	}
	it.width, it.lines = width, append(out, "")
	return it.lines
}

func (it *item) renderQuestion(body func(*lipgloss.Style, string), st styles) {
	bold := lipgloss.NewStyle().Bold(true)
	body(&bold, it.question.Title)
	body(nil, it.question.Text)
	switch {
	case it.chosen != "":
		body(&st.notice, "✓ "+it.chosen)
	case it.closed:
		body(&st.dim, "(closed without an answer)")
	default:
		for i, o := range it.question.Options {
			body(nil, fmt.Sprintf("%d. %s", i+1, o.Label))
		}
		hint := "type a number or the text of an option"
		if it.pending {
			hint = "answering"
		}
		body(&st.dim, hint)
	}
	if it.reason != "" {
		body(&st.bad, it.reason)
	}
}

func renderCard(body func(*lipgloss.Style, string), c control.Card, st styles) {
	bold := lipgloss.NewStyle().Bold(true)
	if c.Title != "" {
		body(&bold, c.Title)
	}
	for _, p := range append([]string{c.Body}, c.Paragraphs...) {
		if p != "" {
			body(nil, p)
		}
	}
	for _, l := range c.Links {
		body(nil, l.Label+": "+l.URL)
	}
}

// FileLine is one line about a file of a message, safe for a terminal.
func FileLine(f control.File) string {
	return fmt.Sprintf("file: %s (%s) saved at %s", line(f.Name), size(f.Size), line(f.Path))
}

func size(n int64) string {
	units := []string{"KB", "MB", "GB", "TB"}
	if n < 1024 {
		return fmt.Sprintf("%d bytes", n)
	}
	v, unit := float64(n)/1024, 0
	for v >= 1024 && unit < len(units)-1 {
		v, unit = v/1024, unit+1
	}
	if v < 10 {
		return fmt.Sprintf("%.1f %s", v, units[unit])
	}
	return fmt.Sprintf("%.0f %s", v, units[unit])
}

// plainQuestion is a question whose texts are safe for a terminal. Values are for the host.
func plainQuestion(q control.Question) *control.Question {
	out := control.Question{ID: q.ID, Title: line(q.Title), Text: Plain(q.Text)}
	for _, o := range q.Options {
		out.Options = append(out.Options, control.Option{Label: line(o.Label), Value: o.Value})
	}
	return &out
}

func plainCard(c control.Card) *control.Card {
	out := control.Card{Title: line(c.Title), Body: Plain(c.Body)}
	for _, p := range c.Paragraphs {
		out.Paragraphs = append(out.Paragraphs, Plain(p))
	}
	for _, l := range c.Links {
		out.Links = append(out.Links, control.Link{Label: line(l.Label), URL: line(l.URL)})
	}
	return &out
}

// isStop: the person asked to end the turn. It is no part of the conversation.
func (it *item) isStop() bool {
	return it.author == control.AuthorUser && strings.TrimSpace(it.text) == StopText
}
