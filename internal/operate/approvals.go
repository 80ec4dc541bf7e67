package operate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"nanoclaw/internal/control"
	"nanoclaw/internal/id"
	"nanoclaw/internal/store"
)

// Decider takes decisions on what is held.
type Decider interface {
	// Decide reports false for what was decided so before; the error is store.ErrNotFound, a *store.FieldError or a *store.ConflictError.
	Decide(ctx context.Context, approval id.Approval, choice, by string) (changed bool, err error)
}

// Approvals is the commands about what waits for a decision: the way for an owner who has no chat at hand. They are the operator's,
// whose user id is actor.
func Approvals(st *store.Store, d Decider, actor func() string) []Command {
	s := approvalShelf{st, d, actor}
	const target = "id of the approval"
	return []Command{
		{Name: "approvals list", Short: "List what waits for a decision", Flags: []string{"status", "limit"}, Run: s.list},
		{Name: "approvals get", Short: "Show an approval and the first message that it holds", Target: target, Flags: []string{"id"}, Run: s.get},
		{Name: "approvals approve", Short: "Let a sender in, or connect a chat to an agent", Target: target, Flags: []string{"id", "agent"}, Run: s.approve},
		{Name: "approvals reject", Short: "Leave a sender or a chat out", Target: target, Flags: []string{"id", "block"}, Run: s.reject},
	}
}

type approvalShelf struct {
	store *store.Store
	host  Decider
	actor func() string
}

type approvalRow struct {
	ID         string       `json:"id"`
	Action     string       `json:"action"`
	Status     string       `json:"status"`
	Sender     string       `json:"sender"`
	SenderName string       `json:"sender_name"`
	Chat       string       `json:"chat"`
	Agents     string       `json:"agents"`
	Held       int          `json:"held"` // messages
	Asked      string       `json:"asked"`
	Card       string       `json:"card"` // chat and message of the newest one, and whether it was shown
	Created    control.Time `json:"created"`
	Expires    control.Time `json:"expires"`
	Choice     string       `json:"choice,omitempty"`
	DecidedBy  string       `json:"decided_by,omitempty"`
}

func (s approvalShelf) row(ctx context.Context, a store.Approval) (approvalRow, error) {
	row := approvalRow{ID: string(a.ID), Action: string(a.Action), Status: string(a.Status), Sender: string(a.Sender), SenderName: a.SenderName,
		Created: control.At(a.CreatedAt), Expires: control.At(a.ExpiresAt), Choice: a.Choice, DecidedBy: a.DecidedBy}
	chat, err := s.store.MessagingGroupByID(ctx, a.Chat)
	if err != nil {
		return row, err
	}
	row.Chat = chat.PlatformID
	folders, err := peopleShelf{store: s.store}.folders(ctx)
	if err != nil {
		return row, err
	}
	agents := make([]string, 0, len(a.Agents))
	for _, g := range a.Agents {
		agents = append(agents, folders[g])
	}
	row.Agents = strings.Join(agents, " ")
	if row.Held, err = s.store.HeldCount(ctx, a.ID); err != nil {
		return row, err
	}
	cards, err := s.store.ApprovalCards(ctx, a.ID)
	if err != nil || len(cards) == 0 {
		return row, err
	}
	c := cards[len(cards)-1]
	row.Asked = string(c.User)
	row.Card = strings.TrimSpace(c.PlatformID + " " + c.PlatformMessageID)
	if c.State != store.Sent {
		row.Card += " (" + string(c.State) + ")"
	}
	return row, nil
}

func (s approvalShelf) list(ctx context.Context, _ Caller, a Args) (Result, error) {
	word, err := a.Text("status")
	if err != nil {
		return Result{}, err
	}
	status := store.ApprovalStatus(word)
	switch {
	case word == "":
		status = store.ApprovalPending
	case word == "all":
		status = ""
	case !store.KnownWord(status):
		e := control.Invalid("status", fmt.Sprintf("%q is no status", word))
		e.Hint = "pending, approved, rejected, expired or all"
		return Result{}, e
	}
	limit, err := a.Number("limit", 50, 1, listMost)
	if err != nil {
		return Result{}, err
	}
	all, err := s.store.Approvals(ctx, status, limit)
	if err != nil {
		return Result{}, err
	}
	rows := make([]approvalRow, 0, len(all))
	for _, v := range all {
		row, err := s.row(ctx, v)
		if err != nil {
			return Result{}, err
		}
		rows = append(rows, row)
	}
	return result(rows)
}

func (s approvalShelf) approval(ctx context.Context, a Args) (store.Approval, error) {
	wanted, err := named(a, "id")
	if err != nil {
		return store.Approval{}, err
	}
	v, err := s.store.Approval(ctx, id.Approval(wanted))
	return v, refused(err, "ncl approvals list --status all shows them")
}

// approvalDetail is an approval with the text of the first message that it holds; none is left once it is done.
type approvalDetail struct {
	approvalRow
	Text string `json:"text"`
}

func (s approvalShelf) get(ctx context.Context, _ Caller, a Args) (Result, error) {
	v, err := s.approval(ctx, a)
	if err != nil {
		return Result{}, err
	}
	var d approvalDetail
	if d.approvalRow, err = s.row(ctx, v); err != nil {
		return Result{}, err
	}
	held, err := s.store.Held(ctx, v.ID)
	if err == nil {
		err = json.Unmarshal(held.Event, &struct {
			Text *string `json:"text"`
		}{&d.Text})
	} else if errors.Is(err, store.ErrNotFound) {
		err = nil
	}
	if err != nil {
		return Result{}, err
	}
	return result(d)
}

func (s approvalShelf) approve(ctx context.Context, _ Caller, a Args) (Result, error) {
	v, err := s.approval(ctx, a)
	if err != nil {
		return Result{}, err
	}
	agent, err := groupOf(ctx, s.store, a, "agent")
	if err != nil {
		return Result{}, err
	}
	if v.Action == store.SendersAdmit {
		if agent.ID != "" {
			return Result{}, control.Invalid("agent", "goes with a chat only: a sender is let in to the agents it wrote to")
		}
		return s.decide(ctx, v, store.ChoiceApprove, string(v.Sender)+" is let in")
	}
	if agent.ID == "" {
		all, err := s.store.AgentGroups(ctx)
		if err != nil {
			return Result{}, err
		}
		if len(all) != 1 {
			e := control.Invalid("agent", "is missing: which one is to listen there?")
			e.Hint = "ncl groups list"
			return Result{}, e
		}
		agent = all[0]
	}
	return s.decide(ctx, v, store.ChoiceConnect+string(agent.ID), "the chat is connected to "+agent.Folder)
}

func (s approvalShelf) reject(ctx context.Context, _ Caller, a Args) (Result, error) {
	v, err := s.approval(ctx, a)
	if err != nil {
		return Result{}, err
	}
	block, err := a.Switch("block")
	if err != nil {
		return Result{}, err
	}
	switch {
	case block && v.Action != store.SendersAdmit:
		return Result{}, control.Invalid("block", "goes with a sender only: a chat that is rejected is not asked about again")
	case block:
		return s.decide(ctx, v, store.ChoiceBlock, string(v.Sender)+" is left out, and nobody is asked again")
	case v.Action == store.ChannelsRegister:
		return s.decide(ctx, v, store.ChoiceReject, "the chat is left out")
	}
	return s.decide(ctx, v, store.ChoiceReject, string(v.Sender)+" is left out")
}

// decide notes the person at this machine as the one who decided.
func (s approvalShelf) decide(ctx context.Context, v store.Approval, choice, what string) (Result, error) {
	_, handle, _ := strings.Cut(s.actor(), ":")
	changed, err := s.host.Decide(ctx, v.ID, choice, "host:"+handle)
	if err != nil {
		return Result{}, refused(err, "ncl approvals list --status all shows them")
	}
	return done(changed, what)
}
