package sandbox

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// valid is a spec that every rule accepts.
func valid(t *testing.T) Spec {
	t.Helper()
	dir := t.TempDir()
	for _, sub := range []string{"in", "out", "group", "state"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"runner", "in/container.json"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return Spec{
		Labels: Labels{Install: "i-1", AgentGroup: "ag-1", Session: "sess-1", Incarnation: 1}, Command: []string{"/opt/nanoclaw/runner", "--once"},
		Dir: "/workspace/agent", UID: 1234, GID: 1234, StateDir: filepath.Join(dir, "state"), Network: NetworkNone,
		Env: map[string]string{"HOME": "/home/agent", "LANG": "C.UTF-8"},
		Mounts: []Mount{
			{Class: ClassProgram, Source: filepath.Join(dir, "runner"), Target: "/opt/nanoclaw/runner"},
			{Class: ClassHostBox, Source: filepath.Join(dir, "in"), Target: "/workspace/in"},
			{Class: ClassAgent, Source: filepath.Join(dir, "out"), Target: "/workspace/out", Writable: true},
			{Class: ClassAgent, Source: filepath.Join(dir, "group"), Target: "/workspace/agent", Writable: true},
			{Class: ClassConfig, Source: filepath.Join(dir, "in", "container.json"), Target: "/workspace/agent/container.json"},
		},
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	if err := valid(t).Validate(); err != nil {
		t.Fatalf("a valid spec: %v", err)
	}
	for name, c := range map[string]struct {
		breakIt func(s *Spec)
		want    string
	}{
		"root":                 {func(s *Spec) { s.UID = 0 }, "never runs as root"},
		"group root":           {func(s *Spec) { s.GID = 0 }, "never runs as root"},
		"no command":           {func(s *Spec) { s.Command = nil }, "command"},
		"relative command":     {func(s *Spec) { s.Command = []string{"sh"} }, "command"},
		"secret argument":      {func(s *Spec) { s.Command = append(s.Command, "--key=sk-abcdefgh1234") }, "credential"},
		"relative dir":         {func(s *Spec) { s.Dir = "agent" }, "working directory"},
		"no state":             {func(s *Spec) { s.StateDir = "" }, "state folder"},
		"unsafe session":       {func(s *Spec) { s.Labels.Session = "../x" }, "label session"},
		"empty install":        {func(s *Spec) { s.Labels.Install = "" }, "label install"},
		"network":              {func(s *Spec) { s.Network = "host" }, "network"},
		"negative limit":       {func(s *Spec) { s.Limits.PIDs = -1 }, "negative"},
		"relative source":      {func(s *Spec) { s.Mounts[1].Source = "in" }, "source is not"},
		"unclean source":       {func(s *Spec) { s.Mounts[1].Source += "/../in" }, "source is not"},
		"root as source":       {func(s *Spec) { s.Mounts[1].Source = "/" }, "source is not"},
		"missing source":       {func(s *Spec) { s.Mounts[1].Source += "x" }, "does not exist"},
		"unclean target":       {func(s *Spec) { s.Mounts[1].Target = "/workspace/../etc" }, "target is not"},
		"target twice":         {func(s *Spec) { s.Mounts[1].Target = s.Mounts[2].Target }, "used twice"},
		"target in usr":        {func(s *Spec) { s.Mounts[0].Target = "/usr/bin/runner" }, "belongs to the system"},
		"target proc":          {func(s *Spec) { s.Mounts[1].Target = "/proc" }, "belongs to the system"},
		"target tmp":           {func(s *Spec) { s.Mounts[1].Target = "/tmp" }, "belongs to the system"},
		"unknown class":        {func(s *Spec) { s.Mounts[1].Class = "other" }, "unknown class"},
		"writable program":     {func(s *Spec) { s.Mounts[0].Writable = true }, "never writable"},
		"writable host box":    {func(s *Spec) { s.Mounts[1].Writable = true }, "never writable"},
		"writable config":      {func(s *Spec) { s.Mounts[4].Writable = true }, "never writable"},
		"state inside mount":   {func(s *Spec) { s.StateDir = s.Mounts[2].Source + "/state" }, "state folder"},
		"writable around host": {func(s *Spec) { s.Mounts[2].Source = filepath.Dir(s.Mounts[1].Source) }, "shares files"},
		"loader variable":      {func(s *Spec) { s.Env["LD_PRELOAD"] = "/workspace/agent/evil.so" }, "outside the sandbox"},
		"broken name":          {func(s *Spec) { s.Env["A=B"] = "" }, "not a usable name"},
		"zero byte":            {func(s *Spec) { s.Env["A"] = "x\x00y" }, "not a usable name"},
		"key by name":          {func(s *Spec) { s.Env["anthropic_api_key"] = "x" }, "anthropic_api_key"},
		"key by value":         {func(s *Spec) { s.Env["NOTE"] = "ghp_0123456789abcdef" }, "NOTE"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := valid(t)
			c.breakIt(&s)
			err := s.Validate()
			var f *Failure
			if !errors.As(err, &f) || f.Class != SpecInvalid || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want spec-invalid with %q", err, c.want)
			}
		})
	}
}

func TestValidateRefusesLinksAndSpecialFiles(t *testing.T) {
	t.Parallel()
	s := valid(t)
	link := filepath.Join(filepath.Dir(s.StateDir), "link")
	if err := os.Symlink(s.Mounts[1].Source, link); err != nil {
		t.Fatal(err)
	}
	for _, source := range []string{link, "/dev/null"} {
		s.Mounts[1].Source = source
		if err := s.Validate(); err == nil || !strings.Contains(err.Error(), "neither a folder nor a file") {
			t.Errorf("source %s: %v", source, err)
		}
	}
}

func TestCredentials(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"ANTHROPIC_API_KEY", "GH_TOKEN", "client_secret", "PGPASSWORD", "PASSWORD_FILE", "X_KEY"} {
		if !CredentialName(name) {
			t.Errorf("name %s is accepted", name)
		}
	}
	for _, name := range []string{"HOME", "KEYBOARD", "TOKENIZER", "LANG", "SECRETS_DIR", "MONKEY"} {
		if CredentialName(name) {
			t.Errorf("name %s is refused", name)
		}
	}
	for _, value := range []string{"sk-ant-api03-abc", "sk-proj-1234", "ghp_abc", "gho_0123456789", "github_pat_11AAA", "xoxb-1-2", "AKIAIOSFODNN7EXAMPLE",
		"Bearer sk-abcdefgh1234", "https://u:ghp_0123456789abcdef@host/", "-----BEGIN OPENSSH PRIVATE KEY-----\nabc",
		"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTYifQ.abc"} {
		if !CredentialValue(value) {
			t.Errorf("value %q is accepted", value)
		}
	}
	for _, value := range []string{"", "sk-SK", "/usr/bin:/bin", "task-runner-with-a-long-name", "C.UTF-8", "nanoclaw-abcdef", "http://127.0.0.1:3128", "Europe/Berlin"} {
		if CredentialValue(value) {
			t.Errorf("value %q is refused", value)
		}
	}
}

// Whatever the value around a key is, the error of Validate never repeats the key.
func TestValidateNeverTellsAValue(t *testing.T) {
	t.Parallel()
	s := valid(t)
	rapid.Check(t, func(r *rapid.T) {
		secret := "sk-" + rapid.StringMatching(`[a-zA-Z0-9]{12,40}`).Draw(r, "secret")
		before := rapid.SampledFrom([]string{"", "Bearer ", "a=", "\n", "://u:"}).Draw(r, "before")
		name := rapid.StringMatching(`[A-Z]{1,10}(_KEY)?`).Draw(r, "name")
		s.Env = map[string]string{name: before + secret}
		err := s.Validate()
		if err == nil {
			r.Fatal("accepted")
		}
		if strings.Contains(err.Error(), secret) {
			r.Fatalf("the value is in the error: %v", err)
		}
	})
}

type candidate struct {
	name string
	err  error
}

func (c candidate) Name() string { return c.name }

func (c candidate) Probe(context.Context) (string, error) { return "works", c.err }

func TestChoose(t *testing.T) {
	t.Parallel()
	missing := errors.New("not there")
	for name, c := range map[string]struct {
		want   string
		docker error
		bwrap  error
		chosen string
		class  FailureClass
	}{
		"docker first":        {Auto, nil, nil, Docker, ""},
		"empty is auto":       {"", nil, nil, Docker, ""},
		"then bubblewrap":     {Auto, missing, nil, Bubblewrap, ""},
		"never process":       {Auto, missing, missing, "", RuntimeUnavailable},
		"process when asked":  {Process, missing, missing, Process, ""},
		"asked and missing":   {Docker, missing, nil, "", RuntimeUnavailable},
		"asked over the rule": {Bubblewrap, nil, nil, Bubblewrap, ""},
		"unknown":             {"chroot", nil, nil, "", SpecInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, line, err := Choose(t.Context(), c.want, candidate{Process, nil}, candidate{Bubblewrap, c.bwrap}, candidate{Docker, c.docker})
			var f *Failure
			if got != c.chosen || (c.class == "") != (err == nil) || err != nil && (!errors.As(err, &f) || f.Class != c.class) {
				t.Fatalf("chose %q, %v", got, err)
			}
			if err == nil && (!strings.HasPrefix(line, got+": ") || strings.Contains(line, "\n")) {
				t.Errorf("reason %q, want one line that begins with the name", line)
			}
		})
	}
}
