package claude

import (
	"testing"

	"nanoclaw/internal/slash"
)

// The host lets a command through by the shared table, so whatever the CLI runs must be in it, and for admins only.
func TestCommandsAreInTheTable(t *testing.T) {
	t.Parallel()
	for _, word := range commands() {
		if c, ok := slash.Find(word); !ok || !c.Admin {
			t.Errorf("%s: %+v, %v", word, c, ok)
		}
	}
}
