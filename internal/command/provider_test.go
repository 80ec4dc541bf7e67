package command

import (
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"nanoclaw/internal/obs"
	"nanoclaw/internal/vault"
)

// What doctor says of each thing that can be wrong with a provider, as a person reads it.
func TestDoctorProvider(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, provider, model string
		status                int
		body                  string
		code                  int
		says                  []string
	}{
		{"works", "claude", "m1", 200, `{}`, 0, []string{"ok", "answered with m1"}},
		{"list", "anthropic", "", 200, `{"data":[{},{}]}`, 0, []string{"names 2 models"}},
		{"key", "anthropic", "m1", 401, `{"error":{"message":"invalid x-api-key"}}`, 9, []string{"the key is not accepted", "invalid x-api-key", "ANTHROPIC_API_KEY"}},
		{"credit", "openai", "m1", 402, ``, 9, []string{"no credit"}},
		{"limit", "openai", "m1", 429, `{"error":{"message":"You exceeded your quota"}}`, 9, []string{"exceeded your quota", "wait"}},
		{"model", "ollama", "nosuch", 404, `{"error":"model not found"}`, 9, []string{`no model "nosuch"`, "ollama list"}},
		{"trouble", "claude", "m1", 529, `{"error":{"message":"Overloaded"}}`, 9, []string{"in trouble", "Overloaded"}},
		{"a page", "anthropic", "", 200, `<html>hello</html>`, 9, []string{"is not this API", "anthropic.base_url"}},
		{"a page instead of an answer", "openai", "m1", 200, `<html>hello</html>`, 9, []string{"is not this API", "openai.base_url"}},
		{"not JSON", "claude", "m1", 400, `<html>`, 9, []string{"status 400"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var got *http.Request
			var asked []byte
			api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				got = r
				asked, _ = io.ReadAll(r.Body)
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, c.body)
			}))
			defer api.Close()
			w := newWorld(t)
			w.machine.programs["claude"] = "/c"
			for _, name := range []string{"ANTHROPIC", "OPENAI", "OLLAMA"} {
				w.env["NANOCLAW_"+name+"_BASE_URL"] = api.URL
			}
			v, err := vault.Open(filepath.Join(w.home, "secrets"))
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{"anthropic", "openai"} {
				if err := v.Put(t.Context(), name, vault.APIKey, obs.NewSecret("sk-secret")); err != nil {
					t.Fatal(err)
				}
			}
			args := []string{"doctor", "--provider", c.provider}
			if c.model != "" {
				args = append(args, "--model", c.model)
			}
			r := w.run(args...)
			if r.code != c.code {
				t.Errorf("exit %d, want %d: %s%s", r.code, c.code, r.out, r.err)
			}
			for _, s := range c.says {
				if !strings.Contains(r.out, s) {
					t.Errorf("%q is missing in %s", s, r.out)
				}
			}
			if strings.Contains(r.out+r.err, "sk-secret") {
				t.Error("the key is shown")
			}
			key := got.Header.Get("X-Api-Key") + got.Header.Get("Authorization")
			if want := c.provider != "ollama"; strings.Contains(key, "sk-secret") != want {
				t.Errorf("key sent: %q", key)
			}
			if c.model != "" && !strings.Contains(string(asked), c.model) || c.model == "" && got.Method != http.MethodGet {
				t.Errorf("%s with %s", got.Method, asked)
			}
		})
	}
}

func TestDoctorProviderWithoutAnything(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if r := w.run("doctor", "--provider", "openai"); r.code != 9 || !strings.Contains(r.out, "no key for openai") || !strings.Contains(r.out, "OPENAI_API_KEY") {
		t.Errorf("%+v", r)
	}
	w.env["NANOCLAW_OLLAMA_BASE_URL"] = "http://127.0.0.1:9"
	if r := w.run("doctor", "--provider", "ollama"); r.code != 9 || !strings.Contains(r.out, "ollama serve") {
		t.Errorf("%+v", r)
	}
	if r := w.run("doctor", "--provider", "mock"); r.code != 0 {
		t.Errorf("%+v", r)
	}
	if r := w.run("doctor", "--provider", "gpt"); r.code != 2 || !strings.Contains(r.err, "known are claude") {
		t.Errorf("%+v", r)
	}
	if r := w.run("doctor", "--model", "x"); r.code != 2 {
		t.Errorf("%+v", r)
	}
}

// Subscription tokens belong to the claude CLI; no other provider is asked with one.
func TestDoctorProviderWithASubscription(t *testing.T) {
	t.Parallel()
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"data":[]}`) }))
	defer api.Close()
	w := newWorld(t)
	w.machine.programs["claude"], w.machine.programs["opencode"] = "/c", "/o"
	w.env["NANOCLAW_ANTHROPIC_BASE_URL"], w.env["CLAUDE_CODE_OAUTH_TOKEN"] = api.URL, "sk-ant-oat-secret"
	for provider, code := range map[string]int{"claude": 0, "anthropic": 9, "opencode": 9} {
		r := w.run("doctor", "--provider", provider)
		if r.code != code || strings.Contains(r.out, "needs an API key") != (code != 0) || strings.Contains(r.out, "sk-ant-oat") {
			t.Errorf("%s: %+v", provider, r)
		}
	}
}

// A server that sends elsewhere does not get the key taken there.
func TestDoctorProviderKeepsTheKeyHome(t *testing.T) {
	t.Parallel()
	seen := make(chan string, 1)
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen <- r.Header.Get("X-Api-Key") + r.Header.Get("Authorization")
		_, _ = io.WriteString(w, `{"data":[]}`)
	}))
	defer elsewhere.Close()
	api := httptest.NewServer(http.RedirectHandler(elsewhere.URL+"/v1/models", http.StatusTemporaryRedirect))
	defer api.Close()
	w := newWorld(t)
	w.env["NANOCLAW_ANTHROPIC_BASE_URL"], w.env["ANTHROPIC_API_KEY"] = api.URL, "sk-secret"
	r := w.run("doctor", "--provider", "anthropic")
	if r.code != 9 || !strings.Contains(r.out, "sends elsewhere (status 307)") {
		t.Errorf("exit %d: %s", r.code, r.out)
	}
	select {
	case key := <-seen:
		t.Errorf("the other server was asked, with %q", key)
	default:
	}
}
