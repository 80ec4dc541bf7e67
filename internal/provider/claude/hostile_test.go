package claude_test

import (
	"testing"
	"time"

	"nanoclaw/internal/provider"
	"nanoclaw/internal/provider/claude"
	"nanoclaw/internal/provider/providertest"
)

func TestHostileProgram(t *testing.T) {
	t.Parallel()
	providertest.Hostile(t, "11111111-2222-4333-8444-555555555555", func(t *testing.T, program string, env map[string]string) provider.Provider {
		p, err := claude.New(claude.Options{Program: program, Home: t.TempDir(), Env: env, InitWait: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		return p
	})
}
