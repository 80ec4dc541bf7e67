package tool

import (
	"context"
	_ "embed" // the description
	"errors"
	"fmt"
	"net/url"
	"strings"
	"unicode"

	"nanoclaw/internal/config/container"
)

//go:embed add_mcp_server.md
var addMCPServerText string

// maxServer is the size of all that a server is described with, in bytes.
const maxServer = 16 << 10

type addMCPServerArgs struct {
	Name    string            `json:"name"`
	Command string            `json:"command"`
	Args    []string          `json:"args"`
	Env     map[string]string `json:"env"`
	URL     string            `json:"url"`
	Headers map[string]string `json:"headers"`
}

type addMCPServerAction struct {
	Action string `json:"action"`
	Name   string `json:"name"`
	container.MCPServer
}

func addMCPServer(s Session) Tool {
	schema := object(
		need("name", text("name of the server, 1 to 64 of letters, digits, dot, underscore and dash")),
		may("command", text("program that speaks MCP on stdin and stdout; either this or url")),
		may("args", list("arguments of the program", text(""), 0, 0)),
		may("env", dictionary("environment variables of the program; no keys or passwords")),
		may("url", text("address of a server that speaks streamable HTTP")),
		may("headers", dictionary("HTTP headers for it; no keys or passwords")),
	)
	return define("add_mcp_server", addMCPServerText, schema, func(ctx context.Context, args addMCPServerArgs) (string, error) {
		if args.Name == "" {
			return "", errors.New("`name` is required: the name of the server")
		}
		if err := container.CheckServerName(args.Name); err != nil {
			return "", fmt.Errorf("`name`: %w", err)
		}
		if err := checkServer(args); err != nil {
			return "", err
		}
		action := addMCPServerAction{Action: "add_mcp_server", Name: args.Name, MCPServer: container.MCPServer{
			Command: args.Command, Args: args.Args, Env: args.Env, URL: args.URL, Headers: args.Headers,
		}}
		return request(ctx, s, action, fmt.Sprintf("add the MCP server %q; its tools will be named mcp__%s__…", args.Name, container.CleanServerName(args.Name)))
	})
}

func checkServer(args addMCPServerArgs) error {
	switch {
	case (args.Command == "") == (args.URL == ""):
		return errors.New("give exactly one of `command` and `url`")
	case args.URL != "" && (len(args.Args) > 0 || len(args.Env) > 0):
		return errors.New("`args` and `env` belong to `command`, not to `url`")
	case args.Command != "" && len(args.Headers) > 0:
		return errors.New("`headers` belong to `url`, not to `command`")
	}
	if args.URL != "" {
		u, err := url.Parse(args.URL)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || strings.ContainsFunc(args.URL, unicode.IsSpace) {
			return fmt.Errorf("`url` is %q; it must be an http or https URL with a host", shorten(args.URL))
		}
		if u.User != nil {
			return errors.New("`url` must hold no user and password")
		}
	}
	size := len(args.Command) + len(args.URL)
	all := append([]string{args.Command}, args.Args...)
	for _, pairs := range []map[string]string{args.Env, args.Headers} {
		for key, v := range pairs {
			if key == "" || strings.ContainsAny(key, "=: \t\r\n") {
				return fmt.Errorf("%q is no name of a variable or header", shorten(key))
			}
			all = append(all, key, v)
		}
	}
	for _, s := range all {
		size += len(s)
		if strings.ContainsFunc(s, func(r rune) bool { return r == 0 || r == '\r' || r == '\n' }) {
			return fmt.Errorf("%q has a line break or a NUL character", shorten(s))
		}
	}
	if size > maxServer {
		return fmt.Errorf("the server is described with %d bytes, at most %d are allowed", size, maxServer)
	}
	return nil
}
