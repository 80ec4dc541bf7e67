package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"nanoclaw/internal/id"
	"nanoclaw/internal/mailbox"
)

// HeldMessage is a message that waits for a decision.
type HeldMessage struct {
	Ord   int64  // place among those of its approval; set when read
	ID    string // of the platform
	Event json.RawMessage
}

// HoldLimits bound what strangers can make a home keep and ask.
type HoldLimits struct {
	Life     time.Duration // of an undecided approval
	Quiet    time.Duration // after a rejection, before somebody is asked again
	PerHour  int           // new approvals
	Open     int           // undecided approvals
	Messages int           // that one approval keeps
	Bytes    int           // of them
}

// HoldOutcome is what became of an event that was to be held.
type HoldOutcome string

// Outcomes of Hold.
const (
	HoldAsk   HoldOutcome = "ask"   // kept, and somebody is to be asked
	HoldAdd   HoldOutcome = "add"   // kept, or kept before, with what waits already
	HoldQuiet HoldOutcome = "quiet" // not kept: it was decided before
	HoldFull  HoldOutcome = "full"  // not kept: a limit is reached
	HoldMoot  HoldOutcome = "moot"  // not kept: there is nothing to decide any more; route it again
)

// Hold keeps a message that came at a.CreatedAt until somebody decides, in one transaction. Of a sender, a.Agents are those the message was for; each of
// them is asked about once at a time, and not again for limits.Quiet after a rejection, never after a block.
func (s *Store) Hold(ctx context.Context, a Approval, m HeldMessage, limits HoldLimits) (out HoldOutcome, err error) {
	err = s.tx(ctx, "hold message", func(tx *txn) error {
		var wait []id.Approval
		if a.Action == ChannelsRegister {
			wait, out, err = s.chatWaits(ctx, tx, a)
		} else {
			wait, a.Agents, out, err = s.senderWaits(ctx, tx, a, limits)
		}
		if err != nil || out == HoldMoot {
			return err
		}
		ask := out == HoldAsk
		for _, w := range wait {
			kept, err := keepHeld(ctx, tx, w, m, limits)
			if err != nil {
				return err
			}
			if out = HoldAdd; !kept {
				out = HoldFull
			}
		}
		if !ask {
			return nil
		}
		out, err = s.newApproval(ctx, tx, a, m, limits)
		return err
	})
	return out, err
}

func (s *Store) newApproval(ctx context.Context, tx *txn, a Approval, m HeldMessage, limits HoldLimits) (HoldOutcome, error) {
	now := a.CreatedAt
	var hour, open int
	if err := tx.QueryRowContext(ctx, `SELECT (SELECT COUNT(*) FROM approvals WHERE created_at > ?), (SELECT COUNT(*) FROM approvals WHERE done = 0)`,
		mailbox.FormatTime(now.Add(-time.Hour))).Scan(&hour, &open); err != nil {
		return "", err
	}
	if hour >= limits.PerHour || open >= limits.Open {
		return HoldFull, nil
	}
	agents := a.Agents
	if agents == nil {
		agents = []id.AgentGroup{}
	}
	list, err := mailbox.EncodeContent(agents)
	if err != nil {
		return "", err
	}
	if _, err := tx.ExecContext(ctx, `INSERT INTO approvals (id, action, messaging_group_id, sender_id, sender_name, agents, created_at, expires_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?)`, a.ID, a.Action, a.Chat, a.Sender, a.SenderName, string(list), mailbox.FormatTime(now),
		mailbox.FormatTime(now.Add(limits.Life))); err != nil {
		return "", err
	}
	if _, err := keepHeld(ctx, tx, a.ID, m, limits); err != nil {
		return "", err
	}
	return HoldAsk, s.auditIn(ctx, tx, string(a.Sender), "approval.hold", string(a.ID), map[string]string{"action": string(a.Action), "chat": string(a.Chat), "agents": string(list)})
}

// keepHeld adds a message to an approval, unless it is there or a limit is reached; the first one is always taken.
func keepHeld(ctx context.Context, tx *txn, approval id.Approval, m HeldMessage, limits HoldLimits) (bool, error) {
	var known, count, size int
	var last int64
	if err := tx.QueryRowContext(ctx, `SELECT COALESCE(SUM(message_id = ?), 0), COUNT(*), COALESCE(SUM(length(event)), 0), COALESCE(MAX(ord), 0) FROM held_messages
		WHERE approval_id = ?`, m.ID, approval).Scan(&known, &count, &size, &last); err != nil {
		return false, err
	}
	if known > 0 {
		return true, nil
	}
	if count > 0 && (count >= limits.Messages || size+len(m.Event) > limits.Bytes) {
		return false, nil
	}
	_, err := tx.ExecContext(ctx, `INSERT INTO held_messages (approval_id, ord, message_id, event) VALUES (?, ?, ?, ?)`, approval, last+1, m.ID, string(m.Event))
	return true, err
}

// senderWaits finds the approvals that a sender's message belongs to, and the agents that nobody was asked about yet.
func (s *Store) senderWaits(ctx context.Context, tx *txn, a Approval, limits HoldLimits) (wait []id.Approval, rest []id.AgentGroup, out HoldOutcome, err error) {
	rows, err := tx.QueryContext(ctx, `SELECT `+approvalColumns+` FROM approvals a WHERE a.sender_id = ? AND a.action = ? ORDER BY a.created_at`, a.Sender, SendersAdmit)
	if err != nil {
		return nil, nil, "", err
	}
	all, err := collect(rows, "list approvals", (*Approval).fields)
	if err != nil {
		return nil, nil, "", err
	}
	now := a.CreatedAt
	without := func(from, agents []id.AgentGroup) []id.AgentGroup {
		return slices.DeleteFunc(slices.Clone(from), func(g id.AgentGroup) bool { return slices.Contains(agents, g) })
	}
	rest = a.Agents
	for _, v := range all {
		if v.Chat == a.Chat && (v.Open(now) || v.Status == ApprovalApproved && !v.Done) {
			if left := without(rest, v.Agents); len(left) < len(rest) {
				wait, rest = append(wait, v.ID), left
			}
		}
	}
	for _, g := range rest {
		var v Standing
		if err := tx.QueryRowContext(ctx, sqlStanding, a.Sender, g).Scan(&v); err != nil {
			return nil, nil, "", err
		}
		if v.Access() {
			return nil, nil, HoldMoot, nil
		}
	}
	out = HoldQuiet
	for _, v := range all {
		if v.Status == ApprovalRejected && (v.Choice == ChoiceBlock || v.Chat == a.Chat && now.Sub(v.DecidedAt) < limits.Quiet) {
			rest = without(rest, v.Agents)
		}
	}
	if len(rest) > 0 {
		out = HoldAsk
	}
	return wait, rest, out, nil
}

// chatWaits finds the approval that a message of an unwired chat belongs to.
func (s *Store) chatWaits(ctx context.Context, tx *txn, a Approval) (wait []id.Approval, out HoldOutcome, err error) {
	var wired, denied bool
	if err := tx.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM wirings WHERE messaging_group_id = ?1), EXISTS (SELECT 1 FROM messaging_groups
		WHERE id = ?1 AND denied_at IS NOT NULL)`, a.Chat).Scan(&wired, &denied); err != nil {
		return nil, "", err
	}
	switch {
	case wired:
		return nil, HoldMoot, nil
	case denied:
		return nil, HoldQuiet, nil
	}
	var open id.Approval
	err = found(tx.QueryRowContext(ctx, `SELECT id FROM approvals WHERE messaging_group_id = ? AND action = ? AND done = 0 AND (status = 'approved' OR expires_at > ?)
		ORDER BY created_at LIMIT 1`, a.Chat, ChannelsRegister, mailbox.FormatTime(a.CreatedAt)).Scan(&open), "approval")
	switch {
	case errors.Is(err, ErrNotFound):
		return nil, HoldAsk, nil
	case err != nil:
		return nil, "", err
	}
	return []id.Approval{open}, "", nil
}

// Verdict on an approval.
type Verdict struct {
	Approval id.Approval
	At       time.Time
	Status   ApprovalStatus // approved or rejected
	Choice   string
	By       string
	Agents   []id.AgentGroup // of an approved chat: the one to connect
	Outcome  string          // what its cards show
	Card     id.Ledger       // that was answered; empty: none
	Message  string          // that answered the card; empty: an option was pressed
}

// Decide writes a verdict down and reports whether it is the first one. A rejected act is over: what was held of it is deleted, and
// a rejected chat is denied. An approved one is done by FinishApproval.
func (s *Store) Decide(ctx context.Context, v Verdict) (first bool, err error) {
	err = s.tx(ctx, "decide approval", func(tx *txn) error {
		now := mailbox.FormatTime(v.At)
		var agents any
		if v.Agents != nil {
			list, err := mailbox.EncodeContent(v.Agents)
			if err != nil {
				return err
			}
			agents = string(list)
		}
		first, err = touched(tx.ExecContext(ctx, `UPDATE approvals SET status = ?, choice = ?, decided_by = ?, decided_at = ?, agents = COALESCE(?, agents), done = ?
			WHERE id = ? AND status = 'pending' AND expires_at > ?`, v.Status, v.Choice, v.By, now, agents, v.Status != ApprovalApproved, v.Approval, now))
		if err != nil || !first {
			return err
		}
		if v.Status == ApprovalRejected {
			if _, err := tx.ExecContext(ctx, `UPDATE messaging_groups SET denied_at = ? WHERE id = (SELECT messaging_group_id FROM approvals WHERE id = ? AND action = ?)`,
				now, v.Approval, ChannelsRegister); err != nil {
				return err
			}
		}
		if err := s.closeApproval(ctx, tx, v.Approval, v.Status, v.Outcome, now); err != nil {
			return err
		}
		if v.Message != "" {
			if _, err := tx.ExecContext(ctx, `UPDATE approval_cards SET answer_message = ? WHERE id = ?`, v.Message, v.Card); err != nil {
				return err
			}
		}
		return s.auditIn(ctx, tx, v.By, "approval."+string(v.Status), string(v.Approval), map[string]string{"choice": v.Choice})
	})
	return first, err
}

// closeApproval closes the cards and, unless something is left to route, deletes what was held.
func (s *Store) closeApproval(ctx context.Context, tx *txn, approval id.Approval, status ApprovalStatus, outcome, now string) error {
	if _, err := tx.ExecContext(ctx, `UPDATE approval_cards SET closed_at = ?, outcome = ? WHERE approval_id = ? AND closed_at IS NULL`, now, outcome, approval); err != nil {
		return err
	}
	if status == ApprovalApproved {
		return nil
	}
	_, err := tx.ExecContext(ctx, `DELETE FROM held_messages WHERE approval_id = ?`, approval)
	return err
}

// ExpireApprovals ends those that nobody decided until at and returns how many there were. outcome is what their cards show.
func (s *Store) ExpireApprovals(ctx context.Context, at time.Time, outcome string) (n int, err error) {
	now := mailbox.FormatTime(at)
	err = s.tx(ctx, "end old approvals", func(tx *txn) error {
		rows, err := tx.QueryContext(ctx, `SELECT id FROM approvals WHERE done = 0 AND status = 'pending' AND expires_at <= ? LIMIT ?`, now, pruned)
		if err != nil {
			return err
		}
		all, err := collect(rows, "list approvals", func(v *id.Approval) []any { return []any{v} })
		if err != nil {
			return err
		}
		for _, v := range all {
			if _, err := tx.ExecContext(ctx, `UPDATE approvals SET status = 'expired', decided_at = ?, done = 1 WHERE id = ?`, now, v); err != nil {
				return err
			}
			if err := s.closeApproval(ctx, tx, v, ApprovalExpired, outcome, now); err != nil {
				return err
			}
			if err := s.auditIn(ctx, tx, "host", "approval.expired", string(v), map[string]string{}); err != nil {
				return err
			}
		}
		n = len(all)
		return nil
	})
	return n, err
}

// Held is the oldest message of an approval; ErrNotFound.
func (s *Store) Held(ctx context.Context, approval id.Approval) (HeldMessage, error) {
	var m HeldMessage
	var event string
	err := s.r.QueryRowContext(ctx, `SELECT ord, message_id, event FROM held_messages WHERE approval_id = ? ORDER BY ord LIMIT 1`, approval).Scan(&m.Ord, &m.ID, &event)
	m.Event = json.RawMessage(event)
	return m, found(err, "held message of "+string(approval))
}

// HeldCount is how many messages an approval holds.
func (s *Store) HeldCount(ctx context.Context, approval id.Approval) (n int, err error) {
	if err := s.r.QueryRowContext(ctx, `SELECT COUNT(*) FROM held_messages WHERE approval_id = ?`, approval).Scan(&n); err != nil {
		return 0, fmt.Errorf("count held messages: %w", err)
	}
	return n, nil
}

// DropHeld deletes a held message that was routed.
func (s *Store) DropHeld(ctx context.Context, approval id.Approval, ord int64) error {
	if _, err := s.w.ExecContext(ctx, `DELETE FROM held_messages WHERE approval_id = ? AND ord = ?`, approval, ord); err != nil {
		return fmt.Errorf("delete held message: %w", err)
	}
	return nil
}

// FinishApproval gives an approved sender access to the agents and, of a chat, adds the wiring, once nothing is held any more: so
// that no later message overtakes a held one. It reports whether it did. An agent that is gone is passed over.
func (s *Store) FinishApproval(ctx context.Context, a Approval, w *Wiring) (finished bool, err error) {
	err = s.tx(ctx, "finish approval", func(tx *txn) error {
		finished, err = touched(tx.ExecContext(ctx, `UPDATE approvals SET done = 1 WHERE id = ?1 AND status = 'approved' AND done = 0
			AND NOT EXISTS (SELECT 1 FROM held_messages WHERE approval_id = ?1)`, a.ID))
		if err != nil || !finished {
			return err
		}
		if w != nil {
			if _, _, err := s.wireIn(ctx, tx, a.DecidedBy, *w); err != nil && !errors.Is(err, ErrNotFound) {
				return err
			}
		}
		for _, g := range a.Agents {
			var v Standing
			if err := tx.QueryRowContext(ctx, sqlStanding, a.Sender, g).Scan(&v); err != nil {
				return err
			}
			if v.Access() {
				continue
			}
			if _, err := s.memberIn(ctx, tx, a.DecidedBy, a.Sender, g); err != nil && !errors.Is(err, ErrNotFound) {
				return err
			}
		}
		return nil
	})
	if finished && w != nil {
		s.moved(w.AgentGroupID)
	}
	return finished, err
}
