package acp_test

import (
	"testing"

	"go.uber.org/goleak"

	"nanoclaw/internal/testkit/loopback"
)

func TestMain(m *testing.M) {
	loopback.Main()
	goleak.VerifyTestMain(m)
}
