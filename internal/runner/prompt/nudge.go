package prompt

import (
	"slices"
	"strings"
)

// Reason why a block did not leave.
type Reason string

// Reasons.
const (
	Unknown  Reason = "unknown"   // nobody has that name
	Unclosed Reason = "unclosed"  // the closing tag is missing
	TooLarge Reason = "too-large" // longer than a message may be
	Hidden   Reason = "hidden"    // inside an <internal> span that was not closed
	Unsent   Reason = "unsent"    // any other reason: it was simply not delivered
)

// Block is a block that did not leave.
type Block struct {
	To     string
	Reason Reason
}

// Undelivered is what did not leave of an answer.
type Undelivered struct {
	Bare   bool // text without an address, and nothing else has left
	Blocks []Block
	Known  []string // names of the destinations, in any order
}

// Nudge asks the model to send again what did not leave, all in one text, since an exchange has one nudge. It is empty if
// there is nothing to ask for.
func Nudge(u Undelivered) string {
	var lines []string
	if u.Bare {
		lines = append(lines, "Your answer has reached nobody: it was not inside a block with an address.")
	}
	for _, say := range []struct {
		reason    Reason
		one, many string
	}{
		{Unknown, "Your block to %s was not sent: there is no destination of that name.", "Your blocks to %s were not sent: there are no destinations of those names."},
		{Unclosed, "Your block to %s was not sent: its closing tag </message> is missing.", "Your blocks to %s were not sent: their closing tags </message> are missing."},
		{Hidden, "Your block to %s was not sent: it stands in an <internal> part that was never closed.", "Your blocks to %s were not sent: they stand in an <internal> part that was never closed."},
		{TooLarge, "Your block to %s was not sent: it is too long. Split it, or send a file.", "Your blocks to %s were not sent: they are too long. Split them, or send files."},
		{Unsent, "Your block to %s was not sent.", "Your blocks to %s were not sent."},
	} {
		names := namesOf(u.Blocks, say.reason)
		switch len(names) {
		case 0:
		case 1:
			lines = append(lines, strings.Replace(say.one, "%s", list(names), 1))
		default:
			lines = append(lines, strings.Replace(say.many, "%s", list(names), 1))
		}
	}
	if len(lines) == 0 {
		return ""
	}
	lines = append(lines, "Put what is to be sent into <message to=\"name\">…</message> and send it again now, only what is missing, without explaining. Put anything else into <internal>…</internal>.")
	return "<system>\n" + strings.Join(append(lines, names(u.Known)), "\n") + "\n</system>"
}

// WrapNudge is the nudge for an answer without any address.
func WrapNudge(destinations []string) string {
	return Nudge(Undelivered{Bare: true, Known: destinations})
}

// UnknownNudge is the nudge for blocks to names that do not exist.
func UnknownNudge(unknown, known []string) string {
	return Nudge(Undelivered{Blocks: blocks(unknown, Unknown), Known: known})
}

// UnclosedNudge is the nudge for blocks without a closing tag.
func UnclosedNudge(unclosed, known []string) string {
	return Nudge(Undelivered{Blocks: blocks(unclosed, Unclosed), Known: known})
}

func blocks(names []string, r Reason) []Block {
	out := make([]Block, 0, len(names))
	for _, n := range names {
		out = append(out, Block{To: n, Reason: r})
	}
	return out
}

func namesOf(all []Block, r Reason) []string {
	var names []string
	for _, b := range all {
		if b.Reason == r {
			names = append(names, b.To)
		}
	}
	return names
}

// Limits of a list of names: the model wrote some of them.
const (
	maxNames = 50
	maxName  = 100
)

// list is names as one sorted line, each once.
func list(names []string) string {
	names = slices.Clone(names)
	slices.Sort(names)
	names = slices.Compact(names)
	more := ""
	if len(names) > maxNames {
		names, more = names[:maxNames], ", …"
	}
	quoted := make([]string, 0, len(names))
	for _, n := range names {
		quoted = append(quoted, attrText(shorten(n, maxName)))
	}
	return strings.Join(quoted, ", ") + more
}
