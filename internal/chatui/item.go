package chatui

import (
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
		if it.notice {
			body(&st.notice, it.text)
		} else {
			body(nil, it.text)
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

// isStop: the person asked to end the turn. It is no part of the conversation.
func (it *item) isStop() bool {
	return it.author == control.AuthorUser && strings.TrimSpace(it.text) == StopText
}
