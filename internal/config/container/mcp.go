package container

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"unicode"
)

// MCPServer of container.json: stdio (Command) or streamable HTTP (URL).
type MCPServer struct {
	Command string            `json:"command,omitempty"`
	Args    []string          `json:"args,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
	Cwd     string            `json:"cwd,omitempty"` // with Command; empty: the agent's folder
	URL     string            `json:"url,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
	// EnabledTools are the only tools of it that the model may call; empty: all. DisabledTools it may not call.
	EnabledTools  []string `json:"enabledTools,omitempty"`
	DisabledTools []string `json:"disabledTools,omitempty"`
	// Instructions go into the agent's composed instructions, by the host; the runner ignores them.
	Instructions string `json:"instructions,omitempty"`
}

// ReservedMCPServer is the name of the built-in tools; no setting may replace it (spec/runner.md W32).
const ReservedMCPServer = "nanoclaw"

// Environment is what a stdio server is started with: its own variables under those that the runner gives to every child, which a
// server can never change (spec/bugs.md MCP-7). required is a list of NAME=value; with an empty value the name is taken out.
func (s MCPServer) Environment(required []string) map[string]string {
	env := map[string]string{}
	for name, value := range s.Env {
		if !runnerSets(name) {
			env[name] = value
		}
	}
	for _, v := range required {
		if name, value, ok := strings.Cut(v, "="); ok && value != "" {
			env[name] = value
		} else {
			delete(env, name)
		}
	}
	return env
}

// runnerSets reports whether a variable says where a child's traffic goes: all of it leaves by the runner's relay, where keys and
// the budget are. Programs read such names in either case.
func runnerSets(name string) bool {
	switch strings.ToUpper(name) {
	case "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "FTP_PROXY", "ANTHROPIC_BASE_URL", "OPENAI_BASE_URL":
		return true
	}
	return false
}

// readServers reads mcpServers in order of name. A server that cannot be used is left out, with a warning that names it and says
// why; of two that the model could not tell apart, the second.
func readServers(raw map[string]json.RawMessage) (servers map[string]MCPServer, warnings []string) {
	servers = map[string]MCPServer{}
	var taken []string
	for _, name := range slices.Sorted(maps.Keys(raw)) {
		warn := func(why any) { warnings = append(warnings, fmt.Sprintf("mcpServers.%s: %v", clip(name), why)) }
		s, dropped, err := ReadServer(name, raw[name], taken...)
		if err != nil {
			warn(fmt.Sprintf("%v; ignored", err))
			continue
		}
		for _, w := range dropped {
			warn(w)
		}
		servers[name] = s
		taken = append(taken, name)
	}
	return servers, warnings
}

// ReadServer reads one server beside the servers others. A server that cannot be used is an error; what of it does not count is left
// out and named in dropped.
func ReadServer(name string, raw json.RawMessage, others ...string) (s MCPServer, dropped []string, err error) {
	if err := CheckServerName(name, others...); err != nil {
		return s, nil, err
	}
	if err := json.Unmarshal(raw, &s); err != nil {
		return s, nil, err
	}
	if err := s.check(); err != nil {
		return s, nil, err
	}
	dropped = s.tidy()
	return s, dropped, nil
}

// check says why a server cannot be used at all.
func (s MCPServer) check() error {
	switch {
	case (s.Command == "") == (s.URL == ""):
		return errors.New("give either command or url")
	case strings.ContainsRune(s.Command+s.Cwd+strings.Join(s.Args, ""), 0):
		return errors.New("command, args or cwd has a NUL character")
	case s.URL == "":
		return nil
	}
	u, err := url.Parse(s.URL)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "" {
		return errors.New("url is not an http or https address of a host")
	}
	return nil
}

// tidy drops parts of a server that must not or cannot count, and says which.
func (s *MCPServer) tidy() (warnings []string) {
	if s.URL != "" && (len(s.Args) > 0 || len(s.Env) > 0 || s.Cwd != "") {
		warnings = append(warnings, "args, env and cwd do not go with url; they are ignored")
		s.Args, s.Env, s.Cwd = nil, nil, ""
	}
	if s.URL == "" && len(s.Headers) > 0 {
		warnings = append(warnings, "headers do not go with command; they are ignored")
		s.Headers = nil
	}
	for _, name := range slices.Sorted(maps.Keys(s.Env)) {
		switch {
		case runnerSets(name):
			warnings = append(warnings, "env "+name+" is set by this system; ignored")
		case !named(name, 128, "_"):
			warnings = append(warnings, fmt.Sprintf("env %q is not the name of a variable; ignored", clip(name)))
		case strings.ContainsRune(s.Env[name], 0):
			warnings = append(warnings, "env "+name+" has a NUL character; ignored")
		default:
			continue
		}
		delete(s.Env, name)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Headers)) {
		if !header(name, s.Headers[name]) {
			warnings = append(warnings, fmt.Sprintf("header %q has a character that no header may have; ignored", clip(name)))
			delete(s.Headers, name)
		}
	}
	for _, l := range []struct {
		field string
		tools *[]string
	}{{"enabledTools", &s.EnabledTools}, {"disabledTools", &s.DisabledTools}} {
		var good []string
		for _, t := range *l.tools {
			if !tool(t) {
				warnings = append(warnings, fmt.Sprintf("%s: %q is not the name of a tool; ignored", l.field, clip(t)))
			} else if !slices.Contains(good, t) {
				good = append(good, t)
			}
		}
		if len(*l.tools) > 0 && len(good) == 0 && l.field == "enabledTools" {
			// None of them can be meant; to allow all instead would be the opposite.
			warnings = append(warnings, "enabledTools names no tool; all of them are off")
			good = []string{noTool}
		}
		*l.tools = good
	}
	return warnings
}

// noTool is the name of no tool: a list of only this allows nothing.
const noTool = "-"

// named reports whether s is 1 to most letters, digits and extra characters, and starts with no digit.
func named(s string, most int, extra string) bool {
	if s == "" || len(s) > most || (s[0] >= '0' && s[0] <= '9') {
		return false
	}
	for _, r := range s {
		if (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune(extra, r) {
			return false
		}
	}
	return true
}

func header(name, value string) bool {
	return named(strings.TrimLeft(name, "0123456789")+"x", 128, "!#$%&'*+-.^_`|~") && name != "" &&
		!strings.ContainsFunc(value, func(r rune) bool { return r != '\t' && unicode.IsControl(r) })
}

func tool(s string) bool {
	return s != "" && len(s) <= 128 && !strings.ContainsFunc(s, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) })
}
