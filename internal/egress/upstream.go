package egress

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"

	"nanoclaw/internal/id"
	"nanoclaw/internal/obs"
)

// upstream is a checked Upstream.
type upstream struct {
	base  *url.URL // without a final slash
	host  string   // host:port for the audit log
	key   string
	sign  Sign
	hint  string
	paths []string
}

func newUpstream(name string, u Upstream) (upstream, error) {
	if !id.Safe(name) {
		return upstream{}, errors.New("its name must be of letters, digits, dots, dashes and underscores")
	}
	base, err := url.Parse(u.Base)
	if err != nil {
		return upstream{}, errors.New("its base is not a URL")
	}
	port := uint16(443)
	switch base.Scheme {
	case "http":
		port = 80
	case "https":
	default:
		return upstream{}, errors.New("its base must start with https:// or http://")
	}
	if base.User != nil || base.RawQuery != "" || base.Fragment != "" || base.RawPath != "" {
		return upstream{}, errors.New("its base must be scheme, host and path alone (keys belong into the vault)")
	}
	t, err := parseTarget(base.Host, port)
	if err != nil {
		return upstream{}, fmt.Errorf("its base names no host: %w", err)
	}
	base.Path = strings.TrimRight(base.Path, "/")
	made := upstream{base: base, host: t.String(), key: u.Key, sign: u.Sign, hint: u.Hint, paths: u.Paths}
	if made.key == "" {
		made.key = name
	}
	return made, nil
}

// permits reports whether the path, decoded, is one that sandboxes may use.
func (u upstream) permits(path string) bool {
	for _, p := range u.paths {
		if path == p || strings.HasPrefix(path, p+"/") {
			return true
		}
	}
	return len(u.paths) == 0
}

// route is what a request target of the reverse proxy says.
type route struct {
	name  string // of the upstream
	raw   string // path for the upstream, as it was written
	path  string // the same, decoded
	query string
}

var errPath = errors.New("the path must be /<provider>/… of plain segments")

// parseRoute reads `[/~<token>]/<provider>/<path>[?query]`. The token is the relay's own matter (it checks it before anything
// comes here). A path is refused when any program behind this one could read it as another: empty and dot segments, encoded slashes,
// encoded percent signs, backslashes, semicolons.
func parseRoute(requestURI string) (route, error) {
	path, query, _ := strings.Cut(requestURI, "?")
	rest, ok := strings.CutPrefix(path, "/")
	if !ok {
		return route{}, errPath
	}
	if strings.HasPrefix(rest, "~") {
		_, rest, _ = strings.Cut(rest, "/")
	}
	name, rest, _ := strings.Cut(rest, "/")
	if !id.Safe(name) {
		return route{}, errPath
	}
	rt := route{name: name, raw: "/" + rest, query: query}
	var err error
	if rt.path, err = url.PathUnescape(rt.raw); err != nil {
		return route{}, errPath
	}
	if rest == "" {
		return rt, nil
	}
	for segment := range strings.SplitSeq(rest, "/") {
		plain, err := url.PathUnescape(segment)
		if err != nil || plain == "" || plain == "." || plain == ".." || strings.ContainsAny(plain, "/\\%;?#") {
			return route{}, errPath
		}
		for i := range len(plain) {
			if plain[i] < ' ' || plain[i] == 0x7f {
				return route{}, errPath
			}
		}
	}
	return rt, nil
}

// credentials are the headers that could carry one; what a sandbox put there never leaves.
func credentials() []string {
	return []string{"Authorization", "Proxy-Authorization", "X-Api-Key", "Api-Key", "X-Goog-Api-Key", "X-Auth-Token", "Cookie"}
}

// oauthBeta is the value of anthropic-beta that the API wants beside a token. The CLI sends it by itself when its placeholder is
// a token; it is added for a program whose placeholder is of the other kind, so that a new key counts at once.
const oauthBeta = "oauth-2025-04-20"

// provide is the reverse proxy.
func (d *door) provide(c *call, r *http.Request) (reason string) {
	rt, err := parseRoute(r.RequestURI)
	if err != nil {
		c.Path = "?"
		return c.refuseJSON(http.StatusBadRequest, err.Error())
	}
	c.Path = cut(rt.raw, 512)
	u, ok := d.granted[rt.name]
	if !ok {
		return c.refuseJSON(http.StatusNotFound, fmt.Sprintf("this agent has no provider named %.64q", rt.name))
	}
	c.Host = u.host
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodDelete:
	default: // TRACE would send the key back
		return c.refuseJSON(http.StatusMethodNotAllowed, "this method is not passed on")
	}
	if !u.permits(rt.path) {
		return c.refuseJSON(http.StatusForbidden, "this part of the provider's API is closed to sandboxes")
	}
	var kind string
	var key obs.Secret
	if u.sign != SignNone {
		kind, key, err = d.p.opt.Keys.Key(r.Context(), u.key)
	}
	switch {
	case u.sign == SignNone:
	case err != nil:
		d.log.Error("key not readable", obs.KeyProvider, rt.name, obs.Error(err))
		return c.refuseJSON(http.StatusBadGateway, "the host cannot read its key for this provider; its log says why")
	case key.Empty():
		return c.refuseJSON(http.StatusUnauthorized, fmt.Sprintf("the host has no key for %s: %s", rt.name, u.hint))
	case kind != kindAPIKey && kind != kindOAuthToken:
		d.log.Error("key of an unknown kind", obs.KeyProvider, rt.name, obs.KeyKind, kind)
		return c.refuseJSON(http.StatusBadGateway, "the host's key for this provider is of a kind it does not know")
	}
	ctx, beat, stop := watch(r.Context(), silenceTimeout)
	defer stop()
	d.proxy(c, d.p.toAPI, func(out *http.Request) {
		out.URL = &url.URL{Scheme: u.base.Scheme, Host: u.base.Host, Path: u.base.Path + rt.path, RawPath: u.base.EscapedPath() + rt.raw, RawQuery: rt.query}
		out.Host = u.base.Host
		for _, h := range credentials() {
			out.Header.Del(h)
		}
		u.signed(out.Header, kind, key)
	}, func(h http.Header) {
		if u.sign == SignNone {
			return
		}
		for name, values := range h {
			for _, v := range values {
				if strings.Contains(v, key.Reveal()) || strings.Contains(name, key.Reveal()) {
					delete(h, name)
				}
			}
		}
	}, beat, c.refuseJSON).ServeHTTP(c.w, r.WithContext(ctx))
	return c.Reason
}

// signed adds the key to a request.
func (u upstream) signed(h http.Header, kind string, key obs.Secret) {
	switch {
	case u.sign == SignNone:
		return
	case u.sign == SignBearer:
		h.Set("Authorization", "Bearer "+key.Reveal())
		return
	}
	if kind == kindAPIKey {
		h.Set("X-Api-Key", key.Reveal())
		return
	}
	h.Set("Authorization", "Bearer "+key.Reveal())
	for _, v := range h.Values("Anthropic-Beta") {
		for beta := range strings.SplitSeq(v, ",") {
			if strings.TrimSpace(beta) == oauthBeta {
				return
			}
		}
	}
	h.Add("Anthropic-Beta", oauthBeta)
}

// proxy passes one request on and its answer back, byte by byte as it comes. On its end c.Reason says what went wrong.
func (d *door) proxy(c *call, via *http.Transport, rewrite func(*http.Request), clean func(http.Header), beat func(), refuse func(int, string) string) *httputil.ReverseProxy {
	c.Reason = ""
	return &httputil.ReverseProxy{
		Transport:     via,
		FlushInterval: -1,
		BufferPool:    &d.p.buffers,
		ErrorLog:      log.New(debugLog{d.log}, "", 0),
		Rewrite: func(pr *httputil.ProxyRequest) {
			for _, h := range []string{"Connection", "Upgrade", "Proxy-Connection", "Proxy-Authorization"} {
				pr.Out.Header.Del(h)
			}
			rewrite(pr.Out)
		},
		ModifyResponse: func(r *http.Response) error {
			if r.StatusCode == http.StatusSwitchingProtocols {
				return errors.New("the upstream changed the protocol")
			}
			c.Reason = "cut" // until the body has come to its end
			for _, h := range []string{"Set-Cookie", "Alt-Svc"} {
				r.Header.Del(h)
			}
			clean(r.Header)
			beat()
			r.Body = &meter{ReadCloser: r.Body, before: beat, after: func() {}, eof: func() {
				clear(r.Trailer)
				c.Reason = ""
			}}
			return nil
		},
		ErrorHandler: func(_ http.ResponseWriter, r *http.Request, err error) {
			status, text := d.fault(r.Context(), err)
			if status == 0 {
				c.Reason = text
				panic(http.ErrAbortHandler)
			}
			c.Reason = refuse(status, text)
		},
	}
}

// fault says what a failed request means, in words that hold nothing of the error's own text. Status 0: nobody is there to
// be told.
func (d *door) fault(ctx context.Context, err error) (status int, text string) {
	var large *http.MaxBytesError
	var dns *net.DNSError
	var timeout net.Error
	switch {
	case errors.As(err, &large):
		return http.StatusRequestEntityTooLarge, fmt.Sprintf("a request has at most %d bytes", maxBody)
	case errors.Is(context.Cause(ctx), errSilent):
		return http.StatusGatewayTimeout, errSilent.Error()
	case ctx.Err() != nil:
		return 0, "cut"
	case errors.Is(err, errPrivate):
		return http.StatusForbidden, errPrivate.Error() + ", which only an allow list entry with that address opens"
	}
	d.log.Warn("egress failed", obs.Error(err))
	switch {
	case errors.As(err, &dns):
		return http.StatusBadGateway, "the host cannot look up the name of the upstream"
	case errors.As(err, &timeout) && timeout.Timeout():
		return http.StatusGatewayTimeout, "the upstream did not answer in time"
	default:
		return http.StatusBadGateway, "the host cannot reach the upstream, or the connection broke; its log says more"
	}
}

// refuseJSON answers in the form of the provider's own errors, so that its client shows the text.
func (c *call) refuseJSON(status int, text string) string {
	type detail struct {
		Type    string `json:"type"`
		Message string `json:"message"`
	}
	kind := "api_error"
	switch status {
	case http.StatusBadRequest, http.StatusMethodNotAllowed:
		kind = "invalid_request_error"
	case http.StatusUnauthorized:
		kind = "authentication_error"
	case http.StatusForbidden:
		kind = "permission_error"
	case http.StatusNotFound:
		kind = "not_found_error"
	case http.StatusRequestEntityTooLarge:
		kind = "request_too_large"
	case http.StatusGatewayTimeout:
		kind = "timeout_error"
	}
	b, err := json.Marshal(struct {
		Type  string `json:"type"`
		Error detail `json:"error"`
	}{"error", detail{kind, "nanoclaw: " + text}})
	if err != nil {
		return c.refuse(status, text)
	}
	c.w.Header().Set("Content-Type", "application/json")
	c.w.WriteHeader(status)
	_, _ = c.w.Write(b)
	return text
}

// debugLog takes the lines of the standard library's servers and proxies.
type debugLog struct{ log *slog.Logger }

func (l debugLog) Write(b []byte) (int, error) {
	l.log.Debug("egress transport", obs.KeyReason, strings.TrimSpace(string(b)))
	return len(b), nil
}
