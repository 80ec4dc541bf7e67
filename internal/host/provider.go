package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"nanoclaw/internal/config"
	"nanoclaw/internal/config/container"
	"nanoclaw/internal/control"
	"nanoclaw/internal/egress"
	"nanoclaw/internal/id"
	"nanoclaw/internal/sandbox"
	"nanoclaw/internal/vault"
)

// Names of the APIs that providers talk to: of the upstream in egress, and of the key in the vault.
const (
	apiAnthropic = control.SecretAnthropic
	apiOpenAI    = control.SecretOpenAI
	apiOllama    = "ollama"
)

// acpName is the provider that drives any agent of the Agent Client Protocol.
const acpName = "acp"

// providerKind is what the host knows of a provider. How it works inside is the runner's matter.
type providerKind struct {
	name    string
	api     string   // that its sandbox may reach; empty: none
	others  []string // APIs that the name of a model may choose in place of api: "openai/gpt"
	program string   // that its sandbox needs beside the runner; empty: none
	helper  string   // file in the folder of program that it starts by itself; empty: none
	model   bool     // it has no model of its own: one must be named
	apiKey  bool     // a subscription token is no key for it: those belong to the claude CLI
}

// providerKinds is the list of providers, as the runner has it.
func providerKinds() []providerKind {
	return []providerKind{
		{name: "claude", api: apiAnthropic, program: "claude"},
		{name: "anthropic", api: apiAnthropic, apiKey: true},
		{name: "openai", api: apiOpenAI},
		{name: "ollama", api: apiOllama, model: true},
		{name: "codex", api: apiOpenAI, program: "codex", helper: "codex-code-mode-host"},
		{name: "opencode", api: apiAnthropic, others: []string{apiAnthropic, apiOpenAI, apiOllama}, program: "opencode", apiKey: true},
		{name: acpName, program: acpName},
		{name: "mock"},
	}
}

// with is the provider as it is with a model.
func (k providerKind) with(model string) providerKind {
	k.api, _ = container.API(model, k.api, k.others...)
	return k
}

func providerKindOf(s config.Settings, name string) (providerKind, bool) {
	for _, k := range providerKinds() {
		if k.name == name {
			if name == acpName {
				k.api = s.ACPAPI
			}
			return k, true
		}
	}
	return providerKind{}, false
}

// upstreams are the APIs that sandboxes may reach.
func upstreams(s config.Settings) map[string]egress.Upstream {
	return map[string]egress.Upstream{
		apiAnthropic: egress.Anthropic(s.AnthropicURL),
		apiOpenAI:    egress.OpenAI(s.OpenAIURL),
		apiOllama:    egress.Ollama(s.OllamaURL),
		container.UploadAPI: {Base: s.UploadURL, Key: control.SecretHuggingFace, Sign: egress.SignBearer, Paths: []string{"/api/whoami-v2", "/api/repos/create", "/api/datasets"},
			Hint: "set NANOCLAW_HF_TOKEN and run `nanoclaw chat`, which hands it over"},
	}
}

// keyed reports whether an API wants a key.
func keyed(api string) bool { return api != "" && api != apiOllama }

// outfit is what a sandbox gets for its providers: the first one and those that stand in for it.
type outfit struct {
	kinds    []providerKind
	programs map[string]source // by name
	missing  []string          // providers whose program cannot be had
}

// outfit of an agent. A provider that this program does not know, or nobody in the chain whose program is there, keeps the agent from
// starting; else the runner leaves out who has none, and says so.
func (l *launcher) outfit(ctx context.Context, chain []container.Choice, image string) (outfit, error) {
	o := outfit{programs: map[string]source{}}
	var failure *sandbox.Failure
	for _, c := range chain {
		k, ok := providerKindOf(l.settings, c.Provider)
		if !ok {
			return o, &sandbox.Failure{Class: sandbox.SpecInvalid, Op: "start agent", Err: fmt.Errorf("unknown provider %q", c.Provider),
				Hint: "known are: " + strings.Join(providerNames(), ", ")}
		}
		o.kinds = append(o.kinds, k.with(c.Model))
		if k.program == "" {
			continue
		}
		from := l.supply.find(ctx, k.program, image)
		if from.missing != "" {
			o.missing = append(o.missing, k.name)
			if failure == nil {
				failure = &sandbox.Failure{Class: sandbox.SpecInvalid, Op: "start agent", Err: errors.New(from.missing), Hint: fmt.Sprintf("the %s program; `nanoclaw doctor` says how to get it", k.program)}
			}
			continue
		}
		o.programs[k.program] = from
		if k.helper != "" && from.file != "" {
			helper := filepath.Join(filepath.Dir(from.file), k.helper)
			if st, err := os.Stat(helper); err == nil && st.Mode().IsRegular() {
				o.programs[k.helper] = source{file: helper}
			}
		}
	}
	if failure != nil && len(o.missing) == len(o.kinds) {
		return o, failure
	}
	return o, nil
}

// apis are the upstreams that the providers need.
func (o outfit) apis() []string {
	var all []string
	for _, k := range o.kinds {
		if k.api != "" && !slices.Contains(all, k.api) {
			all = append(all, k.api)
		}
	}
	return all
}

// upstreams are what a sandbox may reach by the reverse proxy.
func (l *launcher) upstreams(fit outfit) []string {
	all := fit.apis()
	if l.settings.UploadTrace {
		all = append(all, container.UploadAPI)
	}
	return all
}

// providerNames are the names of all providers.
func providerNames() []string {
	var names []string
	for _, k := range providerKinds() {
		names = append(names, k.name)
	}
	return names
}

// Restart has the running sandboxes of an agent end when they have done what they do; their next start takes changed settings.
func (h *Host) Restart(group id.AgentGroup) int { return h.sessions.Recycle(group) }

// Operator is the user who runs this host.
func (h *Host) Operator() string { return h.terminal.UserID() }

// Provider says in plain words what stands in the way of a provider, and whether a model must be named; nothing: it can be
// used. An unknown name is an error.
func (h *Host) Provider(ctx context.Context, name, model string) (missing []string, needsModel bool, err error) {
	k, ok := providerKindOf(h.opt.Settings, name)
	if !ok {
		return nil, false, control.Invalid("provider", fmt.Sprintf("%q is not one of %s", name, strings.Join(providerNames(), ", ")))
	}
	if k = k.with(model); keyed(k.api) {
		entry, err := h.vault.Get(ctx, k.api)
		switch {
		case errors.Is(err, vault.ErrNotFound):
			missing = append(missing, "the host has no key for "+k.api)
		case err != nil:
			return nil, false, err
		case k.apiKey && entry.Kind == vault.OAuthToken:
			missing = append(missing, "the host has a subscription token for "+k.api+", and "+k.name+" needs an API key")
		}
	}
	if k.program != "" {
		if from := h.supply.find(ctx, k.program, ""); from.missing != "" {
			missing = append(missing, from.missing+" ("+from.fix+")")
		}
	}
	return missing, k.model, nil
}
