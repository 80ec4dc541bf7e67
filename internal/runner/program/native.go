package program

import (
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"nanoclaw/internal/config/container"
	"nanoclaw/internal/control"
	"nanoclaw/internal/provider"
	"nanoclaw/internal/provider/native"
	"nanoclaw/internal/provider/native/wire"
	"nanoclaw/internal/provider/native/wire/anthropic"
	"nanoclaw/internal/provider/native/wire/ollama"
	"nanoclaw/internal/provider/native/wire/openai"
	"nanoclaw/internal/runner/relay"
)

// How long a model in the network may take. The relay holds a connection for a minute while the host is away.
const (
	firstByte = 3 * time.Minute
	nextByte  = 90 * time.Second
)

func newAnthropic(s setting) (provider.Provider, error) {
	return newNative(s, anthropic.Name, firstByte, nextByte, func(e wire.Endpoint) wire.Wire {
		return anthropic.New(anthropic.Options{Endpoint: e, Key: s.config.Credential.Placeholder})
	})
}

func newOpenAI(s setting) (provider.Provider, error) {
	return newNative(s, openai.Name, firstByte, nextByte, func(e wire.Endpoint) wire.Wire {
		return openai.New(openai.Options{Endpoint: e, Key: s.config.Credential.Placeholder, Chat: s.config.Wire == container.WireChat})
	})
}

// newOllama waits for as long as a small machine may need to load a model and to read a long prompt.
func newOllama(s setting) (provider.Provider, error) {
	return newNative(s, ollama.Name, 30*time.Minute, 10*time.Minute, func(e wire.Endpoint) wire.Wire {
		return ollama.New(ollama.Options{Endpoint: e, Key: s.config.Credential.Placeholder, Context: s.config.ContextTokens})
	})
}

// newNative makes the loop of our own over one of its wires. The host's reverse proxy adds the key.
func newNative(s setting, name string, first, idle time.Duration, made func(wire.Endpoint) wire.Wire) (provider.Provider, error) {
	out, err := s.relay()
	if err != nil {
		return nil, err
	}
	proxy, err := url.Parse(out.ProxyURL())
	if err != nil {
		return nil, err
	}
	outside := &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(proxy), MaxIdleConns: 4, IdleConnTimeout: time.Minute}}
	direct := &http.Client{Transport: &http.Transport{MaxIdleConns: 8, IdleConnTimeout: time.Minute, Proxy: func(r *http.Request) (*url.URL, error) {
		if ip := net.ParseIP(r.URL.Hostname()); ip != nil && ip.IsLoopback() {
			return nil, nil
		}
		return proxy, nil
	}}}
	end := wire.Endpoint{URL: out.BaseURL(name), Client: direct, First: first, Idle: idle}
	return native.New(native.Options{
		Wire: func() wire.Wire { return made(end) }, Home: s.home, Env: nativeEnv(s, out), HTTP: direct, Web: outside,
		Model: s.config.Model, Fallback: s.config.FallbackModel, Effort: s.config.Effort, Window: s.config.ContextTokens,
		Compaction: s.compaction, Log: s.log,
	})
}

// nativeEnv is the whole environment of the agent's commands: the way out and what any program needs, no key and no address of a model.
func nativeEnv(s setting, out *relay.Relay) map[string]string {
	env := map[string]string{}
	for _, v := range out.Environ() {
		name, value, _ := strings.Cut(v, "=")
		env[name] = value
	}
	for _, name := range []string{"PATH", "TZ", "LANG", "TMPDIR", control.RunnerVariable} {
		if v := s.env(name); v != "" {
			env[name] = v
		}
	}
	return env
}
