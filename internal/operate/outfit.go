package operate

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"nanoclaw/internal/config/container"
	"nanoclaw/internal/control"
	"nanoclaw/internal/sandbox"
	"nanoclaw/internal/store"
)

// Skills is the commands about skills; names says which there are.
func Skills(st GroupStore, a Runtime, names func() []string) []Command {
	s := configShelf{st, a}
	return []Command{
		{Name: "skills list", Short: "List the skills there are, and which agents have them", Run: func(ctx context.Context, _ Caller, _ Args) (Result, error) {
			return s.skills(ctx, names())
		}},
		{Name: "skills set", Short: "Choose the skills of an agent", Target: "all, none, or names with commas between", Flags: []string{"skills", "id"},
			Run: func(ctx context.Context, _ Caller, a Args) (Result, error) { return s.setSkills(ctx, a, names()) }},
	}
}

type skillRow struct {
	Skill  string   `json:"skill"`
	Agents []string `json:"agents"`
}

func (s configShelf) skills(ctx context.Context, names []string) (Result, error) {
	all, err := s.store.AgentGroups(ctx)
	if err != nil {
		return Result{}, err
	}
	rows := []skillRow{}
	for _, n := range names {
		row := skillRow{Skill: n, Agents: []string{}}
		for _, g := range all {
			if g.Setup.Skills == nil || slices.Contains(*g.Setup.Skills, n) {
				row.Agents = append(row.Agents, g.Name)
			}
		}
		rows = append(rows, row)
	}
	return result(rows)
}

func (s configShelf) setSkills(ctx context.Context, a Args, names []string) (Result, error) {
	text, err := a.Text("skills")
	if err != nil {
		return Result{}, err
	}
	if text == "" {
		text = a.Target
	}
	g, err := s.group(ctx, Args{values: a.values})
	if err != nil {
		return Result{}, err
	}
	next := g.Setup
	switch text {
	case "":
		return Result{}, control.Invalid("skills", "is missing: all, none, or names with commas between")
	case "all":
		next.Skills = nil
		return s.put(ctx, g, next, g.Name+" has all skills")
	case "none":
		next.Skills = &[]string{}
		return s.put(ctx, g, next, g.Name+" has no skills")
	}
	wanted := []string{}
	for name := range strings.SplitSeq(text, ",") {
		if name = strings.TrimSpace(name); name == "" || slices.Contains(wanted, name) {
			continue
		}
		if !slices.Contains(names, name) {
			e := control.Invalid("skills", fmt.Sprintf("there is no skill %q", name))
			e.Hint = "there are: " + strings.Join(names, ", ")
			return Result{}, e
		}
		wanted = append(wanted, name)
	}
	slices.Sort(wanted)
	next.Skills = &wanted
	return s.put(ctx, g, next, g.Name+" has the skills "+strings.Join(wanted, ", "))
}

// Bounds of MCP servers.
const (
	maxServers     = 20
	maxServerBytes = 32 << 10
)

// Servers is the commands about MCP servers of agents.
func Servers(st GroupStore, a Runtime) []Command {
	s := configShelf{st, a}
	return []Command{
		{Name: "mcp list", Short: "List the MCP servers of agents", Run: s.servers},
		{Name: "mcp add", Short: "Give an agent an MCP server", Target: "its name", Flags: []string{"name", "id", "config"}, Run: s.addServer},
		{Name: "mcp remove", Short: "Take an MCP server from an agent", Target: "its name", Flags: []string{"name", "id"}, Run: s.removeServer},
	}
}

type serverRow struct {
	Agent  string `json:"agent"`
	Server string `json:"server"`
	Runs   string `json:"runs"`
}

func (s configShelf) servers(ctx context.Context, _ Caller, _ Args) (Result, error) {
	all, err := s.store.AgentGroups(ctx)
	if err != nil {
		return Result{}, err
	}
	rows := []serverRow{}
	for _, g := range all {
		for _, name := range slices.Sorted(maps.Keys(g.Setup.MCPServers)) {
			v := g.Setup.MCPServers[name]
			rows = append(rows, serverRow{g.Name, name, strings.TrimSpace(v.URL + " " + strings.Join(append([]string{v.Command}, v.Args...), " "))})
		}
	}
	return result(rows)
}

func (s configShelf) server(ctx context.Context, a Args) (g store.AgentGroup, name string, err error) {
	if name, err = a.Text("name"); err != nil {
		return g, "", err
	}
	if name == "" {
		name = a.Target
	}
	g, err = s.group(ctx, Args{values: a.values})
	return g, name, err
}

func (s configShelf) addServer(ctx context.Context, _ Caller, a Args) (Result, error) {
	g, name, err := s.server(ctx, a)
	if err != nil {
		return Result{}, err
	}
	raw := a.values["config"]
	var text string
	if json.Unmarshal(raw, &text) == nil {
		raw = json.RawMessage(text)
	}
	if len(raw) == 0 || len(raw) > maxServerBytes {
		return Result{}, control.Invalid("config", `is a JSON object such as {"command":"npx","args":["-y","some-server"]} or {"url":"https://…"}`)
	}
	others := slices.DeleteFunc(slices.Sorted(maps.Keys(g.Setup.MCPServers)), func(o string) bool { return o == name })
	v, warnings, err := container.ReadServer(name, raw, others...)
	if err != nil {
		return Result{}, control.Invalid("config", err.Error())
	}
	if len(warnings) > 0 {
		return Result{}, control.Invalid("config", strings.Join(warnings, "; "))
	}
	if secret := credentialIn(v); secret != "" {
		e := control.Invalid("config", secret+" looks like a key: keys never go into a sandbox")
		e.Hint = "leave it out; requests get their keys outside"
		return Result{}, e
	}
	if len(others) >= maxServers {
		return Result{}, control.Invalid("name", fmt.Sprintf("an agent has at most %d servers", maxServers))
	}
	next := g.Setup
	next.MCPServers = maps.Clone(g.Setup.MCPServers)
	if next.MCPServers == nil {
		next.MCPServers = map[string]container.MCPServer{}
	}
	next.MCPServers[name] = v
	return s.put(ctx, g, next, g.Name+" has the MCP server "+name)
}

// credentialIn names the part of a server that looks like a key, never the key; "" if none does.
func credentialIn(v container.MCPServer) string {
	for _, m := range []struct {
		kind   string
		values map[string]string
	}{{"variable ", v.Env}, {"header ", v.Headers}} {
		for _, name := range slices.Sorted(maps.Keys(m.values)) {
			if sandbox.CredentialValue(m.values[name]) || sandbox.CredentialName(strings.ReplaceAll(name, "-", "_")) || strings.EqualFold(name, "authorization") {
				return m.kind + name
			}
		}
	}
	if slices.ContainsFunc(append([]string{v.Command, v.URL}, v.Args...), sandbox.CredentialValue) {
		return "an argument or the address"
	}
	return ""
}

func (s configShelf) removeServer(ctx context.Context, _ Caller, a Args) (Result, error) {
	g, name, err := s.server(ctx, a)
	if err != nil {
		return Result{}, err
	}
	if _, ok := g.Setup.MCPServers[name]; !ok {
		return Result{}, &control.Error{Code: control.CodeNotFound, Field: "name", Message: fmt.Sprintf("%s has no MCP server %q", g.Name, name)}
	}
	next := g.Setup
	next.MCPServers = maps.Clone(g.Setup.MCPServers)
	delete(next.MCPServers, name)
	return s.put(ctx, g, next, name+" is taken away")
}
