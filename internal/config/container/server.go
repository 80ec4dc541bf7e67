package container

import (
	"fmt"
	"regexp"
	"strings"
)

const serverName = `^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`

// CleanServerName is the name of an MCP server as the model sees it in the names of its tools, mcp__<name>__<tool>: every
// character outside of [A-Za-z0-9_-] becomes an underscore. Whoever builds a pattern over such names uses this too
// (spec/bugs.md MCP-3).
func CleanServerName(name string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-' {
			return r
		}
		return '_'
	}, name)
}

// ServerNameError says why a name cannot be that of an MCP server.
type ServerNameError struct{ Name, Reason string }

func (e *ServerNameError) Error() string {
	return fmt.Sprintf("the server name %.80q %s", e.Name, e.Reason)
}

// CheckServerName accepts the name of a server that stands beside the servers others; the error is a *ServerNameError. A name
// that the model could not tell from another is refused, and that of the built-in tools in any case.
func CheckServerName(name string, others ...string) error {
	bad := func(format string, args ...any) error {
		return &ServerNameError{Name: name, Reason: fmt.Sprintf(format, args...)}
	}
	if !regexp.MustCompile(serverName).MatchString(name) {
		return bad("must be 1 to 64 letters, digits, dots, dashes or underscores and start with a letter or digit")
	}
	clean := CleanServerName(name)
	if lower := strings.ToLower(clean); lower == ReservedMCPServer || strings.HasPrefix(lower, ReservedMCPServer+"__") {
		return bad("is reserved for the built-in tools")
	}
	for _, other := range others {
		if clean == CleanServerName(other) {
			return bad("cannot be told from %q: both are %s to the model", other, clean)
		}
	}
	return nil
}
