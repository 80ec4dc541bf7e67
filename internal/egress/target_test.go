package egress

import (
	"net/netip"
	"strings"
	"testing"
)

func TestParseTarget(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"Example.COM:443":           "example.com:443",
		"example.com.:443":          "example.com:443",
		"a_b-c.example:8080":        "a_b-c.example:8080",
		"localhost:1":               "localhost:1",
		"10.0.0.1:80":               "10.0.0.1:80",
		"[::1]:443":                 "[::1]:443",
		"[2001:DB8::1]:443":         "[2001:db8::1]:443",
		"[::ffff:127.0.0.1]:443":    "127.0.0.1:443",
		"xn--bcher-kva.example:443": "xn--bcher-kva.example:443",
	} {
		got, err := parseTarget(in, 0)
		if err != nil || got.String() != want {
			t.Errorf("parseTarget(%q) = %v, %v; want %s", in, got, err, want)
		}
	}
	for _, in := range []string{
		"", ":", ":443", "host", "host:", "host:0", "host:65536", "host:-1", "host:+1", "host:0443", "host:4 43", "host:https", "host:443:443",
		"user@host:443", "user:pw@host:443", "host/path:443", "host?x:443", "host#x:443", "ho st:443", "host\x00:443", "host\r\n:443", "höst:443",
		"*.host:443", "*:443", "a..b:443", ".a:443", "-a.b:443", "a-.b:443", strings.Repeat("a", 64) + ".b:443", strings.Repeat("a.", 127) + "com:443",
		"127.1:80", "2130706433:80", "0x7f000001:80", "0x7f.1:80", "0177.0.0.1:80", "127.0.0.1.:80", "127.0.0.256:80", "1.2.3.4.5:80", "host.1:80",
		"[::1%eth0]:443", "[::1]", "[::1]443", "[127.0.0.1]:443", "[host]:443", "[::1", "::1:443", "[]:443", "[::1]x:443", "[::1]:443:443",
	} {
		if got, err := parseTarget(in, 0); err == nil {
			t.Errorf("parseTarget(%q) = %v; want an error", in, got)
		}
	}
}

func TestAllowList(t *testing.T) {
	t.Parallel()
	list, err := parseAllow([]string{"Example.com", " api.test:8443 ", "*.pkg.test", "10.1.2.3:80", "[fd00::1]:443", "*.deep.example:80"})
	if err != nil {
		t.Fatal(err)
	}
	for target, want := range map[string]bool{
		"example.com:443":             true,
		"EXAMPLE.com.:443":            true,
		"example.com:80":              false,
		"www.example.com:443":         false,
		"notexample.com:443":          false,
		"example.com.evil.io:443":     false,
		"api.test:8443":               true,
		"api.test:443":                false,
		"a.pkg.test:443":              true,
		"a.b.pkg.test:443":            true,
		"pkg.test:443":                false,
		"evilpkg.test:443":            false,
		"10.1.2.3:80":                 true,
		"10.1.2.4:80":                 false,
		"[::ffff:10.1.2.3]:80":        true,
		"[fd00:0:0::1]:443":           true,
		"[fd00::2]:443":               false,
		"x.deep.example:80":           true,
		"x.deep.example:443":          false,
		"169.254.169.254:80":          false,
		"metadata.google.internal:80": false,
	} {
		tt, err := parseTarget(target, 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := list.allows(tt); got != want {
			t.Errorf("%s: allowed %v, want %v", target, got, want)
		}
	}
	if none, err := parseAllow(nil); err != nil || none.allows(target{host: "example.com", port: 443}) {
		t.Errorf("the empty list allows, %v", err)
	}
	for _, bad := range []string{"", "*", "*.", "*.*.x", "https://example.com", "example.com/x", "u@example.com", "*.1.2.3.4", "example.com:x", "a b"} {
		if _, err := parseAllow([]string{"good.test", bad}); err == nil {
			t.Errorf("entry %q was taken", bad)
		}
	}
}

func TestPublicAddresses(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]bool{
		"1.1.1.1": true, "8.8.8.8": true, "172.15.0.1": true, "172.32.0.1": true, "100.63.0.1": true, "192.0.1.1": true,
		"2606:4700::1111": true, "2a00:1450::1": true, "64:ff9b::808:808": true, "::ffff:8.8.8.8": true,

		"127.0.0.1": false, "127.255.255.254": false, "0.0.0.0": false, "0.1.2.3": false, "10.0.0.1": false, "172.16.0.1": false,
		"172.31.255.255": false, "192.168.1.1": false, "169.254.169.254": false, "169.254.0.1": false, "100.64.0.1": false, "100.100.100.200": false,
		"192.0.0.192": false, "198.18.0.1": false, "224.0.0.1": false, "240.0.0.1": false, "255.255.255.255": false, "192.0.2.1": false,
		"::": false, "::1": false, "fe80::1": false, "fe80::1%lo": false, "fc00::1": false, "fd00:ec2::254": false, "ff02::1": false, "fec0::1": false,
		"::ffff:127.0.0.1": false, "::ffff:169.254.169.254": false, "::127.0.0.1": false, "64:ff9b::7f00:1": false, "64:ff9b::a9fe:a9fe": false,
		"64:ff9b:1::1": false, "2002:7f00:1::": false, "2001::1": false, "2001:db8::1": false, "100::1": false, "3fff::1": false,
	} {
		if got := public(netip.MustParseAddr(in)); got != want {
			t.Errorf("public(%s) = %v, want %v", in, got, want)
		}
	}
	if public(netip.Addr{}) {
		t.Error("no address is public")
	}
}

func TestParseRoute(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]route{
		"/anthropic/v1/messages?beta=true":      {"anthropic", "/v1/messages", "/v1/messages", "beta=true"},
		"/~tok/anthropic/v1/messages":           {"anthropic", "/v1/messages", "/v1/messages", ""},
		"/anthropic":                            {"anthropic", "/", "/", ""},
		"/anthropic/":                           {"anthropic", "/", "/", ""},
		"/anthropic/v1/a%20b":                   {"anthropic", "/v1/a%20b", "/v1/a b", ""},
		"/anthropic/v1/models/claude@1:x?a=?/b": {"anthropic", "/v1/models/claude@1:x", "/v1/models/claude@1:x", "a=?/b"},
	} {
		if got, err := parseRoute(in); err != nil || got != want {
			t.Errorf("parseRoute(%q) = %+v, %v; want %+v", in, got, err, want)
		}
	}
	for _, in := range []string{
		"", "*", "anthropic/v1", "/", "//anthropic/v1", "//evil.test/anthropic", "/~tok", "/~tok//anthropic/v1", "/../anthropic/v1", "/.anthropic/v1",
		"/anthropic//v1", "/anthropic/v1/", "/anthropic/v1//messages", "/anthropic/./v1", "/anthropic/../v1", "/anthropic/v1/..", "/anthropic/%2e%2e/v1",
		"/anthropic/%2E./v1", "/anthropic/v1%2fmessages", "/anthropic/v1%2Fmessages", "/anthropic/v1%5cmessages", "/anthropic/v1\\messages",
		"/anthropic/v1/%252e%252e/x", "/anthropic/v1/%00", "/anthropic/v1/%0d%0a", "/anthropic/v1/%zz", "/anthropic/v1/%", "/anthropic/v1;x=1/messages",
		"/anthropic/..;/x", "/anthropic/v1/a%3fb", "/anthropic/v1/a%23b", "/an%74hropic/v1",
	} {
		if got, err := parseRoute(in); err == nil {
			t.Errorf("parseRoute(%q) = %+v; want an error", in, got)
		}
	}
}

func TestUpstreamRules(t *testing.T) {
	t.Parallel()
	u, err := newUpstream("anthropic", Anthropic(""))
	if err != nil {
		t.Fatal(err)
	}
	if u.host != "api.anthropic.com:443" || u.key != "anthropic" {
		t.Errorf("got %+v", u)
	}
	for path, want := range map[string]bool{
		"/v1/messages": true, "/v1/messages/count_tokens": true, "/v1/models": true, "/v1/models/x": true,
		"/": false, "/v1": false, "/v1/messagesx": false, "/api/oauth/claude_cli/create_api_key": false, "/v1/organizations/api_keys": false,
	} {
		if u.permits(path) != want {
			t.Errorf("%s: permitted %v, want %v", path, !want, want)
		}
	}
	for _, base := range []string{"", "api.test", "ftp://api.test", "https://", "https://user:pw@api.test", "https://api.test?x=1", "https://api.test#x", "https://api.test/%2f", "https://127.1", "://"} {
		if _, err := newUpstream("x", Upstream{Base: base}); err == nil {
			t.Errorf("base %q was taken", base)
		} else if strings.Contains(err.Error(), "pw") {
			t.Errorf("the error shows the password: %v", err)
		}
	}
	if _, err := newUpstream("../x", Anthropic("")); err == nil {
		t.Error("a name that is a path was taken")
	}
}

func FuzzTarget(f *testing.F) {
	for _, s := range []string{"example.com:443", "[::1]:443", "127.0.0.1:80", "0x7f.1:80", "a@b:1", "*.x:1", "[::ffff:1.2.3.4]:1", "host.:1"} {
		f.Add(s)
	}
	list, err := parseAllow([]string{"*.allowed.test:443", "allowed.test:443", "10.0.0.1:443"})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := parseTarget(s, 0)
		if err != nil {
			return
		}
		again, err := parseTarget(got.String(), 0)
		if err != nil || again != got {
			t.Errorf("%q reads as %v, and that as %v, %v", s, got, again, err)
		}
		if strings.ContainsAny(got.String(), "@/\\?#% \r\n\x00") {
			t.Errorf("%q reads as %q", s, got)
		}
		if list.allows(got) && got.String() != "allowed.test:443" && got.String() != "10.0.0.1:443" && !strings.HasSuffix(got.String(), ".allowed.test:443") {
			t.Errorf("%q is allowed as %v", s, got)
		}
	})
}

func FuzzRoute(f *testing.F) {
	for _, s := range []string{"/anthropic/v1/messages?beta=true", "/~t/anthropic/v1", "/a/%2e%2e/x", "//a/b", "/a/b%2fc", "/a/%25"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		rt, err := parseRoute(s)
		if err != nil {
			return
		}
		if !strings.HasPrefix(rt.path, "/") || strings.Contains(rt.path, "//") || strings.Contains(rt.path, "%") || strings.Contains(rt.path, "\\") {
			t.Errorf("%q leads to %q", s, rt.path)
		}
		for segment := range strings.SplitSeq(rt.path, "/") {
			if segment == "." || segment == ".." {
				t.Errorf("%q leads to %q", s, rt.path)
			}
		}
	})
}
