package program

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"nanoclaw/internal/testkit/modelserver"
)

// native makes a rig whose agents reach a scripted model through the host's socket, as they do in a sandbox.
func nativeRig(t testing.TB, provider string) (*rig, *modelserver.Server) {
	t.Helper()
	r := newRig(t)
	api := modelserver.New(modelserver.Options{})
	r.must(os.MkdirAll(filepath.Join(r.dir, "run"), 0o700))
	socket := filepath.Join(r.dir, "run", "egress.sock")
	dir, err := os.Open(filepath.Dir(socket)) // the path may be too long for a socket
	r.must(err)
	defer func() { _ = dir.Close() }()
	l, err := net.Listen("unix", fmt.Sprintf("/proc/self/fd/%d/egress.sock", dir.Fd()))
	r.must(err)
	web := &http.Server{Handler: api, ReadHeaderTimeout: time.Minute}
	done := make(chan struct{})
	go func() { defer close(done); _ = web.Serve(l) }()
	t.Cleanup(func() { _ = web.Close(); <-done })
	r.conf.Provider, r.conf.Relay.Listen, r.conf.Relay.Token = provider, "127.0.0.1:0", "token-for-the-tests-0123456789"
	r.conf.Credential.Kind, r.conf.Credential.Placeholder = "api_key", "nanoclaw-placeholder"
	if provider == "ollama" {
		r.conf.Model = "small"
	}
	r.configure()
	return r, api
}

func bash(command string) modelserver.Tool {
	b, err := json.Marshal(map[string]string{"command": command})
	if err != nil {
		panic(err)
	}
	return modelserver.Tool{Name: "Bash", Input: b}
}

// Each wire reaches its API through the relay, sees the runner's tools, and its words leave.
func TestNativeProviders(t *testing.T) {
	t.Parallel()
	for _, provider := range []string{"anthropic", "openai", "ollama"} {
		t.Run(provider, func(t *testing.T) {
			t.Parallel()
			r, api := nativeRig(t, provider)
			send := json.RawMessage(`{"to":"family","text":"from the tool"}`)
			script := modelserver.Script(
				modelserver.Step{Tools: []modelserver.Tool{bash("env; pwd")}},
				modelserver.Step{Tools: []modelserver.Tool{{Name: "mcp__nanoclaw__send_message", Input: send}}},
				modelserver.Step{Text: block("me", "done")},
			)
			r.put(message("m1", "go "+script))
			if p := r.spawn("", []string{"ANTHROPIC_API_KEY=sk-real", "OPENAI_API_KEY=sk-real"}, "--once"); p.code() != 0 {
				t.Fatal(p.stderr.String())
			}
			if got, want := r.said(), []string{"42:from the tool", "me:done"}; !slices.Equal(got, want) {
				t.Errorf("sent %q, want %q", got, want)
			}
			for _, q := range api.Requests() {
				if q.Contains("sk-real") || q.Contains("nanoclaw-placeholder") {
					t.Error("a key stands in the environment of commands")
				}
				key := q.Header.Get("X-Api-Key") + q.Header.Get("Authorization")
				if want := map[string]string{"anthropic": "nanoclaw-placeholder"}[provider]; want != "" && key != want || want == "" && key != "Bearer nanoclaw-placeholder" {
					t.Errorf("key %q", key)
				}
			}
		})
	}
}

// BenchmarkNativeCold is exec to the first words of a fresh conversation in the outbox, with a model that answers at once.
func BenchmarkNativeCold(b *testing.B) {
	binary := runnerBinary(b)
	for _, provider := range []string{"mock", "anthropic", "openai", "ollama"} {
		b.Run(provider, func(b *testing.B) {
			r, _ := nativeRig(b, provider)
			r.listen()
			var took, cpu []time.Duration
			for n := 1; b.Loop(); n++ {
				r.put(message(fmt.Sprintf("m%d", n), "go "+modelserver.Script(modelserver.Step{Text: block("me", "hello")})))
				_ = os.RemoveAll(filepath.Join(r.dir, "home"))
				start := time.Now()
				p := r.spawn(binary, nil)
				r.until("an answer", func() bool { return len(r.out()) == n })
				took = append(took, time.Since(start))
				_ = p.Process.Kill()
				_ = p.wait()
				cpu = append(cpu, p.ProcessState.UserTime()+p.ProcessState.SystemTime())
			}
			b.ReportMetric(float64(median(cpu).Microseconds())/1000, "cpu-ms")
			b.ReportMetric(float64(median(took).Microseconds())/1000, "p50-ms")
		})
	}
}

// BenchmarkNativeMemory is the memory of a runner after one turn and after 100 turns with a call of a command each, in one
// conversation, at once and when it has come to rest.
func BenchmarkNativeMemory(b *testing.B) {
	binary := runnerBinary(b)
	for _, provider := range []string{"anthropic", "openai", "ollama"} {
		b.Run(provider, func(b *testing.B) {
			for b.Loop() {
				r, _ := nativeRig(b, provider)
				r.listen()
				p := r.spawn(binary, nil)
				turn := func(n int) {
					script := modelserver.Script(modelserver.Step{Tools: []modelserver.Tool{bash("seq 200")}}, modelserver.Step{Text: block("me", fmt.Sprint(n))})
					r.put(message(fmt.Sprintf("m%d", n), "go "+script))
					r.until("an answer", func() bool { return len(r.out()) == n })
				}
				turn(1)
				b.ReportMetric(resident(b, p.Process.Pid, "VmRSS"), "first-rss-MB")
				start := time.Now()
				for n := 2; n <= 100; n++ {
					turn(n)
				}
				b.ReportMetric(float64(time.Since(start).Microseconds())/99_000, "turn-ms")
				b.ReportMetric(resident(b, p.Process.Pid, "VmRSS"), "rss-MB")
				b.ReportMetric(resident(b, p.Process.Pid, "RssAnon"), "anon-MB")
				b.ReportMetric(resident(b, p.Process.Pid, "VmHWM"), "peak-MB")
				time.Sleep(quiet + time.Second)
				b.ReportMetric(resident(b, p.Process.Pid, "VmRSS"), "rest-rss-MB")
			}
		})
	}
}
