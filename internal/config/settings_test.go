package config

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

func environment(pairs ...string) func(string) string {
	return func(k string) string {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == k {
				return pairs[i+1]
			}
		}
		return ""
	}
}

func homeWith(t *testing.T, toml string) string {
	t.Helper()
	home := t.TempDir()
	if err := os.WriteFile(filepath.Join(home, FileName), []byte(toml), 0o600); err != nil {
		t.Fatal(err)
	}
	return home
}

func TestSettingsPrecedence(t *testing.T) {
	t.Parallel()
	home := homeWith(t, "[sandbox]\nkind = \"docker\"\nidle = \"3m\"\npids = 7\n[egress]\nallow = [\"a.example:443\", \"b.example:80\"]\n")
	s, err := Load(home, environment("NANOCLAW_SANDBOX_KIND", "bubblewrap", "NANOCLAW_SANDBOX_IDLE", "4m"), map[string]string{"sandbox.idle": "5m"})
	if err != nil {
		t.Fatal(err)
	}
	if s.Sandbox != "bubblewrap" || s.IdleStop != 5*time.Minute || s.PIDs != 7 || len(s.EgressAllow) != 2 || s.MemoryBytes != 2048<<20 {
		t.Errorf("got %+v", s)
	}
}

func TestSettingsReportEveryProblemByName(t *testing.T) {
	t.Parallel()
	home := homeWith(t, "[sandbox]\nkind = \"vm\"\nuid = 0\nidel = \"3m\"\n")
	_, err := Load(home, environment("NANOCLAW_ZONE", "Mars/Olympus"), nil)
	if err == nil {
		t.Fatal("bad settings were accepted")
	}
	for _, part := range []string{"sandbox.kind", "sandbox.uid", "sandbox.idel", "NANOCLAW_ZONE", FileName} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the error does not name %s: %v", part, err)
		}
	}
	var one *Error
	if !errors.As(err, &one) {
		t.Error("the error is not an *Error")
	}
}

func TestDefaultsAreWhatAnEmptyHomeHas(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	want, err := Load(home, environment(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := Defaults(home); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
}

func TestSettingsBrokenFile(t *testing.T) {
	t.Parallel()
	for body, where := range map[string]string{
		"zone = \"UTC\"\n[sandbox": "line 2, column", "zone = 1979-05-27": "zone", "a = 1\na = 2": FileName,
	} {
		_, err := Load(homeWith(t, body), environment(), nil)
		var one *Error
		if !errors.As(err, &one) || !strings.Contains(err.Error(), where) {
			t.Errorf("%q: %v; want an *Error that names %s", body, err, where)
		}
	}
}

func FuzzSettings(f *testing.F) {
	f.Add("[sandbox]\nkind = \"docker\"\n")
	f.Add("zone = \"UTC\"\nx = [[1]]\n")
	f.Fuzz(func(t *testing.T, body string) {
		home := t.TempDir()
		if err := os.WriteFile(filepath.Join(home, FileName), []byte(body), 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := Load(home, environment(), nil)
		if err == nil && (s.Sandbox == "" || s.SandboxUID <= 0 || s.Sweep <= 0) {
			t.Errorf("accepted settings that are not complete: %+v", s)
		}
	})
}

func TestZone(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ setting, tz, want string }{
		{"Asia/Tokyo", "Europe/Paris", "Asia/Tokyo"},
		{"", "Europe/Paris", "Europe/Paris"},
		{"", ":Europe/Paris", "Europe/Paris"},
		{"Nowhere/None", "Europe/Paris", "Europe/Paris"},
	} {
		if got := Zone(c.setting, environment("TZ", c.tz)).String(); got != c.want {
			t.Errorf("Zone(%q, TZ=%q) = %s, want %s", c.setting, c.tz, got, c.want)
		}
	}
}
