package runner_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/runner/tool"
)

// simTurn is a turn of the model: what it was asked and what it has said.
type simTurn struct {
	q          *simQuery
	n          int64 // its result reports so many tokens: by them its entry in the usage log is known
	rows       []string
	nudge      bool
	command    string
	unstreamed bool // all of its text is only in the result
	meant      map[string]int
	must       []simMust
	bare, lost bool     // it has text without an address; a block that cannot leave
	open       bool     // a block is not closed: what follows waits for the end
	sealed     bool     // an internal span is not closed: nothing that follows leaves
	missing    []string // names that it used and that did not exist
	cut        bool     // it ended before all was said
	normal     bool     // its result was no error
	until      int      // version of the destinations at its end
}

// simMust is something that must leave if the turn ends well.
type simMust struct {
	body  string
	since int // version of the destinations
	held  bool
}

// simWord is something that the model means to say to somebody; its text is unique.
type simWord struct {
	to    string
	since int  // version of the destinations when it was first said
	open  bool // never closed: it leaves only after a nudge
	tool  bool
}

// simElement is a part of what the model says or does.
type simElement struct {
	text   string
	whole  bool // no tool call inside
	gap    bool // a tool call behind it
	means  []simMean
	bare   bool
	lost   bool
	open   bool
	sealed bool
	tool   string
	to     string
	body   string
	seq    *int64 // of the message that is changed
}

type simMean struct {
	body string
	n    int
	may  bool // it need not leave
}

func (w *simWorld) number() int {
	w.box.Lock()
	defer w.box.Unlock()
	w.count++
	return w.count
}

// word makes a text that nobody has said before.
func (w *simWorld) word(to string, open, byTool bool) string {
	body := fmt.Sprintf("w%d.", w.number())
	w.box.Lock()
	defer w.box.Unlock()
	w.words[body] = &simWord{to: to, since: -1, open: open, tool: byTool}
	return body
}

func (w *simWorld) name() string {
	return []string{"me", "me", "family", "family", "helper", "work"}[w.random.IntN(6)]
}

// reaction is what the model has to say to a row: often the same as before, if it is asked again.
func (w *simWorld) reaction(id, sent string) []simElement {
	plan, ok := w.plans[id]
	if !ok || w.random.IntN(3) == 0 {
		plan = w.plan()
		w.plans[id] = plan
		return plan
	}
	var out []simElement
	read := w.random.IntN(2) == 0
	in := simInput{sent: sent}
	for _, e := range plan {
		if read && len(e.means) == 1 && in.has("{sent "+e.means[0].body+"}") {
			continue
		}
		out = append(out, e)
	}
	return out
}

func (w *simWorld) plan() (all []simElement) {
	var last []simElement
	for range 1 + w.random.IntN(3) {
		all = append(all, w.element())
		if w.random.IntN(2) == 0 {
			all = append(all, w.later...)
		} else {
			last = append(last, w.later...)
		}
		w.later = nil
	}
	return append(all, last...)
}

func says(body, before, after string, to string) simElement {
	return simElement{text: before + block(to, body) + after, means: []simMean{{body: body, n: 1}}}
}

// element is one thing that a model may say or do; what must come of it is written beside it.
func (w *simWorld) element() simElement {
	to := w.name()
	quiet := !w.profile.caps.MidTurnText
	switch n := w.random.IntN(32); n {
	default:
		return says(w.word(to, false, false), "", " ", to)
	case 6: // meant twice
		b := w.word(to, false, false)
		return simElement{text: block(to, b) + block(to, b), whole: true, means: []simMean{{body: b, n: 2}}}
	case 7: // an echo behind a tool call
		b := w.word(to, false, false)
		again := simMean{body: b, n: 0}
		if quiet { // without segments
			again.n = 1
		}
		w.later = append(w.later, simElement{text: block(to, b), means: []simMean{again}})
		return simElement{text: block(to, b), gap: true, whole: true, means: []simMean{{body: b, n: 1}}}
	case 8:
		b := w.word(to, false, false)
		return simElement{text: `<message to="` + to + `"> ` + b + `<Internal x="1">SECRET <internal>` + block("me", "SECRET") + `</internal></internal> </message>`, means: []simMean{{body: b, n: 1}}}
	case 9:
		return simElement{text: " `" + block("me", "LITERAL") + "` is how\n", whole: true, bare: true}
	case 10:
		return simElement{text: "\n```\n" + block("family", "LITERAL") + "\n```\n", whole: true, bare: true}
	case 11: // a block in a block is text of the outer one
		inner := fmt.Sprintf("n%d", w.number())
		body := "see " + block("family", inner) + " there"
		w.box.Lock()
		w.words[body] = &simWord{to: to, since: -1}
		w.box.Unlock()
		return simElement{text: block(to, body), whole: true, means: []simMean{{body: body, n: 1}}}
	case 12:
		return simElement{text: block("nobody", "NOWHERE"), lost: true}
	case 13: // not closed, with or without something behind it
		b := w.word(to, true, false)
		e := simElement{text: `<message to="` + to + `">` + b, lost: true, open: true, means: []simMean{{body: b, n: 1, may: true}}}
		if w.random.IntN(2) == 0 {
			w.later = append(w.later, says(w.word(to, false, false), "", "", to))
		}
		return e
	case 14:
		return simElement{text: "<internal>SECRET " + block("me", "SECRET"), lost: true, sealed: true}
	case 15:
		return simElement{text: "<internal>SECRET thoughts</internal>"}
	case 16, 17, 18:
		return simElement{text: fmt.Sprintf(" BARE%d ", w.number()), bare: true}
	case 19:
		return simElement{text: block(to, " ")}
	case 20, 21:
		return simElement{tool: "send", to: to, body: w.word(to, false, true)}
	case 22:
		return simElement{tool: "file", to: to, body: w.word(to, false, true)}
	case 23: // sent by a tool, and said again
		b := w.word(to, false, true)
		w.later = append(w.later, simElement{text: block(to, b), means: []simMean{{body: b, n: 0, may: true}}})
		return simElement{tool: "send", to: to, body: b}
	case 24: // said, and sent by a tool
		b := w.word(to, false, true)
		w.later = append(w.later, simElement{tool: "send", to: to, body: b})
		return says(b, "", "", to)
	case 25:
		return simElement{tool: "ask", body: w.word("", false, true)}
	case 26:
		return simElement{tool: "change", body: w.word("", false, true), seq: new(int64)}
	case 27:
		return simElement{tool: "request", body: w.word("", false, true)}
	case 28:
		return simElement{tool: "admin", body: w.word("", false, true)}
	case 29:
		return simElement{tool: "show", to: to, body: w.word(to, false, true)}
	case 30:
		return simElement{tool: "send", to: "nobody", body: "NOWHERE"}
	case 31:
		return simElement{text: "\n", gap: true}
	}
}

// answerNudge is what the model makes of a nudge.
func (w *simWorld) answerNudge() []simElement {
	to := w.name()
	switch w.random.IntN(8) {
	case 0, 1:
		return []simElement{{text: fmt.Sprintf(" BARE%d ", w.number()), bare: true}}
	case 2:
		return []simElement{{text: "<internal>SECRET</internal>"}}
	case 3:
		b := w.word(to, true, false)
		return []simElement{{text: `<message to="` + to + `">` + b, lost: true, open: true, means: []simMean{{body: b, n: 1, may: true}}}}
	case 4:
		return []simElement{{text: block("nobody", "NOWHERE"), lost: true}}
	}
	return []simElement{says(w.word(to, false, false), "", "", to)}
}

// mean notes what the running turn says from now on.
func (q *simQuery) mean(e simElement) {
	q.box.Lock()
	defer q.box.Unlock()
	t := q.turn
	version := len(q.box.dests) - 1
	for _, m := range e.means {
		t.meant[m.body] += m.n
		word := q.words[m.body]
		if word.since < 0 {
			word.since = version
		}
		if _, ok := named(q.box.names(), word.to); !ok && !t.sealed {
			t.missing = append(t.missing, word.to)
		}
		if t.unstreamed {
			t.lost = t.lost || !t.sealed
			continue
		}
		if !m.may && !t.sealed && t.command == "" && !q.onlyTools(t) {
			t.must = append(t.must, simMust{body: m.body, since: version, held: t.open})
		}
	}
	t.bare = t.bare || e.bare && !t.open && !t.sealed
	t.lost = t.lost || e.lost && !t.sealed
	t.open, t.sealed = t.open || e.open, t.sealed || e.sealed
}

// onlyTools: nothing that the turn says leaves.
func (w *simWorld) onlyTools(t *simTurn) bool {
	if w.taskSession {
		return true
	}
	var rows []mailbox.InRow
	for _, id := range t.rows {
		row, _ := w.box.find(id)
		rows = append(rows, row)
	}
	return taskOnly(rows)
}

// call has the model call a tool; the turn goes on when it returns.
func (q *simQuery) call(e simElement) {
	if q.profile.caps.ToolEvents {
		q.emit(toolStart)
	}
	q.box.Lock()
	if q.killed || q.over {
		q.box.Unlock()
		return
	}
	t := q.turn
	if word := q.words[e.body]; word != nil {
		t.meant[e.body]++
		if word.since < 0 {
			word.since = len(q.box.dests) - 1
		}
	}
	q.log("tool %s %s %s", e.tool, e.to, e.body)
	q.tool = true
	run, h := q.run, q.h
	timeout := time.Duration(1+q.random.IntN(100)) * time.Second
	if e.seq != nil && *e.seq == 0 {
		*e.seq = int64(q.random.IntN(int(q.box.seq) + 2))
	}
	held := t.open
	q.box.Unlock()
	go func() {
		var err error
		leaves := false
		switch e.tool {
		case "send", "file":
			m := tool.Message{To: e.to, Text: e.body}
			if e.tool == "file" {
				m.Files = []tool.File{file("a.txt", "x")}
			}
			_, err = run.Send(q.ctx, m)
			leaves = true
		case "ask":
			var answer string
			answer, err = run.Ask(q.ctx, tool.Question{Title: "T", Text: e.body, Options: []tool.Option{{Label: "A", Value: "a"}, {Label: "B", Value: "b"}}, Timeout: timeout})
			if err == nil {
				q.answered(e.body, answer)
			}
		case "change":
			_, err = run.Change(q.ctx, tool.Change{Message: *e.seq, Text: e.body})
		case "request":
			_, err = run.Request(q.ctx, json.RawMessage(`{"action":"create_agent","name":"`+e.body+`"}`))
			leaves = true
		case "admin":
			_, err = run.Admin(q.ctx, "tasks-list", map[string]json.RawMessage{"name": json.RawMessage(`"` + e.body + `"`)})
		case "show":
			c := tool.Card{Card: json.RawMessage(`{"title":"` + e.body + `"}`)}
			if timeout > 50*time.Second {
				c.To = e.to
			}
			_, err = run.Show(q.ctx, c)
		}
		q.box.Lock()
		q.tool = false
		q.log("tool %s %s returns %v", e.tool, e.body, err)
		var unknown *tool.UnknownDestination
		_, known := named(q.box.names(), e.to)
		switch {
		case err == nil && e.to == "nobody":
			q.fail("a tool has sent to nobody")
		case err == nil && leaves:
			t.must = append(t.must, simMust{body: e.body, since: len(q.box.dests) - 1, held: held})
			if len(q.rowsSaying(e.body)) == 0 && !h.dead {
				q.fail("%s %s succeeded and there is no row", e.tool, e.body)
			}
		case errors.As(err, &unknown) && known && q.strict && !q.moved:
			q.fail("%s is known, and a tool was told otherwise", e.to)
		}
		q.box.Unlock()
		if q.profile.caps.ToolEvents {
			q.emit(toolEnd)
		}
	}()
}
