package operate

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"nanoclaw/internal/control"
	"nanoclaw/internal/id"
	"nanoclaw/internal/store"
)

// Directory is what the commands about people and chats need beside the central database.
type Directory interface {
	// Operator is the user who runs the host.
	Operator() string
	// Threads reports whether the channel of an adapter instance has threads; false for one that does not run.
	Threads(instance string) bool
	// RouteTest decides an event as the router would and does nothing.
	RouteTest(ctx context.Context, e RouteEvent) (RouteResult, error)
}

// People is the commands about users, roles and members. All of them are the operator's.
func People(st *store.Store, d Directory) []Command {
	s := peopleShelf{st, d}
	return []Command{
		{Name: "users list", Short: "List the people this home knows", Flags: []string{"limit"}, Run: s.users},
		{Name: "users get", Short: "Show a person's roles and memberships", Target: "id of the user", Flags: []string{"id", "user"}, Run: s.user},
		{Name: "users add", Short: "Add a person, or name one", Target: "id of the user: CHANNEL:HANDLE", Flags: []string{"id", "user", "name"}, Run: s.addUser},
		{Name: "roles list", Short: "List owners and admins", Run: s.roles},
		{Name: "roles grant", Short: "Make somebody an owner or admin", Flags: []string{"user", "role", "scope", "group"}, Run: s.grant},
		{Name: "roles revoke", Short: "Take a role away", Flags: []string{"user", "role", "scope", "group"}, Run: s.revoke},
		{Name: "members list", Short: "List who may talk to which agent, beside owners and admins", Flags: []string{"group"}, Run: s.members},
		{Name: "members add", Short: "Let somebody talk to an agent", Flags: []string{"user", "group"}, Run: s.addMember},
		{Name: "members remove", Short: "Let somebody talk to an agent no more", Flags: []string{"user", "group"}, Run: s.removeMember},
	}
}

type peopleShelf struct {
	store *store.Store
	dir   Directory
}

// changeRow is the answer of a command that changes something.
type changeRow struct {
	Changed bool   `json:"changed"`
	What    string `json:"what"`
}

// done says in words what holds now.
func done(changed bool, what string) (Result, error) {
	if !changed {
		what += " (it was so before)"
	}
	res, err := result(changeRow{changed, what})
	res.Human = what
	return res, err
}

// refused turns an error of the store into one for people; hint says where to look for what does not exist.
func refused(err error, hint string) error {
	var field *store.FieldError
	var conflict *store.ConflictError
	switch {
	case errors.As(err, &field):
		return control.Invalid(strings.ReplaceAll(field.Field, "_", "-"), field.Reason)
	case errors.As(err, &conflict):
		return &control.Error{Code: control.CodeConflict, Message: conflict.Reason}
	case errors.Is(err, store.ErrLastOwner):
		return &control.Error{Code: control.CodeConflict, Message: "this is the last owner", Hint: "make somebody else an owner first"}
	case errors.Is(err, store.ErrNotFound):
		return &control.Error{Code: control.CodeNotFound, Message: err.Error(), Hint: hint}
	}
	return err
}

// needed is the text of a flag that must be there.
func needed(a Args, name string) (string, error) {
	v, err := a.Text(name)
	if err == nil && v == "" {
		return "", control.Invalid(name, "is missing")
	}
	return v, err
}

// named is what the word behind the command, or one of some flags, names; exactly one of them.
func named(a Args, flags ...string) (string, error) {
	found := a.Target
	for _, f := range flags {
		v, err := a.Text(f)
		if err != nil {
			return "", err
		}
		if v != "" && found != "" {
			return "", control.Invalid(f, "it is named twice")
		}
		found += v
	}
	if found == "" {
		return "", control.Invalid(flags[0], "is missing")
	}
	return found, nil
}

// groupOf is the agent that a flag names by id, folder or name. An absent flag is the zero group.
func groupOf(ctx context.Context, st *store.Store, a Args, flag string) (store.AgentGroup, error) {
	wanted, err := a.Text(flag)
	if err != nil || wanted == "" {
		return store.AgentGroup{}, err
	}
	all, err := st.AgentGroups(ctx)
	if err != nil {
		return store.AgentGroup{}, err
	}
	var found []store.AgentGroup
	folders := make([]string, 0, len(all))
	for _, g := range all {
		if string(g.ID) == wanted || g.Folder == wanted {
			return g, nil
		}
		if strings.EqualFold(g.Name, wanted) {
			found = append(found, g)
		}
		folders = append(folders, g.Folder)
	}
	if len(found) == 1 {
		return found[0], nil
	}
	return store.AgentGroup{}, &control.Error{Code: control.CodeNotFound, Field: flag, Message: fmt.Sprintf("there is no one agent %q", wanted), Hint: "there are: " + strings.Join(folders, ", ")}
}

func neededGroup(ctx context.Context, st *store.Store, a Args, flag string) (store.AgentGroup, error) {
	if _, err := needed(a, flag); err != nil {
		return store.AgentGroup{}, err
	}
	return groupOf(ctx, st, a, flag)
}

type userRow struct {
	ID      string `json:"id"`
	Name    string `json:"display_name"`
	Created string `json:"created_at"`
}

func (s peopleShelf) users(ctx context.Context, _ Caller, a Args) (Result, error) {
	limit, err := a.Number("limit", listDefault, 1, listMost)
	if err != nil {
		return Result{}, err
	}
	all, err := s.store.Users(ctx, "", limit)
	if err != nil {
		return Result{}, err
	}
	rows := make([]userRow, 0, len(all))
	for _, u := range all {
		rows = append(rows, userRow{string(u.ID), u.DisplayName, u.CreatedAt})
	}
	return result(rows)
}

// personRow is a user with all that it may.
type personRow struct {
	userRow
	Roles   []roleRow   `json:"roles"`
	Members []memberRow `json:"members"`
}

func (s peopleShelf) user(ctx context.Context, _ Caller, a Args) (Result, error) {
	wanted, err := named(a, "id", "user")
	if err != nil {
		return Result{}, err
	}
	u, err := s.store.User(ctx, id.User(wanted))
	if err != nil {
		return Result{}, refused(err, "ncl users list shows who is known")
	}
	row := personRow{userRow: userRow{string(u.ID), u.DisplayName, u.CreatedAt}, Roles: []roleRow{}, Members: []memberRow{}}
	grants, err := s.grants(ctx)
	if err != nil {
		return Result{}, err
	}
	members, err := s.memberships(ctx, "")
	if err != nil {
		return Result{}, err
	}
	words := []string{fmt.Sprintf("%s %s, known since %s", u.ID, u.DisplayName, u.CreatedAt)}
	for _, g := range grants {
		if g.User == row.ID {
			row.Roles = append(row.Roles, g)
			words = append(words, g.words())
		}
	}
	for _, m := range members {
		if m.User == row.ID {
			row.Members = append(row.Members, m)
			words = append(words, "member of "+m.Agent)
		}
	}
	if len(words) == 1 {
		words = append(words, "no roles, member of nothing")
	}
	res, err := result(row)
	res.Human = strings.Join(words, "\n")
	return res, err
}

func (s peopleShelf) addUser(ctx context.Context, _ Caller, a Args) (Result, error) {
	user, err := named(a, "id", "user")
	if err != nil {
		return Result{}, err
	}
	name, err := a.Text("name")
	if err != nil {
		return Result{}, err
	}
	changed, err := s.store.AddUser(ctx, s.dir.Operator(), id.User(user), name)
	if err != nil {
		return Result{}, refused(err, "")
	}
	return done(changed, user+" is known")
}

type roleRow struct {
	User  string `json:"user"`
	Role  string `json:"role"`
	Scope string `json:"scope"` // global, or group
	Agent string `json:"agent"`
	By    string `json:"granted_by"`
	At    string `json:"created_at"`
}

func (r roleRow) words() string {
	if r.Scope == scopeGlobal {
		return r.Role + " everywhere"
	}
	return r.Role + " of " + r.Agent
}

// Scopes of a role.
const (
	scopeGlobal = "global"
	scopeGroup  = "group"
)

// folders of agents by id.
func (s peopleShelf) folders(ctx context.Context) (map[id.AgentGroup]string, error) {
	all, err := s.store.AgentGroups(ctx)
	out := make(map[id.AgentGroup]string, len(all))
	for _, g := range all {
		out[g.ID] = g.Folder
	}
	return out, err
}

func (s peopleShelf) grants(ctx context.Context) ([]roleRow, error) {
	folders, err := s.folders(ctx)
	if err != nil {
		return nil, err
	}
	all, err := s.store.Grants(ctx)
	rows := make([]roleRow, 0, len(all))
	for _, g := range all {
		row := roleRow{string(g.User), string(g.Role), scopeGlobal, "", g.By, g.CreatedAt}
		if g.Group != "" {
			row.Scope, row.Agent = scopeGroup, folders[g.Group]
		}
		rows = append(rows, row)
	}
	return rows, err
}

func (s peopleShelf) roles(ctx context.Context, _ Caller, _ Args) (Result, error) {
	rows, err := s.grants(ctx)
	if err != nil {
		return Result{}, err
	}
	return result(rows)
}

// role reads the flags of grant and revoke. A forgotten flag never means everywhere (spec/operator.md section 5.5).
func (s peopleShelf) role(ctx context.Context, a Args) (g store.Grant, words string, err error) {
	user, err := needed(a, "user")
	if err != nil {
		return g, "", err
	}
	role, err := needed(a, "role")
	if err != nil {
		return g, "", err
	}
	scope, err := a.Text("scope")
	if err != nil {
		return g, "", err
	}
	group, err := groupOf(ctx, s.store, a, "group")
	if err != nil {
		return g, "", err
	}
	switch {
	case scope != "" && scope != scopeGlobal && scope != scopeGroup:
		return g, "", control.Invalid("scope", "must be global or group")
	case scope == scopeGlobal && group.ID != "":
		return g, "", control.Invalid("group", "does not go with --scope global")
	case scope == scopeGroup && group.ID == "":
		return g, "", control.Invalid("group", "is missing: which agent?")
	case role == string(store.RoleAdmin) && scope == "" && group.ID == "":
		e := control.Invalid("scope", "is missing")
		e.Hint = "say --scope global for every agent, or --group AGENT for one"
		return g, "", e
	}
	g = store.Grant{User: id.User(user), Role: store.Role(role), Group: group.ID}
	row := roleRow{Role: role, Scope: scopeGlobal, Agent: group.Folder}
	if group.ID != "" {
		row.Scope = scopeGroup
	}
	return g, row.words(), nil
}

func (s peopleShelf) grant(ctx context.Context, _ Caller, a Args) (Result, error) {
	g, words, err := s.role(ctx, a)
	if err != nil {
		return Result{}, err
	}
	changed, err := s.store.GrantRole(ctx, s.dir.Operator(), g)
	if err != nil {
		return Result{}, refused(err, "")
	}
	return done(changed, fmt.Sprintf("%s is %s", g.User, words))
}

func (s peopleShelf) revoke(ctx context.Context, _ Caller, a Args) (Result, error) {
	g, words, err := s.role(ctx, a)
	if err != nil {
		return Result{}, err
	}
	if err := s.store.RevokeRole(ctx, s.dir.Operator(), g); err != nil {
		return Result{}, refused(err, "ncl roles list shows who has which role")
	}
	return done(true, fmt.Sprintf("%s is no longer %s", g.User, words))
}

type memberRow struct {
	User  string `json:"user"`
	Agent string `json:"agent"`
	By    string `json:"added_by"`
	At    string `json:"created_at"`
}

func (s peopleShelf) memberships(ctx context.Context, group id.AgentGroup) ([]memberRow, error) {
	folders, err := s.folders(ctx)
	if err != nil {
		return nil, err
	}
	all, err := s.store.Members(ctx, group)
	rows := make([]memberRow, 0, len(all))
	for _, m := range all {
		rows = append(rows, memberRow{string(m.User), folders[m.Group], m.By, m.CreatedAt})
	}
	return rows, err
}

func (s peopleShelf) members(ctx context.Context, _ Caller, a Args) (Result, error) {
	group, err := groupOf(ctx, s.store, a, "group")
	if err != nil {
		return Result{}, err
	}
	rows, err := s.memberships(ctx, group.ID)
	if err != nil {
		return Result{}, err
	}
	return result(rows)
}

func (s peopleShelf) addMember(ctx context.Context, _ Caller, a Args) (Result, error) {
	user, err := needed(a, "user")
	if err != nil {
		return Result{}, err
	}
	group, err := neededGroup(ctx, s.store, a, "group")
	if err != nil {
		return Result{}, err
	}
	changed, err := s.store.AddMember(ctx, s.dir.Operator(), id.User(user), group.ID)
	if err != nil {
		return Result{}, refused(err, "")
	}
	return done(changed, fmt.Sprintf("%s may talk to %s", user, group.Folder))
}

func (s peopleShelf) removeMember(ctx context.Context, _ Caller, a Args) (Result, error) {
	user, err := needed(a, "user")
	if err != nil {
		return Result{}, err
	}
	group, err := neededGroup(ctx, s.store, a, "group")
	if err != nil {
		return Result{}, err
	}
	if err := s.store.RemoveMember(ctx, s.dir.Operator(), id.User(user), group.ID); err != nil {
		return Result{}, refused(err, "ncl members list shows who is one")
	}
	what := fmt.Sprintf("%s is no longer a member of %s", user, group.Folder)
	if standing, err := s.store.Standing(ctx, id.User(user), group.ID); err == nil && standing.Access() {
		what += fmt.Sprintf(", and still has access: %s", standing)
	}
	return done(true, what)
}
