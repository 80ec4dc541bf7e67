package store

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"nanoclaw/internal/id"
	"nanoclaw/internal/mailbox"
)

// ApprovalAction is what is held until somebody decides (spec/host.md section 13.5).
type ApprovalAction string

// Held acts.
const (
	SendersAdmit     ApprovalAction = "senders.admit"     // a stranger in a wired chat: let in or not
	ChannelsRegister ApprovalAction = "channels.register" // a chat without an agent: connect it or not
)

// ApprovalStatus of a held act. All but pending are final.
type ApprovalStatus string

// Statuses of approvals.
const (
	ApprovalPending  ApprovalStatus = "pending"
	ApprovalApproved ApprovalStatus = "approved"
	ApprovalRejected ApprovalStatus = "rejected"
	ApprovalExpired  ApprovalStatus = "expired"
)

// Words lists the values.
func (ApprovalStatus) Words() []ApprovalStatus {
	return []ApprovalStatus{ApprovalPending, ApprovalApproved, ApprovalRejected, ApprovalExpired}
}

// Choices about an approval, the values of its cards' options.
const (
	ChoiceApprove = "approve"
	ChoiceReject  = "reject"
	ChoiceBlock   = "block"    // of a sender: rejected, and nobody is asked again
	ChoiceConnect = "connect:" // of a chat: approved; the id of an agent follows
)

// Approval is one act that waits for a decision, or was decided.
type Approval struct {
	ID         id.Approval
	Action     ApprovalAction
	Chat       id.MessagingGroup
	Sender     id.User // whose message is held; of a chat, who wrote there first
	SenderName string
	// Agents that the decision is about: those the sender is let in to. Of a chat, the one that was chosen, once that is so.
	Agents    []id.AgentGroup
	Status    ApprovalStatus
	Choice    string // value of the option that was taken
	DecidedBy string // user id, or host:<name>
	CreatedAt time.Time
	ExpiresAt time.Time
	DecidedAt time.Time
	Done      bool // nothing is left to do about it
}

// Open reports whether it can be decided at a moment.
func (a *Approval) Open(now time.Time) bool {
	return a.Status == ApprovalPending && now.Before(a.ExpiresAt)
}

const approvalColumns = `a.id, a.action, a.messaging_group_id, a.sender_id, a.sender_name, a.agents, a.status, a.choice, a.decided_by,
	a.created_at, a.expires_at, a.decided_at, a.done`

// textList is a column with a JSON array of texts.
type textList[T ~string] struct{ to *[]T }

// Scan implements sql.Scanner.
func (l textList[T]) Scan(v any) error {
	text, _ := v.(string)
	*l.to = nil
	return json.Unmarshal([]byte(text), l.to)
}

func (a *Approval) fields() []any {
	return []any{&a.ID, &a.Action, &a.Chat, &a.Sender, &a.SenderName, textList[id.AgentGroup]{&a.Agents}, &a.Status, &a.Choice, &a.DecidedBy,
		moment{&a.CreatedAt}, moment{&a.ExpiresAt}, moment{&a.DecidedAt}, &a.Done}
}

// Approval by id; ErrNotFound.
func (s *Store) Approval(ctx context.Context, approval id.Approval) (Approval, error) {
	var a Approval
	err := s.r.QueryRowContext(ctx, `SELECT `+approvalColumns+` FROM approvals a WHERE a.id = ?`, approval).Scan(a.fields()...)
	return a, found(err, "approval "+string(approval))
}

// Approvals lists them newest first, at most limit; an empty status is all of them.
func (s *Store) Approvals(ctx context.Context, status ApprovalStatus, limit int) ([]Approval, error) {
	rows, err := s.r.QueryContext(ctx, `SELECT `+approvalColumns+` FROM approvals a WHERE ?1 IN ('', a.status) ORDER BY a.created_at DESC, a.id DESC LIMIT ?2`, status, limit)
	if err != nil {
		return nil, fmt.Errorf("list approvals: %w", err)
	}
	return collect(rows, "list approvals", (*Approval).fields)
}

// OpenApprovals are those about which something is left to do, oldest first, at most limit.
func (s *Store) OpenApprovals(ctx context.Context, limit int) ([]Approval, error) {
	rows, err := s.r.QueryContext(ctx, `SELECT `+approvalColumns+` FROM approvals a WHERE a.done = 0 ORDER BY a.created_at, a.id LIMIT ?`, limit)
	if err != nil {
		return nil, fmt.Errorf("list approvals: %w", err)
	}
	return collect(rows, "list approvals", (*Approval).fields)
}

// UnaskedApprovals counts the open ones from before a time that nobody was shown.
func (s *Store) UnaskedApprovals(ctx context.Context, before time.Time) (n int, err error) {
	if err := s.r.QueryRowContext(ctx, `SELECT COUNT(*) FROM approvals a WHERE a.done = 0 AND a.status = 'pending' AND a.created_at < ?
		AND NOT EXISTS (SELECT 1 FROM approval_cards c JOIN ledger l ON l.id = c.id WHERE c.approval_id = a.id AND l.state = 'sent')`,
		mailbox.FormatTime(before)).Scan(&n); err != nil {
		return 0, fmt.Errorf("count approvals: %w", err)
	}
	return n, nil
}

// Approvers of an agent group, in the order in which they are asked: its admins, those of all agents, owners, each by the time of
// their grant (spec/host.md section 13.2). Without a group they are the last two.
func (s *Store) Approvers(ctx context.Context, group id.AgentGroup) ([]id.User, error) {
	rows, err := s.r.QueryContext(ctx, `SELECT user_id FROM user_roles WHERE agent_group_id IS NULL OR agent_group_id = ?
		ORDER BY CASE WHEN agent_group_id IS NOT NULL THEN 1 WHEN role = 'admin' THEN 2 ELSE 3 END, created_at, user_id`, group)
	if err != nil {
		return nil, fmt.Errorf("list approvers: %w", err)
	}
	all, err := collect(rows, "list approvers", func(u *id.User) []any { return []any{u} })
	out := make([]id.User, 0, len(all))
	for _, u := range all {
		if !slices.Contains(out, u) {
			out = append(out, u)
		}
	}
	return out, err
}

// ApprovalCard is one showing of an approval to one person. Its options keep their meaning, whatever later cards show.
type ApprovalCard struct {
	Approval id.Approval
	N        int       // from 1
	ID       id.Ledger // of the row that shows it, which is all that adapters see
	User     id.User   // who is asked
	Destination
	Page     int // of a list of options that is too long for one card
	Options  []mailbox.Option
	AskedAt  time.Time
	ClosedAt time.Time // zero: its options count
	Outcome  string    // shown in place of the options
	Message  string    // platform id of the message that answered it
	Told     bool      // the chat shows that it is closed

	State             LedgerState // of the row that shows it; empty if there is none
	Reason            string      // why it was not shown
	PlatformMessageID string      // of the message that shows it
}

const cardColumns = `c.approval_id, c.n, c.id, c.user_id, c.instance, c.platform_id, c.page, c.options, c.asked_at, c.closed_at, c.outcome,
	c.answer_message, c.told, COALESCE(l.state, ''), COALESCE(l.reason, ''), COALESCE(l.platform_message_id, '')
	FROM approval_cards c LEFT JOIN ledger l ON l.id = c.id`

type optionList struct{ to *[]mailbox.Option }

// Scan implements sql.Scanner.
func (l optionList) Scan(v any) error {
	text, _ := v.(string)
	*l.to = nil
	return json.Unmarshal([]byte(text), l.to)
}

func (c *ApprovalCard) fields() []any {
	return []any{&c.Approval, &c.N, &c.ID, &c.User, &c.Instance, &c.PlatformID, &c.Page, optionList{&c.Options}, moment{&c.AskedAt}, moment{&c.ClosedAt}, &c.Outcome,
		&c.Message, &c.Told, &c.State, &c.Reason, &c.PlatformMessageID}
}

// ApprovalCard by the id that adapters see; ErrNotFound.
func (s *Store) ApprovalCard(ctx context.Context, card id.Ledger) (ApprovalCard, error) {
	var c ApprovalCard
	err := s.r.QueryRowContext(ctx, `SELECT `+cardColumns+` WHERE c.id = ?`, card).Scan(c.fields()...)
	return c, found(err, "card "+string(card))
}

// ApprovalCards of an approval, in their order.
func (s *Store) ApprovalCards(ctx context.Context, approval id.Approval) ([]ApprovalCard, error) {
	return s.cards(ctx, `SELECT `+cardColumns+` WHERE c.approval_id = ? ORDER BY c.n`, approval)
}

// ApprovalCardsAt lists the cards of a chat that are not closed, and those that a message answered.
func (s *Store) ApprovalCardsAt(ctx context.Context, instance, platformID, messageID string) ([]ApprovalCard, error) {
	return s.cards(ctx, `SELECT `+cardColumns+` WHERE c.instance = ? AND c.platform_id = ?
		AND (c.closed_at IS NULL OR c.answer_message <> '' AND c.answer_message = ?) ORDER BY c.asked_at, c.id`, instance, platformID, messageID)
}

// UntoldApprovalCards are closed, but their chat does not show it yet; at most limit.
func (s *Store) UntoldApprovalCards(ctx context.Context, limit int) ([]ApprovalCard, error) {
	return s.cards(ctx, `SELECT `+cardColumns+` WHERE c.closed_at IS NOT NULL AND c.told = 0 ORDER BY c.closed_at LIMIT ?`, limit)
}

func (s *Store) cards(ctx context.Context, query string, args ...any) ([]ApprovalCard, error) {
	rows, err := s.r.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, fmt.Errorf("list cards of approvals: %w", err)
	}
	return collect(rows, "list cards of approvals", (*ApprovalCard).fields)
}

// AddApprovalCard keeps a card before it is shown. It does nothing once the approval is decided, or has a card with that number.
func (s *Store) AddApprovalCard(ctx context.Context, c ApprovalCard) (added bool, err error) {
	err = s.tx(ctx, "add card", func(tx *txn) error {
		added, err = s.cardIn(ctx, tx, c)
		return err
	})
	return added, err
}

func (s *Store) cardIn(ctx context.Context, tx *txn, c ApprovalCard) (bool, error) {
	options, err := mailbox.EncodeContent(c.Options)
	if err != nil {
		return false, err
	}
	added, err := touched(tx.ExecContext(ctx, `INSERT INTO approval_cards (approval_id, n, id, user_id, instance, platform_id, page, options, asked_at)
		SELECT ?, ?, ?, ?, ?, ?, ?, ?, ? WHERE EXISTS (SELECT 1 FROM approvals WHERE id = ? AND status = 'pending') ON CONFLICT DO NOTHING`,
		c.Approval, c.N, c.ID, c.User, c.Instance, c.PlatformID, c.Page, string(options), mailbox.FormatTime(c.AskedAt), c.Approval))
	if err != nil || !added {
		return false, err
	}
	return true, s.auditIn(ctx, tx, "host", "approval.ask", string(c.Approval), map[string]string{"user": string(c.User), "chat": c.PlatformID})
}

// TurnApprovalCard closes a card in favour of the next one, with more options. It reports whether it was open.
func (s *Store) TurnApprovalCard(ctx context.Context, card id.Ledger, messageID, outcome string, next ApprovalCard) (turned bool, err error) {
	err = s.tx(ctx, "turn card", func(tx *txn) error {
		turned, err = touched(tx.ExecContext(ctx, `UPDATE approval_cards SET closed_at = ?, outcome = ?, answer_message = ? WHERE id = ? AND closed_at IS NULL`,
			mailbox.FormatTime(next.AskedAt), outcome, messageID, card))
		if err != nil || !turned {
			return err
		}
		_, err = s.cardIn(ctx, tx, next)
		return err
	})
	return turned, err
}

// ApprovalCardTold notes that the chat shows that the card is closed.
func (s *Store) ApprovalCardTold(ctx context.Context, card id.Ledger) error {
	if _, err := s.w.ExecContext(ctx, `UPDATE approval_cards SET told = 1 WHERE id = ?`, card); err != nil {
		return fmt.Errorf("note that card %s is told: %w", card, err)
	}
	return nil
}
