// Package route decides which agents a platform's event is for, whether its sender may, and into which session it goes; and
// stores it there before the platform gets its acknowledgement (P1; spec/host.md section 7).
package route

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"nanoclaw/internal/channel"
	"nanoclaw/internal/crashpoint"
	"nanoclaw/internal/id"
	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/obs"
	"nanoclaw/internal/store"
)

// Inbox is the sessions' side: rows go in durably, then the session is woken.
type Inbox interface {
	// Put stores rows in the session's inbox, durable on return and idempotent by row id.
	Put(ctx context.Context, s store.Session, rows ...mailbox.InRow) error
	// Attach stores a file of a row before the row, at most max bytes of it, durable on return and idempotent by row and name. It
	// returns the path as content names it.
	Attach(ctx context.Context, s store.Session, rowID, name string, r io.Reader, max int64) (string, error)
	// Wake makes the session look at its inbox. It neither blocks nor fails: what it misses the sweep finds.
	Wake(s id.Session)
}

// Ends tells adapters how messages ended.
type Ends interface {
	// Settle tells the end of rows whose messages are final.
	Settle(ctx context.Context, rowIDs ...string) error
}

// maxText of an inbound message, in bytes (spec/host.md section 28.2).
const maxText = 256 << 10

// Options of a Router.
type Options struct {
	Store         *store.Store
	Inbox         Inbox
	Ends          Ends
	Voice         Voice
	Keeper        Keeper
	MaxAttachment int64 // bytes of one attachment
	Log           *slog.Logger
	Now           func() time.Time // nil is time.Now
}

// Router routes. Its methods may be called from several goroutines.
type Router struct {
	opt Options
	log *slog.Logger

	mu       sync.Mutex
	patterns map[[2]string]Pattern
	reported map[string]bool
}

// New makes a Router.
func New(opt Options) *Router {
	if opt.Now == nil {
		opt.Now = time.Now
	}
	return &Router{opt: opt, log: opt.Log.With(obs.KeyComponent, "route"), patterns: map[[2]string]Pattern{}, reported: map[string]bool{}}
}

// target is one agent an event goes to.
type target struct {
	session store.Session
	row     mailbox.InRow
	message store.Message
}

// Inbound takes one event of an adapter instance. It returns after durable storage: the rows in every target inbox first,
// then dedupe rows and due times in one central transaction. An error means that nothing may be acknowledged; a replay
// repeats idempotent steps only. It blocks for about two commits, and as long as attachments take.
func (r *Router) Inbound(ctx context.Context, info channel.Info, m channel.Inbound) (channel.Verdict, error) {
	v, err := r.route(ctx, info, m, Grant{}, false)
	if errors.Is(err, errDecided) {
		return r.route(ctx, info, m, Grant{}, true)
	}
	return v, err
}

// Replay takes an event again that was held, after the decision on it, whose effects may still be those of g only. What was stored
// of it as context engages now if its wiring says so (spec/host.md section 7.11); what was stored to be answered stays as it is.
func (r *Router) Replay(ctx context.Context, info channel.Info, m channel.Inbound, g Grant) (channel.Verdict, error) {
	return r.route(ctx, info, m, g, true)
}

// Test decides an event and does nothing.
func (r *Router) Test(ctx context.Context, info channel.Info, m channel.Inbound) (Plan, error) {
	return r.plan(ctx, info, m, Grant{})
}

func (r *Router) route(ctx context.Context, info channel.Info, m channel.Inbound, g Grant, replay bool) (channel.Verdict, error) {
	if !info.Caps.Threads {
		m.Address.ThreadID = ""
	}
	p, err := r.plan(ctx, info, m, g)
	switch {
	case err != nil:
		return channel.Verdict{}, err
	case p.Invalid != "":
		return r.drop(ctx, info, m, CodeInvalid, p.Invalid, true)
	case len(p.Choices) == 0:
		return r.unwired(ctx, info, m, p)
	}
	stored, duplicate, err := r.fanOut(ctx, info, m, p, replay)
	if err != nil {
		return channel.Verdict{}, err
	}
	if err := r.answer(ctx, m, p, stored || duplicate); err != nil {
		return channel.Verdict{}, err
	}
	why, refused := worst(p.Choices)
	switch {
	case stored || duplicate:
		if refused && why.Code != CodeNotEngaged && stored {
			if _, err := r.drop(ctx, info, m, why.Code, why.Reason, false); err != nil {
				return channel.Verdict{}, err
			}
		}
		if !stored {
			return channel.Verdict{Kind: channel.Duplicate}, nil
		}
		return channel.Verdict{Kind: channel.Stored}, nil
	case refused:
		return r.drop(ctx, info, m, why.Code, why.Reason, true)
	}
	return r.drop(ctx, info, m, CodeInvalid, "the message cannot be stored", true) // every inbox refused the row
}

// unwired deals with an event of a chat that no agent is wired to.
func (r *Router) unwired(ctx context.Context, info channel.Info, m channel.Inbound, p Plan) (channel.Verdict, error) {
	const reason = "no agent is wired to this chat"
	if p.Silent {
		return channel.Verdict{Kind: channel.Dropped, Reason: reason}, nil
	}
	if p.register {
		chat, err := r.opt.Store.RegisterChat(ctx, p.Chat)
		if err != nil {
			return channel.Verdict{}, err
		}
		p.Chat = chat
	}
	if p.Ask {
		if err := r.hold(ctx, Held{Kind: HeldChat, Chat: p.Chat, Sender: m.Sender, Event: m}); err != nil {
			return channel.Verdict{}, err
		}
	}
	return r.drop(ctx, info, m, CodeNotWired, reason, true)
}

// fanOut stores an event for every agent that takes it. One that fails does not keep the others from it; its error comes after
// they have theirs. A row that an inbox will never take is left out.
func (r *Router) fanOut(ctx context.Context, info channel.Info, m channel.Inbound, p Plan, replay bool) (stored, duplicate bool, err error) {
	var chosen []Choice
	routed := make([]store.Choice, 0, len(p.Choices))
	for _, c := range p.Choices {
		routed = append(routed, store.Choice{Wiring: c.ID, Group: c.AgentGroupID, Action: string(c.Action), Reason: c.Reason})
		switch {
		case c.Seen != "" && !(replay && c.Seen == "context" && c.Action == Engage):
			duplicate = true // whatever would be decided today
		case c.Action == Keep || c.Action == Engage:
			chosen = append(chosen, c)
		}
	}
	if len(chosen) == 0 {
		return false, duplicate, nil
	}
	crashpoint.Hit("host.inbound")
	targets, errs := make([]target, len(chosen)), make([]error, len(chosen))
	var wait sync.WaitGroup
	for i := range chosen[1:] {
		wait.Go(func() { targets[i+1], errs[i+1] = r.put(ctx, info, chosen[i+1], m) })
	}
	targets[0], errs[0] = r.put(ctx, info, chosen[0], m)
	wait.Wait()
	crashpoint.Hit("host.put")
	var messages []store.Message
	for i, t := range targets {
		if errs[i] == nil {
			t.message.Routed = routed
			messages = append(messages, t.message)
		} else if errors.Is(errs[i], mailbox.ErrInvalid) {
			r.log.Error("a message cannot be stored for an agent", obs.KeyMessage, m.ID, obs.KeyGroup, string(chosen[i].AgentGroupID), obs.Error(errs[i]))
			errs[i] = nil
		}
	}
	if len(messages) > 0 {
		ended, err := r.opt.Store.Accept(ctx, messages)
		if err != nil {
			return false, false, errors.Join(append(errs, err)...)
		}
		if len(ended) > 0 {
			if err := r.opt.Ends.Settle(ctx, ended...); err != nil {
				return false, false, err
			}
		}
		crashpoint.Hit("host.accepted")
	}
	for _, t := range targets {
		if t.row.Trigger {
			r.opt.Inbox.Wake(t.session.ID)
		}
	}
	return len(messages) > 0, duplicate, errors.Join(errs...)
}

// put makes the row of one agent and stores it in its inbox, after its attachments.
func (r *Router) put(ctx context.Context, info channel.Info, c Choice, m channel.Inbound) (target, error) {
	fail := func(err error) (target, error) {
		return target{}, fmt.Errorf("store message for %s: %w", c.AgentGroupID, err)
	}
	sess, err := r.opt.Store.ResolveSession(ctx, c.Key, c.AgentGroupID, c.session.Chat, c.session.Thread)
	if err != nil {
		return fail(err)
	}
	trigger := c.Action == Engage
	rowID := id.Inbound(info.Instance, m.Address.PlatformID, m.ID, c.AgentGroupID)
	if !trigger { // a row of its own, so that the same event can engage later, whatever became of this one
		rowID = id.Derived(id.PrefixMessage, "context", rowID)
	}
	words := chatIn(m)
	if len(m.Attachments) > 0 {
		if words.Attachments, err = r.stage(ctx, sess, rowID, m.Attachments); err != nil {
			return fail(err)
		}
	}
	content, err := mailbox.EncodeContent(words)
	if err != nil {
		return fail(err)
	}
	row := mailbox.InRow{
		ID: rowID, Kind: mailbox.KindChat, Timestamp: m.At, Trigger: trigger,
		Address:           mailbox.Address{ChannelType: info.Type, PlatformID: m.Address.PlatformID, ThreadID: c.Thread},
		Content:           content,
		PlatformMessageID: m.ID,
	}
	if row.Timestamp.IsZero() {
		row.Timestamp = r.opt.Now()
	}
	if err := r.opt.Inbox.Put(ctx, sess, row); err != nil {
		return fail(err)
	}
	t := target{session: sess, row: row, message: store.Message{
		Instance: info.Instance, PlatformID: m.Address.PlatformID, ThreadID: m.Address.ThreadID, PlatformMessageID: m.ID,
		AgentGroupID: c.AgentGroupID, RowID: row.ID, SessionID: sess.ID, SenderID: m.Sender.ID, SenderName: m.Sender.Name, Trigger: trigger,
	}}
	if c.EngageMode == store.EngageSticky {
		t.message.Sticky = store.Sticky{Chat: c.MessagingGroupID, Thread: c.Thread}
	}
	return t, nil
}

// answer does what a refused event leads to beside being counted: a question to those who decide, a polite refusal, a word
// about a command. taken: some agent has the event.
func (r *Router) answer(ctx context.Context, m channel.Inbound, p Plan, taken bool) error {
	ask := Held{Kind: HeldSender, Chat: p.Chat, Sender: m.Sender, Event: m}
	decline := false
	for _, c := range p.Choices {
		switch {
		case c.Seen != "": // it was decided when it came first
		case c.Action == Hold:
			ask.Agents = append(ask.Agents, c.AgentGroupID)
		case c.Action == Decline:
			decline = true
		case c.Action == Refuse && c.Standing.Access(): // a stranger in a public chat hears nothing
			to := store.Destination{Instance: p.Chat.Instance, PlatformID: p.Chat.PlatformID, ThreadID: c.Thread}
			key := "refuse|" + id.Inbound(p.Chat.Instance, m.Address.PlatformID, m.ID, c.AgentGroupID)
			if err := r.opt.Voice.Say(ctx, to, key, c.Reason+" of "+c.AgentName+"."); err != nil {
				return err
			}
		}
	}
	if len(ask.Agents) > 0 {
		return r.hold(ctx, ask)
	}
	if decline && !taken {
		ask.Kind = HeldDeclined
		return r.hold(ctx, ask)
	}
	return nil
}

// drop counts an event that some agent, or none at all (whole), did not take. Its text is not kept.
func (r *Router) drop(ctx context.Context, info channel.Info, m channel.Inbound, code Code, reason string, whole bool) (channel.Verdict, error) {
	r.log.Info("message dropped", obs.KeyChannel, info.Instance, obs.KeyMessage, m.ID, obs.KeyCode, string(code), obs.KeyReason, reason)
	sender := id.User(m.Sender.ID)
	if code == CodeInvalid {
		sender = "" // what it says of itself cannot be relied on
	}
	err := r.opt.Store.NoteDropped(ctx, store.Dropped{Instance: info.Instance, PlatformID: m.Address.PlatformID, User: sender, Name: m.Sender.Name, Reason: string(code)})
	if err != nil || !whole {
		return channel.Verdict{}, err
	}
	detail, err := mailbox.EncodeContent(map[string]string{"platform_id": m.Address.PlatformID, "message_id": m.ID, "reason": reason})
	if err != nil {
		return channel.Verdict{}, err
	}
	if err := r.opt.Store.Audit(ctx, store.AuditEntry{Actor: m.Sender.ID, Action: "message.drop", Subject: info.Instance, Detail: detail}); err != nil {
		return channel.Verdict{}, err
	}
	return channel.Verdict{Kind: channel.Dropped, Reason: reason}, nil
}

func chatIn(m channel.Inbound) mailbox.ChatIn {
	c := mailbox.ChatIn{Text: m.Text, Sender: m.Sender.Name, SenderID: m.Sender.ID}
	if m.ReplyTo != nil {
		c.ReplyTo = &mailbox.ReplyTo{ID: m.ReplyTo.ID, Sender: m.ReplyTo.Sender, Text: m.ReplyTo.Text}
	}
	return c
}

func invalid(info channel.Info, m channel.Inbound) string {
	switch {
	case m.ID == "":
		return "the event has no id"
	case m.Address.PlatformID == "":
		return "the event names no chat"
	case !ownUser(info.Type, m.Sender.ID):
		return "the sender's id does not belong to this channel"
	case m.Text == "" && len(m.Attachments) == 0:
		return "the message is empty"
	case len(m.Text) > maxText:
		return fmt.Sprintf("the message is longer than %d KiB", maxText>>10)
	}
	return ""
}

// ownUser: the channel vouches for its own users only (W42).
func ownUser(channelType, user string) bool {
	of, _, err := id.ParseUser(user)
	return err == nil && of == channelType
}
