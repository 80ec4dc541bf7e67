package program

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
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

// A first provider whose program is not here: the next one answers and the chat is told in one line. Without another the program ends
// with a code of its own, so that the host keeps the message.
func TestProgramOfTheFirstProviderIsMissing(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"claude", "codex", "opencode", "acp"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, line(say(block("me", "by mock")), `{"type":"result"}`))
			r.conf.Provider, r.conf.Programs = name, map[string]string{name: "no-such-program-of-" + name}
			r.configure()
			r.put(message("m1", "a"))
			p := r.spawn("", nil, "--once")
			if code := p.code(); code != container.ExitNoProgram || !strings.Contains(p.stderr.String(), "program is missing") {
				t.Fatalf("exit %d: %s", code, p.stderr)
			}
			if a := r.ack("m1"); a.Status.Final() {
				t.Fatalf("the message is %s", a.Status)
			}
			r.conf.Incarnation, r.conf.Fallbacks = 2, []container.Choice{{Provider: "mock"}}
			r.configure()
			p = r.spawn("", nil, "--once")
			if code := p.code(); code != ExitOK {
				t.Fatalf("exit %d: %s", code, p.stderr)
			}
			if got := strings.Join(r.said(), "|"); got != "me:("+name+" is not installed here; mock answers instead.)|me:by mock" {
				t.Errorf("said %q\n%s", got, p.stderr)
			}
		})
	}
}
