package runner_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/runner"
	"nanoclaw/internal/runner/prompt"
)

// simWorld is everything around one runner: a host, people, a provider and its model, and accidents. One goroutine plays it.
// In a strict world it waits after each move until nothing moves any more, so that the seed decides everything; in the other
// worlds several things are under way at once.
type simWorld struct {
	t        testing.TB
	seed     uint64
	random   *rand.Rand // of the goroutine that plays
	dice     *rand.Rand // of what happens in the loop's goroutines, below the lock
	box      *simBox
	profile  simProfile
	bell     *fakeBell
	cut      bool // the bell is not connected
	strict   bool
	accident int // one in so many operations of the mailbox goes wrong; 0: none
	trace    *simTrace
	begun    time.Time

	taskSession bool
	calm        bool // no accidents any more
	moved       bool // destinations have changed in the middle

	h      *simHandle
	run    *runner.Runner
	cancel context.CancelFunc
	done   chan error
	q      *simQuery
	dying  []func() // waits for incarnations that are gone and may still move

	count     int
	mistakes  atomic.Int64 // failures that the provider has had
	turns     []*simTurn
	words     map[string]*simWord
	plans     map[string][]simElement
	later     []simElement
	nudges    map[string]int
	marked    map[string]bool // exchanges that are noted as nudged
	unasked   map[string]bool // exchanges that nobody asked for
	decided   map[int64]bool  // turns whose result was dealt with
	fallbacks map[string]int
	logs      map[string]int
	silent    map[string]bool            // rows that may end without an answer: somebody has typed /stop
	stops     map[string]bool            // rows that are a /stop
	commands  map[string]bool            // rows that the runner answers itself
	held      map[string]map[string]bool // row: all exchanges that had it
	chosen    map[string][]string        // question: answers of people
	failed    atomic.Bool
}

// simTrace is what has happened in a world, one line each.
type simTrace struct {
	sync.Mutex
	lines []string
}

func newSimWorld(t testing.TB, seed uint64, trace *simTrace) *simWorld {
	w := &simWorld{
		t: t, seed: seed, trace: trace, begun: time.Now(), random: rand.New(rand.NewPCG(seed, 1)), dice: rand.New(rand.NewPCG(seed, 2)), box: newSimBox(), bell: newBell(),
		words: map[string]*simWord{}, plans: map[string][]simElement{}, nudges: map[string]int{}, marked: map[string]bool{}, unasked: map[string]bool{}, decided: map[int64]bool{}, fallbacks: map[string]int{}, logs: map[string]int{},
		silent: map[string]bool{}, stops: map[string]bool{}, commands: map[string]bool{}, held: map[string]map[string]bool{}, chosen: map[string][]string{},
	}
	all := simProfiles()
	w.profile = all[w.random.IntN(len(all))]
	w.strict = w.random.IntN(3) > 0
	w.cut = w.random.IntN(5) == 0
	w.taskSession = w.random.IntN(8) == 0
	if w.random.IntN(3) > 0 {
		w.accident = 15 + w.random.IntN(80)
	}
	w.box.routing = me
	if w.taskSession {
		w.box.routing = mailbox.Address{ThreadID: mailbox.TaskThread + "series"}
	}
	w.box.dests = [][]mailbox.Destination{{
		{Name: "family", Type: mailbox.DestinationChannel, ChannelType: "telegram", PlatformID: "42"},
		{Name: "helper", Type: mailbox.DestinationAgent, AgentGroupID: "ag-2"},
		{Name: "me", Type: mailbox.DestinationChannel, ChannelType: "cli", PlatformID: "me"},
	}}
	w.box.fault, w.box.wrote, w.box.claim, w.box.ended = w.onOperation, w.onWrite, w.onClaim, w.onFinish
	return w
}

// log is the readable trace of a replay.
func (w *simWorld) log(format string, args ...any) {
	if w.trace == nil {
		return
	}
	w.trace.Lock()
	defer w.trace.Unlock()
	w.trace.lines = append(w.trace.lines, fmt.Sprintf("%9s "+format, append([]any{time.Since(w.begun).Round(time.Millisecond)}, args...)...))
}

func (w *simWorld) fail(format string, args ...any) {
	w.failed.Store(true)
	w.log("FAILED "+format, args...)
	w.t.Errorf("seed %d (%s, strict %v, task session %v, accidents %d): "+format, append([]any{w.seed, w.profile.name, w.strict, w.taskSession, w.accident}, args...)...)
}

func (w *simWorld) onOperation(h *simHandle, op string) simFault {
	if w.calm || w.accident == 0 || w.dice.IntN(w.accident) > 0 {
		return faultNone
	}
	fault := faultCrashBefore
	switch n := w.dice.IntN(10); {
	case n < 4 && op == "fetch":
		fault = faultBusy
	case n < 6 && op == "fetch":
		fault = faultCorrupt
	case n == 0:
		fault = faultBusy
	case n < 6:
		fault = faultCrashAfter
	}
	w.log("ACCIDENT %d at %s of incarnation %d", fault, op, h.mine)
	return fault
}

// simBell is the bell, or none.
type simBell struct {
	*fakeBell
	cut bool
}

func (b simBell) Connected() bool { return !b.cut }

func (w *simWorld) ring() {
	select {
	case w.bell.rung <- struct{}{}:
	default:
	}
}

// simWords shows rows in a way that the simulation can read, and tries the real ones on them too.
type simWords struct {
	fakeWords
	w *simWorld
}

func (s simWords) Prompt(ctx context.Context, rows []mailbox.InRow, sent []mailbox.OutRow) (runner.Prompt, error) {
	_ = prompt.Render(rows, prompt.Env{Sent: sent, Now: time.Now()})
	p, err := s.fakeWords.Prompt(ctx, rows, nil)
	for _, row := range sent {
		p.Text += "\n{sent " + textOf(row) + "}"
	}
	return p, err
}

func (simWords) RunLog(text string) string { return prompt.RunLog(text) }

// start begins an incarnation.
func (w *simWorld) start() {
	h := w.box.open()
	w.box.Lock()
	w.h = h
	w.box.Unlock()
	p := &simProvider{simWorld: w, h: h}
	r := runner.New(runner.Options{
		Mailbox: h, Bell: simBell{w.bell, w.cut}, Provider: p, Words: simWords{w: w}, Limit: 1 + w.random.IntN(8), Cwd: "testdata/none", Script: w.script,
	})
	var ctx context.Context
	ctx, w.cancel = context.WithCancel(context.Background())
	w.box.Lock()
	w.q, w.run, w.done = nil, r, make(chan error, 1)
	done := w.done
	w.log("incarnation %d begins", h.mine)
	w.box.Unlock()
	go func() { done <- r.Run(ctx) }()
}

// script does what the text of the script says.
func (w *simWorld) script(ctx context.Context, rowID, script string) (bool, json.RawMessage, error) {
	pause := time.Second
	if script == "hang" {
		pause = 30 * time.Second
	}
	select {
	case <-time.After(pause):
	case <-ctx.Done():
		return false, nil, ctx.Err()
	}
	switch script {
	case "gate":
		return false, nil, nil
	case "wake":
		return true, json.RawMessage(`{"found":3}`), nil
	}
	return false, nil, errors.New("it is broken")
}

// rest waits until nothing moves; in a loose world only sometimes.
func (w *simWorld) rest() {
	if w.strict || w.calm || w.random.IntN(2) == 0 {
		synctest.Wait()
	}
}

// sleep lets time pass.
func (w *simWorld) sleep(d time.Duration) { time.Sleep(d); synctest.Wait() }

// renew ends the incarnation, in order or not, if it has not ended by itself, and begins another.
func (w *simWorld) renew(orderly bool) {
	w.box.Lock()
	h := w.h
	if !orderly {
		w.log("KILL")
		h.dead = true
	}
	w.box.Unlock()
	w.cancel()
	if orderly || w.random.IntN(2) == 0 {
		w.wait(h, w.done)
	} else {
		done := w.done
		w.dying = append(w.dying, func() { w.wait(h, done) })
	}
	if w.random.IntN(4) == 0 { // the host counts a try and has the row wait
		w.box.Lock()
		for i, row := range w.box.rows {
			if a := w.box.acks[row.ID]; a.Status == mailbox.AckProcessing && a.Incarnation <= h.mine && row.Status == mailbox.StatusPending {
				w.box.rows[i].ProcessAfter = time.Now().Add(time.Duration(w.random.IntN(20)) * time.Second)
			}
		}
		w.box.Unlock()
	}
	w.start()
}

// wait returns when an incarnation has ended.
func (w *simWorld) wait(h *simHandle, done chan error) {
	select {
	case err := <-done:
		w.box.Lock()
		defer w.box.Unlock()
		w.log("incarnation %d has ended: %v", h.mine, err)
		if h.dead {
			return
		}
		if err != nil && h.faults == 0 {
			w.fail("incarnation %d ended with %v", h.mine, err)
		}
		if h.faults == 0 {
			w.checkReleased(h)
		}
	case <-time.After(10 * time.Minute):
		w.box.Lock()
		defer w.box.Unlock()
		w.fail("incarnation %d does not end", h.mine)
	}
}

// alive renews an incarnation that has ended by itself or is gone.
func (w *simWorld) alive() {
	w.box.Lock()
	dead := w.h.dead
	w.box.Unlock()
	if dead {
		w.renew(false)
		return
	}
	select {
	case err := <-w.done:
		w.box.Lock()
		if w.h.faults == 0 {
			w.fail("the loop has ended by itself: %v", err)
		}
		w.log("the loop has ended by itself: %v", err)
		w.box.Unlock()
		w.cancel()
		w.start()
	default:
	}
}

// put is a row from the host.
func (w *simWorld) put() {
	id := fmt.Sprintf("r%d", w.number())
	row := mailbox.InRow{ID: id, Kind: mailbox.KindChat, Trigger: true, Address: me}
	row.Content, _ = mailbox.EncodeContent(mailbox.ChatIn{Text: "hello " + id, Sender: "Ann"})
	content := func(s string) { row.Content = json.RawMessage(s) }
	switch w.random.IntN(6) {
	case 0:
		row.Address = family
		row.ThreadID = fmt.Sprintf("t%d", w.random.IntN(2))
	case 1:
		row.Address = family
	}
	switch n := w.random.IntN(40); {
	case n < 2:
		row.Address = mailbox.Address{ChannelType: mailbox.ChannelAgent, PlatformID: []string{"ag-2", "ag-3"}[w.random.IntN(2)]}
	case n == 2:
		row.Address = mailbox.Address{ChannelType: "telegram", PlatformID: "99"} // no destination
	case n < 7:
		row.Trigger = false
	case n < 11:
		row.Kind, row.Address, row.SeriesID = mailbox.KindTask, mailbox.Address{}, "series"
		script := ""
		if w.random.IntN(2) == 0 {
			script = `,"script":"` + []string{"wake", "wake", "gate", "fail", "hang"}[w.random.IntN(5)] + `"`
		}
		content(`{"prompt":"look"` + script + `}`)
	case n == 11:
		row.Kind, row.Address = mailbox.KindWebhook, mailbox.Address{}
		content(`{"source":"x","payload":{"a":"</webhook>"}}`)
	case n == 12:
		row.ChannelType, row.Trigger = mailbox.ChannelEcho, false
	case n == 13:
		row.Kind, row.Trigger = mailbox.KindSystem, false
		row.ID = []string{mailbox.AnswerPrefix, mailbox.ResponsePrefix, "junk-"}[w.random.IntN(3)] + id
	case n < 16:
		content([]string{`not json`, `null`, `[1]`, ``, `"text"`, `{"text":`}[w.random.IntN(6)])
	case n == 16:
		content(`{"text":"` + strings.Repeat("x", mailbox.MaxContent) + `"}`)
	case n < 19:
		content([]string{`{"text":5,"sender":{}}`, `{"text":null}`, `{}`, `{"text":["a"],"attachments":"no","replyTo":7}`, `{"notice":true,"text":"x"}`}[w.random.IntN(5)])
	case n < 22:
		row.ProcessAfter = time.Now().Add(time.Duration(w.random.IntN(60)) * time.Second)
	case n == 22:
		row.ProcessAfter = time.Now().Add(1000 * time.Hour)
	case n == 23:
		row.AfterIncarnation = w.h.mine + int64(w.random.IntN(2))
	case n == 24:
		row.AfterIncarnation = w.h.mine + 1000
	case n == 25:
		row.Kind = mailbox.Kind("odd")
	case n < 28 && w.random.IntN(2) == 0:
		row.ThreadID = ""
		content(`{"text":"/stop"}`)
		w.stops[id] = true
	case n < 31 && human(row):
		c := []string{"/clear", "/cost", "/files", "/upload-trace", "/help", "/compact " + id, "/compact " + id}[w.random.IntN(7)]
		content(`{"text":"` + c + `"}`)
		w.commands[id] = !strings.HasPrefix(c, "/help") && !strings.HasPrefix(c, "/compact")
	}
	w.box.Lock()
	w.log("put %s %s trigger %v %v %.40s", row.ID, row.Kind, row.Trigger, row.Address, row.Content)
	w.box.put(row)
	w.box.Unlock()
	if w.random.IntN(6) > 0 {
		w.ring()
	}
}

// host does what a host does beside that.
func (w *simWorld) host() {
	w.box.Lock()
	defer w.box.Unlock()
	switch w.random.IntN(5) {
	case 0:
		w.box.settle()
	case 1, 2:
		for _, row := range w.box.out {
			if _, ok := w.box.delivered[row.ID]; !ok && row.Kind == mailbox.KindChat && w.random.IntN(2) == 0 {
				w.box.delivered[row.ID] = mailbox.Delivered{MessageOutID: row.ID, PlatformMessageID: "p-" + row.ID, Status: "delivered"}
			}
		}
	case 3:
		w.answer()
	case 4:
		if w.random.IntN(4) > 0 {
			return
		}
		w.log("destinations change")
		w.moved = true
		all := slices.Clone(w.box.names())
		if _, ok := named(all, "work"); !ok {
			all = append(all, mailbox.Destination{Name: "work", Type: mailbox.DestinationChannel, ChannelType: "telegram", PlatformID: fmt.Sprint(50 + w.random.IntN(2))})
		} else {
			all = slices.DeleteFunc(all, func(d mailbox.Destination) bool { return d.Name == "work" })
		}
		w.box.dests = append(w.box.dests, all)
	}
}

// answer is that of a person or of the host to a question or a command.
func (w *simWorld) answer() {
	for _, row := range w.box.out {
		var q mailbox.QuestionOut
		var a mailbox.AdminOut
		in := mailbox.InRow{Kind: mailbox.KindSystem}
		if json.Unmarshal(row.Content, &q) == nil && q.Type == mailbox.TypeQuestion {
			in.ID = mailbox.AnswerPrefix + row.ID
			value := []string{"a", "b"}[w.random.IntN(2)]
			in.Content, _ = mailbox.EncodeContent(mailbox.AnswerIn{Type: mailbox.TypeAnswer, QuestionID: row.ID, SelectedOption: value})
			if _, ok := w.box.find(in.ID); !ok && w.random.IntN(2) == 0 {
				w.chosen[q.Question] = append(w.chosen[q.Question], value)
			} else {
				continue
			}
		} else if json.Unmarshal(row.Content, &a) == nil && a.Action == mailbox.ActionAdmin {
			in.ID = mailbox.ResponsePrefix + a.RequestID
			in.Content, _ = mailbox.EncodeContent(mailbox.ResponseIn{Type: mailbox.TypeResponse, RequestID: a.RequestID, Frame: json.RawMessage(`{}`)})
			if _, ok := w.box.find(in.ID); ok || w.random.IntN(2) == 0 {
				continue
			}
		} else {
			continue
		}
		w.log("the host answers %s", in.ID)
		w.box.put(in)
		w.ring()
	}
}

// move is one thing that happens.
func (w *simWorld) move() {
	w.alive()
	switch n := w.random.IntN(100); {
	case n < 16:
		for range 1 + w.random.IntN(2)*w.random.IntN(4) {
			w.put()
		}
	case n < 26:
		w.host()
	case n < 34:
		w.sleep(time.Duration(w.random.IntN(3000)) * time.Millisecond)
	case n == 34:
		w.sleep(time.Duration(w.random.IntN(60)) * time.Second)
	case n < 38 && w.accident > 0:
		w.renew(w.random.IntN(2) == 0)
	default:
		w.provider()
	}
	w.rest()
}

func (w *simWorld) query() *simQuery {
	w.box.Lock()
	defer w.box.Unlock()
	return w.q
}

// provider makes a few steps of the provider.
func (w *simWorld) provider() (moved bool) {
	for range 1 + w.random.IntN(3) {
		q := w.query()
		if q == nil || !q.step() {
			return moved
		}
		moved = true
		w.rest()
	}
	return moved
}

// settle has no more accidents and lets everything come to its end.
func (w *simWorld) settle() {
	w.box.Lock()
	w.calm = true
	w.log("CALM")
	w.box.Unlock()
	w.alive()
	if w.random.IntN(2) == 0 {
		w.renew(true)
	}
	w.ring()
	for still := 0; still < 100 && !w.failed.Load(); {
		synctest.Wait()
		w.alive()
		if w.provider() {
			still = 0
			continue
		}
		w.box.Lock()
		open := w.open()
		w.box.Unlock()
		if len(open) == 0 && still > 0 {
			return
		}
		still++
		w.sleep(time.Duration(1+still/10) * time.Second)
		if still%20 == 0 { // the last net
			w.ring()
		}
	}
	w.box.Lock()
	defer w.box.Unlock()
	if !w.failed.Load() {
		w.fail("these never end: %v", w.open())
	}
}

// open are the rows that must still end.
func (w *simWorld) open() (ids []string) {
	for _, row := range w.box.rows {
		a := w.box.acks[row.ID]
		due := row.Trigger && !row.ProcessAfter.After(time.Now()) && row.AfterIncarnation < w.h.mine
		if row.Status == mailbox.StatusPending && !a.Status.Final() && (due || a.Status == mailbox.AckProcessing || row.Kind == mailbox.KindSystem) ||
			row.Trigger && row.ProcessAfter.After(time.Now()) && time.Until(row.ProcessAfter) < time.Hour && !a.Status.Final() {
			ids = append(ids, row.ID)
		}
	}
	return ids
}
