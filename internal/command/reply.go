package command

import (
	"bufio"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"nanoclaw/internal/chatui"
	"nanoclaw/internal/control"
)

// replies lets a person answer the questions that come up in a one-shot chat: at the same terminal if the input is one, else
// from another.
type replies struct {
	t     *talk
	mu    sync.Mutex // also of what is printed meanwhile
	open  []question // oldest first
	reads bool
	over  bool
}

type question struct {
	message string // that shows it
	control.Question
}

// take shows a question as it comes, and forgets one that is closed.
func (r *replies) take(ctx context.Context, e control.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case e.Kind == control.EventAnswer:
		r.open = slices.DeleteFunc(r.open, func(q question) bool { return q.message == e.Target })
	case e.Question == nil:
	case r.t.Terminal(r.t.in):
		r.open = append(r.open, question{e.ID, *e.Question})
		fmt.Fprintln(r.t.err, chatui.Plain(e.Text))
		if !r.reads {
			r.reads = true
			go r.read(ctx) // it cannot be cancelled; it ends with the program
		}
	default:
		command := "nanoclaw chat "
		if r.t.conversation != control.DefaultConversation {
			command += "--conversation " + strings.TrimPrefix(r.t.conversation, "cli:") + " "
		}
		fmt.Fprintf(r.t.err, "%s\n(in another terminal, for example: %s1)\n", chatui.Plain(e.Text), command)
	}
}

// end: nothing is printed from here any more.
func (r *replies) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
}

func (r *replies) read(ctx context.Context) {
	in := bufio.NewScanner(r.t.in)
	for in.Scan() {
		text := strings.TrimSpace(in.Text())
		if text == "" {
			continue
		}
		a, ok := r.choose(text)
		if !ok {
			r.say("type the number or the text of an option")
			continue
		}
		if err := control.Repeat(ctx, func(ctx context.Context) error {
			_, err := r.t.client.Answer(ctx, r.t.conversation, a)
			return err
		}); err != nil {
			r.say("nanoclaw: " + chatui.Plain(err.Error()))
		}
	}
}

// choose is what a text answers: the newest open question that has such an option.
func (r *replies) choose(text string) (control.Answer, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, q := range slices.Backward(r.open) {
		if i := control.Choice(q.Options, text); i >= 0 {
			return control.Answer{Question: q.ID, Value: q.Options[i].Value}, true
		}
	}
	return control.Answer{}, false
}

func (r *replies) say(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.over {
		fmt.Fprintln(r.t.err, text)
	}
}
