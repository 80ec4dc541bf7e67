package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"nanoclaw/internal/control"
	"nanoclaw/internal/store"
)

// hostPoints and runnerPoints are the named crash points on a message's way (docs/testing.md).
var (
	hostPoints = []string{"host.inbound", "host.put", "host.accepted", "host.start", "host.started", "host.collected", "host.takeover.before",
		"host.takeover", "host.sending.before", "host.sending", "host.delivered", "host.sent"}
	runnerPoints = []string{"runner.fetched", "runner.claimed", "runner.prompted", "runner.block", "runner.finish", "runner.finished"}
)

const crashSettings = "[sandbox]\nkind = \"process\"\n[sweep]\nperiod = \"2s\"\n"

// P1–P5 at every named point: the process dies there once, by SIGKILL; the message is answered all the same, once, in order.
func TestCrashMatrix(t *testing.T) {
	t.Parallel()
	limit := make(chan struct{}, 3)
	for _, point := range slices.Concat(hostPoints, runnerPoints) {
		for hit := 1; hit <= 2; hit++ {
			t.Run(point+"/"+strconv.Itoa(hit), func(t *testing.T) {
				t.Parallel()
				limit <- struct{}{}
				defer func() { <-limit }()
				m := setup(t, crashSettings)
				line := `{"match":"alpha","events":[{"type":"text","text":"<message to=\"terminal\">one</message>"},{"type":"tool","name":"send_message","args":{"to":"terminal","text":"two"}},` +
					`{"type":"text","text":"<message to=\"terminal\">three</message>"},{"type":"result","text":"x"}]}`
				m.script(line, line, line)
				flag := filepath.Join(m.home, "groups", "main", "crashed")
				m.env = []string{"NANOCLAW_CRASHPOINT=" + point + "=" + strconv.Itoa(hit), "NANOCLAW_CRASHPOINT_ONCE=" + flag}
				stop := sync.OnceFunc(m.keepAlive())
				defer stop()
				acc := m.say("m1", "alpha")
				m.say("m2", "beta")
				a, err := m.await("m1", acc.Seq, patience)
				if err != nil {
					t.Fatalf("the message never ended: %v; so far %+v", err, a)
				}
				b, err := m.await("m2", acc.Seq, patience)
				stop()
				if err != nil {
					t.Fatalf("the second message never ended: %v; so far %+v", err, b)
				}
				if _, err := os.Stat(flag); err != nil {
					t.Skipf("the point was not hit %d times", hit)
				}
				if a.state != control.StateAnswered || b.state != control.StateAnswered {
					t.Errorf("states %s, %s (%s %s)", a.state, b.state, a.reason, b.reason)
				}
				m.invariants(b.texts)
				echo := 0 // none if both messages were one prompt
				for _, text := range b.texts {
					if strings.Contains(text, "beta") {
						echo++
					}
				}
				if got := strings.Join(b.texts, "|"); echo > 1 || len(b.texts) != 3+echo || !strings.HasPrefix(got, "one|two|three") {
					t.Errorf("the person saw %q", b.texts)
				}
			})
		}
	}
}

// keepAlive runs the host again whenever it dies, until the returned function is called.
func (m *machine) keepAlive() (stop func()) {
	m.t.Helper()
	quit, done := make(chan struct{}), make(chan struct{})
	m.launch()
	go func() {
		defer close(done)
		for {
			select {
			case <-quit:
				return
			case err := <-m.ended:
				select {
				case <-quit:
					m.ended <- err
					return
				default:
				}
				m.launch()
			}
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := control.Repeat(ctx, func(ctx context.Context) error {
		_, err := m.client.Bootstrap(ctx, control.BootstrapRequest{})
		return err
	}); err != nil {
		m.t.Fatalf("start host: %v\n%s", err, m.log.tail(4000))
	}
	return func() {
		close(quit)
		<-done
	}
}

// invariants reads the central database of a home whose work is done: nothing open, nothing twice, everything named.
func (m *machine) invariants(seen []string) {
	m.t.Helper()
	m.stop()
	st, err := store.Open(context.Background(), m.home)
	if err != nil {
		m.t.Fatal(err)
	}
	defer func() { _ = st.Close() }()
	ctx := context.Background()
	if err := st.Check(ctx); err != nil {
		m.t.Error(err)
	}
	open, err := st.OpenLedger(ctx)
	if err != nil || len(open) != 0 {
		m.t.Errorf("%d deliveries are open: %v %+v", len(open), err, open)
	}
	if left, err := st.Unsettled(ctx, 10); err != nil || len(left) != 0 {
		m.t.Errorf("messages nobody was told about: %v %v", left, err)
	}
	counts, err := st.Counts(ctx)
	if err != nil || counts.PendingMessages != 0 || counts.DeadLedger != 0 {
		m.t.Errorf("counts %+v, %v", counts, err)
	}
	texts := map[string]int{}
	for _, s := range seen {
		if texts[s]++; texts[s] > 1 {
			m.t.Errorf("%q was shown %d times", s, texts[s])
		}
	}
}

// At least two hundred kills at random moments, of host and of agents, while messages come in: all are answered, each once,
// in the order in which they were sent.
func TestRandomKills(t *testing.T) {
	t.Parallel()
	kills := 200
	if testing.Short() {
		kills = 20
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	m := setup(t, crashSettings+"[session]\nmax_tries = 100\n")
	stop := sync.OnceFunc(m.keepAlive())
	defer stop()
	quit := make(chan struct{})
	sent := make(chan int, 1)
	go func() {
		n := 0
		defer func() { sent <- n }()
		for {
			select {
			case <-quit:
				return
			default:
			}
			n++
			m.sayQuietly(fmt.Sprintf("m%d", n), fmt.Sprintf("number %d.", n))
			time.Sleep(20 * time.Millisecond)
		}
	}()
	done := 0
	for done < kills {
		time.Sleep(time.Duration(random.IntN(250)) * time.Millisecond)
		victims := processes(m.home)
		if len(victims) == 0 {
			continue
		}
		if syscall.Kill(victims[random.IntN(len(victims))], syscall.SIGKILL) == nil {
			done++
		}
	}
	close(quit)
	n := <-sent
	ends, numbers := m.settled(n)
	stop()
	t.Logf("%d kills, %d messages", done, n)
	for i := 1; i <= n; i++ {
		if got := ends[fmt.Sprintf("m%d", i)]; len(got) != 1 || got[0] != control.StateAnswered {
			t.Errorf("message %d ended as %q", i, got)
		}
	}
	// A prompt may carry several messages; the echo answers its newest, so numbers may be missing. None comes twice, and none
	// is overtaken but by way of the pause before a third try, which does not hold back the others.
	paused := m.pausedNumbers()
	last, seen := 0, map[int]bool{}
	for _, k := range numbers {
		if seen[k] {
			t.Errorf("message %d was answered twice", k)
		}
		seen[k] = true
		if k < last && !paused[k] {
			t.Errorf("answer %d came after answer %d", k, last)
		}
		last = max(last, k)
	}
	if !seen[n] {
		t.Errorf("there is no answer to message %d", n)
	}
	m.invariants(nil)
}

// settled reads a whole conversation: how each message ended, and the numbers in the answers in their order.
func (m *machine) settled(n int) (ends map[string][]string, numbers []int) {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	ends = map[string][]string{}
	err := m.client.Follow(ctx, control.DefaultConversation, 0, func(e control.Event) error {
		switch {
		case e.Kind == control.EventSettled:
			if ends[e.Target] = append(ends[e.Target], e.State); len(ends) == n {
				return errDone
			}
		case e.Kind == control.EventMessage && e.Author == control.AuthorAgent && !e.Notice:
			var k int
			if _, err := fmt.Sscanf(e.Text[max(0, strings.LastIndex(e.Text, "number ")):], "number %d.", &k); err == nil {
				numbers = append(numbers, k)
			}
		}
		return nil
	})
	if err != nil && !errors.Is(err, errDone) {
		m.t.Errorf("%d of %d messages have ended: %v", len(ends), n, err)
	}
	return ends, numbers
}

// pausedNumbers are the messages that two agents in a row did not finish: they wait before the next try.
func (m *machine) pausedNumbers() map[int]bool {
	m.t.Helper()
	m.stop()
	st, err := store.Open(context.Background(), m.home)
	if err != nil {
		m.t.Fatal(err)
	}
	defer func() { _ = st.Close() }()
	out := map[int]bool{}
	for _, found := range regexp.MustCompile(`was not finished by the agent that took it".* message=(msg-\w+) count=(\d+)`).FindAllStringSubmatch(m.log.String(), -1) {
		var k int
		if found[2] == "1" {
			continue
		}
		msg, err := st.MessageByRow(context.Background(), found[1])
		if err != nil {
			continue
		}
		if _, err := fmt.Sscanf(msg.PlatformMessageID, "m%d", &k); err == nil {
			out[k] = true
		}
	}
	return out
}

func (m *machine) sayQuietly(idv, text string) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	err := control.Repeat(ctx, func(ctx context.Context) error {
		_, err := m.client.Say(ctx, control.DefaultConversation, control.Say{ID: idv, Text: text})
		return err
	})
	if err != nil && !errors.Is(err, context.Canceled) {
		m.t.Errorf("say %s: %v", idv, err)
	}
}

// processes of a home: its host and its agents, found by what they were started with.
func processes(home string) (pids []int) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		line, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if err != nil || len(line) == 0 {
			continue
		}
		env, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		program := filepath.Base(strings.Split(string(line), "\x00")[0])
		if (program == "nanoclaw" && strings.Contains(string(env), "NANOCLAW_HOME="+home+"\x00")) ||
			(program == "agent-runner" && strings.Contains(string(line), home)) {
			pids = append(pids, pid)
		}
	}
	return pids
}
