package sqlite_test

import (
	"testing"

	"nanoclaw/internal/mailbox/mailboxtest"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	mailboxtest.Run(t, true)
}

func TestConformanceWithTheBellCut(t *testing.T) {
	t.Parallel()
	mailboxtest.Run(t, false)
}
