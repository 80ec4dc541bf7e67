package codex_test

import (
	"testing"
	"time"

	"nanoclaw/internal/provider"
	"nanoclaw/internal/provider/codex"
	"nanoclaw/internal/provider/providertest"
)

func TestHostileProgram(t *testing.T) {
	t.Parallel()
	providertest.Hostile(t, "11111111-2222-4333-8444-555555555555", func(t *testing.T, program string, env map[string]string) provider.Provider {
		p, err := codex.New(codex.Options{Program: program, BaseURL: "http://127.0.0.1:9", Home: t.TempDir(), Env: env, InitWait: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		return p
	})
}
