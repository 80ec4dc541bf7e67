package operate

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"nanoclaw/internal/control"
	"nanoclaw/internal/id"
	"nanoclaw/internal/store"
)

func TestSetupFlags(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, args, says, refused string
	}{
		{name: "idle", args: `{"idle-minutes":5}`, says: "ended after 5 minutes"},
		{name: "digits", args: `{"memory-mb":"512"}`, says: "memory 512 MiB"},
		{name: "speed", args: `{"speed":"Fast"}`, says: "speed fast"},
		{name: "model", args: `{"fallback-model":"small"}`, says: "overloaded: small"},
		{name: "scripts", args: `{"script-timeout":60}`, says: "at most 60 s"},
		{name: "back to the host's", args: `{"idle-minutes":"default"}`, says: "nothing has changed"},
		{name: "too short", args: `{"idle-minutes":0}`, refused: "idle-minutes"},
		{name: "too small", args: `{"memory-mb":1}`, refused: "memory-mb"},
		{name: "no speed", args: `{"speed":"warp"}`, refused: "speed"},
	} {
		_, _, err, human := update(t, `{"id":"ag-1",`+c.args[1:])
		switch {
		case c.refused != "" && (err == nil || err.Field != c.refused):
			t.Errorf("%s: %v, want --%s refused", c.name, err, c.refused)
		case c.refused == "" && (err != nil || !strings.Contains(human, c.says)):
			t.Errorf("%s: %v\n%s", c.name, err, human)
		}
	}
}

// restarted notes what a restart was asked for.
type restarted struct{ group, key, text string }

func (r *restarted) RestartTelling(_ context.Context, group id.AgentGroup, key, text string) (int, error) {
	*r = restarted{string(group), key, text}
	return 2, nil
}

func TestGroupsRestart(t *testing.T) {
	t.Parallel()
	st := &groups{all: []store.AgentGroup{{ID: "ag-1", Name: "Nano", Folder: "main"}}}
	var r restarted
	d := New(Restart(st, machine{}, &r))
	f := d.Do(t.Context(), Caller{}, "r", control.AdminRequest{Command: "groups-restart-nano", Args: map[string]json.RawMessage{"message": json.RawMessage(`"new tools"`)}})
	if !f.OK || r.group != "ag-1" || r.text != "new tools" || r.key == "" || !strings.Contains(f.Human, "2 running conversations") {
		t.Errorf("%+v, asked %+v", f, r)
	}
	if f := d.Do(t.Context(), Caller{Session: store.Session{ID: "sess-1"}}, "r", control.AdminRequest{Command: "groups-restart"}); f.OK {
		t.Error("an agent may restart agents")
	}
}
