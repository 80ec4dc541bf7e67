// Package cli is the terminal as a channel. It has no wire of its own: clients reach it through the host's control socket
// (control/server), and each conversation is a durable log in the adapter's store. Deliver appends to the log, so that a
// reply made while nobody is attached is shown at the next attach; a conversation has one acknowledged position, however
// many clients look at it (design.md section 8).
package cli

import (
	"context"
	"errors"
	"os/user"
	"strconv"
	"strings"
	"sync"
	"time"

	"nanoclaw/internal/channel"
	"nanoclaw/internal/control"
	"nanoclaw/internal/crashpoint"
	"nanoclaw/internal/id"
)

// Type of the channel.
const Type = "cli"

// Adapter is the terminal channel: the channel's side for the host, and Say, Events, Ack and History for the control
// socket.
type Adapter struct {
	owner string // handle of the operator
	name  string // display name
	files string // folder of received files

	mu       sync.Mutex
	host     channel.Host
	running  context.Context // ends when Run begins to return
	status   channel.Status
	open     map[string]*conversation
	inflight sync.WaitGroup // calls that use host
}

// New makes the adapter. handle is the operator's user name, name what agents call them; empty is the handle. Files that
// agents send are kept below the folder files as long as their entries in the log; it is made when it is needed.
func New(handle, name, files string) *Adapter {
	if name == "" {
		name = handle
	}
	return &Adapter{owner: handle, name: name, files: files, open: map[string]*conversation{}, status: channel.Status{State: channel.Stopped}}
}

// Operator is the user who runs this process: user name and full name, or the numeric id where there is no entry.
func Operator(uid int) (handle, name string) {
	u, err := user.LookupId(strconv.Itoa(uid))
	if err != nil {
		return strconv.Itoa(uid), ""
	}
	name, _, _ = strings.Cut(u.Name, ",")
	return u.Username, strings.TrimSpace(name)
}

// Info of the terminal: one conversation per name, no threads.
func (a *Adapter) Info() channel.Info {
	return channel.Info{Type: Type, Instance: Type,
		Caps: channel.Caps{Edit: true, React: true, Buttons: true, Cards: true, Files: true, Idempotent: true}}
}

// UserID of the operator.
func (a *Adapter) UserID() string { return UserID(a.owner) }

// UserID of a handle: `cli:<handle>`; a colon or percent sign in the handle is escaped.
func UserID(handle string) string {
	return Type + ":" + strings.NewReplacer("%", "%25", ":", "%3A").Replace(handle)
}

// Main is the platform id of the conversation in which the operator is told what nobody else can be told.
const Main = Type + ":local"

// OpenDirect implements channel.DirectOpener: only the operator sits at the terminal.
func (a *Adapter) OpenDirect(_ context.Context, user string) (channel.Address, error) {
	if user != a.UserID() {
		return channel.Address{}, errors.New("nobody but the operator reads the terminal")
	}
	return channel.Address{PlatformID: Main}, nil
}

// Encode is the platform id of a conversation's name.
func Encode(name string) (string, error) { return control.ConversationID(Type + ":" + name) }

// Decode is the name in a platform id.
func Decode(platformID string) (string, error) {
	name, ok := strings.CutPrefix(platformID, Type+":")
	if !ok {
		return "", control.Invalid("conversation", "does not start with "+Type+":")
	}
	if _, err := control.ConversationID(platformID); err != nil {
		return "", err
	}
	return name, nil
}

// Run opens the conversations until ctx ends. It then ends every stream, waits for calls in progress and returns nil.
func (a *Adapter) Run(ctx context.Context, h channel.Host) error {
	running, end := context.WithCancel(ctx)
	defer end()
	a.mu.Lock()
	if a.host != nil {
		a.mu.Unlock()
		return errors.New("run the terminal channel: it runs already")
	}
	a.host, a.running = h, running
	a.status = channel.Status{State: channel.Connected, Since: h.Now()}
	a.mu.Unlock()

	<-running.Done()

	a.mu.Lock()
	a.host = nil
	a.status = channel.Status{State: channel.Stopped, Since: h.Now()}
	a.mu.Unlock()
	a.inflight.Wait()
	a.mu.Lock()
	a.open = map[string]*conversation{}
	a.mu.Unlock()
	return nil
}

// Status of the channel: connected while Run runs.
func (a *Adapter) Status() channel.Status {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.status
}

// errStopped is what clients get while Run does not run.
func errStopped() error {
	return &control.Error{Code: control.CodeUnavailable, Message: "the terminal channel is not running"}
}

// use lends the conversation of a platform id and a context that ends with ctx or with Run. The caller calls release.
func (a *Adapter) use(ctx context.Context, platformID string) (c *conversation, _ context.Context, release func(), err error) {
	name, err := Decode(platformID)
	if err != nil {
		return nil, nil, nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.host == nil {
		return nil, nil, nil, errStopped()
	}
	c = a.open[name]
	if c == nil {
		c = newConversation(name, a.host, a.files)
		a.open[name] = c
	}
	c.users++
	a.inflight.Add(1)
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(a.running, cancel)
	return c, ctx, func() {
		stop()
		cancel()
		a.mu.Lock()
		if c.users--; c.users == 0 && !c.busy() && a.open[name] == c {
			delete(a.open, name)
		}
		a.mu.Unlock()
		a.inflight.Done()
	}, nil
}

// outbound is the id of what one operation became: the same for every try.
func outbound(conversation, key string) string { return id.Derived("out", Type, conversation, key) }

// Deliver appends op to the conversation's log. A key seen before has no second effect and gets the same receipt.
func (a *Adapter) Deliver(ctx context.Context, to channel.Address, op channel.Op, key string) (channel.Receipt, error) {
	entry, err := entryOf(op)
	if err == nil && to.ThreadID != "" {
		err = permanent("the terminal has no threads", "send without a thread")
	}
	if err == nil && key == "" {
		err = permanent("the operation has no key", "")
	}
	if err != nil {
		return channel.Receipt{}, err
	}
	c, ctx, release, err := a.use(ctx, to.PlatformID)
	switch {
	case control.IsCode(err, control.CodeUnavailable):
		return channel.Receipt{}, &channel.Outcome{Kind: channel.Offline, Err: err}
	case err != nil:
		return channel.Receipt{}, permanent("no terminal conversation has the id "+strconv.Quote(to.PlatformID), err.Error())
	}
	defer release()
	entry.ID = outbound(c.name, key)
	if entry.Target != "" {
		known, err := c.knows(ctx, op.Kind != channel.OpReact, entry.Target)
		if err != nil {
			return channel.Receipt{}, &channel.Outcome{Kind: channel.Transient, Err: err}
		}
		if !known {
			return channel.Receipt{}, permanent("no such message in this conversation: "+strconv.Quote(entry.Target), "use the id of a message that was sent here")
		}
	}
	if err := c.settledSay(ctx); err != nil {
		return channel.Receipt{}, &channel.Outcome{Kind: channel.Transient, Err: err}
	}
	if len(op.Files) > 0 {
		if _, there, err := c.number(ctx, "i/"+indexAgent+entry.ID); err == nil && there {
			return channel.Receipt{IDs: []string{entry.ID}}, nil // it is in the log, and so its files are here
		}
		if entry.Files, err = c.keep(ctx, entry.ID, op.Files); err != nil {
			return channel.Receipt{}, err
		}
		crashpoint.Hit(CrashKept)
	}
	if _, _, err := c.append(ctx, indexAgent+entry.ID, entry); err != nil {
		return channel.Receipt{}, &channel.Outcome{Kind: channel.Transient, Err: err}
	}
	return channel.Receipt{IDs: []string{entry.ID}}, nil
}

func entryOf(op channel.Op) (control.Event, error) {
	e := control.Event{Author: control.AuthorAgent, Notice: op.Notice, Marked: op.Marked, ReplyTo: op.ReplyTo, Text: op.Text, Kind: control.EventMessage}
	switch op.Kind {
	case channel.OpText:
	case channel.OpEdit:
		e.Kind, e.Target = control.EventEdit, op.Target
	case channel.OpReact:
		e.Kind, e.Target, e.Emoji, e.Text = control.EventReaction, op.Target, op.Emoji, ""
	case channel.OpQuestion:
		if op.Question == nil || len(op.Question.Options) == 0 {
			return e, permanent("there is no question to ask", "")
		}
		e.Text, e.Question = op.Question.Plain(), questionOf(*op.Question)
	case channel.OpAnswered:
		e.Kind, e.Target, e.Text = control.EventAnswer, op.Target, ""
		if op.Chosen != nil {
			e.Text, e.Value = op.Chosen.Selected, op.Chosen.Value
		}
	case channel.OpCard:
		if op.Card == nil {
			return e, permanent("there is no card to show", "")
		}
		e.Text, e.Card = op.Card.Plain(), cardOf(*op.Card)
	default:
		return e, permanent("the terminal has no operation "+strconv.Quote(string(op.Kind)), "")
	}
	wordless := op.Kind == channel.OpReact || op.Kind == channel.OpAnswered || op.Kind == channel.OpText && len(op.Files) > 0
	switch {
	case !wordless && strings.TrimSpace(e.Text) == "":
		return e, permanent("the text is empty", "")
	case len(e.Text) > control.MaxEntry:
		return e, permanent("the text has "+strconv.Itoa(len(e.Text))+" bytes, more than "+strconv.Itoa(control.MaxEntry), "send it in parts")
	case e.Kind != control.EventMessage && op.Target == "":
		return e, permanent("the operation names no message", "")
	case op.Kind == channel.OpReact && strings.TrimSpace(op.Emoji) == "":
		return e, permanent("the reaction has no emoji", "")
	case op.Part > 0:
		return e, permanent("a text goes to the terminal in one part", "")
	case op.Kind != channel.OpText && len(op.Files) > 0:
		return e, permanent("files go with a text only", "")
	}
	return e, nil
}

func questionOf(q channel.Question) *control.Question {
	out := &control.Question{ID: q.ID, Title: q.Title, Text: q.Text}
	for _, o := range q.Options {
		out.Options = append(out.Options, control.Option{Label: o.Label, Value: o.Value})
	}
	return out
}

func cardOf(c channel.Card) *control.Card {
	out := &control.Card{Title: c.Title, Body: c.Body, Paragraphs: c.Paragraphs}
	for _, l := range c.Links {
		out.Links = append(out.Links, control.Link{Label: l.Label, URL: l.URL})
	}
	return out
}

func permanent(what, hint string) error {
	return &channel.Outcome{Kind: channel.Permanent, Err: errors.New(what), Hint: hint}
}

// Working shows what the agent does to whoever is attached. Nothing of it is kept.
func (a *Adapter) Working(ctx context.Context, to channel.Address, w channel.Work) {
	c, _, release, err := a.use(ctx, to.PlatformID)
	if err != nil {
		return
	}
	defer release()
	c.setWork(control.Work{Working: w.Working, Tool: w.Tool, Queued: w.Queued, Since: control.At(w.Since)})
}

// Settled appends how a message of the operator ended; the first word about a message stays.
func (a *Adapter) Settled(ctx context.Context, s channel.Settlement) error {
	c, ctx, release, err := a.use(ctx, s.Address.PlatformID)
	if err != nil {
		return err
	}
	defer release()
	if err := c.settledSay(ctx); err != nil {
		return err
	}
	_, _, err = c.append(ctx, indexSettled+s.MessageID, control.Event{Kind: control.EventSettled, Target: s.MessageID, State: string(s.State), Reason: s.Reason})
	return err
}

// storeTime bounds a write that must not be given up with its caller.
const storeTime = 10 * time.Second
