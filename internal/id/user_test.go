package id

import (
	"errors"
	"strings"
	"testing"
)

// W42: a handle with a colon is escaped and never taken for an id of another channel.
func TestW42UserIDs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ channel, handle, want string }{
		{"cli", "ann", "cli:ann"}, {"matrix", "@ann:server", "matrix:@ann%3Aserver"}, {"teams", "29:abc", "teams:29%3Aabc"},
		{"web", "telegram:123", "web:telegram%3A123"}, {"web", "50%", "web:50%25"}, {"web", "%3A", "web:%253A"}, {"signal", "+491", "signal:+491"},
	} {
		got := NewUser(c.channel, c.handle)
		if string(got) != c.want {
			t.Errorf("NewUser(%q, %q) = %q, want %q", c.channel, c.handle, got, c.want)
		}
		if ch, h, err := ParseUser(c.want); err != nil || ch != c.channel || h != c.handle {
			t.Errorf("ParseUser(%q) = %q, %q, %v", c.want, ch, h, err)
		}
	}
	for _, bad := range []string{"", ":", "cli", "cli:", ":ann", "a b:ann", "../x:ann", "cli:a:b", "cli:50%", "cli:%3a", "cli:%41", "cli:a\nb", "cli:a\u202eb", "cli:\xff",
		"cli:" + strings.Repeat("x", maxUser)} {
		if _, _, err := ParseUser(bad); !errors.Is(err, ErrUser) {
			t.Errorf("ParseUser(%.30q): %v", bad, err)
		}
	}
}

// An id that is taken is the one and only id of what it says; two texts are never the same person.
func FuzzParseUser(f *testing.F) {
	for _, s := range []string{"cli:ann", "matrix:@ann%3Aserver", "cli:a:b", "cli:%253A", "x:%", ":", "web:telegram%3A123", "cli:\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		channel, handle, err := ParseUser(s)
		if err == nil && (string(NewUser(channel, handle)) != s || handle == "" || strings.Contains(channel, ":")) {
			t.Errorf("%q is %q and %q", s, channel, handle)
		}
		if made := string(NewUser("cli", s)); err == nil {
			if c, h, err := ParseUser(made); len(made) <= maxUser && (err != nil || c != "cli" || h != s) {
				t.Errorf("%q did not come back from %q: %q %q %v", s, made, c, h, err)
			}
		}
	})
}
