// Package egress is the only way out of a sandbox: a proxy behind one socket per session. `CONNECT` and plain proxy requests
// reach what the session's allow list names; `/<provider>/…` is a reverse proxy that adds the provider's key, which the
// sandbox never sees (design.md sections 4 and 8).
//
// Identity is the listener a request arrives on. Nothing in a request says who sent it.
package egress

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"time"

	"nanoclaw/internal/id"
	"nanoclaw/internal/obs"
	"nanoclaw/internal/socket"
)

// SocketName is the file in a session's run folder.
const SocketName = "egress.sock"

// Kinds of keys, and of the placeholders that stand for them.
const (
	kindAPIKey     = "api_key"
	kindOAuthToken = "oauth_token"
)

// Limits of one session and its requests.
const (
	maxConnections = 64
	maxHeader      = 64 << 10
	maxBody        = 64 << 20
	headerTimeout  = 10 * time.Second
	keepAlive      = 5 * time.Minute
	dialTimeout    = 20 * time.Second
	stallTimeout   = 2 * time.Minute  // a sandbox that neither reads nor writes in the middle of a request
	silenceTimeout = 15 * time.Minute // an upstream that says nothing: long answers may start late
)

// KeySource is where keys come from, asked once per request so that a new key counts at once.
type KeySource interface {
	// Key returns the kind (api_key, oauth_token) and the value; an empty value without an error when there is none.
	Key(ctx context.Context, name string) (kind string, value obs.Secret, err error)
}

// Call is one request of a sandbox, for the audit log. It holds no header, no body and no query.
type Call struct {
	At         time.Time
	Session    id.Session
	Group      id.AgentGroup
	Method     string
	Host       string // host:port that was asked for; of the upstream for a provider's calls
	Path       string // empty for CONNECT
	Status     int    // 0 if the sandbox left before there was one
	Reason     string // why it was refused or cut short; empty if it went well
	BytesIn    int64  // sent by the sandbox
	BytesOut   int64  // sent to the sandbox
	Duration   time.Duration
	Suppressed int64 // calls refused by the rate limit since the last entry; they have none of their own
}

// AuditSink stores calls. It is called when a call has ended and may block for a moment.
type AuditSink interface {
	Record(ctx context.Context, c Call) error
}

// Upstream is a provider's API.
type Upstream struct {
	Base string // http or https URL, without credentials, query and fragment
	Key  string // name of its key; empty: the upstream's own name
	Sign Sign   // how the key is carried
	Hint string // how a person hands the key over, for the error when there is none
	// Paths that a sandbox may use, each with everything below it; empty: all. An API that hands out keys (log-in, key
	// management) must not be in it.
	Paths []string
}

// Sign says how an upstream wants its key.
type Sign int

// Ways to carry a key.
const (
	SignAnthropic Sign = iota // an API key in X-Api-Key, a token in Authorization with its beta
	SignBearer                // in Authorization
	SignNone                  // it takes none, and gets none
)

// OpenAI is the API at base ("" is the public one), or any server that speaks it. Files, keys and management stay closed.
func OpenAI(base string) Upstream {
	if base == "" {
		base = "https://api.openai.com"
	}
	return Upstream{Base: base, Sign: SignBearer, Paths: []string{"/v1/responses", "/v1/chat/completions", "/v1/models"}, Hint: "set OPENAI_API_KEY and run `nanoclaw chat`, which hands it over"}
}

// Ollama is a server of local models at base ("" is the usual one of this machine), with what answers questions. Pulling and
// removing models stays closed.
func Ollama(base string) Upstream {
	if base == "" {
		base = "http://127.0.0.1:11434"
	}
	return Upstream{Base: base, Sign: SignNone, Paths: []string{"/api/chat", "/api/show", "/api/tags", "/api/version", "/api/ps", "/v1/chat/completions", "/v1/models"}}
}

// Anthropic is the Messages API at base ("" is the public one), with what an agent needs of it. The rest of that host can
// make API keys from a token, so it stays closed.
func Anthropic(base string) Upstream {
	if base == "" {
		base = "https://api.anthropic.com"
	}
	return Upstream{Base: base, Paths: []string{"/v1/messages", "/v1/models"}, Hint: "set ANTHROPIC_API_KEY or CLAUDE_CODE_OAUTH_TOKEN and run `nanoclaw chat`, which hands it over"}
}

// Options of a Proxy. Keys, Audit and Log are required.
type Options struct {
	Keys      KeySource
	Audit     AuditSink
	Log       *slog.Logger
	Upstreams map[string]Upstream // by name; nil: "anthropic"
	// Dial connects to upstreams and to allowed hosts; nil: the network.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Resolve finds the addresses of a host for the allow list; nil: the system's resolver.
	Resolve func(ctx context.Context, host string) ([]netip.Addr, error)
	// Proxy is the host's own proxy for upstreams; nil: the usual environment variables.
	Proxy func(*http.Request) (*url.URL, error)
}

// Session is who a socket belongs to and what it may reach. The zero lists reach nothing.
type Session struct {
	ID        id.Session
	Group     id.AgentGroup
	Upstreams []string // names of Options.Upstreams
	Allow     []string // host[:port] or *.suffix[:port]; the port is 443 unless given
	GID       int      // group that gets the socket's file; 0: leave it
}

// Proxy serves the sockets of all live sessions. It holds nothing per idle session.
type Proxy struct {
	opt       Options
	log       *slog.Logger
	upstreams map[string]upstream
	toAPI     *http.Transport
	toAllowed *http.Transport
	buffers   buffers
}

// New makes a Proxy. An error names the upstream that is not usable.
func New(opt Options) (*Proxy, error) {
	if opt.Keys == nil || opt.Audit == nil || opt.Log == nil {
		return nil, errors.New("make egress proxy: keys, audit and log are required")
	}
	if opt.Upstreams == nil {
		opt.Upstreams = map[string]Upstream{"anthropic": Anthropic("")}
	}
	if opt.Dial == nil {
		opt.Dial = (&net.Dialer{Timeout: dialTimeout}).DialContext
	}
	if opt.Resolve == nil {
		opt.Resolve = func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		}
	}
	if opt.Proxy == nil {
		opt.Proxy = http.ProxyFromEnvironment
	}
	p := &Proxy{opt: opt, log: opt.Log.With(obs.KeyComponent, "egress"), upstreams: map[string]upstream{}}
	for name, u := range opt.Upstreams {
		made, err := newUpstream(name, u)
		if err != nil {
			return nil, fmt.Errorf("make egress proxy: upstream %.64q: %w", name, err)
		}
		p.upstreams[name] = made
	}
	p.toAPI = &http.Transport{
		Proxy:                  opt.Proxy,
		DialContext:            opt.Dial,
		ForceAttemptHTTP2:      true,
		TLSHandshakeTimeout:    dialTimeout,
		ResponseHeaderTimeout:  silenceTimeout,
		ExpectContinueTimeout:  time.Second,
		IdleConnTimeout:        90 * time.Second,
		MaxIdleConnsPerHost:    8,
		MaxResponseHeaderBytes: 1 << 20,
		DisableCompression:     true, // bodies pass as they are
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second},
	}
	// Connections to allowed hosts are not kept: one may carry an identity of the session that made it.
	p.toAllowed = &http.Transport{
		DialContext:            p.dialAllowed,
		DisableKeepAlives:      true,
		DisableCompression:     true,
		ResponseHeaderTimeout:  silenceTimeout,
		MaxResponseHeaderBytes: 1 << 20,
	}
	return p, nil
}

// Open listens in runDir for one session until the returned closer is closed; ctx bounds the opening only. The caller opens
// a session at most once at a time and owns runDir, which nobody inside the sandbox can write to. Close cuts what is open,
// removes the socket and returns when nothing of the session runs here any more.
func (p *Proxy) Open(ctx context.Context, runDir string, s Session, mode os.FileMode) (io.Closer, error) {
	fail := func(err error) (io.Closer, error) {
		return nil, fmt.Errorf("open egress of session %s: %w", s.ID, err)
	}
	if err := ctx.Err(); err != nil {
		return fail(err)
	}
	list, err := parseAllow(s.Allow)
	if err != nil {
		return fail(err)
	}
	granted := map[string]upstream{}
	for _, name := range s.Upstreams {
		u, ok := p.upstreams[name]
		if !ok {
			return fail(fmt.Errorf("no upstream is named %.64q", name))
		}
		granted[name] = u
	}
	l, err := socket.Listen(runDir, SocketName, mode)
	if err != nil {
		return fail(err)
	}
	if s.GID > 0 {
		if err := l.Chown(-1, s.GID); err != nil {
			return fail(errors.Join(fmt.Errorf("hand the socket to group %d: %w", s.GID, err), l.Close()))
		}
	}
	return p.serve(context.WithoutCancel(ctx), l, s, list, granted), nil
}

// Close lets go of kept connections to upstreams. Sessions are closed on their own.
func (p *Proxy) Close() {
	p.toAPI.CloseIdleConnections()
	p.toAllowed.CloseIdleConnections()
}

// Placeholder makes what a sandbox gets instead of a key of that kind: worth nothing, and of the same kind so that the
// provider's program behaves as it would with the key. It is empty for a kind that is unknown.
func Placeholder(kind string) string {
	if kind != kindAPIKey && kind != kindOAuthToken {
		return ""
	}
	return "nanoclaw-" + strings.ToLower(rand.Text())
}
