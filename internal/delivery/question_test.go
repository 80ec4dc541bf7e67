package delivery

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"nanoclaw/internal/channel"
	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/store"
)

var terminal = channel.Info{Type: "cli", Instance: "cli"}

// asking is a row that asks; its exchange is ex-1.
func asking(seq int64) mailbox.OutRow {
	r := row(seq, chat, "")
	r.Content = []byte(strings.Replace(askedJSON, "out-1", r.ID, 1))
	return r
}

// ask takes a question over and returns the id under which adapters know it.
func (b *bundle) ask(t *testing.T, r mailbox.OutRow) string {
	t.Helper()
	b.take(t, mailbox.Page{Rows: []mailbox.OutRow{r}})
	synctest.Wait()
	rows, err := b.st.Ledgers(context.Background(), b.session.ID, 100)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range rows {
		if l.OutboundID == r.ID {
			return string(l.ID)
		}
	}
	t.Fatal("the question is not in the ledger")
	return ""
}

func press(question, value string) channel.Answer {
	return channel.Answer{QuestionID: question, Value: value, Address: channel.Address{PlatformID: chat}, Sender: channel.Sender{ID: "cli:ann", Name: "Ann"}}
}

func said(id, text string) channel.Inbound {
	return channel.Inbound{ID: id, Kind: "chat", Address: channel.Address{PlatformID: chat}, Text: text, Sender: channel.Sender{ID: "cli:ann"}}
}

func (b *bundle) answer(t *testing.T, a channel.Answer) string {
	t.Helper()
	v, err := b.s.Answer(context.Background(), terminal, a)
	if err != nil {
		t.Fatal(err)
	}
	if v.Reason != "" {
		return string(v.Kind) + ": " + v.Reason
	}
	return string(v.Kind)
}

func (b *bundle) inbox() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string(nil), b.puts...)
}

const answerRow = `qr-out-1 system false {"type":"question_response","questionId":"out-1","selectedOption":"y","userId":"cli:ann"}`

// Who may answer what, when: the table of a question's life (spec/channels.md 2.13; spec/host.md W41; spec/bugs.md APR-1, APR-12).
func TestAnswers(t *testing.T) {
	t.Parallel()
	type step func(t *testing.T, b *bundle, q string) string
	pressed := func(change func(*channel.Answer)) step {
		return func(t *testing.T, b *bundle, q string) string {
			a := press(q, "y")
			if change != nil {
				change(&a)
			}
			return b.answer(t, a)
		}
	}
	yes := pressed(nil)
	later := pressed(func(a *channel.Answer) { a.Value = "Later" })
	after := func(d time.Duration) step {
		return func(t *testing.T, b *bundle, _ string) string { wait(d); return "" }
	}
	ends := func(status mailbox.AckStatus, exchange string) step {
		return func(t *testing.T, b *bundle, _ string) string {
			b.take(t, mailbox.Page{AckChange: 9, Acks: []mailbox.Ack{{MessageID: "row-x", Status: status, Exchange: exchange}}})
			return ""
		}
	}
	replayed := func(t *testing.T, b *bundle, _ string) string {
		b.take(t, mailbox.Page{Rows: []mailbox.OutRow{asking(1)}})
		return ""
	}
	refused := "dropped: "
	for name, c := range map[string]struct {
		steps []step
		want  []string
		put   bool
	}{
		"once":                       {[]step{yes}, []string{"stored"}, true},
		"the same again":             {[]step{yes, yes, yes}, []string{"stored", "duplicate", "duplicate"}, true},
		"the first one wins":         {[]step{yes, later}, []string{"stored", refused + "it is answered already: Yes, now"}, true},
		"another person's same":      {[]step{yes, pressed(func(a *channel.Answer) { a.Sender.ID = "cli:eve" })}, []string{"stored", refused + notYours}, true},
		"a stranger":                 {[]step{pressed(func(a *channel.Answer) { a.Sender.ID = "cli:eve" }), yes}, []string{refused + notYours, "stored"}, true},
		"nobody":                     {[]step{pressed(func(a *channel.Answer) { a.Sender.ID = "" })}, []string{refused + notYours}, false},
		"a bot":                      {[]step{pressed(func(a *channel.Answer) { a.Sender.IsBot = true })}, []string{refused + notYours}, false},
		"a value that was not there": {[]step{pressed(func(a *channel.Answer) { a.Value = "Yes" }), yes}, []string{refused + noSuchOption, "stored"}, true},
		"an index is no value":       {[]step{pressed(func(a *channel.Answer) { a.Value = "0" })}, []string{refused + noSuchOption}, false},
		"by number":                  {[]step{pressed(func(a *channel.Answer) { a.Number, a.Value = 1, "" })}, []string{"stored"}, true},
		"a number that was not there": {[]step{pressed(func(a *channel.Answer) { a.Number = 3 }), pressed(func(a *channel.Answer) { a.Number = -1 })},
			[]string{refused + noSuchOption, refused + noSuchOption}, false},
		"another chat":              {[]step{pressed(func(a *channel.Answer) { a.Address.PlatformID = "cli:work" })}, []string{refused + notKnown}, false},
		"another thread":            {[]step{pressed(func(a *channel.Answer) { a.Address.ThreadID = "t" })}, []string{refused + notKnown}, false},
		"a question that is none":   {[]step{pressed(func(a *channel.Answer) { a.QuestionID = "led-x" })}, []string{refused + notKnown}, false},
		"the sandbox's id is none":  {[]step{pressed(func(a *channel.Answer) { a.QuestionID = "out-1" })}, []string{refused + notKnown}, false},
		"shortly before it expires": {[]step{after(questionLife - time.Minute), yes}, []string{"", "stored"}, true},
		"after it expired":          {[]step{after(questionLife + time.Minute), yes}, []string{"", refused + notOpen}, false},
		"again after it expired":    {[]step{yes, after(questionLife + time.Minute), yes}, []string{"stored", "", "duplicate"}, true},
		"after its exchange ended":  {[]step{ends(mailbox.AckCompleted, "ex-1"), yes}, []string{"", refused + notOpen}, false},
		"after its exchange failed": {[]step{ends(mailbox.AckFailed, "ex-1"), yes}, []string{"", refused + notOpen}, false},
		"after another exchange":    {[]step{ends(mailbox.AckCompleted, "ex-2"), yes}, []string{"", "stored"}, true},
		"after its message was given up": {[]step{func(t *testing.T, b *bundle, _ string) string {
			if err := b.s.Finish(context.Background(), store.End{RowID: "row-0", State: channel.Dead}); err != nil {
				t.Fatal(err)
			}
			return ""
		}, yes}, []string{"", refused + notOpen}, false},
		"answered, then its exchange": {[]step{yes, ends(mailbox.AckCompleted, "ex-1"), yes}, []string{"stored", "", "duplicate"}, true},
		"its row is taken over again": {[]step{replayed, yes, replayed, yes}, []string{"", "stored", "", "duplicate"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := setup(t, &platform{caps: allCaps})
				if _, err := b.st.Accept(context.Background(), []store.Message{{Instance: "cli", PlatformID: chat, PlatformMessageID: "m0",
					AgentGroupID: b.session.AgentGroupID, RowID: "row-0", SessionID: b.session.ID, SenderID: "cli:ann", Trigger: true}}); err != nil {
					t.Fatal(err)
				}
				q := b.ask(t, asking(1))
				var got []string
				for _, s := range c.steps {
					got = append(got, s(t, b, q))
					if err := b.s.Questions(context.Background()); err != nil {
						t.Fatal(err)
					}
				}
				if d := cmp.Diff(c.want, got); d != "" {
					t.Error(d)
				}
				var want []string
				if c.put {
					want = []string{answerRow}
				}
				if d := cmp.Diff(want, b.inbox()); d != "" {
					t.Error(d)
				}
				synctest.Wait()
				shown := 0
				for _, s := range b.p.log() {
					if strings.Contains(s, "[question ") {
						shown++
					}
				}
				if shown != 1 {
					t.Errorf("the question was shown %d times: %q", shown, b.p.log())
				}
				b.end()
			})
		})
	}
}

// The chat shows which option was taken, once; a question that nobody can answer any more is closed there too.
func TestAnsweredQuestionIsShownAsSuch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, &platform{caps: allCaps})
		first := b.ask(t, asking(1))
		b.ask(t, asking(3))
		b.answer(t, press(first, "y"))
		b.answer(t, press(first, "y"))
		b.take(t, mailbox.Page{AckChange: 9, Acks: []mailbox.Ack{{MessageID: "row-x", Status: mailbox.AckCompleted, Exchange: "ex-1"}}})
		wait(time.Minute)
		rows, err := b.st.Ledgers(context.Background(), b.session.ID, 10)
		if err != nil || len(rows) != 2 {
			t.Fatal(rows, err)
		}
		want := []string{
			chat + " [question ] ?Deploy/Now?/2", chat + " [question ] ?Deploy/Now?/2",
			chat + " [answered p-" + string(rows[0].ID) + "] ?Deploy/Now?/2 =Yes, now",
			chat + " [answered p-" + string(rows[1].ID) + "] ?Deploy/Now?/2",
		}
		if d := cmp.Diff(want, b.p.log()); d != "" {
			t.Error(d)
		}
		b.end()
	})
}

// APR-1: a question of a group goes to the person whose message it is about; the other members cannot answer it.
func TestAPR1QuestionGoesToWhoeverItIsAbout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, &platform{caps: allCaps})
		if _, err := b.st.Accept(context.Background(), []store.Message{{Instance: "cli", PlatformID: chat, PlatformMessageID: "m1", AgentGroupID: b.session.AgentGroupID,
			RowID: "row-1", SessionID: b.session.ID, SenderID: "cli:bob", Trigger: true}}); err != nil {
			t.Fatal(err)
		}
		r := asking(1)
		r.InReplyTo = "row-1"
		q := b.ask(t, r)
		if got := b.answer(t, press(q, "y")); got != "dropped: "+notYours {
			t.Errorf("the owner, who was not asked: %s", got)
		}
		if taken, err := b.s.AnswerText(context.Background(), terminal, said("m2", "yes"), 0); taken || err != nil {
			t.Errorf("the owner's text: %v, %v", taken, err)
		}
		a := press(q, "y")
		a.Sender.ID = "cli:bob"
		if got := b.answer(t, a); got != "stored" {
			t.Errorf("whoever was asked: %s", got)
		}
		b.end()
	})
}

// A written answer: in chats without buttons, and at the terminal.
func TestWrittenAnswers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text  string
		taken bool
	}{
		"number": {"1", true}, "number with space": {" 2 \n", true}, "label": {"Later", true}, "label in another case": {"yEs", true}, "value": {"y", true},
		"number too high": {"3", false}, "zero": {"0", false}, "sign": {"+1", false}, "leading zero": {"01", false}, "words around it": {"yes please", false},
		"what it would show": {"Yes, now", false}, "empty": {"", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := setup(t, &platform{})
				b.ask(t, asking(1))
				for range 2 { // the platform delivers it again
					taken, err := b.s.AnswerText(context.Background(), terminal, said("m1", c.text), 0)
					if taken != c.taken || err != nil {
						t.Errorf("taken %v, %v", taken, err)
					}
				}
				if n := len(b.inbox()); c.taken && n != 1 || !c.taken && n != 0 {
					t.Errorf("the inbox got %q", b.inbox())
				}
				if taken, err := b.s.AnswerText(context.Background(), terminal, said("m2", c.text), 0); err != nil || c.taken && taken {
					t.Errorf("another message after the answer: taken %v, %v", taken, err)
				}
				wait(time.Minute)
				want := []string{chat + " Deploy\n\nNow?\n\n1. Yes\n2. Later\n\nAnswer with a number."}
				if d := cmp.Diff(want, b.p.log()); d != "" {
					t.Error(d)
				}
				b.end()
			})
		})
	}
}

// What looks like an answer and is none stays an ordinary message.
func TestTextsThatAnswerNothing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]func(t *testing.T, b *bundle, m *channel.Inbound){
		"nothing is asked": nil,
		"two are open":     func(t *testing.T, b *bundle, _ *channel.Inbound) { b.ask(t, asking(1)); b.ask(t, asking(3)) },
		"another chat": func(t *testing.T, b *bundle, m *channel.Inbound) {
			b.ask(t, asking(1))
			m.Address.PlatformID = "cli:work"
		},
		"another thread": func(t *testing.T, b *bundle, m *channel.Inbound) { b.ask(t, asking(1)); m.Address.ThreadID = "t" },
		"a stranger":     func(t *testing.T, b *bundle, m *channel.Inbound) { b.ask(t, asking(1)); m.Sender.ID = "cli:eve" },
		"with a file": func(t *testing.T, b *bundle, m *channel.Inbound) {
			b.ask(t, asking(1))
			m.Attachments = []channel.Attachment{{}}
		},
		"expired": func(t *testing.T, b *bundle, _ *channel.Inbound) { b.ask(t, asking(1)); wait(questionLife) },
		"it came before the question, and comes again": func(t *testing.T, b *bundle, m *channel.Inbound) {
			if _, err := b.st.Accept(context.Background(), []store.Message{{Instance: "cli", PlatformID: chat, PlatformMessageID: m.ID, AgentGroupID: b.session.AgentGroupID,
				RowID: "row-1", SessionID: b.session.ID, SenderID: "cli:ann", Trigger: true}}); err != nil {
				t.Fatal(err)
			}
			b.ask(t, asking(1))
		},
		"it could not be shown": func(t *testing.T, b *bundle, _ *channel.Inbound) {
			b.p.script[plainAsked] = []error{outcome(channel.Permanent, 0)}
			b.ask(t, asking(1))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := setup(t, &platform{})
				m := said("m1", "1")
				if c != nil {
					c(t, b, &m)
				}
				if taken, err := b.s.AnswerText(context.Background(), terminal, m, 0); taken || err != nil {
					t.Errorf("taken %v, %v", taken, err)
				}
				if len(b.inbox()) != 0 {
					t.Errorf("the inbox got %q", b.inbox())
				}
				b.end()
			})
		})
	}
}

const plainAsked = "Deploy\n\nNow?\n\n1. Yes\n2. Later\n\nAnswer with a number."

// P3: an answer that is noted but did not reach the inbox gets there by the next host, or by the same answer again; once.
func TestAnswerIsFinishedAfterAFailure(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"again", "sweep", "restart"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				home, broken := t.TempDir(), &putErr{}
				b := setupWith(t, &platform{caps: allCaps}, home, nil, broken)
				q := b.ask(t, asking(1))
				broken.set(errors.New("disk full"))
				if _, err := b.s.Answer(context.Background(), terminal, press(q, "y")); err == nil {
					t.Fatal("an answer that is not in the inbox was acknowledged")
				}
				if got := b.answer(t, press(q, "Later")); !strings.HasPrefix(got, "dropped: it is answered already") {
					t.Errorf("another answer meanwhile: %s", got)
				}
				broken.set(nil)
				last := b
				switch how {
				case "again":
					if got := b.answer(t, press(q, "y")); got != "duplicate" {
						t.Errorf("the same answer: %s", got)
					}
				case "restart":
					b.end()
					last = setupWith(t, &platform{caps: allCaps}, home, nil, broken)
				}
				for range 2 {
					if err := last.s.Questions(context.Background()); err != nil {
						t.Fatal(err)
					}
				}
				wait(time.Second)
				if d := cmp.Diff([]string{answerRow}, last.inbox()); d != "" {
					t.Error(d)
				}
				answered := 0
				for _, s := range last.p.log() {
					if strings.Contains(s, "[answered ") {
						answered++
					}
				}
				if answered != 1 {
					t.Errorf("the chat shows it %d times: %q", answered, last.p.log())
				}
				last.end()
				b.end()
			})
		})
	}
}

// Two people press at the same moment: one is first.
func TestOneAnswerOfMany(t *testing.T) {
	t.Parallel()
	b := setup(t, &platform{caps: allCaps})
	b.take(t, mailbox.Page{Rows: []mailbox.OutRow{asking(1)}})
	rows, err := b.st.Ledgers(t.Context(), b.session.ID, 1)
	if err != nil {
		t.Fatal(err)
	}
	verdicts := make(chan string, 20)
	for i := range cap(verdicts) {
		go func() {
			v, err := b.s.Answer(t.Context(), terminal, press(string(rows[0].ID), []string{"y", "Later"}[i%2]))
			verdicts <- fmt.Sprint(v.Kind, err)
		}()
	}
	count := map[string]int{}
	for range cap(verdicts) {
		count[<-verdicts]++
	}
	if d := cmp.Diff(map[string]int{"stored<nil>": 1, "duplicate<nil>": 9, "dropped<nil>": 10}, count); d != "" {
		t.Error(d)
	}
	for _, r := range b.inbox()[1:] {
		if r != b.inbox()[0] {
			t.Errorf("two answers: %q", b.inbox())
		}
	}
}

// APR-12: pressing an old question, after newer messages and a restart, is told to be too late and changes nothing.
func TestAPR12OldQuestion(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		home := t.TempDir()
		b := setupAt(t, &platform{caps: allCaps}, home)
		q := b.ask(t, asking(1))
		b.take(t, mailbox.Page{Rows: []mailbox.OutRow{row(3, chat, "newer")}})
		wait(questionLife + time.Hour)
		b.end()
		again := setupAt(t, &platform{caps: allCaps}, home)
		for range 2 {
			if got := again.answer(t, press(q, "y")); got != "dropped: "+notOpen {
				t.Errorf("the verdict is %q", got)
			}
		}
		if err := again.s.Questions(context.Background()); err != nil {
			t.Fatal(err)
		}
		wait(time.Minute)
		if len(again.inbox()) != 0 {
			t.Errorf("the inbox got %q", again.inbox())
		}
		if got := again.p.log(); len(got) != 1 || !strings.Contains(got[0], "[answered ") || strings.Contains(got[0], "=") {
			t.Errorf("the chat shows %q; want the question closed without an answer", got)
		}
		again.end()
	})
}
