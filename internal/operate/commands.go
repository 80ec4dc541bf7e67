package operate

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"nanoclaw/internal/control"
	"nanoclaw/internal/id"
	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/store"
)

// Store is what the commands read of the central database.
type Store interface {
	AgentGroups(ctx context.Context) ([]store.AgentGroup, error)
	Destinations(ctx context.Context, group id.AgentGroup) ([]mailbox.Destination, error)
	MessagingGroups(ctx context.Context) ([]store.MessagingGroup, error)
	MessagingGroupByID(ctx context.Context, chat id.MessagingGroup) (store.MessagingGroup, error)
	Sessions(ctx context.Context, after id.Session, limit int) ([]store.Session, error)
}

// Host says what runs.
type Host interface {
	Status(ctx context.Context) (control.Status, error)
}

// Limits of a list.
const (
	listDefault = 200
	listMost    = 1000
	pageSize    = 500
)

// Commands is the list of commands. Adding one is a value here.
func Commands(st Store, h Host, version string) []Command {
	s := shelf{st, h}
	return []Command{
		{Name: "version", Short: "Show the version of the host", Scope: Agents, Run: func(context.Context, Caller, Args) (Result, error) {
			res, err := result(versionRow{version, control.Protocol})
			res.Human = "host " + version
			return res, err
		}},
		{Name: "status", Short: "Show what runs and what waits", Scope: Agents, Run: s.status},
		{Name: "groups list", Short: "List the agents of this home", Run: s.groups},
		{Name: "messaging-groups list", Short: "List the chats that this home knows", Run: s.chats},
		{Name: "sessions list", Short: "List conversations", Scope: Agents, Flags: []string{"limit"}, Run: s.sessions},
		{Name: "destinations list", Short: "List where agents may send to", Scope: Agents, Flags: []string{"group"}, Run: s.destinations},
	}
}

// shelf is what the commands read.
type shelf struct {
	store Store
	host  Host
}

type versionRow struct {
	Host     string `json:"host"`
	Protocol int    `json:"protocol"`
}

// ownStatus is what an agent is told of itself.
type ownStatus struct {
	Session     string `json:"session"`
	AgentGroup  string `json:"agent_group"`
	Agent       string `json:"agent"`
	Provider    string `json:"provider"`
	Sandbox     string `json:"sandbox"`
	State       string `json:"state"`
	Incarnation int64  `json:"incarnation"`
	Due         int    `json:"due"` // messages without an end
}

func (s shelf) status(ctx context.Context, c Caller, _ Args) (Result, error) {
	st, err := s.host.Status(ctx)
	if err != nil {
		return Result{}, err
	}
	if !c.Agent() {
		res, err := result(st)
		res.Human = fmt.Sprintf("host %s, process %d, version %s\nsandbox %s, provider %s, %d live sessions",
			st.State, st.PID, st.Version, st.Sandbox.Kind, st.Provider.Name, len(st.Sessions))
		return res, err
	}
	g, err := s.group(ctx, string(c.Session.AgentGroupID))
	if err != nil {
		return Result{}, err
	}
	own := ownStatus{Session: string(c.Session.ID), AgentGroup: string(g.ID), Agent: g.Name, Provider: g.Provider, Sandbox: st.Sandbox.Kind, State: "absent"}
	for _, live := range st.Sessions {
		if live.ID == own.Session {
			own.State, own.Incarnation, own.Due = live.State, live.Incarnation, live.Due
		}
	}
	res, err := result(own)
	res.Human = fmt.Sprintf("agent %s, session %s\nsandbox %s, provider %s, %s, %d messages wait", g.Name, own.Session, own.Sandbox, own.Provider, own.State, own.Due)
	return res, err
}

type groupRow struct {
	ID       string `json:"id"`
	Name     string `json:"name"`
	Folder   string `json:"folder"`
	Provider string `json:"provider"`
	Model    string `json:"model"`
}

func (s shelf) groups(ctx context.Context, _ Caller, _ Args) (Result, error) {
	all, err := s.store.AgentGroups(ctx)
	if err != nil {
		return Result{}, err
	}
	rows := make([]groupRow, 0, len(all))
	for _, g := range all {
		rows = append(rows, groupRow{string(g.ID), g.Name, g.Folder, g.Provider, g.Model})
	}
	return result(rows)
}

type chatRow struct {
	ID       string `json:"id"`
	Channel  string `json:"channel"`
	Instance string `json:"instance"`
	Chat     string `json:"platform_id"`
	Name     string `json:"name"`
	Group    bool   `json:"is_group"`
	Unknown  string `json:"unknown_sender_policy"`
}

func (s shelf) chats(ctx context.Context, _ Caller, _ Args) (Result, error) {
	all, err := s.store.MessagingGroups(ctx)
	if err != nil {
		return Result{}, err
	}
	rows := make([]chatRow, 0, len(all))
	for _, g := range all {
		rows = append(rows, chatRow{string(g.ID), g.ChannelType, g.Instance, g.PlatformID, g.Name, g.IsGroup, string(g.UnknownSenderPolicy)})
	}
	return result(rows)
}

type sessionRow struct {
	ID     string `json:"id"`
	Agent  string `json:"agent"`
	Chat   string `json:"chat"`
	Thread string `json:"thread"`
	State  string `json:"state"`
}

func (s shelf) sessions(ctx context.Context, c Caller, a Args) (Result, error) {
	limit, err := a.Number("limit", listDefault, 1, listMost)
	if err != nil {
		return Result{}, err
	}
	st, err := s.host.Status(ctx)
	if err != nil {
		return Result{}, err
	}
	live := map[string]string{}
	for _, v := range st.Sessions {
		live[v.ID] = v.State
	}
	groups, err := s.store.AgentGroups(ctx)
	if err != nil {
		return Result{}, err
	}
	names := map[id.AgentGroup]string{}
	for _, g := range groups {
		names[g.ID] = g.Name
	}
	rows := []sessionRow{}
	for after := id.Session(""); len(rows) < limit; {
		page, err := s.store.Sessions(ctx, after, pageSize)
		if err != nil {
			return Result{}, err
		}
		for _, v := range page {
			after = v.ID
			if c.Agent() && v.AgentGroupID != c.Session.AgentGroupID || len(rows) >= limit {
				continue
			}
			row := sessionRow{ID: string(v.ID), Agent: names[v.AgentGroupID], Thread: v.ThreadID, State: "absent"}
			if state, ok := live[row.ID]; ok {
				row.State = state
			}
			if row.Chat, err = s.chat(ctx, v.MessagingGroupID); err != nil {
				return Result{}, err
			}
			rows = append(rows, row)
		}
		if len(page) < pageSize {
			break
		}
	}
	return result(rows)
}

// chat is the name of a chat, else its id on the platform.
func (s shelf) chat(ctx context.Context, chat id.MessagingGroup) (string, error) {
	if chat == "" {
		return "", nil
	}
	g, err := s.store.MessagingGroupByID(ctx, chat)
	if errors.Is(err, store.ErrNotFound) {
		return string(chat), nil
	}
	if g.Name != "" {
		return g.Name, err
	}
	return g.PlatformID, err
}

type destinationRow struct {
	Agent   string `json:"agent"`
	Name    string `json:"name"`
	Display string `json:"display_name"`
	Type    string `json:"type"`
	Channel string `json:"channel"`
	Target  string `json:"target"`
}

func (s shelf) destinations(ctx context.Context, c Caller, a Args) (Result, error) {
	wanted, err := a.Text("group")
	if err != nil {
		return Result{}, err
	}
	var groups []store.AgentGroup
	switch {
	case c.Agent():
		var own store.AgentGroup
		if own, err = s.group(ctx, string(c.Session.AgentGroupID)); err != nil {
			return Result{}, err
		}
		if wanted != "" && wanted != string(own.ID) && wanted != own.Folder {
			return Result{}, &control.Error{Code: control.CodeForbidden, Field: "group", Message: "an agent sees its own destinations only"}
		}
		groups = []store.AgentGroup{own}
	case wanted != "":
		var g store.AgentGroup
		g, err = s.group(ctx, wanted)
		groups = []store.AgentGroup{g}
	default:
		groups, err = s.store.AgentGroups(ctx)
	}
	if err != nil {
		return Result{}, err
	}
	rows := []destinationRow{}
	for _, g := range groups {
		all, err := s.store.Destinations(ctx, g.ID)
		if err != nil {
			return Result{}, err
		}
		for _, d := range all {
			to := d.Address()
			rows = append(rows, destinationRow{g.Name, d.Name, d.DisplayName, string(d.Type), to.ChannelType, to.PlatformID})
		}
	}
	return result(rows)
}

// group by id or folder.
func (s shelf) group(ctx context.Context, wanted string) (store.AgentGroup, error) {
	all, err := s.store.AgentGroups(ctx)
	if err != nil {
		return store.AgentGroup{}, err
	}
	folders := make([]string, 0, len(all))
	for _, g := range all {
		if string(g.ID) == wanted || g.Folder == wanted {
			return g, nil
		}
		folders = append(folders, g.Folder)
	}
	return store.AgentGroup{}, &control.Error{Code: control.CodeNotFound, Message: fmt.Sprintf("there is no agent group %q", wanted), Hint: "there are: " + strings.Join(folders, ", ")}
}
