package prompt

import (
	"fmt"
	"slices"
	"strings"
)

// node is an element of a prompt, read back.
type node struct {
	name  string
	attrs map[string]string
	text  string // its own, entities resolved; that of its children is theirs
	nodes []node
}

// readPrompt reads a prompt strictly: the header, then elements with nothing between them but one or two line ends. Inside them no
// bracket stands for itself, and of elements only the known children occur, where they may.
func readPrompt(s string) ([]node, error) {
	rest, ok := strings.CutPrefix(s, "<context timezone=\"")
	zone, rest, closed := strings.Cut(rest, "\" />\n")
	if !ok || !closed || strings.ContainsAny(zone, "<>\"\n") {
		return nil, fmt.Errorf("no header")
	}
	var out []node
	for rest != "" {
		if len(out) > 0 {
			trimmed := strings.TrimLeft(rest, "\n")
			if n := len(rest) - len(trimmed); n < 1 || n > 2 {
				return nil, fmt.Errorf("%d line ends between elements", n)
			}
			rest = trimmed
		}
		n, after, err := readElement(rest)
		if err != nil {
			return nil, err
		}
		out, rest = append(out, n), after
	}
	return out, nil
}

var childrenOf = map[string][]string{
	"message": {"quoted_message"}, "quoted_message": nil, "task": nil, "webhook": nil, "system_response": nil, "cross-session-context": nil, "dm-history": nil,
	"channel-history": nil, "already_sent": {"sent"}, "sent": nil, "system": {"undelivered_message"}, "undelivered_message": nil,
}

func readElement(s string) (n node, rest string, err error) {
	head, rest, ok := strings.Cut(s, ">")
	head, open := strings.CutPrefix(head, "<")
	if !ok || !open {
		return n, "", fmt.Errorf("no element at %.40q", s)
	}
	n.name, head, _ = strings.Cut(head, " ")
	n.attrs = map[string]string{}
	for head != "" {
		name, after, ok := strings.Cut(head, "=\"")
		value, after, closed := strings.Cut(after, "\"")
		if !ok || !closed || name == "" || strings.ContainsAny(name, " <\"\n&") {
			return n, "", fmt.Errorf("no attribute at %.40q", head)
		}
		if _, twice := n.attrs[name]; twice || strings.ContainsAny(value, "<\n\t") {
			return n, "", fmt.Errorf("attribute %s: %q", name, value)
		}
		if n.attrs[name], err = resolve(value); err != nil {
			return n, "", err
		}
		if head = after; head != "" {
			if head, ok = strings.CutPrefix(head, " "); !ok || head == "" {
				return n, "", fmt.Errorf("behind an attribute: %.40q", after)
			}
		}
	}
	may, known := childrenOf[n.name]
	if !known {
		return n, "", fmt.Errorf("unknown element %q", n.name)
	}
	for {
		at := strings.IndexAny(rest, "<>")
		if at < 0 || rest[at] == '>' {
			return n, "", fmt.Errorf("%s is not closed, or has a bare bracket: %.40q", n.name, rest)
		}
		text, err := resolve(rest[:at])
		if err != nil {
			return n, "", err
		}
		n.text += text
		rest = rest[at:]
		if after, ok := strings.CutPrefix(rest, "</"+n.name+">"); ok {
			return n, after, nil
		}
		child, after, err := readElement(rest)
		if err != nil {
			return n, "", err
		}
		if !slices.Contains(may, child.name) {
			return n, "", fmt.Errorf("%s in %s", child.name, n.name)
		}
		n.nodes, rest = append(n.nodes, child), after
	}
}

// resolve takes entities back; an ampersand that starts none of the four is an error.
func resolve(s string) (string, error) {
	var b strings.Builder
	for {
		text, rest, ok := strings.Cut(s, "&")
		b.WriteString(text)
		if !ok {
			return b.String(), nil
		}
		found := false
		for entity, char := range map[string]string{"amp;": "&", "lt;": "<", "gt;": ">", "quot;": "\""} {
			if after, ok := strings.CutPrefix(rest, entity); ok {
				b.WriteString(char)
				s, found = after, true
			}
		}
		if !found {
			return "", fmt.Errorf("a bare ampersand before %.20q", rest)
		}
	}
}
