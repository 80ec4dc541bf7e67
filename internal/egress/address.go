package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
)

// errPrivate: a name led only to addresses that are not on the public internet.
var errPrivate = errors.New("the name leads to an address of this machine or its network")

// dialAllowed connects to a target that an allow list named. An address is dialled as it is: only an entry with that very
// address can have allowed it. A name is resolved here, addresses that are not public are left out, and what is dialled is
// the address that was judged, so that a name cannot change its mind in between.
func (p *Proxy) dialAllowed(ctx context.Context, network, address string) (net.Conn, error) {
	t, err := parseTarget(address, 0)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	if t.addr.IsValid() {
		return p.opt.Dial(ctx, network, t.String())
	}
	found, err := p.opt.Resolve(ctx, t.host)
	if err != nil {
		return nil, fmt.Errorf("look up %s: %w", t.host, err)
	}
	err = errPrivate
	for _, a := range found {
		if !public(a) {
			continue
		}
		var c net.Conn
		one, done := context.WithTimeout(ctx, dialTimeout/4) // the next address gets its chance
		c, err = p.opt.Dial(one, network, netip.AddrPortFrom(a.Unmap(), t.port).String())
		done()
		if err == nil {
			return c, nil
		}
	}
	return nil, fmt.Errorf("connect to %s: %w", t, err)
}

// public reports whether a is an ordinary address of the internet: not this machine, not a private, shared or link-local
// network, not a cloud's metadata service, nothing reserved (the special-purpose registries of RFC 6890).
func public(a netip.Addr) bool {
	if a.Zone() != "" {
		return false
	}
	a = a.Unmap()
	if a.Is4() {
		return a.IsGlobalUnicast() && !within(a,
			"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24",
			"192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16", "192.175.48.0/24", "198.18.0.0/15", "198.51.100.0/24",
			"203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4")
	}
	if within(a, "64:ff9b::/96") { // translated IPv4
		b := a.As16()
		return public(netip.AddrFrom4([4]byte(b[12:])))
	}
	return within(a, "2000::/3") && !within(a, "2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")
}

func within(a netip.Addr, prefixes ...string) bool {
	for _, s := range prefixes {
		if netip.MustParsePrefix(s).Contains(a) {
			return true
		}
	}
	return false
}
