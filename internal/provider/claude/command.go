package claude

import (
	"slices"
	"strings"

	"nanoclaw/internal/provider"
)

// commands that the CLI runs by itself without a screen, tried one by one with the newest tested version. Of the others /help,
// /status, /memory, /permissions, /resume and many more answer that they are not available here; /files, /todos and /doctor are
// texts to the model or skills; /model, /effort, /config and /mcp would change what settings decide; /clear is the runner's.
func commands() []string { return []string{"/compact", "/context", "/cost", "/usage"} }

// commandIn is the command that a prompt is, as the CLI wants to see it, or empty. The CLI knows one only as the very first
// character of a prompt, in lower case.
func commandIn(text string) string {
	words := strings.Fields(text)
	if len(words) == 0 || !strings.HasPrefix(strings.TrimSpace(text), "/") {
		return ""
	}
	words[0] = strings.ToLower(words[0])
	if !slices.Contains(commands(), words[0]) {
		return ""
	}
	return strings.Join(words, " ")
}

// prompt is an input, ready to be written.
type prompt struct {
	provider.Input
	command string // what the CLI runs instead of asking the model
	media   []block
}

func (q *query) prepare(in provider.Input) prompt {
	p := prompt{Input: in, command: commandIn(in.Text)}
	if p.command == "" {
		p.media = q.media(in.Attachments)
	}
	return p
}

// content is what the CLI gets.
func (p prompt) content() content {
	switch {
	case p.command != "":
		return content{text: p.command}
	case strings.HasPrefix(p.Text, "/"):
		return content{text: "\n" + p.Text, media: p.media} // for the model, whatever the CLI makes of such a word
	}
	return content{text: p.Text, media: p.media}
}
