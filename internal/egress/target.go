package egress

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// target is a place to connect to: a name or an address, and a port.
type target struct {
	host string     // lower case, without a final dot; the address's text if it is one
	addr netip.Addr // valid if the host is an address
	port uint16
}

func (t target) String() string {
	if t.addr.Is6() {
		return "[" + t.host + "]:" + strconv.Itoa(int(t.port))
	}
	return t.host + ":" + strconv.Itoa(int(t.port))
}

var errTarget = errors.New("not a host name or address with a port")

// parseTarget reads host:port strictly: names of letters, digits, dashes and underscores, plain IPv4, IPv6 in brackets.
// Everything that two programs could read differently (user info, zones, numbers that stand for addresses) is refused.
// fallback is the port of a target without one; 0 demands it.
func parseTarget(s string, fallback uint16) (target, error) {
	t := target{port: fallback}
	host := s
	if rest, ok := strings.CutPrefix(s, "["); ok {
		inner, behind, ok := strings.Cut(rest, "]")
		if !ok {
			return target{}, errTarget
		}
		addr, err := netip.ParseAddr(inner)
		if err != nil || !addr.Is6() || addr.Zone() != "" {
			return target{}, errTarget
		}
		t.addr, host = addr, ""
		if behind != "" && strings.LastIndexByte(behind, ':') != 0 {
			return target{}, errTarget
		}
		s = behind
	}
	if i := strings.LastIndexByte(s, ':'); i >= 0 {
		port, err := parsePort(s[i+1:])
		if err != nil {
			return target{}, err
		}
		t.port = port
		if host != "" {
			host = s[:i]
		}
	}
	if t.port == 0 {
		return target{}, errTarget
	}
	if t.addr.IsValid() {
		t.addr = t.addr.Unmap()
		t.host = t.addr.String()
		return t, nil
	}
	if addr, err := netip.ParseAddr(host); err == nil && addr.Is4() {
		t.addr, t.host = addr, addr.String()
		return t, nil
	}
	t.host = strings.TrimSuffix(strings.ToLower(host), ".")
	if !validName(t.host) {
		return target{}, errTarget
	}
	return t, nil
}

func parsePort(s string) (uint16, error) {
	if s == "" || len(s) > 5 || s[0] < '1' || s[0] > '9' {
		return 0, errTarget
	}
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil {
		return 0, errTarget
	}
	return uint16(n), nil
}

func validName(s string) bool {
	if s == "" || len(s) > 253 {
		return false
	}
	last := ""
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || len(label) > 63 {
			return false
		}
		for i := range len(label) {
			c := label[i]
			ok := c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '_' || c == '-' && i > 0 && i < len(label)-1
			if !ok {
				return false
			}
		}
		last = label
	}
	// `2130706433`, `127.1` and `0x7f.1` are addresses to some resolvers.
	return last[0] < '0' || last[0] > '9'
}

// allowed is one entry of an allow list.
type allowed struct {
	target
	below bool // every name below host, not host itself
}

type allowlist []allowed

// CheckAllow says what is wrong with an allow list, before a session is opened with it.
func CheckAllow(entries []string) error {
	_, err := parseAllow(entries)
	return err
}

// parseAllow reads entries: `host`, `host:port`, `*.suffix`, `*.suffix:port`, `1.2.3.4:port`, `[::1]:port`.
func parseAllow(entries []string) (allowlist, error) {
	var list allowlist
	for _, e := range entries {
		rest, below := strings.CutPrefix(strings.TrimSpace(e), "*.")
		t, err := parseTarget(rest, 443)
		if err != nil || below && t.addr.IsValid() {
			return nil, fmt.Errorf("allow list entry %.300q: give host:port, *.suffix:port or address:port (the port is 443 unless given)", e)
		}
		list = append(list, allowed{t, below})
	}
	return list, nil
}

// allows reports whether an entry names t. An address is allowed only by an entry that is that address.
func (l allowlist) allows(t target) bool {
	for _, e := range l {
		if e.port != t.port {
			continue
		}
		if !e.below && e.host == t.host {
			return true
		}
		if e.below && !t.addr.IsValid() && strings.HasSuffix(t.host, "."+e.host) {
			return true
		}
	}
	return false
}
