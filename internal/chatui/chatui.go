// Package chatui is the full-screen terminal chat: the conversation, a line that says what the agent does, and a
// multi-line input. The model is pure; Run connects it to a host.
package chatui

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"

	"nanoclaw/internal/control"
)

// Client is the host as the chat needs it.
type Client interface {
	Say(ctx context.Context, conversation string, m control.Say) (control.Accepted, error)
	Answer(ctx context.Context, conversation string, a control.Answer) (control.Answered, error)
	Ack(ctx context.Context, conversation string, seq int64) error
	History(ctx context.Context, conversation string, before int64, limit int) (control.History, error)
	Follow(ctx context.Context, conversation string, after int64, on func(control.Event) error) error
}

// Options of a chat.
type Options struct {
	Client       Client
	Conversation string
	Agent        string   // name of the agent
	Notice       string   // shown above the conversation, if any
	Environ      []string // colour and terminal type come from it
	In           io.Reader
	Out          io.Writer
}

// shown is how much of an old conversation is loaded.
const shown = 300

// Run shows the chat until the person leaves or ctx ends; both return nil. It survives restarts of the host.
func Run(ctx context.Context, opt Options) error {
	h, err := opt.Client.History(ctx, opt.Conversation, 0, shown)
	if err != nil {
		return fmt.Errorf("open the conversation: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	out := &outbox{wake: make(chan struct{}, 1)}
	m := New(Config{Agent: opt.Agent, Notice: opt.Notice, Send: out.say, Answer: out.answer, Ack: out.ack, Now: time.Now})
	m.Load(h)
	p := tea.NewProgram(m, tea.WithContext(ctx), tea.WithInput(opt.In), tea.WithOutput(opt.Out),
		tea.WithEnvironment(opt.Environ), tea.WithoutSignalHandler())

	// More may be unread than was loaded: go on where the loaded part ends, or at what is unread before it.
	after := h.Last
	if len(h.Events) > 0 && h.Cursor < h.Events[0].Seq-1 {
		after = h.Cursor
	}
	var pumps sync.WaitGroup
	var failed error
	pumps.Go(func() {
		err := opt.Client.Follow(ctx, opt.Conversation, after, func(e control.Event) error {
			p.Send(EventMsg(e))
			return nil
		})
		if ctx.Err() == nil {
			failed = err
			p.Quit()
		}
	})
	pumps.Go(func() { out.run(ctx, opt.Client, opt.Conversation, p.Send) })
	_, err = p.Run()
	cancel()
	pumps.Wait()
	switch {
	case failed != nil:
		return failed
	case errors.Is(err, tea.ErrProgramKilled) && ctx.Err() != nil, errors.Is(err, context.Canceled):
		return nil
	case err != nil:
		return fmt.Errorf("run the terminal chat: %w", err)
	}
	return nil
}

// outbox sends messages and answers in the order they were typed, each until the host took it, and the newest acknowledgement.
type outbox struct {
	mu    sync.Mutex
	queue []typed
	acked int64
	wake  chan struct{}
}

// typed is a message or an answer.
type typed struct {
	say    control.Say
	answer control.Answer
}

func (o *outbox) say(m control.Say)       { o.put(typed{say: m}) }
func (o *outbox) answer(a control.Answer) { o.put(typed{answer: a}) }

func (o *outbox) put(t typed) {
	o.mu.Lock()
	o.queue = append(o.queue, t)
	o.mu.Unlock()
	o.ring()
}

func (o *outbox) ack(seq int64) {
	o.mu.Lock()
	o.acked = max(o.acked, seq)
	o.mu.Unlock()
	o.ring()
}

func (o *outbox) ring() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

func (o *outbox) run(ctx context.Context, c Client, conversation string, send func(tea.Msg)) {
	var done int64
	for {
		select {
		case <-ctx.Done():
			return
		case <-o.wake:
		}
		for ctx.Err() == nil {
			o.mu.Lock()
			acked := o.acked
			var next typed
			if len(o.queue) > 0 {
				next, o.queue = o.queue[0], o.queue[1:]
			}
			o.mu.Unlock()
			if m := next.say; m.ID != "" {
				err := control.Repeat(ctx, func(ctx context.Context) error {
					_, err := c.Say(ctx, conversation, m)
					return err
				})
				send(SentMsg{ID: m.ID, Err: err})
				continue
			}
			if a := next.answer; a.Question != "" {
				err := control.Repeat(ctx, func(ctx context.Context) error {
					_, err := c.Answer(ctx, conversation, a)
					return err
				})
				send(AnsweredMsg{Question: a.Question, Err: err})
				continue
			}
			if acked <= done {
				break
			}
			if err := c.Ack(ctx, conversation, acked); err == nil {
				done = acked
				continue
			}
			break // the next acknowledgement covers this one
		}
	}
}
