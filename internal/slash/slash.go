// Package slash is the table of commands that a person may type into a chat. Host and runner read the same one, so that what
// the host lets through is what the runner obeys (spec/runner.md section 3.6, W6): the whole word, never a prefix.
package slash

import "strings"

// By says who runs a command.
type By string

// Runners of a command.
const (
	ByRunner   By = "runner"   // at once; a running turn goes on unless Aborts
	ByProvider By = "provider" // if the provider says that it can, else the text is an ordinary message
	ByNobody   By = "nobody"   // of a command line program, without meaning in a chat: the host drops it
)

// Command of the table.
type Command struct {
	Word   string // with the slash, lower case
	By     By
	Admin  bool // only an owner or admin may give it
	Aborts bool // the running turn is stopped first, and what it left unanswered is asked again
	Args   bool // may be followed by words
}

// Words of the commands that programs name.
const (
	Clear       = "/clear"
	Compact     = "/compact"
	Context     = "/context"
	Cost        = "/cost"
	Files       = "/files"
	Stop        = "/stop"
	UploadTrace = "/upload-trace"
)

// Commands is the whole table.
func Commands() []Command {
	return []Command{
		{Word: Stop, By: ByRunner},
		{Word: Clear, By: ByRunner, Admin: true, Aborts: true},
		{Word: Cost, By: ByRunner, Admin: true},
		{Word: Files, By: ByRunner, Admin: true},
		{Word: UploadTrace, By: ByRunner, Admin: true},
		{Word: Compact, By: ByProvider, Admin: true, Aborts: true, Args: true},
		{Word: Context, By: ByProvider, Admin: true, Aborts: true},
		{Word: "/usage", By: ByProvider, Admin: true, Aborts: true},
		{Word: "/config", By: ByNobody}, {Word: "/doctor", By: ByNobody}, {Word: "/help", By: ByNobody}, {Word: "/login", By: ByNobody},
		{Word: "/logout", By: ByNobody}, {Word: "/remote-control", By: ByNobody}, {Word: "/start", By: ByNobody},
	}
}

// Find returns the command that text is, if it is one of the table or of extra, which are further words of the provider. A
// text is a command if its first word is exactly that of the command, in any case, and nothing follows unless the command
// takes arguments. A path or any other word with a slash is a text.
func Find(text string, extra ...string) (Command, bool) {
	word, rest, _ := strings.Cut(strings.TrimSpace(text), " ")
	if at := strings.IndexAny(word, "\t\n\r"); at >= 0 {
		word, rest = word[:at], word[at:]+rest
	}
	if !strings.HasPrefix(word, "/") {
		return Command{}, false
	}
	word = strings.ToLower(word)
	all := Commands()
	for _, w := range extra {
		all = append(all, Command{Word: w, By: ByProvider, Admin: true, Aborts: true, Args: true})
	}
	for _, c := range all {
		if c.Word == word {
			return c, c.Args || strings.TrimSpace(rest) == ""
		}
	}
	return Command{}, false
}
