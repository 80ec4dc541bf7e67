// Package chatnet is chat platforms for tests: people say things, the platform keeps what arrives, fails as it is told and
// notes by itself every promise of a host that was broken. A Platform outlives the hosts that run it as an adapter.
package chatnet

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
	"unicode/utf16"

	"nanoclaw/internal/channel"
)

// Post is what a person can see in a conversation.
type Post struct {
	ID        string
	Address   channel.Address
	Op        channel.Op
	Edited    string   // text of the last edit
	Closed    string   // what an answered question shows
	Reactions []string // in their order
	Deleted   bool
}

// Fault is how one operation fails. The zero Fault is success.
type Fault struct {
	Outcome *channel.Outcome
	Arrived bool          // the operation took effect nevertheless
	Hang    chan struct{} // Deliver first waits for it, or for the end of its context
}

// Platform is one account on a platform.
type Platform struct {
	info channel.Info

	mu       sync.Mutex
	changed  chan struct{} // closed and replaced at every change
	host     channel.Host
	posts    []Post
	faults   map[string][]Fault // by platform id
	ops      map[string]*operation
	order    map[channel.Address][]string // keys by their first try
	busy     map[channel.Address]bool
	settled  []channel.Settlement
	problems []string
	calls    int
	said     int
}

// operation is what the platform knows of a key.
type operation struct {
	kind     channel.OpKind
	text     string
	arrivals int
	receipt  channel.Receipt
}

// New makes a platform whose type and only instance have that name.
func New(name string, caps channel.Caps, maxText int) *Platform {
	return &Platform{info: channel.Info{Type: name, Instance: name, Caps: caps, MaxText: maxText}, changed: make(chan struct{}),
		faults: map[string][]Fault{}, ops: map[string]*operation{}, order: map[channel.Address][]string{}, busy: map[channel.Address]bool{}}
}

var (
	_ channel.Adapter = (*Platform)(nil)
	_ channel.Settler = (*Platform)(nil)
)

// Info implements channel.Adapter.
func (p *Platform) Info() channel.Info { return p.info }

// Status implements channel.Adapter.
func (p *Platform) Status() channel.Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.host == nil {
		return channel.Status{State: channel.Stopped}
	}
	return channel.Status{State: channel.Connected}
}

// Run implements channel.Adapter.
func (p *Platform) Run(ctx context.Context, h channel.Host) error {
	p.attach(h)
	<-ctx.Done()
	p.attach(nil)
	return nil
}

func (p *Platform) attach(h channel.Host) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.host = h
	p.changedLocked()
}

func (p *Platform) changedLocked() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// Settled implements channel.Settler.
func (p *Platform) Settled(_ context.Context, s channel.Settlement) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.settled = append(p.settled, s)
	p.changedLocked()
	return nil
}

// Say is a person who writes to us; it waits for a host, and repeats the event until a host has stored it. It returns the id of the
// message; what the host did not want is an error.
func (p *Platform) Say(ctx context.Context, user, platformID, text string) (string, error) {
	m, v, err := p.Write(ctx, channel.Inbound{Address: channel.Address{PlatformID: platformID}, Text: text, Sender: channel.Sender{ID: user, Name: user}, Mention: channel.Yes})
	if err == nil && v.Kind == channel.Dropped {
		err = errors.New("the message was dropped: " + v.Reason)
	}
	return m, err
}

// Write is any event of the platform: an id and a time are added. It waits and repeats as Say does, and returns the host's verdict.
func (p *Platform) Write(ctx context.Context, m channel.Inbound) (string, channel.Verdict, error) {
	p.mu.Lock()
	p.said++
	m.ID, m.Kind, m.At = fmt.Sprintf("%s-in-%d", p.info.Type, p.said), "chat", time.Now()
	p.mu.Unlock()
	v, err := p.until(ctx, func(h channel.Host) (channel.Verdict, error) { return h.Inbound(ctx, m) })
	if err != nil {
		err = fmt.Errorf("no host took %q: %w", m.Text, err)
	}
	return m.ID, v, err
}

// Press is a person who presses an option of a post; it waits for a host.
func (p *Platform) Press(ctx context.Context, user string, post Post, value string) (channel.Verdict, error) {
	if post.Op.Question == nil {
		return channel.Verdict{}, errors.New("the post asks nothing")
	}
	a := channel.Answer{QuestionID: post.Op.Question.ID, Value: value, Address: post.Address, Sender: channel.Sender{ID: user, Name: user}}
	return p.until(ctx, func(h channel.Host) (channel.Verdict, error) { return h.Answer(ctx, a) })
}

// until calls a host until one has done it.
func (p *Platform) until(ctx context.Context, do func(channel.Host) (channel.Verdict, error)) (channel.Verdict, error) {
	for {
		p.mu.Lock()
		h, changed := p.host, p.changed
		p.mu.Unlock()
		if h != nil {
			if v, err := do(h); err == nil {
				return v, nil
			}
		}
		select {
		case <-ctx.Done():
			return channel.Verdict{}, ctx.Err()
		case <-changed:
		}
	}
}

// Fail makes the next operations in a chat end as given, one after the other.
func (p *Platform) Fail(platformID string, faults ...Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults[platformID] = append(p.faults[platformID], faults...)
}

// Deliver implements channel.Adapter.
func (p *Platform) Deliver(ctx context.Context, to channel.Address, op channel.Op, key string) (channel.Receipt, error) {
	known, fault, leave := p.enter(to, op, key)
	defer leave()
	if fault.Hang != nil {
		select {
		case <-fault.Hang:
		case <-ctx.Done():
			return channel.Receipt{}, &channel.Outcome{Kind: channel.Ambiguous, Err: ctx.Err()}
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.changedLocked()
	if fault.Outcome != nil && !fault.Arrived {
		return channel.Receipt{}, fault.Outcome
	}
	if known.arrivals > 0 && p.info.Caps.Idempotent {
		return known.receipt, nil
	}
	if known.arrivals > 0 && (known.arrivals > 1 || !op.Marked) {
		p.problemLocked("%q arrived %d times, marked %v", op.Text, known.arrivals+1, op.Marked)
	}
	if err := p.applyLocked(to, op, known); err != nil {
		return channel.Receipt{}, err
	}
	known.arrivals++
	if fault.Outcome != nil {
		return channel.Receipt{}, fault.Outcome
	}
	return known.receipt, nil
}

// enter notes the try of a key and takes the fault it meets.
func (p *Platform) enter(to channel.Address, op channel.Op, key string) (*operation, Fault, func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls++
	if p.busy[to] {
		p.problemLocked("two operations at a time in %v", to)
	}
	p.busy[to] = true
	known := p.ops[key]
	if known == nil {
		known = &operation{kind: op.Kind, text: op.Text}
		p.ops[key] = known
		p.order[to] = append(p.order[to], key)
	} else if keys := p.order[to]; len(keys) == 0 || keys[len(keys)-1] != key {
		p.problemLocked("%q was sent behind what came later", op.Text)
	}
	if known.kind != op.Kind || known.text != op.Text {
		p.problemLocked("the key of %q was used for %q", known.text, op.Text)
	}
	var fault Fault
	if rest := p.faults[to.PlatformID]; len(rest) > 0 {
		fault, p.faults[to.PlatformID] = rest[0], rest[1:]
	}
	p.changedLocked()
	return known, fault, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.busy[to] = false
	}
}

func (p *Platform) applyLocked(to channel.Address, op channel.Op, known *operation) error {
	c := p.info.Caps
	able := map[channel.OpKind]bool{channel.OpText: true, channel.OpEdit: c.Edit, channel.OpReact: c.React, channel.OpQuestion: c.Buttons,
		channel.OpAnswered: c.Buttons, channel.OpCard: c.Cards, channel.OpDelete: c.Delete}
	if !able[op.Kind] || len(op.Files) > 0 && !c.Files {
		p.problemLocked("asked for %s with %d files, which this platform cannot", op.Kind, len(op.Files))
	}
	part, more, err := p.cut(op)
	if err != nil {
		return err
	}
	if op.Kind == channel.OpDelete || op.Kind == channel.OpEdit && op.Target != "" || op.Kind == channel.OpReact || op.Kind == channel.OpAnswered {
		for i := range p.posts {
			v := &p.posts[i]
			if v.ID != op.Target || v.Address.PlatformID != to.PlatformID {
				continue
			}
			switch op.Kind {
			case channel.OpEdit:
				v.Edited = part
			case channel.OpReact:
				v.Reactions = append(v.Reactions, op.Emoji)
			case channel.OpDelete:
				v.Deleted = true
			case channel.OpAnswered:
				if v.Closed = "nobody answers"; op.Chosen != nil {
					v.Closed = op.Chosen.Selected
				}
			}
			known.receipt = channel.Receipt{IDs: []string{v.ID}, More: more}
			return nil
		}
		return &channel.Outcome{Kind: channel.Permanent, Err: fmt.Errorf("there is no message %q", op.Target)}
	}
	v := Post{ID: fmt.Sprintf("%s-out-%d", p.info.Type, len(p.posts)+1), Address: to, Op: op}
	v.Op.Files = nil // they are closed after Deliver
	v.Op.Text = part
	p.posts = append(p.posts, v)
	known.receipt = channel.Receipt{IDs: []string{v.ID}, More: more}
	return nil
}

// cut is the part of the text that an operation asks for. The cuts are as coarse as it gets; where a text is best cut is no matter here.
func (p *Platform) cut(op channel.Op) (part string, more bool, err error) {
	rest := []rune(op.Text)
	if p.info.MaxText == 0 {
		if op.Part > 0 {
			return "", false, &channel.Outcome{Kind: channel.Permanent, Err: fmt.Errorf("there is no part %d", op.Part)}
		}
		return op.Text, false, nil
	}
	for i := 0; ; i++ {
		n, units := 0, 0
		for n < len(rest) && units+utf16.RuneLen(rest[n]) <= p.info.MaxText {
			units += utf16.RuneLen(rest[n])
			n++
		}
		if i == op.Part && (n > 0 || i == 0) {
			return string(rest[:n]), n < len(rest), nil
		}
		if rest = rest[n:]; len(rest) == 0 {
			return "", false, &channel.Outcome{Kind: channel.Permanent, Err: fmt.Errorf("there is no part %d", op.Part)}
		}
	}
}

func (p *Platform) problemLocked(format string, args ...any) {
	p.problems = append(p.problems, p.info.Type+": "+fmt.Sprintf(format, args...))
}

// Problems are the promises that were broken.
func (p *Platform) Problems() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.problems...)
}

// State of a platform at one moment.
type State struct {
	Posts   []Post // of one chat
	Settled []channel.Settlement
	Calls   int // of Deliver, begun
}

// Texts of the posts in their order.
func (s State) Texts() []string {
	out := make([]string, 0, len(s.Posts))
	for _, v := range s.Posts {
		out = append(out, v.Op.Text)
	}
	return out
}

// Await waits until done accepts what is seen in a chat, and returns it.
func (p *Platform) Await(ctx context.Context, platformID string, done func(State) bool) (State, error) {
	for {
		p.mu.Lock()
		s, changed := p.stateLocked(platformID), p.changed
		p.mu.Unlock()
		if done(s) {
			return s, nil
		}
		select {
		case <-ctx.Done():
			return s, fmt.Errorf("%s: waited in vain, posts so far %q: %w", p.info.Type, s.Texts(), ctx.Err())
		case <-changed:
		}
	}
}

func (p *Platform) stateLocked(platformID string) State {
	s := State{Calls: p.calls}
	for _, v := range p.posts {
		if v.Address.PlatformID == platformID {
			s.Posts = append(s.Posts, v)
		}
	}
	for _, v := range p.settled {
		if v.Address.PlatformID == platformID {
			s.Settled = append(s.Settled, v)
		}
	}
	return s
}
