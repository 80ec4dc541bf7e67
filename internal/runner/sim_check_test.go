package runner_test

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"nanoclaw/internal/mailbox"
)

var firstWord = regexp.MustCompile(`^w\d+\.`)

// What must be true at every step. All of it runs below the lock of the world.

func (w *simWorld) onClaim(h *simHandle, exchange string, ids []string) {
	first := true
	for _, had := range w.held {
		first = first && !had[exchange]
	}
	for _, id := range ids {
		if a := w.box.acks[id]; first && a.Status == mailbox.AckProcessing && a.Incarnation == h.mine && a.Exchange != exchange {
			w.unasked[exchange] = true // its turn began without any row
		}
		if w.held[id] == nil {
			w.held[id] = map[string]bool{}
		}
		w.held[id][exchange] = true
	}
	w.log("claim %v for %s", ids, exchange)
}

// nudgeAsked: the turn whose usage was written last is the one that is nudged.
func (w *simWorld) nudgeAsked(in *simInput) {
	if len(w.box.usage) == 0 {
		w.fail("a nudge before any result")
		return
	}
	last := w.box.usage[len(w.box.usage)-1]
	parent := w.turns[last.InputTokens-1]
	in.rows, in.exchange = parent.rows, last.Exchange
	if w.nudges[last.Exchange]++; w.nudges[last.Exchange] > 1 {
		w.fail("exchange %s is nudged twice", last.Exchange)
	}
	if !parent.normal {
		w.fail("a nudge after a failure")
	}
}

func (w *simWorld) nudged(exchange string) bool {
	return w.marked[exchange] || w.nudges[exchange] > 0
}

// onFinish sees a transaction before its rows.
func (w *simWorld) onFinish(h *simHandle, f mailbox.Finish) {
	w.log("finish: %d rows, completed %v, failed %v, skipped %v, state %v", len(f.Out), f.Completed, f.Failed, f.Skipped, f.State)
	for _, u := range f.Usage { // a mailbox that refuses a result may take its usage later
		w.decided[u.InputTokens] = len(f.Completed)+len(f.State)+len(f.Out) > 0
	}
	for key := range f.State {
		if exchange, ok := strings.CutPrefix(key, "nudged:"); ok {
			w.marked[exchange] = true
		}
	}
	for _, id := range f.Completed {
		if !w.stops[id] {
			continue
		}
		// What runs, what waits and what the same chat asked before may end without an answer.
		stop, _ := w.box.find(id)
		for _, row := range w.box.rows {
			if a := w.box.acks[row.ID]; a.Status == mailbox.AckProcessing || !a.Status.Final() && row.Seq < stop.Seq && row.Address == stop.Address {
				w.silent[row.ID] = true
			}
		}
	}
	for _, id := range f.Completed {
		a := w.box.acks[id]
		if row, _ := w.box.find(id); row.Kind != mailbox.KindSystem && !w.stops[id] && !w.silent[id] && a.Status != mailbox.AckProcessing {
			w.fail("row %s is completed without a claim", id)
		}
	}
	waits := map[mailbox.Address]bool{}
	for _, x := range f.Failed {
		if x.Reason == "" {
			w.fail("row %s fails without a reason", x.ID)
		}
		row, _ := w.box.find(x.ID)
		switch {
		case row.Validate() == nil && row.Kind != mailbox.KindSystem && w.mistakes.Load() == 0:
			w.fail("row %s fails (%s), and nothing went wrong", x.ID, x.Reason)
		case w.box.ack(x.ID) == mailbox.AckProcessing && human(row):
			waits[row.Address] = true
		}
	}
	for a := range waits {
		if !slices.ContainsFunc(f.Out, func(o mailbox.OutRow) bool {
			return o.Address == a && strings.Contains(string(o.Content), `"notice":true`)
		}) {
			w.fail("%v is not told of the failure of %v", a, f.Failed)
		}
	}
}

// onWrite sees a row before it is stored.
func (w *simWorld) onWrite(h *simHandle, row mailbox.OutRow, f mailbox.Finish) {
	w.log("write %s %s %v segment %d fallback %v: %.200s", row.Exchange, row.Kind, row.Address, row.Segment, row.Fallback, row.Content)
	rows := w.box.rowsOf(row.Exchange)
	var c struct {
		mailbox.ChatOut
		Question string
		Card     struct{ Title string }
		Action   string
		Name     string
		Args     struct{ Name string }
	}
	if err := json.Unmarshal(row.Content, &c); err != nil {
		w.fail("content %s: %v", row.Content, err)
	}
	tasks := w.taskSession || taskOnly(rows)
	for _, secret := range []string{"SECRET", "NOWHERE"} {
		if row.Kind != mailbox.KindTaskLog && strings.Contains(string(row.Content), secret) {
			w.fail("%s has left: %s", secret, row.Content)
		}
	}
	switch {
	case row.Kind == mailbox.KindTaskLog:
		if w.logs[row.Exchange]++; w.logs[row.Exchange] > 1 {
			w.fail("exchange %s has two entries in the run log", row.Exchange)
		}
		if !tasks || !row.Address.Zero() || strings.Contains(string(row.Content), "SECRET") {
			w.fail("a run log: %s to %v, rows %v", row.Content, row.Address, rows)
		}
	case row.Kind == mailbox.KindSystem:
		if w.words[c.Name] == nil && w.words[c.Args.Name] == nil {
			w.fail("a request that nobody made: %s", row.Content)
		}
	case c.Type == mailbox.TypeQuestion:
		w.checkAsker(row, rows, c.Question)
	case c.Type == mailbox.TypeCard:
		if d, _ := named(w.box.names(), w.words[c.Card.Title].to); d.Address() != unthreaded(row.Address) {
			w.checkAsker(row, rows, c.Card.Title)
		}
	case c.Operation != "":
		w.checkChange(row, c.MessageID)
	case c.Notice:
		told := len(rows) == 0 && row.Address == w.box.routing
		for _, r := range rows {
			told = told || r.Address == row.Address && r.Trigger
		}
		if !told {
			w.fail("a notice to %v, which has asked nothing: %s", row.Address, row.Content)
		}
	case row.Fallback:
		w.fallbacks[row.Exchange]++
		asker, ok := w.asker(rows)
		if !ok || row.Address != asker.Address || row.InReplyTo != asker.ID || !w.nudged(row.Exchange) || tasks || w.fallbacks[row.Exchange] > 1 || !strings.Contains(c.Text, "BARE") && !strings.Contains(c.Text, "LITERAL") {
			w.fail("a fallback to %v, asker %v, nudged %v: %s", row.Address, asker.Address, w.nudged(row.Exchange), row.Content)
		}
	case w.commands[row.InReplyTo] || strings.HasPrefix(c.Text, "OUTPUT") || strings.HasSuffix(c.Text, " is done."):
		if asked, _ := w.box.find(row.InReplyTo); asked.Address != row.Address {
			w.fail("the answer to command %s goes to %v", asked.ID, row.Address)
		}
	default:
		w.checkText(row, rows, c.Text, tasks)
	}
}

func unthreaded(a mailbox.Address) mailbox.Address { a.ThreadID = ""; return a }

func (w *simWorld) asker(rows []mailbox.InRow) (asker mailbox.InRow, ok bool) {
	for _, r := range rows {
		if human(r) {
			asker, ok = r, true
		}
	}
	return asker, ok
}

// checkText: a text goes to the destination that the model named, in the thread that is answered.
func (w *simWorld) checkText(row mailbox.OutRow, rows []mailbox.InRow, text string, tasks bool) {
	word := w.words[text]
	if open := w.words[firstWord.FindString(text)]; word == nil && open != nil && open.open {
		word = open // with what stood behind it
	}
	if word == nil {
		w.fail("nobody has said %q", text)
		return
	}
	right := false
	for _, all := range w.box.dests[max(word.since, 0):] {
		d, ok := named(all, word.to)
		right = right || ok && d.Address() == unthreaded(row.Address)
	}
	if !right {
		w.fail("%q was for %s and goes to %v", text, word.to, row.Address)
	}
	if tasks && (row.Segment > 0 || !word.tool) && !w.unasked[row.Exchange] {
		w.fail("in a task only tools send: %q", text)
	}
	if word.open && !w.nudged(row.Exchange) && len(rows) > 0 && len(w.held[rows[0].ID]) == 1 {
		w.fail("a block that was not closed leaves without a nudge: %q", text)
	}
	if !w.strict || row.Exchange == "" {
		return
	}
	var answers mailbox.InRow
	for _, r := range rows {
		if r.Trigger && unthreaded(r.Address) == unthreaded(row.Address) {
			answers = r
		}
	}
	if answers.ID == "" {
		answers, _ = w.box.latest(row.Address)
	}
	if row.ChannelType == mailbox.ChannelAgent {
		answers.ThreadID = ""
	}
	if row.InReplyTo != answers.ID || row.ThreadID != answers.ThreadID {
		w.fail("%q answers %s in thread %q, not %s in %q", text, row.InReplyTo, row.ThreadID, answers.ID, answers.ThreadID)
	}
}

func (w *simWorld) checkAsker(row mailbox.OutRow, rows []mailbox.InRow, words string) {
	at := w.box.routing
	if asker, ok := w.asker(rows); ok {
		at = asker.Address
	}
	if w.words[words] == nil || row.Address != at {
		w.fail("%q goes to %v, not to %v", words, row.Address, at)
	}
}

func (w *simWorld) checkChange(row mailbox.OutRow, message string) {
	out := strings.TrimPrefix(message, "p-")
	for _, o := range w.box.out {
		if o.ID == out && o.Address == row.Address {
			return
		}
	}
	w.fail("a change of %s goes to %v: %s", message, row.Address, row.Content)
}

// answered: a question got an answer that somebody gave.
func (w *simWorld) answered(question, value string) {
	w.box.Lock()
	defer w.box.Unlock()
	if !slices.Contains(w.chosen[question], value) {
		w.fail("question %s got the answer %q; people said %q", question, value, w.chosen[question])
	}
}

// checkReleased: after an end in order only an exchange that has done something keeps its claim.
func (w *simWorld) checkReleased(h *simHandle) {
	for id, a := range w.box.acks {
		if a.Status != mailbox.AckProcessing || a.Incarnation != h.mine {
			continue
		}
		row, _ := w.box.find(id)
		acted := strings.Contains(string(row.Content), `"script"`) // an earlier incarnation may have asked about it
		for exchange := range w.held[id] {
			acted = acted || w.nudged(exchange) || slices.ContainsFunc(w.box.out, func(o mailbox.OutRow) bool { return o.Exchange == exchange })
		}
		for other, b := range w.box.acks { // joined rows act with the others
			for exchange := range w.held[other] {
				acted = acted || b.Exchange == a.Exchange && slices.ContainsFunc(w.box.out, func(o mailbox.OutRow) bool { return o.Exchange == exchange })
			}
		}
		if !acted {
			w.fail("row %s stays claimed, though its exchange has done nothing", id)
		}
	}
}

// rowsSaying are the messages with a text, a question, a card or a request.
func (w *simWorld) rowsSaying(body string) (rows []mailbox.OutRow) {
	for _, row := range w.box.out {
		var c struct {
			mailbox.ChatOut
			Question string
			Card     struct{ Title string }
			Name     string
		}
		if json.Unmarshal(row.Content, &c) == nil && !c.Notice && !row.Fallback && row.Kind != mailbox.KindTaskLog &&
			(c.Text == body || c.Question == body || c.Card.Title == body || c.Name == body) {
			rows = append(rows, row)
		}
	}
	return rows
}

// check is what must be true at the end.
func (w *simWorld) check() {
	w.box.Lock()
	defer w.box.Unlock()
	final := map[string]*simTurn{} // exchange: the turn that ended it
	ended := map[*simTurn]string{}
	counted := map[int64]bool{}
	for _, u := range w.box.usage {
		if counted[u.InputTokens] {
			w.fail("the result of turn %d is counted twice", u.InputTokens)
		}
		counted[u.InputTokens] = true
		if t := w.turns[u.InputTokens-1]; t.normal && w.decided[u.InputTokens] {
			final[u.Exchange], ended[t] = t, u.Exchange
		}
	}
	for _, t := range w.turns {
		if exchange, ok := ended[t]; ok {
			w.checkTurn(t, exchange)
		}
	}
	for body := range w.words {
		w.checkCount(body)
	}
	exchanges := map[string]bool{}
	for _, row := range w.box.rows {
		a := w.box.acks[row.ID]
		switch {
		case a.Status == mailbox.AckProcessing:
			w.fail("row %s is still claimed", row.ID)
		case a.Status.Final() && row.ProcessAfter.Sub(w.begun).Hours() > 500, a.Status.Final() && row.AfterIncarnation > w.h.mine:
			w.fail("row %s is %s, and it is not its time", row.ID, a.Status)
		case a.Status == mailbox.AckScriptError && row.Kind != mailbox.KindTask:
			w.fail("row %s is %s", row.ID, a.Status)
		case a.Status == mailbox.AckCompleted && row.Trigger && row.Kind != mailbox.KindSystem && !w.stops[row.ID] && !w.silent[row.ID]:
			exchanges[a.Exchange] = true
			w.checkRow(row)
		}
	}
	for exchange := range exchanges {
		w.checkExchange(exchange, final[exchange])
	}
	for key := range w.box.state {
		if w.accident == 0 && (strings.HasPrefix(key, "nudged:") || strings.HasPrefix(key, "joined:")) {
			w.fail("%s stays behind", key)
		}
	}
	for id := range w.box.blobs {
		if !slices.ContainsFunc(w.box.out, func(o mailbox.OutRow) bool { return o.ID == id }) && w.accident == 0 && w.mistakes.Load() == 0 {
			w.fail("files of %s stay behind", id)
		}
	}
}

// checkTurn: what the model said in a turn that ended well has left, in its order.
func (w *simWorld) checkTurn(t *simTurn, exchange string) {
	if t.cut {
		return
	}
	last := map[mailbox.Address]int64{}
	seen := map[string]bool{}
	for _, m := range t.must {
		again := seen[m.body]
		seen[m.body] = true
		rows := w.rowsSaying(m.body)
		stable := w.strict || len(w.box.dests) == 1
		for _, all := range w.box.dests[m.since : t.until+1] {
			d, ok := named(all, w.words[m.body].to)
			first, _ := named(w.box.dests[m.since], w.words[m.body].to)
			stable = stable && ok && d == first
		}
		if len(rows) == 0 && stable {
			w.fail("%q of turn %d is lost", m.body, t.n)
		}
		if len(rows) != 1 || again || m.held || rows[0].Exchange != exchange || w.times(m.body) > 1 || !w.strict || !w.profile.caps.MidTurnText {
			continue
		}
		if rows[0].Seq < last[rows[0].Address] {
			w.fail("%q of turn %d left too early", m.body, t.n)
		}
		last[rows[0].Address] = rows[0].Seq
	}
}

// times is in how many turns something was said.
func (w *simWorld) times(body string) (n int) {
	for _, t := range w.turns {
		if t.meant[body] > 0 {
			n++
		}
	}
	return n
}

// checkCount: nothing left more often than the model meant it in one turn.
func (w *simWorld) checkCount(body string) {
	limit := 0
	for _, t := range w.turns {
		limit = max(limit, t.meant[body])
	}
	count := map[mailbox.Address]int{}
	for _, row := range w.rowsSaying(body) {
		if count[row.Address]++; count[row.Address] > limit {
			w.fail("%q left %d times for %v; it was meant %d times", body, count[row.Address], row.Address, limit)
		}
	}
}

// checkRow: a completed row was answered, or the model was silent on purpose.
func (w *simWorld) checkRow(row mailbox.InRow) {
	if w.commands[row.ID] {
		if !slices.ContainsFunc(w.box.out, func(o mailbox.OutRow) bool { return o.InReplyTo == row.ID && o.Address == row.Address }) {
			w.fail("command %s got no answer", row.ID)
		}
		return
	}
	if strings.Contains(string(row.Content), `"script":"gate"`) {
		return
	}
	for _, u := range w.box.usage {
		if t := w.turns[u.InputTokens-1]; t.normal && slices.Contains(t.rows, row.ID) {
			return
		}
	}
	w.fail("row %s is completed, and no turn has answered it", row.ID)
}

// checkExchange: an exchange did not end with words that reached nobody.
func (w *simWorld) checkExchange(exchange string, t *simTurn) {
	if t == nil || t.command != "" || t.cut || w.onlyTools(t) {
		return
	}
	var rows []mailbox.InRow
	from := map[string]bool{exchange: true}
	for _, id := range t.rows {
		row, _ := w.box.find(id)
		rows = append(rows, row)
		if w.silent[id] {
			return
		}
		for e := range w.held[id] {
			from[e] = true
		}
	}
	if _, ok := w.asker(rows); !ok {
		return
	}
	spoke, nudged := false, false
	for e := range from {
		nudged = nudged || w.nudged(e)
	}
	for _, o := range w.box.out {
		var c mailbox.ChatOut
		spoke = spoke || from[o.Exchange] && o.Kind == mailbox.KindChat && json.Unmarshal(o.Content, &c) == nil && !c.Notice && c.Operation == "" && o.ChannelType != mailbox.ChannelAgent
	}
	lost := t.lost
	for _, name := range t.missing {
		_, ok := named(w.box.dests[t.until], name)
		lost = lost || !ok && w.strict
	}
	switch {
	case lost && !nudged:
		w.fail("turn %d of %s has lost a block, and nobody asked for it", t.n, exchange)
	case t.bare && !spoke:
		w.fail("turn %d of %s: the answer reached nobody (nudged %v)", t.n, exchange, nudged)
	}
}
