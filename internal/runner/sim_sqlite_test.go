package runner_test

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/provider"
	"nanoclaw/internal/runner/tool"
)

// simulation plays a provider that does everything the contract allows, in random order, over a real mailbox. Its model answers
// row m1 with the block "re m1" and rows whose id begins with b without an address.
type simulation struct {
	*rig
	random *rand.Rand
	full   bool // receipts also open turns

	q       *scripted
	waiting []asking // pushed and not taken
	turn    []asking // of the running turn; nil: none
	nudging bool     // the running turn has got a nudge
	stops   int
	spont   int
}

var rowID = regexp.MustCompile(`\[([a-z]+\d+)\]`)

func ids(turn []asking) []string {
	var out []string
	for _, a := range turn {
		for _, m := range rowID.FindAllStringSubmatch(a.Text, -1) {
			out = append(out, m[1])
		}
	}
	return out
}

func isNudge(a asking) bool { return strings.HasPrefix(a.Text, "NUDGE") }

// collect takes over what the loop has asked meanwhile. It returns the number of nudges among it.
func (s *simulation) collect() (nudges int) {
	s.sync()
	for {
		select {
		case a := <-s.prov.asked:
			if isNudge(a) {
				nudges++
			}
			if a.first {
				s.q, s.waiting, s.turn, s.nudging = a.query, nil, nil, false
				s.begin(a)
				continue
			}
			if a.query == s.q {
				s.waiting = append(s.waiting, a)
			}
		default:
			return nudges
		}
	}
}

// emit reports whether the query still lives.
func (s *simulation) emit(all ...provider.Event) bool {
	for _, ev := range all {
		select {
		case s.q.feed <- ev:
		case <-s.q.dead:
			s.q, s.waiting, s.turn = nil, nil, nil
			return false
		}
		select {
		case <-s.q.feed:
		case <-s.q.dead:
			s.q, s.waiting, s.turn = nil, nil, nil
			return false
		}
	}
	return true
}

func (s *simulation) begin(a asking) {
	s.turn, s.nudging = []asking{a}, isNudge(a)
	if s.full {
		s.emit(taken(a))
	}
}

func (s *simulation) takeWaiting() {
	a := s.waiting[0]
	s.waiting = s.waiting[1:]
	s.turn = append(s.turn, a)
	s.nudging = s.nudging || isNudge(a)
	s.emit(taken(a))
}

// say streams text, cut anywhere.
func (s *simulation) say(words string) bool {
	for len(words) > 0 {
		n := 1 + s.random.IntN(len(words))
		if !s.emit(text(words[:n])) {
			return false
		}
		words = words[n:]
		if s.random.IntN(6) == 0 && !s.emit(toolStart, toolEnd) {
			return false
		}
	}
	return true
}

// speak says what the model has to say to the turn's rows.
func (s *simulation) speak() bool {
	for _, id := range ids(s.turn) {
		sentAlready := slices.ContainsFunc(s.turn, func(a asking) bool { return strings.Contains(a.Text, "{sent re "+id+"}") })
		words := block("me", "re "+id)
		switch {
		case strings.HasPrefix(id, "b"):
			words = " bare " + id + " "
		case sentAlready && s.random.IntN(2) == 0:
			continue // it reads its prompt; the other half tests the guard
		case s.random.IntN(4) == 0:
			if _, err := s.run.Send(s.t.Context(), tool.Message{To: "me", Text: "re " + id}); err != nil {
				return false
			}
			continue
		}
		if !s.say(words) {
			return false
		}
	}
	if s.nudging && s.random.IntN(2) == 0 {
		return s.say("still bare")
	}
	return true
}

func (s *simulation) finish(ev provider.Event) {
	nudging := s.nudging
	if !s.emit(ev) {
		return
	}
	s.turn, s.nudging = nil, false
	if n := s.collect(); n > 1 || n == 1 && nudging {
		s.t.Fatalf("%d nudges after a turn that was nudged: %v", n, nudging)
	}
}

// step does one thing that a provider may do.
func (s *simulation) step(faults bool) {
	s.collect()
	switch {
	case s.q == nil:
	case s.turn == nil && len(s.waiting) > 0 && (!s.full || s.random.IntN(4) > 0):
		a := s.waiting[0]
		s.waiting = s.waiting[1:]
		s.begin(a)
	case s.turn == nil:
		if s.full && faults && s.random.IntN(5) == 0 {
			s.spont++
			if s.say(block("me", fmt.Sprintf("unasked %d", s.spont))) {
				s.finish(result(""))
			}
		}
	case len(s.waiting) > 0 && s.random.IntN(3) == 0:
		s.takeWaiting()
	case faults && s.random.IntN(8) == 0:
		switch s.random.IntN(4) {
		case 0:
			s.q.die(nil)
			s.q, s.waiting, s.turn = nil, nil, nil
		case 1:
			s.q.die(&provider.QueryError{Op: "talk", Class: provider.ClassNetwork, Retryable: true})
			s.q, s.waiting, s.turn = nil, nil, nil
		case 2:
			if s.speak() {
				s.finish(failed(provider.ClassOverloaded, true))
			}
		case 3:
			s.finish(failed(provider.ClassAuth, false))
		}
	case s.random.IntN(3) == 0:
		s.emit(initial("c"), provider.Event{Kind: provider.Activity}, toolStart, toolEnd)
	default:
		if s.speak() {
			select {
			case <-s.q.interrupts:
				s.finish(interrupted)
			default:
				s.finish(result(""))
			}
		}
	}
}

func TestSimulationOverSQLite(t *testing.T) {
	t.Parallel()
	seeds := 100
	if testing.Short() {
		seeds = 20
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			simulate(t, uint64(seed))
		})
	}
}

func simulate(t *testing.T, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 7))
	s := &simulation{random: random, full: random.IntN(2) == 0}
	caps := all
	if random.IntN(4) == 0 {
		caps, s.full = plain, false
	}
	s.rig = newRig(t, caps)
	s.start()
	var rows []string
	for range 40 {
		if len(rows) < 12 && random.IntN(3) == 0 {
			id := fmt.Sprintf("m%d", len(rows))
			if random.IntN(5) == 0 {
				id = fmt.Sprintf("b%d", len(rows))
			}
			rows = append(rows, id)
			s.put(chat(id, me, "x"))
		}
		if random.IntN(40) == 0 {
			s.stops++
			s.put(chat(fmt.Sprintf("s%d", s.stops), me, "/stop"))
		}
		if random.IntN(25) == 0 {
			s.must(s.end())
			s.q, s.waiting, s.turn = nil, nil, nil
			for len(s.prov.asked) > 0 {
				<-s.prov.asked
			}
			s.start()
		}
		s.step(true)
	}
	open := func() (left []string) {
		for _, id := range rows {
			if !s.ack(id).Status.Final() {
				left = append(left, id)
			}
		}
		return left
	}
	for n := 0; len(open()) > 0; n++ {
		if n > 5000 {
			t.Fatalf("seed %d: %v never end (full %v, turn %v, waiting %d)", seed, open(), s.full, ids(s.turn), len(s.waiting))
		}
		s.step(false)
	}
	s.check(seed, rows)
}

// check: nothing lost, nothing doubled, every row final.
func (s *simulation) check(seed uint64, rows []string) {
	s.t.Helper()
	count := map[string]int{}
	for _, row := range s.out() {
		if !strings.Contains(string(row.Content), `"notice":true`) && !row.Fallback {
			count[textOf(row)]++
		}
	}
	for words, n := range count {
		if n > 1 {
			s.t.Errorf("seed %d (full %v, %v, %d stops): %q was sent %d times", seed, s.full, s.prov.caps.Receipts, s.stops, words, n)
			for _, row := range s.out() {
				if textOf(row) == words {
					s.t.Logf("%s by incarnation %d, exchange %s, segment %d", row.ID, row.Incarnation, row.Exchange, row.Segment)
				}
			}
		}
	}
	for _, id := range rows {
		a := s.ack(id)
		if strings.HasPrefix(id, "m") && a.Status == mailbox.AckCompleted && count["re "+id] != 1 && s.stops == 0 {
			s.t.Errorf("seed %d: %s is completed without its answer", seed, id)
		}
		if a.Status == mailbox.AckFailed && a.Reason == "" {
			s.t.Errorf("seed %d: %s failed without a reason", seed, id)
		}
	}
}
