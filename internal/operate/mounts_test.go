package operate

import (
	"context"
	"encoding/json"
	"path"
	"strings"
	"testing"

	"nanoclaw/internal/control"
	"nanoclaw/internal/store"
)

// judge allows what lies below /ok, and writing below /ok/rw.
type judge struct{}

func (judge) JudgeMount(_ context.Context, m store.Mount) (MountVerdict, error) {
	if !strings.HasPrefix(m.Path, "/ok/") {
		return MountVerdict{}, control.Invalid("path", m.Path+" is not below an allowed folder")
	}
	if m.Name == "" {
		m.Name = path.Base(m.Path)
	}
	return MountVerdict{Path: m.Path, Name: m.Name, Inside: "/workspace/extra/" + m.Name, Writable: m.Writable && strings.HasPrefix(m.Path, "/ok/rw"), Hidden: []string{".env"}}, nil
}

func TestMountCommands(t *testing.T) {
	t.Parallel()
	st := &groups{all: []store.AgentGroup{{ID: "ag-1", Name: "Nano", Folder: "main"}, {ID: "ag-2", Name: "Two", Folder: "two"}}}
	d := New(Mounts(st, machine{}, judge{})...)
	for _, c := range []struct {
		command, args string
		says          string // of the answer, or of its error
		refused       bool
		mounts        int // of the first agent, after it
	}{
		{"mounts-check-/ok/a b", `{}`, "/ok/a b: read-only, inside as /workspace/extra/a b\nhidden: .env", false, 0},
		{"mounts-check-/etc", `{}`, "not below an allowed", true, 0},
		{"mounts-check", `{}`, "is missing", true, 0},
		{"mounts-add-/ok/app", `{"id":"main"}`, "2 running conversations", false, 1},
		{"mounts-add-/ok/app", `{"id":"main","writable":true}`, "no writing", true, 1},
		{"mounts-add-/ok/rw", `{"id":"main","writable":true}`, "writable", false, 2},
		{"mounts-add-/ok/other", `{"id":"main","name":"app"}`, "/workspace/extra/app", false, 2}, // the name is given anew
		{"mounts-add-/ok/app", `{}`, "more than one agent", true, 2},
		{"mounts-add-/bad", `{"id":"main"}`, "not below an allowed", true, 2},
		{"mounts-list", `{}`, "/ok/other", false, 2},
		{"mounts-remove-app", `{"id":"main"}`, "taken away", false, 1},
		{"mounts-remove-app", `{"id":"main"}`, "sees no folder", true, 1},
	} {
		var args map[string]json.RawMessage
		if err := json.Unmarshal([]byte(c.args), &args); err != nil {
			t.Fatal(err)
		}
		f := d.Do(t.Context(), Caller{}, "r", control.AdminRequest{Command: c.command, Args: args})
		said := f.Human + string(f.Data)
		if f.Error != nil {
			said = f.Error.Message
		}
		if f.OK == c.refused || !strings.Contains(said, c.says) || len(st.all[0].Setup.Mounts) != c.mounts {
			t.Errorf("%s %s: ok %v, %q, %+v", c.command, c.args, f.OK, said, st.all[0].Setup.Mounts)
		}
	}
	if f := d.Do(t.Context(), Caller{Session: store.Session{ID: "sess-1", AgentGroupID: "ag-1"}}, "r", control.AdminRequest{Command: "mounts-add-/ok/app"}); f.OK {
		t.Error("an agent may add mounts")
	}
}
