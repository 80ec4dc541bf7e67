package relay

import (
	"bytes"
	"crypto/subtle"
	"encoding/base64"
	"io"
	"net"
	"strings"
	"time"
)

// A connection proves itself by its first request; what follows on it is not looked at. There are two forms, each the
// simplest its clients know: `/~<token>/<provider>/…` for a base URL, and Proxy-Authorization (Basic, any user, the
// token as password) for a proxy URL with user info. The host ignores both: its identity is the socket.
const (
	user        = "nanoclaw"
	maxFirst    = 64 << 10
	admitWithin = 10 * time.Second
)

// BaseURL is the address of a provider's API for a child: `http://127.0.0.1:3128/anthropic`.
func (r *Relay) BaseURL(provider string) string {
	if r.opt.Token == "" {
		return "http://" + r.Addr() + "/" + provider
	}
	return "http://" + r.Addr() + "/~" + r.opt.Token + "/" + provider
}

// ProxyURL is the proxy for everything else.
func (r *Relay) ProxyURL() string {
	if r.opt.Token == "" {
		return "http://" + r.Addr()
	}
	return "http://" + user + ":" + r.opt.Token + "@" + r.Addr()
}

// Environ are the proxy variables for a child, in both spellings. Loopback never goes through the proxy.
func (r *Relay) Environ() []string {
	var env []string
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"} {
		env = append(env, name+"="+r.ProxyURL(), strings.ToLower(name)+"="+r.ProxyURL())
	}
	return append(env, "NO_PROXY=127.0.0.1,localhost", "no_proxy=127.0.0.1,localhost")
}

// admit reads the head of the first request and checks its token. It returns what it read. A client without the
// token is told so and gets nothing.
func admit(down *net.TCPConn, token string) (first []byte, ok bool) {
	_ = down.SetDeadline(time.Now().Add(admitWithin))
	buffer := make([]byte, 4<<10)
	for {
		n, err := down.Read(buffer)
		first = append(first, buffer[:n]...)
		if end := bytes.Index(first, []byte("\r\n\r\n")); end >= 0 {
			if !authentic(first[:end], token) {
				_, _ = io.WriteString(down, "HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm=\"nanoclaw\"\r\n"+
					"Content-Type: text/plain\r\nContent-Length: 49\r\nConnection: close\r\n\r\nnanoclaw: this port belongs to an agent's session")
				_ = down.CloseWrite()
				return nil, false
			}
			_ = down.SetDeadline(time.Time{})
			return first, true
		}
		if err != nil || len(first) > maxFirst {
			return nil, false
		}
	}
}

// authentic reports whether the head of a request carries the token.
func authentic(head []byte, token string) bool {
	line, rest, _ := strings.Cut(string(head), "\r\n")
	if _, target, ok := strings.Cut(line, " "); ok {
		target, _, _ = strings.Cut(target, " ")
		if path, ok := strings.CutPrefix(target, "/~"); ok {
			given, _, _ := strings.Cut(path, "/")
			return equal(given, token)
		}
	}
	for field := range strings.SplitSeq(rest, "\r\n") {
		name, value, _ := strings.Cut(field, ":")
		if !strings.EqualFold(name, "Proxy-Authorization") {
			continue
		}
		scheme, encoded, _ := strings.Cut(strings.TrimSpace(value), " ")
		if !strings.EqualFold(scheme, "Basic") {
			return false
		}
		b, err := base64.StdEncoding.DecodeString(strings.TrimSpace(encoded))
		if err != nil {
			return false
		}
		_, given, _ := strings.Cut(string(b), ":")
		return equal(given, token)
	}
	return false
}

func equal(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

func plain(s string) bool {
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return false
		}
	}
	return true
}
