package opencode_test

import (
	"testing"
	"time"

	"nanoclaw/internal/provider"
	"nanoclaw/internal/provider/opencode"
	"nanoclaw/internal/provider/providertest"
)

func TestHostileProgram(t *testing.T) {
	t.Parallel()
	providertest.Hostile(t, "ses_0123456789abcdefABCDEF0123", func(t *testing.T, program string, env map[string]string) provider.Provider {
		p, err := opencode.New(opencode.Options{Program: program, BaseURL: "http://127.0.0.1:9", Home: t.TempDir(), Env: env, InitWait: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		return p
	})
}
