package program

import (
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"nanoclaw/internal/mailbox"
)

// crashable builds agent-runner with its crash points.
func crashable(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "agent-runner")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-race", "-tags", "crashpoint", "-o", path, "nanoclaw/cmd/agent-runner").CombinedOutput()
	if err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return path
}

// P3: SIGKILL at each named point, at its first and second hit. Whatever was lost in the process, the next incarnation answers
// everything, says nothing twice and keeps the order.
func TestKillPoints(t *testing.T) {
	t.Parallel()
	program := crashable(t)
	script := []string{
		line(say(block("me", "one")), send("family", "two"), say(block("me", "three")), say("bare end"), `{"type":"result"}`),
		line(say("bare"), `{"type":"result"}`),
		line(say(block("me", "four")), `{"type":"result"}`),
	}
	points := []string{
		"runner.fetched", "runner.claimed", "runner.prompted", "runner.block", "runner.finish", "runner.finished",
		"outbound.commit", "outbound.committed",
	}
	for _, point := range points {
		for hit := 1; hit <= 2; hit++ {
			t.Run(fmt.Sprintf("%s=%d", point, hit), func(t *testing.T) {
				t.Parallel()
				r := newRig(t, script...)
				r.conf.MaxMessagesPerPrompt = 1
				r.configure()
				r.put(message("m1", "a"), message("m2", "b"))
				p := r.spawn(program, []string{fmt.Sprintf("NANOCLAW_CRASHPOINT=%s=%d", point, hit)}, "--once")
				if code := p.code(); code != -1 {
					t.Fatalf("the point was not hit (exit %d): %s", code, p.stderr)
				}
				r.conf.Incarnation++
				r.configure()
				p = r.spawn(program, nil, "--once")
				if code := p.code(); code != ExitOK {
					t.Fatalf("exit %d: %s", code, p.stderr)
				}
				// Killed after the nudge, the exchange has had it: the bare answer goes to the person who waits.
				got := r.said()
				if len(got) != 4 || !slices.Equal(got[:3], []string{"me:one", "42:two", "me:three"}) || got[3] != "me:four" && got[3] != "me:bare" {
					t.Fatalf("said %q\n%s", got, p.stderr)
				}
				for _, id := range []string{"m1", "m2"} {
					if a := r.ack(id); a.Status != mailbox.AckCompleted {
						t.Errorf("%s is %q", id, a.Status)
					}
				}
			})
		}
	}
}

// Kills at random moments, over a backlog: every message is answered exactly once, in order.
func TestRandomKills(t *testing.T) {
	t.Parallel()
	const messages, rounds, most = 15, 3, 60
	for round := range rounds {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			t.Parallel()
			seed := rand.Uint64()
			random := rand.New(rand.NewPCG(seed, 1))
			t.Logf("seed %d", seed)
			r := newRig(t)
			r.conf.MaxMessagesPerPrompt = 1
			var want []string
			for i := range messages {
				id := fmt.Sprintf("m%02d", i)
				r.put(message(id, "text "+id))
				want = append(want, "me:text "+id)
			}
			kills := 0
			for {
				r.configure()
				p := r.spawn("", nil, "--once")
				wait := time.Duration(random.IntN(300_000)) * time.Microsecond
				if kills >= most {
					wait = patience
				}
				timer := time.AfterFunc(wait, func() { _ = p.Process.Kill() })
				code := p.code()
				timer.Stop()
				r.conf.Incarnation++
				if code == ExitOK {
					break
				}
				if code != -1 {
					t.Fatalf("exit %d: %s", code, p.stderr)
				}
				kills++
			}
			t.Logf("%d kills", kills)
			if got := r.said(); !slices.Equal(got, want) {
				t.Fatalf("said %q", got)
			}
			for i := range messages {
				if a := r.ack(fmt.Sprintf("m%02d", i)); a.Status != mailbox.AckCompleted {
					t.Errorf("m%02d is %q", i, a.Status)
				}
			}
		})
	}
}
