package program

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"nanoclaw/internal/config/container"
	"nanoclaw/internal/provider"
	"nanoclaw/internal/provider/acp"
	"nanoclaw/internal/provider/codex"
	"nanoclaw/internal/provider/opencode"
)

// cliIdle is how long a CLI that has nothing to do keeps its memory.
const cliIdle = 3 * time.Minute

// errNoProgram: the program of a provider is not here.
var errNoProgram = errors.New("a program is missing")

// absent stands for a provider whose program is not here.
type absent struct {
	name string
	err  error
}

func (a absent) Name() string                { return a.name }
func (a absent) Caps() provider.Caps         { return provider.Caps{} }
func (a absent) IsSessionInvalid(error) bool { return false }

func (a absent) Query(context.Context, provider.QueryInput) (provider.Query, error) {
	return nil, &provider.QueryError{Op: "start " + a.name, Class: provider.ClassMissing, Err: a.err}
}

// find is the absolute path of a provider's program: that of container.json, else the one of its name on the PATH.
func find(s setting, name string) (string, error) {
	program := s.config.Programs[name]
	if program == "" {
		program = name
	}
	if filepath.IsAbs(program) {
		return program, nil
	}
	found, err := exec.LookPath(program)
	if err == nil {
		found, err = filepath.Abs(found)
	}
	if err != nil {
		return "", fmt.Errorf("%w: find the %s program: %w (the image or the machine must have it; `nanoclaw doctor` says how)", errNoProgram, name, err)
	}
	return found, nil
}

func newCodex(s setting) (provider.Provider, error) {
	program, err := find(s, codex.Name)
	if err != nil {
		return nil, err
	}
	out, err := s.relay()
	if err != nil {
		return nil, err
	}
	return codex.New(codex.Options{
		Program: program, Home: s.home, BaseURL: out.BaseURL("openai") + "/v1", Key: s.config.Credential.Placeholder, Env: nativeEnv(s, out),
		Model: s.config.Model, Effort: s.config.Effort, IdleClose: cliIdle, Log: s.log,
	})
}

func newOpencode(s setting) (provider.Provider, error) {
	program, err := find(s, opencode.Name)
	if err != nil {
		return nil, err
	}
	out, err := s.relay()
	if err != nil {
		return nil, err
	}
	api, model := container.API(s.config.Model, opencode.Anthropic, opencode.Anthropic, opencode.OpenAI, opencode.Ollama)
	return opencode.New(opencode.Options{
		Program: program, Home: s.home, API: api, BaseURL: out.BaseURL(api) + "/v1", Key: s.config.Credential.Placeholder, Env: nativeEnv(s, out),
		Model: model, ContextTokens: s.config.ContextTokens, Effort: s.config.Effort, IdleClose: cliIdle, Log: s.log,
	})
}

// newACP takes the agent's command line from programs in container.json: words, without quotes.
func newACP(s setting) (provider.Provider, error) {
	command := strings.Fields(s.config.Programs[acp.Name])
	if len(command) == 0 {
		return nil, fmt.Errorf("%w: no agent is named: programs.%s in container.json is its command line", errNoProgram, acp.Name)
	}
	found, err := exec.LookPath(command[0])
	if err == nil {
		command[0], err = filepath.Abs(found)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: find the agent's program: %w", errNoProgram, err)
	}
	out, err := s.relay()
	if err != nil {
		return nil, err
	}
	env := nativeEnv(s, out)
	agentAPI(env, s.config, out.BaseURL)
	return acp.New(acp.Options{Command: command, Home: s.home, Env: env, IdleClose: cliIdle, Log: s.log})
}

// agentAPI tells a foreign agent where its API is and what stands for the key, in the variables of the vendor's own clients.
func agentAPI(env map[string]string, c container.Config, base func(api string) string) {
	switch c.AgentAPI {
	case "anthropic":
		env["ANTHROPIC_BASE_URL"] = base("anthropic")
		switch c.Credential.Kind {
		case "api_key":
			env["ANTHROPIC_API_KEY"] = c.Credential.Placeholder
		case "oauth_token":
			env["CLAUDE_CODE_OAUTH_TOKEN"] = c.Credential.Placeholder
		}
	case "openai":
		env["OPENAI_BASE_URL"], env["OPENAI_API_KEY"] = base("openai")+"/v1", c.Credential.Placeholder
	case "ollama":
		env["OLLAMA_HOST"] = base("ollama")
	}
}
