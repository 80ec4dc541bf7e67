package vault

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"nanoclaw/internal/obs"
)

const marker = "sk-ant-marker-0123456789"

func open(t *testing.T) (*Vault, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "secrets")
	v, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return v, dir
}

func put(t *testing.T, v *Vault, name string, kind Kind, value string) {
	t.Helper()
	if err := v.Put(t.Context(), name, kind, obs.NewSecret(value)); err != nil {
		t.Fatal(err)
	}
}

func TestPutIsSeenAtOnceAndByTheNextHost(t *testing.T) {
	t.Parallel()
	v, dir := open(t)
	put(t, v, "anthropic", APIKey, "first")
	for range 2 { // from the file, then from memory
		if e, err := v.Get(t.Context(), "anthropic"); err != nil || e.Value.Reveal() != "first" || e.Kind != APIKey || e.UpdatedAt.IsZero() {
			t.Fatalf("got %+v, %v", e, err)
		}
	}
	put(t, v, "anthropic", OAuthToken, "second")
	if kind, value, err := v.Key(t.Context(), "anthropic"); err != nil || kind != "oauth_token" || value.Reveal() != "second" {
		t.Errorf("after a second Put: %s %v", kind, err)
	}
	other, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	put(t, other, "anthropic", APIKey, "third!") // same size as the second
	if e, err := v.Get(t.Context(), "anthropic"); err != nil || e.Value.Reveal() != "third!" {
		t.Errorf("a key stored by another process is not seen: %v", err)
	}
}

func TestMissing(t *testing.T) {
	t.Parallel()
	v, _ := open(t)
	if _, err := v.Get(t.Context(), "anthropic"); !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), "nanoclaw chat") {
		t.Errorf("want ErrNotFound with a hint, got %v", err)
	}
	if kind, value, err := v.Key(t.Context(), "anthropic"); kind != "" || !value.Empty() || err != nil {
		t.Errorf("Key of nothing: %q %v", kind, err)
	}
	put(t, v, "anthropic", APIKey, "x")
	for range 2 {
		if err := v.Delete(t.Context(), "anthropic"); err != nil {
			t.Error(err)
		}
	}
	if _, err := v.Get(t.Context(), "anthropic"); !errors.Is(err, ErrNotFound) {
		t.Errorf("deleted, but Get says %v", err)
	}
}

func TestModesAndNames(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "secrets")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, ".new-left"), []byte(marker), 0o600); err != nil {
		t.Fatal(err)
	}
	v, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	put(t, v, "b", APIKey, marker)
	put(t, v, "a", APIKey, marker)
	names, err := v.Names(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"a", "b"}, names); d != "" {
		t.Error(d)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 2 {
		t.Errorf("the folder holds %v: leftovers of a killed writer must go", entries)
	}
	for _, p := range []string{dir, filepath.Join(dir, "a.json")} {
		info, err := os.Stat(p)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", p, info.Mode())
		}
	}
}

func TestRefusesWithoutShowingTheValue(t *testing.T) {
	t.Parallel()
	v, dir := open(t)
	for name, c := range map[string]struct {
		name  string
		kind  Kind
		value string
	}{
		"path":       {"../x", APIKey, marker},
		"hidden":     {".x", APIKey, marker},
		"empty name": {"", APIKey, marker},
		"long name":  {strings.Repeat("x", 65), APIKey, marker},
		"kind":       {"x", "password", marker},
		"empty":      {"x", APIKey, ""},
		"newline":    {"x", APIKey, marker + "\n"},
		"space":      {"x", APIKey, marker + " y"},
		"not ascii":  {"x", APIKey, marker + "é"},
		"header":     {"x", APIKey, marker + "\r\nHost: evil"},
		"huge":       {"x", APIKey, marker + strings.Repeat("x", maxValue)},
	} {
		err := v.Put(t.Context(), c.name, c.kind, obs.NewSecret(c.value))
		if !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: want ErrInvalid, got %v", name, err)
		} else if strings.Contains(err.Error(), marker) {
			t.Errorf("%s: the value shows in %q", name, err)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("refused keys left %v, %v", left, err)
	}
}

func TestFilesThatCannotBeTrusted(t *testing.T) {
	t.Parallel()
	good := `{"version":1,"kind":"api_key","value":"` + marker + `"}`
	for name, make := range map[string]func(path string) error{
		"open to others": func(p string) error {
			return errors.Join(os.WriteFile(p, []byte(good), 0o600), os.Chmod(p, 0o644))
		},
		"link": func(p string) error {
			return errors.Join(os.WriteFile(p+".target", []byte(good), 0o600), os.Symlink(p+".target", p))
		},
		"folder":     func(p string) error { return os.Mkdir(p, 0o700) },
		"no JSON":    func(p string) error { return os.WriteFile(p, []byte(marker), 0o600) },
		"wrong type": func(p string) error { return os.WriteFile(p, []byte(`{"version":"`+marker+`"}`), 0o600) },
		"newer":      func(p string) error { return os.WriteFile(p, []byte(strings.Replace(good, "1", "2", 1)), 0o600) },
		"bad value":  func(p string) error { return os.WriteFile(p, []byte(strings.Replace(good, "-", "\\n", 1)), 0o600) },
		"huge":       func(p string) error { return os.WriteFile(p, []byte(good+strings.Repeat(" ", maxFile)), 0o600) },
	} {
		v, dir := open(t)
		if err := make(filepath.Join(dir, "k.json")); err != nil {
			t.Fatal(err)
		}
		_, err := v.Get(t.Context(), "k")
		if err == nil || errors.Is(err, ErrNotFound) {
			t.Errorf("%s: got %v", name, err)
		} else if strings.Contains(err.Error(), marker) {
			t.Errorf("%s: the value shows in %q", name, err)
		}
		if kind, value, err := v.Key(t.Context(), "k"); err == nil || kind != "" || !value.Empty() {
			t.Errorf("%s: Key gave %q, %v", name, kind, err)
		}
	}
}

func BenchmarkGet(b *testing.B) {
	v, err := Open(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	if err := v.Put(b.Context(), "k", APIKey, obs.NewSecret(marker)); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := v.Get(b.Context(), "k"); err != nil {
			b.Fatal(err)
		}
	}
}
