package runner_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/provider"
)

// simProfile is a kind of provider.
type simProfile struct {
	name  string
	caps  provider.Caps
	opens bool // a receipt also opens a turn
}

func simProfiles() []simProfile {
	like := provider.Caps{MidTurnText: true, MidTurnInput: true, Receipts: true, ToolEvents: true, Commands: []string{"/compact", "/context"}}
	return []simProfile{
		{"claude", like, true},
		{"late receipts", like, false},
		{"plain", provider.Caps{MidTurnText: true, ToolEvents: true}, false},
		{"quiet", provider.Caps{}, false},
	}
}

// simProvider is the provider of one incarnation. Its model is played by the simulation, step by step.
type simProvider struct {
	*simWorld
	h *simHandle
}

var errStale = errors.New("no conversation found with this id")

func (p *simProvider) Name() string        { return "sim" }
func (p *simProvider) Caps() provider.Caps { return p.profile.caps }
func (p *simProvider) IsSessionInvalid(err error) bool {
	return errors.Is(err, errStale) || strings.Contains(err.Error(), errStale.Error())
}

func (p *simProvider) Rotate(context.Context, string, string) (string, error) {
	p.box.Lock()
	defer p.box.Unlock()
	if !p.calm && p.dice.IntN(10) == 0 {
		p.log("provider: the conversation is given up")
		return "too long", nil
	}
	return "", nil
}

func (p *simProvider) Query(ctx context.Context, in provider.QueryInput) (provider.Query, error) {
	p.box.Lock()
	defer p.box.Unlock()
	if !p.calm && !p.h.dead {
		switch n := p.dice.IntN(60); {
		case n == 0:
			p.mistakes.Add(1)
			return nil, &provider.QueryError{Op: "start", Class: provider.ClassNetwork, Retryable: true}
		case n == 1:
			p.mistakes.Add(1)
			return nil, &provider.QueryError{Op: "start", Class: provider.ClassAuth}
		case n < 6 && in.Continuation != "":
			p.mistakes.Add(1)
			p.log("provider: %s is unknown", in.Continuation)
			return nil, fmt.Errorf("start: %w", errStale)
		}
	}
	q := &simQuery{simWorld: p.simWorld, h: p.h, feed: make(chan provider.Event, 4096), events: make(chan provider.Event), dead: make(chan struct{}), resumed: in.Continuation != ""}
	q.ctx, q.cancel = context.WithCancel(context.WithoutCancel(ctx))
	go q.pump()
	context.AfterFunc(ctx, q.kill)
	q.open = q.prompted(in.Input)
	if p.h == p.simWorld.h { // nobody plays for a process that is gone
		p.q = q
	}
	return q, nil
}

// simInput is a prompt and what it stands for.
type simInput struct {
	id       string
	rows     []string
	sent     string // the whole text: it lists what was sent already
	exchange string
	nudge    bool
	command  string
}

type simQuery struct {
	*simWorld
	h            *simHandle
	feed, events chan provider.Event
	dead         chan struct{}
	ctx          context.Context // of its tool calls
	cancel       context.CancelFunc
	resumed      bool

	// Below the lock of the world.
	killed, over bool
	err          error
	open         *simInput // the prompt of Query, not yet begun
	waiting      []*simInput
	interrupted  bool
	tool         bool // a tool call is under way

	// Of the simulation's own goroutine.
	turn  *simTurn
	steps []func()
	hung  bool
	said  string // text of the turn
}

// prompted checks a prompt and finds its rows.
func (q *simQuery) prompted(in provider.Input) *simInput {
	w := q.simWorld
	got := &simInput{id: in.ID, sent: in.Text}
	w.log("prompt %s: %.300q", in.ID, in.Text)
	if i := strings.Index(in.Text, "NUDGE"); i >= 0 {
		got.nudge = true
		w.nudgeAsked(got)
		return got
	}
	if strings.HasPrefix(in.Text, "/") {
		got.command = in.Text
		if m := regexp.MustCompile(`^/\w+ (r\d+)`).FindStringSubmatch(in.Text); m != nil {
			got.rows = m[1:]
		}
	} else {
		for _, m := range rowID.FindAllStringSubmatch(in.Text, -1) {
			got.rows = append(got.rows, m[1])
		}
	}
	if len(got.rows) == 0 {
		w.fail("a prompt without rows: %q", in.Text)
	}
	for _, id := range got.rows {
		row, _ := w.box.find(id)
		a := w.box.acks[id]
		switch {
		case q.h.dead || q.h.mine != w.box.live:
			// A process that is gone: what it says to its provider matters to nobody.
		case a.Status != mailbox.AckProcessing || a.Incarnation != q.h.mine:
			w.fail("row %s is in a prompt and not claimed: %+v", id, a)
		case row.ProcessAfter.After(time.Now()) || row.AfterIncarnation >= q.h.mine:
			w.fail("row %s is in a prompt too early", id)
		}
		if got.exchange != "" && got.exchange != a.Exchange {
			w.fail("rows of two exchanges in a prompt")
		}
		got.exchange = a.Exchange
	}
	return got
}

func (q *simQuery) Push(_ context.Context, in provider.Input) error {
	q.box.Lock()
	defer q.box.Unlock()
	if q.killed || q.over || !q.calm && q.dice.IntN(25) == 0 {
		q.log("push refused")
		return provider.ErrEnded
	}
	q.waiting = append(q.waiting, q.prompted(in))
	return nil
}

func (q *simQuery) Interrupt(context.Context) error {
	q.box.Lock()
	defer q.box.Unlock()
	q.log("interrupt")
	q.interrupted = true
	if !q.calm && q.dice.IntN(10) == 0 {
		return errors.New("the interrupt did not get through")
	}
	return nil
}

func (q *simQuery) End() { q.exit(nil) }

// Abort takes its time.
func (q *simQuery) Abort() {
	q.box.Lock()
	var pause time.Duration
	if !q.killed && q.dice.IntN(4) == 0 {
		pause = time.Duration(q.dice.IntN(15000)) * time.Millisecond
	}
	q.box.Unlock()
	time.Sleep(pause)
	q.kill()
}

func (q *simQuery) Events() <-chan provider.Event { return q.events }

func (q *simQuery) Err() error {
	q.box.Lock()
	defer q.box.Unlock()
	return q.err
}

// kill ends it at once; what it was about to say is lost.
func (q *simQuery) kill() {
	q.box.Lock()
	defer q.box.Unlock()
	if !q.killed {
		q.killed = true
		close(q.dead)
		q.cancel()
	}
}

// exit ends it behind what it has said.
func (q *simQuery) exit(err error) {
	q.box.Lock()
	defer q.box.Unlock()
	if q.killed || q.over {
		return
	}
	q.log("the provider exits: %v", err)
	q.over, q.err = true, err
	close(q.feed)
	q.cancel()
}

func (q *simQuery) pump() {
	defer close(q.events)
	for {
		var ev provider.Event
		var ok bool
		select {
		case ev, ok = <-q.feed:
		case <-q.dead:
			return
		}
		if !ok {
			return
		}
		select {
		case q.events <- ev:
		case <-q.dead:
			return
		}
	}
}

// emit says something, if it still can.
func (q *simQuery) emit(all ...provider.Event) {
	q.box.Lock()
	defer q.box.Unlock()
	for _, ev := range all {
		if q.killed || q.over {
			return
		}
		q.log("event %s %q %s", ev.Kind, ev.Text, ev.InputID)
		q.feed <- ev
	}
}

func (q *simQuery) gone() bool {
	q.box.Lock()
	defer q.box.Unlock()
	return q.killed || q.over
}

// next takes the oldest prompt that the model has not got.
func (q *simQuery) next() (in *simInput, first bool) {
	q.box.Lock()
	defer q.box.Unlock()
	if in = q.open; in != nil {
		q.open = nil
		return in, true
	}
	if len(q.waiting) > 0 {
		in, q.waiting = q.waiting[0], q.waiting[1:]
	}
	return in, false
}

func (q *simQuery) behind() *simInput {
	q.box.Lock()
	defer q.box.Unlock()
	if len(q.waiting) == 0 {
		return nil
	}
	return q.waiting[0]
}

// step does one thing that a provider may do. It reports whether anything was done.
func (q *simQuery) step() bool {
	if q.gone() {
		return false
	}
	if q.turn == nil {
		return q.between()
	}
	q.box.Lock()
	interrupted, tool := q.interrupted, q.tool
	q.box.Unlock()
	switch {
	case interrupted && (q.calm || q.random.IntN(3) == 0):
		q.obeyInterrupt()
	case q.hung:
		if !q.calm && q.random.IntN(20) > 0 {
			return false
		}
		q.hung = false
		q.exit(&provider.QueryError{Op: "watch the provider", Class: provider.ClassNetwork, Retryable: true})
	case !q.calm && q.random.IntN(60) == 0:
		q.mistakes.Add(1)
		q.exit([]error{nil, &provider.QueryError{Op: "talk", Class: provider.ClassNetwork, Retryable: true}, &provider.QueryError{Op: "talk", Class: provider.ClassOther}}[q.random.IntN(3)])
	case tool:
		return false
	case q.profile.caps.MidTurnInput && q.behind() != nil && q.behind().command == "" && q.random.IntN(3) == 0:
		in, _ := q.next()
		q.emit(provider.Event{Kind: provider.Taken, InputID: in.id})
		q.hear(in)
	case len(q.steps) > 0:
		do := q.steps[0]
		q.steps = q.steps[1:]
		do()
	default:
		q.finish()
	}
	return true
}

// between is a step while no turn runs.
func (q *simQuery) between() bool {
	in, first := q.next()
	if in == nil {
		spontaneous := q.profile.opens || q.strict && !q.resumed
		if q.calm || !spontaneous || q.random.IntN(12) > 0 {
			if !q.calm && q.random.IntN(60) == 0 {
				q.mistakes.Add(1)
				q.exit([]error{nil, &provider.QueryError{Op: "talk", Class: provider.ClassNetwork, Retryable: true}}[q.random.IntN(2)])
				return true
			}
			return false
		}
		q.begin()
		q.log("a turn nobody asked for")
		q.emit(provider.Event{Kind: provider.Text, Text: " "})
		q.say(q.plan())
		return true
	}
	q.begin()
	if q.profile.opens || first && q.profile.caps.Receipts && q.random.IntN(2) == 0 && q.profile.opens {
		q.emit(provider.Event{Kind: provider.Taken, InputID: in.id})
	}
	if first && q.random.IntN(4) > 0 {
		q.emit(provider.Event{Kind: provider.Init, Continuation: fmt.Sprintf("c%d", q.number())})
	}
	q.box.Lock()
	if q.interrupted && q.random.IntN(2) == 0 { // it was for the turn before, and is lost
		q.interrupted = false
	}
	q.box.Unlock()
	q.hear(in)
	return true
}

func (q *simQuery) begin() {
	q.box.Lock()
	defer q.box.Unlock()
	q.turn = &simTurn{n: int64(len(q.turns) + 1), meant: map[string]int{}, q: q}
	q.turns = append(q.turns, q.turn)
	q.steps, q.said, q.hung = nil, "", false
	q.turn.unstreamed = q.profile.caps.MidTurnText && !q.calm && q.random.IntN(30) == 0
}

// hear gives the model a prompt within the running turn.
func (q *simQuery) hear(in *simInput) {
	q.turn.rows = append(q.turn.rows, in.rows...)
	q.turn.nudge = q.turn.nudge || in.nudge
	switch {
	case in.command != "":
		q.turn.command = in.command
		q.steps = append(q.steps, func() {
			q.emit(provider.Event{Kind: provider.Compacted}, text(block("me", "SECRET of a command")))
		})
	case in.nudge:
		q.say(q.answerNudge())
	default:
		for _, id := range in.rows {
			q.say(q.reaction(id, in.sent))
		}
	}
}

// finish ends a turn that has said everything.
func (q *simQuery) finish() {
	n := q.random.IntN(100)
	if q.calm {
		n = 0
	}
	retryable := n%2 == 0
	failure := provider.Event{Kind: provider.Result, IsError: true, Retryable: retryable, Class: provider.ClassOverloaded, Message: "failed"}
	switch {
	case n < 78:
		ev := provider.Event{Kind: provider.Result, Text: q.said}
		switch {
		case q.turn.command != "":
			ev.Text = "OUTPUT of " + q.turn.command
		case !q.profile.caps.MidTurnText || q.turn.unstreamed:
			ev.Text = q.said
		case q.random.IntN(2) == 0:
			ev.Text = ""
		}
		q.end(ev, true)
	case n < 86:
		if !retryable {
			failure.Class, failure.Notice = provider.ClassAuth, "log in, please"
		}
		q.mistakes.Add(1)
		q.end(failure, false)
	case n < 89:
		failure.Class, failure.Message, failure.Retryable = provider.ClassInvalidSession, errStale.Error(), false
		q.mistakes.Add(1)
		q.end(failure, false)
	case n < 92:
		q.mistakes.Add(1)
		q.exit(nil)
	case n < 95:
		q.mistakes.Add(1)
		q.exit(fmt.Errorf("resume: %w", errStale))
	case n < 97:
		q.log("the provider hangs")
		q.hung = true
	default:
		q.emit(provider.Event{Kind: provider.Error, Message: "again soon", Retryable: true}, provider.Event{Kind: provider.Progress, Message: "…"}, provider.Event{Kind: provider.Activity})
	}
}

func (q *simQuery) end(ev provider.Event, normal bool) {
	q.box.Lock()
	q.turn.normal, q.turn.until = normal, len(q.box.dests)-1
	ev.Usage = &provider.Usage{InputTokens: q.turn.n}
	q.turn = nil
	q.box.Unlock()
	q.emit(ev)
}

func (q *simQuery) obeyInterrupt() {
	q.box.Lock()
	q.interrupted = false
	late := q.dice.IntN(4) == 0
	if !late && q.dice.IntN(3) == 0 {
		q.log("the interrupt swallows %d prompts", len(q.waiting))
		q.waiting = nil
	}
	q.box.Unlock()
	if late {
		q.steps = nil
		q.turn.cut = true
		q.end(provider.Event{Kind: provider.Result}, true)
		return
	}
	q.end(provider.Event{Kind: provider.Result, Interrupted: true, IsError: q.random.IntN(2) == 0}, false)
}

// cutUp cuts text anywhere.
func (w *simWorld) cutUp(s string) (pieces []string) {
	for len(s) > 0 {
		n := len(s)
		if w.random.IntN(2) == 0 {
			n = 1 + w.random.IntN(len(s))
		}
		pieces = append(pieces, s[:n])
		s = s[n:]
	}
	return pieces
}

// say puts elements behind what the model is about to say and do.
func (q *simQuery) say(all []simElement) {
	for _, e := range all {
		e := e
		if e.tool != "" {
			q.steps = append(q.steps, func() { q.call(e) })
			continue
		}
		if !q.profile.caps.MidTurnText || q.turn.unstreamed {
			q.steps = append(q.steps, func() { q.said += e.text; q.mean(e) })
			continue
		}
		pieces := q.cutUp(e.text)
		for i, piece := range pieces {
			q.steps = append(q.steps, func() {
				if i == 0 {
					q.mean(e)
				}
				q.said += piece
				q.emit(text(piece))
				if i < len(pieces)-1 && !e.whole && q.random.IntN(5) == 0 {
					q.emit(toolStart, toolEnd)
				}
			})
		}
		if e.gap {
			q.steps = append(q.steps, func() { q.emit(toolStart, toolEnd) })
		}
	}
}

func (in *simInput) has(words string) bool {
	return slices.Contains(strings.Split(in.sent, "\n"), words)
}
