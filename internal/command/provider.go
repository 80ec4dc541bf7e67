package command

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"nanoclaw/internal/config"
	"nanoclaw/internal/config/container"
	"nanoclaw/internal/control"
	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/obs"
	"nanoclaw/internal/vault"
)

// modelAPI is how one provider's API is asked whether it works.
type modelAPI struct {
	name    string // of the key, and in words
	base    string // URL
	setting string // that holds base
	key     string // environment variable that hands a key over; empty: the API wants none
	list    string // path of the list of models
	ask     string // path of a question
	// question is the body of a question of one token.
	question func(model string) ([]byte, error)
}

// apiOf a provider; false: the provider asks no model.
func apiOf(s config.Settings, provider string) (modelAPI, bool, error) {
	type message struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	}
	say := []message{{"user", "Say ok."}}
	switch provider {
	case "claude", "anthropic", "opencode":
		return modelAPI{name: control.SecretAnthropic, base: s.AnthropicURL, setting: "anthropic.base_url", key: "ANTHROPIC_API_KEY or CLAUDE_CODE_OAUTH_TOKEN", list: "/v1/models", ask: "/v1/messages",
			question: func(model string) ([]byte, error) {
				return mailbox.EncodeContent(struct {
					Model     string    `json:"model"`
					MaxTokens int       `json:"max_tokens"`
					Messages  []message `json:"messages"`
				}{model, 1, say})
			}}, true, nil
	case "openai", "codex":
		return modelAPI{name: control.SecretOpenAI, base: s.OpenAIURL, setting: "openai.base_url", key: "OPENAI_API_KEY", list: "/v1/models", ask: "/v1/responses",
			question: func(model string) ([]byte, error) {
				return mailbox.EncodeContent(struct {
					Model     string `json:"model"`
					MaxTokens int    `json:"max_output_tokens"`
					Input     string `json:"input"`
				}{model, 16, say[0].Content})
			}}, true, nil
	case "ollama":
		return modelAPI{name: "ollama", base: s.OllamaURL, setting: "ollama.base_url", list: "/api/tags", ask: "/api/chat",
			question: func(model string) ([]byte, error) {
				return mailbox.EncodeContent(struct {
					Model    string         `json:"model"`
					Stream   bool           `json:"stream"`
					Messages []message      `json:"messages"`
					Options  map[string]int `json:"options"`
				}{model, false, say, map[string]int{"num_predict": 1}})
			}}, true, nil
	case providerACP:
		if s.ACPAPI != "" {
			return apiOf(s, s.ACPAPI)
		}
		return modelAPI{}, false, nil
	case "mock":
		return modelAPI{}, false, nil
	}
	return modelAPI{}, false, usagef("unknown provider %q; known are claude, anthropic, openai, ollama, codex, opencode, acp, mock", provider)
}

// callTime bounds a call: a local model may have to be loaded first.
const callTime = 90 * time.Second

// checkProvider makes one real call with the key of this home: a question of one token with a model, else the list of models.
func (a *app) checkProvider(ctx context.Context, home string, s config.Settings, provider, model string) (check, error) {
	c := check{ID: "provider", Title: "provider " + provider}
	if provider == "opencode" { // the API that the model names
		provider, model = container.API(model, "anthropic", "anthropic", "openai", "ollama")
	}
	api, asks, err := apiOf(s, provider)
	if err != nil {
		return c, err
	}
	if !asks {
		c.Result, c.Detail = checkOK, "it asks no model"
		if provider == providerACP {
			c.Detail = "its agent finds model and key by itself"
		}
		return c, nil
	}
	kind, key, err := a.keyFor(ctx, home, api)
	if err != nil {
		c.Result, c.Detail, c.Fix = checkFail, err.Error(), "run doctor as the user of the home"
		return c, nil
	}
	if api.key != "" && key.Empty() {
		c.Result, c.Detail, c.Fix = checkFail, "the host has no key for "+api.name, "set "+api.key+" and run: nanoclaw chat"
		return c, nil
	}
	if kind == control.SecretOAuthToken && (provider == "anthropic" || provider == "opencode") {
		c.Result, c.Detail, c.Fix = checkFail, "the host has a subscription token for "+api.name+", and "+provider+" needs an API key", "set ANTHROPIC_API_KEY and run: nanoclaw chat; or choose the provider claude"
		return c, nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	began := time.Now()
	status, body, err := api.call(ctx, kind, key, model)
	api.judge(&c, status, body, err, model, time.Since(began))
	return c, nil
}

// keyFor is the key of an API: of the environment, where it would be handed over, else of the home.
func (a *app) keyFor(ctx context.Context, home string, api modelAPI) (kind string, key obs.Secret, err error) {
	for _, k := range keyVariables {
		if v := strings.TrimSpace(a.Getenv(k.variable)); v != "" && k.name == api.name {
			return k.kind, obs.NewSecret(v), nil
		}
	}
	if api.key == "" {
		return "", obs.Secret{}, nil
	}
	dir := filepath.Join(home, "secrets")
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) { // doctor makes nothing
		return "", obs.Secret{}, nil
	}
	v, err := vault.Open(dir)
	if err != nil {
		return "", obs.Secret{}, err
	}
	e, err := v.Get(ctx, api.name)
	if errors.Is(err, vault.ErrNotFound) {
		return "", obs.Secret{}, nil
	}
	return string(e.Kind), e.Value, err
}

func (api modelAPI) call(ctx context.Context, kind string, key obs.Secret, model string) (status int, body []byte, err error) {
	method, path, in := http.MethodGet, api.list, []byte(nil)
	if model != "" {
		method, path = http.MethodPost, api.ask
		if in, err = api.question(model); err != nil {
			return 0, nil, err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, api.base+path, bytes.NewReader(in))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Anthropic-Version", "2023-06-01")
	switch {
	case key.Empty():
	case api.name == control.SecretAnthropic && kind == control.SecretAPIKey:
		req.Header.Set("X-Api-Key", key.Reveal())
	default:
		req.Header.Set("Authorization", "Bearer "+key.Reveal())
		if api.name == control.SecretAnthropic {
			req.Header.Set("Anthropic-Beta", "oauth-2025-04-20")
		}
	}
	client := http.Client{
		Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true},
		// The key goes to the address of the settings and nowhere else.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	res, err := client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = res.Body.Close() }()
	body, err = io.ReadAll(io.LimitReader(res.Body, 16<<20))
	return res.StatusCode, body, err
}

// judge says what came of a call, in words that a person can act on.
func (api modelAPI) judge(c *check, status int, body []byte, err error, model string, took time.Duration) {
	said := errorText(body)
	fail := func(detail, fix string) {
		if said != "" {
			detail += " (it says: " + said + ")"
		}
		c.Result, c.Detail, c.Fix = checkFail, detail, fix
	}
	var dns *net.DNSError
	var tlsErr *tls.CertificateVerificationError
	switch {
	case errors.As(err, &dns):
		fail("the name of "+api.base+" cannot be looked up", "check the network of this machine and the setting "+api.setting)
	case errors.Is(err, context.DeadlineExceeded):
		fail(fmt.Sprintf("%s did not answer within %v", api.base, callTime), "check that it works at all, and the setting "+api.setting)
	case errors.As(err, &tlsErr):
		fail("the certificate of "+api.base+" is not trusted: "+tlsErr.Err.Error(), "correct the setting "+api.setting+", or have this machine trust it")
	case err != nil && api.name == "ollama":
		fail("nothing answers at "+api.base, "start it with: ollama serve; or correct the setting "+api.setting)
	case err != nil:
		fail("nothing answers at "+api.base, "check the network of this machine, its proxy variables and the setting "+api.setting)
	case status == http.StatusOK && !isObject(body):
		fail("what answers at "+api.base+" is not this API", "correct the setting "+api.setting)
	case status >= 300 && status < 400:
		fail(fmt.Sprintf("%s sends elsewhere (status %d)", api.base, status), "correct the setting "+api.setting)
	case status == http.StatusOK && model != "":
		c.Result, c.Detail = checkOK, fmt.Sprintf("%s answered with %s in %.1f s", api.base, model, took.Seconds())
	case status == http.StatusOK:
		c.Result, c.Detail = checkOK, fmt.Sprintf("%s took the key and names %d models (give --model to ask one)", api.base, countModels(body))
		if api.key == "" {
			c.Detail = fmt.Sprintf("%s answers and has %d models (give --model to ask one)", api.base, countModels(body))
		}
	case status == http.StatusUnauthorized:
		fail("the key is not accepted", "set a valid "+api.key+" and run: nanoclaw chat")
	case status == http.StatusForbidden:
		fail("the key may not do this", "check what the account of the key is allowed")
	case status == http.StatusPaymentRequired:
		fail("the account has no credit", "add credit to the account of the key")
	case status == http.StatusNotFound && model != "":
		fail(fmt.Sprintf("there is no model %q", model), "choose one that the list has: nanoclaw doctor --provider without --model counts them; ollama has those of `ollama list`; or correct the setting "+api.setting)
	case status == http.StatusNotFound:
		fail("there is no such API at "+api.base, "correct the setting "+api.setting)
	case status == http.StatusTooManyRequests:
		fail("no more requests are taken at the moment, or the account has no credit", "wait, or look at the limits and the credit of the account")
	case status >= 500:
		fail(fmt.Sprintf("the API is in trouble (status %d)", status), "try again later; agents do so by themselves")
	default:
		fail(fmt.Sprintf("the call was refused with status %d", status), "check model and setting "+api.setting)
	}
}

// errorText is the message in the body of a failed call, in one short line.
func errorText(body []byte) string {
	var shape struct {
		Error json.RawMessage `json:"error"`
	}
	if json.Unmarshal(body, &shape) != nil {
		return ""
	}
	var text string
	var nested struct {
		Message string `json:"message"`
	}
	if json.Unmarshal(shape.Error, &text) != nil && json.Unmarshal(shape.Error, &nested) == nil {
		text = nested.Message
	}
	text = strings.Join(strings.Fields(text), " ")
	const most = 200
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}

// isObject reports whether a body is a JSON object, as all answers of an API are: a page of another server is not.
func isObject(body []byte) bool {
	var o map[string]json.RawMessage
	return json.Unmarshal(body, &o) == nil && o != nil
}

// countModels of a list, in any of the three forms.
func countModels(body []byte) int {
	var list struct {
		Data   []json.RawMessage `json:"data"`
		Models []json.RawMessage `json:"models"`
	}
	if json.Unmarshal(body, &list) != nil {
		return 0
	}
	return len(list.Data) + len(list.Models)
}
