package program

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"nanoclaw/internal/config/container"
	"nanoclaw/internal/obs"
)

// W30: a script reaches the world by the way out of its sandbox, and gets no token where that needs one.
func TestW30ScriptsHaveTheWayOut(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		token  string
		socket bool
		want   bool
	}{
		"sandbox":                {socket: true, want: true},
		"no way out":             {},
		"a machine with a token": {token: "abcdefghijklmnopqrstuvwxyz", socket: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if c.socket {
				if err := os.WriteFile(filepath.Join(dir, "egress.sock"), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			ctx, cancel := context.WithCancel(t.Context())
			s := &session{
				paths: paths{agent: dir, host: dir}, ctx: ctx, log: obs.Discard(),
				config: container.Config{Relay: container.Relay{Listen: "127.0.0.1:0", Token: c.token}, ScriptTimeoutSeconds: 20},
			}
			defer s.side.Wait()
			defer cancel()
			wake, data, err := s.script(ctx, "msg-1", `printf '{"wakeAgent":true,"data":["%s","%s"]}' "$HTTPS_PROXY" "$no_proxy"`)
			if err != nil || !wake {
				t.Fatal(wake, err)
			}
			var got []string
			if err := json.Unmarshal(data, &got); err != nil {
				t.Fatal(err)
			}
			want := []string{"", ""}
			if c.want {
				want = []string{s.relay.ProxyURL(), "127.0.0.1,localhost"}
			}
			if got[0] != want[0] || got[1] != want[1] {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}
