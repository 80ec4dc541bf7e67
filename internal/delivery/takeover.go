package delivery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"nanoclaw/internal/channel"
	"nanoclaw/internal/crashpoint"
	"nanoclaw/internal/id"
	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/obs"
	"nanoclaw/internal/store"
)

// TakeOver copies rows and the ends of messages into the ledger, durable on return, and starts their delivery. Every
// destination is checked against central data: the session's own chat, or one the agent has a destination for (P4, P6).
func (s *Service) TakeOver(ctx context.Context, sess store.Session, page mailbox.Page) error {
	in := store.Ingest{Session: sess.ID, OutboundSeq: page.OutboundSeq, AckChange: page.AckChange}
	spoke := map[string]bool{}
	for _, r := range page.Rows {
		v, err := s.route(ctx, sess, r)
		if err != nil {
			return fmt.Errorf("take over outbound rows: %w", err)
		}
		if v.Kind == "chat" {
			spoke[r.Exchange] = true
		}
		in.Rows = append(in.Rows, v)
	}
	for _, b := range page.Bad {
		in.Rows = append(in.Rows, refusedRow(sess, b))
	}
	for _, a := range page.Acks {
		end, err := s.end(ctx, sess, a, spoke)
		if err != nil {
			return fmt.Errorf("take over outbound rows: %w", err)
		}
		in.Ends = append(in.Ends, end)
		switch {
		case a.Exchange == "":
		case a.Status == mailbox.AckCompleted:
			in.Over = append(in.Over, a.Exchange)
		default:
			in.Broken = append(in.Broken, a.Exchange)
		}
	}
	crashpoint.Hit("host.takeover.before")
	fresh, err := s.opt.Store.Ingest(ctx, in)
	if err != nil {
		return err
	}
	crashpoint.Hit("host.takeover")
	for i := range fresh {
		if row := &fresh[i]; row.State == store.Queued {
			s.push(row.Destination, item{row: row})
		} else if row.Kind != string(mailbox.KindTaskLog) {
			s.opt.Closed(row.SessionID)
			s.push(own(sess), item{row: row, refused: true}) // telling needs the session, which waits for this call
		}
	}
	if len(in.Over)+len(in.Broken) > 0 {
		s.tellClosed(ctx)
	}
	return s.Settle(ctx, rowIDs(in.Ends)...)
}

// Finish ends messages without words of an agent: given up, refused. It is durable on return.
func (s *Service) Finish(ctx context.Context, ends ...store.End) error {
	if _, err := s.opt.Store.Ingest(ctx, store.Ingest{Ends: ends}); err != nil {
		return err
	}
	if err := s.opt.Store.CloseQuestions(ctx, rowIDs(ends)...); err != nil {
		return err
	}
	s.tellClosed(ctx)
	return s.Settle(ctx, rowIDs(ends)...)
}

// Settle tells adapters how the messages of these rows ended, after what is on its way to the same places. Rows that are no
// messages are passed over.
func (s *Service) Settle(ctx context.Context, rowIDs ...string) error {
	for _, rowID := range rowIDs {
		m, err := s.opt.Store.MessageByRow(ctx, rowID)
		if errors.Is(err, store.ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		s.push(origin(m), item{message: &m})
	}
	return nil
}

func rowIDs(ends []store.End) []string {
	out := make([]string, 0, len(ends))
	for _, e := range ends {
		out = append(out, e.RowID)
	}
	return out
}

// end names the state of an acknowledged row.
func (s *Service) end(ctx context.Context, sess store.Session, a mailbox.Ack, spoke map[string]bool) (store.End, error) {
	e := store.End{RowID: a.MessageID, State: channel.Silent, Reason: a.Reason}
	if a.Status != mailbox.AckCompleted {
		e.State = channel.Failed
		return e, nil
	}
	answered := a.Exchange != "" && spoke[a.Exchange]
	if !answered {
		var err error
		if answered, err = s.opt.Store.Answered(ctx, sess.ID, a.Exchange); err != nil {
			return e, err
		}
	}
	if answered {
		e.State = channel.Answered
	}
	return e, nil
}

// route resolves where a row goes and whether it may.
func (s *Service) route(ctx context.Context, sess store.Session, r mailbox.OutRow) (store.Ledger, error) {
	var c struct { // what has to be known of the content before it is delivered; odd values are refused then
		Type, Operation string
		Files           json.RawMessage
	}
	_ = json.Unmarshal(r.Content, &c)
	v := store.Ledger{
		ID: id.Ledger(id.New(id.PrefixLedger)), SessionID: sess.ID, OutboundID: r.ID, Seq: r.Seq, Kind: "chat", Content: r.Content,
		Exchange: r.Exchange, Fallback: r.Fallback, State: store.Queued, NotBefore: r.DeliverAfter,
		Destination: store.Destination{PlatformID: r.PlatformID, ThreadID: r.ThreadID}, Files: c.Files != nil,
	}
	refuse := func(state store.LedgerState, reason string) (store.Ledger, error) {
		v.State, v.Reason = state, reason
		return v, nil
	}
	switch r.Kind {
	case mailbox.KindTaskLog:
		v.Kind = "task_log"
		return refuse(store.Sent, "run log")
	case mailbox.KindSystem:
		v.Kind, v.Destination, v.NotBefore = kindSystem, own(sess), time.Time{}
		if _, ok := s.opt.Actions[actionOf(r.Content)]; !ok {
			return refuse(store.Refused, unknownAction)
		}
		return v, nil
	}
	if r.ChannelType == mailbox.ChannelAgent {
		return refuse(store.NoRoute, "messages between agents are not available on this host")
	}
	if r.ChannelType == "" || r.PlatformID == "" {
		return refuse(store.NoRoute, "the message names no chat")
	}
	var own store.MessagingGroup
	var err error
	if sess.MessagingGroupID != "" {
		if own, err = s.opt.Store.MessagingGroupByID(ctx, sess.MessagingGroupID); err != nil {
			return v, err
		}
	}
	chat := own
	if own.ChannelType != r.ChannelType || own.PlatformID != r.PlatformID {
		chat, err = s.opt.Store.ChatByAddress(ctx, r.ChannelType, r.PlatformID, own.Instance)
		if errors.Is(err, store.ErrNotFound) {
			return refuse(store.NoRoute, "there is no such chat")
		}
		if err != nil {
			return v, err
		}
		may, err := s.opt.Store.MaySend(ctx, sess.AgentGroupID, chat.ID)
		if err != nil {
			return v, err
		}
		if !may {
			s.log.Warn("an agent tried to write to a chat it has no destination for", obs.KeySession, string(sess.ID), obs.KeyDestination, r.PlatformID)
			return refuse(store.Refused, "this agent may not write to that chat")
		}
	}
	v.Instance = chat.Instance
	asked := ""
	if r.InReplyTo != "" {
		m, err := s.opt.Store.MessageByRow(ctx, r.InReplyTo)
		if err == nil && m.SessionID == sess.ID {
			v.ReplyTo = m.PlatformMessageID
			if m.Instance == chat.Instance && m.PlatformID == r.PlatformID {
				asked = m.SenderID
			}
		} else if err != nil && !errors.Is(err, store.ErrNotFound) {
			return v, err
		}
	}
	if c.Type == mailbox.TypeQuestion && c.Operation == "" {
		if v.Question, err = s.question(r, asked); err != nil {
			return refuse(store.Refused, err.Error())
		}
	}
	return v, nil
}

// refusedRow keeps a trace of a row nobody could read, under an id of our own where its id is no use.
func refusedRow(sess store.Session, b mailbox.Bad) store.Ledger {
	outbound := b.ID
	if !id.Safe(outbound) {
		outbound = fmt.Sprintf("row-%d", b.Seq)
	}
	return store.Ledger{
		ID: id.Ledger(id.New(id.PrefixLedger)), SessionID: sess.ID, OutboundID: outbound, Seq: b.Seq, Kind: kindSystem, Content: []byte("{}"),
		State: store.Refused, Reason: "the row cannot be read: " + b.Reason, Files: outbound == b.ID,
	}
}
