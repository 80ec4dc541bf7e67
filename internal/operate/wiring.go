package operate

import (
	"context"

	"fmt"
	"strings"

	"nanoclaw/internal/control"
	"nanoclaw/internal/id"
	"nanoclaw/internal/store"
)

// wiringFlags are the values of a wiring.
func wiringFlags() []string {
	return strings.Fields("engage-mode engage-pattern sender-scope ignored-message-policy session-mode threads priority")
}

// Chats is the commands about chats, wirings and destinations. All of them are the operator's.
func Chats(st *store.Store, d Directory) []Command {
	s := chatShelf{st, d}
	chat := strings.Fields("chat channel-type platform-id instance")
	return []Command{
		{Name: "messaging-groups get", Short: "Show a chat and who listens there", Target: "id of the chat", Flags: append([]string{"id"}, chat...), Run: s.get},
		{Name: "messaging-groups update", Short: "Name a chat; say what happens to strangers there", Target: "id of the chat",
			Flags: append([]string{"id", "name", "unknown-sender-policy", "denied"}, chat...), Run: s.update},
		{Name: "wirings list", Short: "List which agent listens in which chat, and how", Flags: append([]string{"group"}, chat...), Run: s.list},
		{Name: "wirings create", Short: "Have an agent listen in a chat", Flags: append(append([]string{"group"}, chat...), wiringFlags()...), Run: s.create},
		{Name: "wirings update", Short: "Change how an agent listens", Target: "id of the wiring", Flags: append([]string{"id"}, wiringFlags()...), Run: s.change},
		{Name: "wirings delete", Short: "Have an agent listen no more", Target: "id of the wiring", Flags: []string{"id"}, Run: s.remove},
		{Name: "destinations add", Short: "Let an agent write to a chat or to another agent", Flags: append([]string{"group", "name", "agent"}, chat...), Run: s.addDestination},
		{Name: "destinations remove", Short: "Let an agent write there no more", Flags: []string{"group", "name"}, Run: s.removeDestination},
		{Name: "dropped list", Short: "List whose messages were not taken, and why", Flags: []string{"limit"}, Run: s.dropped},
		{Name: "route test", Short: "Show what would become of a message, without doing it",
			Flags: append(strings.Fields("user text mention thread group-chat bot"), chat...), Run: s.test},
	}
}

type chatShelf struct {
	store *store.Store
	dir   Directory
}

// chat is the one that --chat, --id or the word behind the command names by its id, or that --channel-type and --platform-id
// name. Without any of them it is the zero chat.
func (s chatShelf) chat(ctx context.Context, a Args) (store.MessagingGroup, error) {
	wanted := a.Target
	for _, f := range []string{"chat", "id"} {
		v, err := a.Text(f)
		if err != nil {
			return store.MessagingGroup{}, err
		}
		wanted += v
	}
	const hint = "ncl messaging-groups list shows the chats"
	platform, err := a.Text("platform-id")
	if err != nil {
		return store.MessagingGroup{}, err
	}
	if wanted != "" && platform != "" {
		return store.MessagingGroup{}, control.Invalid("platform-id", "the chat is named twice")
	}
	if wanted != "" {
		g, err := s.store.MessagingGroupByID(ctx, id.MessagingGroup(wanted))
		return g, refused(err, hint)
	}
	if platform == "" {
		return store.MessagingGroup{}, nil
	}
	kind, _, _ := strings.Cut(platform, ":")
	if v, err := a.Text("channel-type"); err != nil {
		return store.MessagingGroup{}, err
	} else if v != "" && v != kind {
		return store.MessagingGroup{}, control.Invalid("platform-id", fmt.Sprintf("must begin with %s: as the channel writes it", v))
	}
	instance, err := a.Text("instance")
	if err != nil {
		return store.MessagingGroup{}, err
	}
	if instance == "" {
		instance = kind
	}
	g, err := s.store.MessagingGroup(ctx, instance, platform)
	return g, refused(err, hint)
}

func (s chatShelf) neededChat(ctx context.Context, a Args) (store.MessagingGroup, error) {
	g, err := s.chat(ctx, a)
	if err == nil && g.ID == "" {
		e := control.Invalid("chat", "is missing")
		e.Hint = "the chat's id, or --platform-id"
		return g, e
	}
	return g, err
}

type wiringRow struct {
	ID       string `json:"id"`
	Chat     string `json:"chat"`
	Agent    string `json:"agent"`
	Engage   string `json:"engage_mode"`
	Pattern  string `json:"engage_pattern"`
	Scope    string `json:"sender_scope"`
	Ignored  string `json:"ignored_message_policy"`
	Session  string `json:"session_mode"`
	Threads  string `json:"threads"` // inherit, true, false
	Priority int    `json:"priority"`
}

const inherit = "inherit"

func (s chatShelf) rows(ctx context.Context, all []store.Wiring) ([]wiringRow, error) {
	folders, err := peopleShelf(s).folders(ctx)
	rows := make([]wiringRow, 0, len(all))
	for _, w := range all {
		threads := inherit
		if w.Threads != nil {
			threads = fmt.Sprint(*w.Threads)
		}
		rows = append(rows, wiringRow{string(w.ID), string(w.MessagingGroupID), folders[w.AgentGroupID], string(w.EngageMode), w.EngagePattern,
			string(w.SenderScope), string(w.IgnoredMessagePolicy), string(w.SessionMode), threads, w.Priority})
	}
	return rows, err
}

// chatDetail is a chat with its wirings.
type chatDetail struct {
	chatRow
	Denied  bool        `json:"denied"`
	Wirings []wiringRow `json:"wirings"`
}

func (s chatShelf) detail(ctx context.Context, g store.MessagingGroup) (chatDetail, error) {
	row := chatDetail{chatRow: chatRow{string(g.ID), g.ChannelType, g.Instance, g.PlatformID, g.Name, g.IsGroup, string(g.UnknownSenderPolicy)}, Denied: g.Denied}
	all, err := s.store.Wirings(ctx, g.ID)
	if err != nil {
		return row, err
	}
	row.Wirings, err = s.rows(ctx, all)
	return row, err
}

func (s chatShelf) get(ctx context.Context, _ Caller, a Args) (Result, error) {
	g, err := s.neededChat(ctx, a)
	if err != nil {
		return Result{}, err
	}
	row, err := s.detail(ctx, g)
	if err != nil {
		return Result{}, err
	}
	return result(row)
}

func (s chatShelf) update(ctx context.Context, _ Caller, a Args) (Result, error) {
	g, err := s.neededChat(ctx, a)
	if err != nil {
		return Result{}, err
	}
	var change store.ChatChange
	name, err := a.Text("name")
	if err != nil {
		return Result{}, err
	}
	policy, err := a.Text("unknown-sender-policy")
	if err != nil {
		return Result{}, err
	}
	if change.Denied, err = flag(a, "denied"); err != nil {
		return Result{}, err
	}
	if name != "" {
		change.Name = &name
	}
	if policy != "" {
		p := store.UnknownSenderPolicy(policy)
		change.Policy = &p
	}
	if change == (store.ChatChange{}) {
		return Result{}, control.Invalid("name", "nothing to change: give --name, --unknown-sender-policy or --denied")
	}
	g, changed, err := s.store.UpdateChat(ctx, s.dir.Operator(), g.ID, change)
	if err != nil {
		return Result{}, refused(err, "")
	}
	what := fmt.Sprintf("chat %s (%s): unknown senders %s", g.ID, g.PlatformID, g.UnknownSenderPolicy)
	if g.Denied {
		what += ", denied"
	}
	if g.UnknownSenderPolicy == store.Public {
		what += "; everybody who writes there can talk to its agents"
	}
	return done(changed, what)
}

// flag is a yes or no; nil if it is not given.
func flag(a Args, name string) (*bool, error) {
	raw, ok := a.values[name]
	if !ok {
		return nil, nil
	}
	switch strings.Trim(string(raw), `"`) {
	case "true", "yes", "1":
		v := true
		return &v, nil
	case "false", "no", "0":
		v := false
		return &v, nil
	}
	return nil, control.Invalid(name, "must be true or false")
}

func (s chatShelf) list(ctx context.Context, _ Caller, a Args) (Result, error) {
	chat, err := s.chat(ctx, a)
	if err != nil {
		return Result{}, err
	}
	group, err := groupOf(ctx, s.store, a, "group")
	if err != nil {
		return Result{}, err
	}
	all, err := s.store.Wirings(ctx, chat.ID)
	if err != nil {
		return Result{}, err
	}
	shown := make([]store.Wiring, 0, len(all))
	for _, w := range all {
		if group.ID == "" || w.AgentGroupID == group.ID {
			shown = append(shown, w)
		}
	}
	rows, err := s.rows(ctx, shown)
	if err != nil {
		return Result{}, err
	}
	return result(rows)
}

func (s chatShelf) create(ctx context.Context, _ Caller, a Args) (Result, error) {
	chat, err := s.neededChat(ctx, a)
	if err != nil {
		return Result{}, err
	}
	group, err := neededGroup(ctx, s.store, a, "group")
	if err != nil {
		return Result{}, err
	}
	w := store.Wiring{MessagingGroupID: chat.ID, AgentGroupID: group.ID, EngageMode: store.EngagePattern, EngagePattern: ".", SenderScope: store.ScopeAll,
		IgnoredMessagePolicy: store.IgnoredDrop, SessionMode: store.ModeShared}
	if chat.IsGroup {
		w.EngageMode, w.EngagePattern = store.EngageSticky, ""
	}
	note, err := s.values(a, chat, &w)
	if err != nil {
		return Result{}, err
	}
	stored, changed, err := s.store.AddWiring(ctx, s.dir.Operator(), w)
	if err != nil {
		return Result{}, refused(err, "")
	}
	what := fmt.Sprintf("%s listens in %s: wiring %s, %s", group.Folder, chat.PlatformID, stored.ID, stored.EngageMode)
	if !changed {
		note = "; its values stay: ncl wirings update changes them"
	}
	return done(changed, what+note)
}

// values takes the flags of a wiring over. What cannot work is stored as what it comes to, and note says so.
func (s chatShelf) values(a Args, chat store.MessagingGroup, w *store.Wiring) (note string, err error) {
	for name, set := range map[string]func(string){
		"engage-mode":            func(v string) { w.EngageMode = store.EngageMode(v) },
		"engage-pattern":         func(v string) { w.EngagePattern = v },
		"sender-scope":           func(v string) { w.SenderScope = store.SenderScope(v) },
		"ignored-message-policy": func(v string) { w.IgnoredMessagePolicy = store.IgnoredPolicy(v) },
		"session-mode":           func(v string) { w.SessionMode = store.SessionMode(v) },
	} {
		v, err := a.Text(name)
		if err != nil {
			return "", err
		}
		if v != "" {
			set(v)
		}
	}
	_, pattern := a.values["engage-pattern"]
	if _, mode := a.values["engage-mode"]; pattern && !mode && w.ID == "" {
		w.EngageMode = store.EngagePattern // who gives a pattern means it
	}
	if mode := w.EngageMode; pattern && mode != store.EngagePattern {
		return "", control.Invalid("engage-pattern", fmt.Sprintf("goes with --engage-mode pattern only, not with %s", mode))
	}
	if v := string(a.values["threads"]); strings.Trim(v, `"`) == inherit {
		w.Threads = nil
	} else if given, err := flag(a, "threads"); err != nil {
		return "", control.Invalid("threads", "must be true, false or inherit")
	} else if given != nil {
		w.Threads = given
	}
	if w.Priority, err = a.Number("priority", w.Priority, -1000, 1000); err != nil {
		return "", err
	}
	has := s.dir.Threads(chat.Instance)
	if w.Threads != nil && *w.Threads && !has {
		return "", control.Invalid("threads", fmt.Sprintf("the channel %s has no threads", chat.Instance))
	}
	if off := !has || w.Threads != nil && !*w.Threads; off && w.EngageMode == store.EngageSticky {
		w.EngageMode = store.EngageMention // without threads it would never end
		note = "; without threads mention-sticky is mention"
	}
	return note, nil
}

func (s chatShelf) wiring(ctx context.Context, a Args) (store.Wiring, error) {
	wanted, err := named(a, "id")
	if err != nil {
		return store.Wiring{}, err
	}
	w, err := s.store.Wiring(ctx, id.Wiring(wanted))
	return w, refused(err, "ncl wirings list shows them")
}

func (s chatShelf) change(ctx context.Context, _ Caller, a Args) (Result, error) {
	w, err := s.wiring(ctx, a)
	if err != nil {
		return Result{}, err
	}
	chat, err := s.store.MessagingGroupByID(ctx, w.MessagingGroupID)
	if err != nil {
		return Result{}, err
	}
	if len(a.values) == 0 || len(a.values) == 1 && a.values["id"] != nil {
		return Result{}, control.Invalid("", "nothing to change: give one of --"+strings.Join(wiringFlags(), ", --"))
	}
	note, err := s.values(a, chat, &w)
	if err != nil {
		return Result{}, err
	}
	changed, err := s.store.UpdateWiring(ctx, s.dir.Operator(), w)
	if err != nil {
		return Result{}, refused(err, "")
	}
	return done(changed, fmt.Sprintf("wiring %s: %s%s", w.ID, w.EngageMode, note))
}

func (s chatShelf) remove(ctx context.Context, _ Caller, a Args) (Result, error) {
	wanted, err := named(a, "id")
	if err != nil {
		return Result{}, err
	}
	if err := s.store.RemoveWiring(ctx, s.dir.Operator(), id.Wiring(wanted)); err != nil {
		return Result{}, refused(err, "ncl wirings list shows them")
	}
	return done(true, "wiring "+wanted+" is gone; the agent may still write to the chat (ncl destinations remove)")
}

func (s chatShelf) addDestination(ctx context.Context, _ Caller, a Args) (Result, error) {
	group, err := neededGroup(ctx, s.store, a, "group")
	if err != nil {
		return Result{}, err
	}
	name, err := needed(a, "name")
	if err != nil {
		return Result{}, err
	}
	chat, err := s.chat(ctx, a)
	if err != nil {
		return Result{}, err
	}
	agent, err := groupOf(ctx, s.store, a, "agent")
	if err != nil {
		return Result{}, err
	}
	if (chat.ID == "") == (agent.ID == "") {
		return Result{}, control.Invalid("chat", "name either a chat or --agent")
	}
	changed, err := s.store.AddDestination(ctx, s.dir.Operator(), group.ID, name, store.Target{Chat: chat.ID, Agent: agent.ID})
	if err != nil {
		return Result{}, refused(err, "")
	}
	return done(changed, fmt.Sprintf("%s may write to %s%s as %s", group.Folder, chat.PlatformID, agent.Folder, name))
}

func (s chatShelf) removeDestination(ctx context.Context, _ Caller, a Args) (Result, error) {
	group, err := neededGroup(ctx, s.store, a, "group")
	if err != nil {
		return Result{}, err
	}
	name, err := needed(a, "name")
	if err != nil {
		return Result{}, err
	}
	if err := s.store.RemoveDestination(ctx, s.dir.Operator(), group.ID, name); err != nil {
		return Result{}, refused(err, "ncl destinations list shows them")
	}
	return done(true, fmt.Sprintf("%s may no longer write to %s", group.Folder, name))
}

type droppedRow struct {
	Instance string `json:"instance"`
	Chat     string `json:"platform_id"`
	User     string `json:"user"`
	Name     string `json:"sender_name"`
	Reason   string `json:"reason"`
	Count    int64  `json:"count"`
	First    string `json:"first_seen"`
	Last     string `json:"last_seen"`
}

func (s chatShelf) dropped(ctx context.Context, _ Caller, a Args) (Result, error) {
	limit, err := a.Number("limit", 50, 1, listMost)
	if err != nil {
		return Result{}, err
	}
	all, err := s.store.DroppedMessages(ctx, limit)
	if err != nil {
		return Result{}, err
	}
	rows := make([]droppedRow, 0, len(all))
	for _, d := range all {
		rows = append(rows, droppedRow{d.Instance, d.PlatformID, string(d.User), d.Name, d.Reason, d.Count, d.First, d.Last})
	}
	return result(rows)
}

// RouteEvent is a message as `ncl route test` makes it up.
type RouteEvent struct {
	Instance, PlatformID, Thread, User, Text string
	Mention, Group, Bot                      bool
}

// RouteResult is what would become of it. Outcome is for the case that no wiring is asked.
type RouteResult struct {
	Outcome string        `json:"outcome"`
	Wirings []RouteChoice `json:"wirings"`
}

// RouteChoice is the decision of one wiring.
type RouteChoice struct {
	Wiring   string `json:"wiring"`
	Agent    string `json:"agent"`
	Action   string `json:"action"`
	Code     string `json:"code"`
	Reason   string `json:"reason"`
	Standing string `json:"standing"`
	Session  string `json:"session"` // its key
}

func (s chatShelf) test(ctx context.Context, _ Caller, a Args) (Result, error) {
	chat, err := s.chat(ctx, a)
	if control.IsCode(err, control.CodeNotFound) { // a chat that is not known is a case, too
		chat, err = store.MessagingGroup{}, nil
	}
	if err != nil {
		return Result{}, err
	}
	e := RouteEvent{Instance: chat.Instance, PlatformID: chat.PlatformID, Group: chat.IsGroup}
	if chat.ID == "" {
		if e.PlatformID, err = needed(a, "platform-id"); err != nil {
			return Result{}, err
		}
		if e.Instance, err = a.Text("instance"); err != nil {
			return Result{}, err
		}
		if e.Instance == "" {
			e.Instance, _, _ = strings.Cut(e.PlatformID, ":")
		}
	}
	if e.User, err = needed(a, "user"); err != nil {
		return Result{}, err
	}
	if e.Text, err = needed(a, "text"); err != nil {
		return Result{}, err
	}
	if e.Thread, err = a.Text("thread"); err != nil {
		return Result{}, err
	}
	for name, set := range map[string]*bool{"mention": &e.Mention, "group-chat": &e.Group, "bot": &e.Bot} {
		v, err := flag(a, name)
		if err != nil {
			return Result{}, err
		}
		if v != nil {
			*set = *v
		}
	}
	found, err := s.dir.RouteTest(ctx, e)
	if err != nil {
		return Result{}, err
	}
	lines := []string{found.Outcome}
	for _, c := range found.Wirings {
		lines = append(lines, fmt.Sprintf("%s (%s): %s, %s; the sender is %s; session %s", c.Agent, c.Wiring, c.Action, c.Reason, c.Standing, c.Session))
	}
	res, err := result(found)
	res.Human = strings.Join(lines, "\n")
	return res, err
}
