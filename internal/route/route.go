// Package route decides which agents a platform's event is for, whether its sender may, and into which session it goes; and
// stores it there before the platform gets its acknowledgement (P1; spec/host.md section 7).
package route

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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

// Router routes. Its methods may be called from several goroutines.
type Router struct {
	store *store.Store
	inbox Inbox
	ends  Ends
	log   *slog.Logger
	now   func() time.Time
}

// New makes a Router.
func New(s *store.Store, inbox Inbox, ends Ends, log *slog.Logger) *Router {
	return &Router{store: s, inbox: inbox, ends: ends, log: log.With(obs.KeyComponent, "route"), now: time.Now}
}

// target is one agent an event goes to.
type target struct {
	session store.Session
	row     mailbox.InRow
	message store.Message
}

// Inbound takes one event of an adapter instance. It returns after durable storage: the rows in every target inbox first,
// then dedupe rows and due times in one central transaction. An error means that nothing may be acknowledged; a replay
// repeats idempotent steps only. It blocks for about two commits.
func (r *Router) Inbound(ctx context.Context, info channel.Info, m channel.Inbound) (channel.Verdict, error) {
	if reason := invalid(info, m); reason != "" {
		return r.drop(ctx, info, m, reason)
	}
	chat, err := r.store.MessagingGroup(ctx, info.Instance, m.Address.PlatformID)
	if errors.Is(err, store.ErrNotFound) {
		return r.drop(ctx, info, m, "no agent is wired to this chat")
	}
	if err != nil {
		return channel.Verdict{}, err
	}
	wirings, err := r.store.Wirings(ctx, chat.ID)
	if err != nil {
		return channel.Verdict{}, err
	}
	targets, reason, duplicate, err := r.targets(ctx, info, chat, wirings, m)
	if err != nil {
		return channel.Verdict{}, err
	}
	if len(targets) == 0 {
		if duplicate {
			return channel.Verdict{Kind: channel.Duplicate}, nil
		}
		return r.drop(ctx, info, m, reason)
	}
	crashpoint.Hit("host.inbound")
	messages := make([]store.Message, 0, len(targets))
	for _, t := range targets {
		if err := r.inbox.Put(ctx, t.session, t.row); err != nil {
			return channel.Verdict{}, fmt.Errorf("store message: %w", err)
		}
		messages = append(messages, t.message)
	}
	crashpoint.Hit("host.put")
	ended, err := r.store.Accept(ctx, messages)
	if err != nil {
		return channel.Verdict{}, err
	}
	if len(ended) > 0 {
		if err := r.ends.Settle(ctx, ended...); err != nil {
			return channel.Verdict{}, err
		}
	}
	crashpoint.Hit("host.accepted")
	for _, t := range targets {
		if t.row.Trigger {
			r.inbox.Wake(t.session.ID)
		}
	}
	return channel.Verdict{Kind: channel.Stored}, nil
}

// targets builds the rows for every wiring that takes the event. reason says why the last one did not.
func (r *Router) targets(ctx context.Context, info channel.Info, chat store.MessagingGroup, wirings []store.Wiring, m channel.Inbound) (out []target, reason string, duplicate bool, err error) {
	reason = "no agent is wired to this chat"
	var all []store.Choice
	for _, w := range wirings {
		standing, err := r.store.Standing(ctx, id.User(m.Sender.ID), w.AgentGroupID)
		if err != nil {
			return nil, "", false, err
		}
		d := Decide(Facts{Policy: string(chat.UnknownSenderPolicy), Scope: string(w.SenderScope), Access: standing.Access(), Admin: standing.Admin(), Mode: string(w.EngageMode), Pattern: w.EngagePattern,
			Ignored: string(w.IgnoredMessagePolicy), Mention: m.Mention, Group: m.Group, Text: m.Text})
		all = append(all, store.Choice{Wiring: w.ID, Group: w.AgentGroupID, Action: string(d.Action), Reason: d.Reason})
		if d.Action == Drop {
			reason = d.Reason
			continue
		}
		seen, err := r.store.Seen(ctx, info.Instance, m.Address.PlatformID, m.ID, w.AgentGroupID)
		if err != nil {
			return nil, "", false, err
		}
		if seen {
			duplicate = true
			continue
		}
		t, err := r.target(ctx, info, chat, w, m, d.Action == Engage)
		if err != nil {
			return nil, "", false, err
		}
		out = append(out, t)
	}
	for i := range out {
		out[i].message.Routed = all
	}
	return out, reason, duplicate, nil
}

func (r *Router) target(ctx context.Context, info channel.Info, chat store.MessagingGroup, w store.Wiring, m channel.Inbound, trigger bool) (target, error) {
	key, thread := sessionKey(w, chat, m.Address.ThreadID)
	sess, err := r.store.ResolveSession(ctx, key, w.AgentGroupID, chat.ID, thread)
	if err != nil {
		return target{}, err
	}
	content, err := mailbox.EncodeContent(chatIn(m))
	if err != nil {
		return target{}, err
	}
	row := mailbox.InRow{
		ID: id.Inbound(info.Instance, m.Address.PlatformID, m.ID, w.AgentGroupID), Kind: mailbox.KindChat, Timestamp: m.At, Trigger: trigger,
		Address:           mailbox.Address{ChannelType: info.Type, PlatformID: m.Address.PlatformID, ThreadID: m.Address.ThreadID},
		Content:           content,
		PlatformMessageID: m.ID,
	}
	if row.Timestamp.IsZero() {
		row.Timestamp = r.now()
	}
	return target{session: sess, row: row, message: store.Message{
		Instance: info.Instance, PlatformID: m.Address.PlatformID, ThreadID: m.Address.ThreadID, PlatformMessageID: m.ID,
		AgentGroupID: w.AgentGroupID, RowID: row.ID, SessionID: sess.ID, SenderID: m.Sender.ID, Trigger: trigger,
	}}, nil
}

// drop records a refused event. Its text is not kept.
func (r *Router) drop(ctx context.Context, info channel.Info, m channel.Inbound, reason string) (channel.Verdict, error) {
	r.log.Info("message dropped", obs.KeyChannel, info.Instance, obs.KeyMessage, m.ID, obs.KeyReason, reason)
	detail, err := mailbox.EncodeContent(map[string]string{"platform_id": m.Address.PlatformID, "message_id": m.ID, "reason": reason})
	if err != nil {
		return channel.Verdict{}, err
	}
	if err := r.store.Audit(ctx, store.AuditEntry{Actor: m.Sender.ID, Action: "message.drop", Subject: info.Instance, Detail: detail}); err != nil {
		return channel.Verdict{}, err
	}
	return channel.Verdict{Kind: channel.Dropped, Reason: reason}, nil
}

// sessionKey names the conversation an event belongs to (spec/host.md section 7.9).
func sessionKey(w store.Wiring, chat store.MessagingGroup, thread string) (key, kept string) {
	switch w.SessionMode {
	case "agent-shared":
		return string(w.AgentGroupID), ""
	case "per-thread":
		return string(w.AgentGroupID) + "|" + string(chat.ID) + "|" + thread, thread
	default:
		return string(w.AgentGroupID) + "|" + string(chat.ID), ""
	}
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
	case m.Sender.ID == "" || len(m.Sender.ID) <= len(info.Type) || m.Sender.ID[:len(info.Type)+1] != info.Type+":":
		return "the sender's id does not belong to this channel"
	case m.Text == "" && len(m.Attachments) == 0:
		return "the message is empty"
	case len(m.Text) > maxText:
		return fmt.Sprintf("the message is longer than %d KiB", maxText>>10)
	}
	return ""
}
