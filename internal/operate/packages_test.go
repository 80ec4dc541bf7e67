package operate

import (
	"encoding/json"
	"strings"
	"testing"

	"nanoclaw/internal/control"
	"nanoclaw/internal/store"
)

func TestPackagesSet(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ args, refuse, says, refused string }{
		{args: `{"apt":"jq, ffmpeg","npm":"@scope/tool@1.2.3,cowsay"}`, says: "ffmpeg, jq, @scope/tool@1.2.3, cowsay"},
		{args: `{"apt":"g++,libc6=2.36-9+deb12u1"}`, says: "libc6=2.36-9+deb12u1"},
		{args: `{"apt":"none"}`, refuse: "no images", says: "nothing has changed"},
		{args: `{"apt":"jq"}`, refuse: "no images", refused: "no images"},
		{args: `{}`, refused: "nothing to change"},
		{args: `{"apt":"-o=x"}`, refused: "not the name"},
		{args: `{"apt":"jq; rm"}`, refused: "not the name"},
		{args: `{"npm":"git+ssh://x"}`, refused: "not the name"},
		{args: `{"npm":"../x"}`, refused: "not the name"},
		{args: `{"npm":"a b"}`, refused: "not the name"},
		{args: `{"npm":"x$(id)"}`, refused: "not the name"},
		{args: `{"npm":"aa\nUSER 0"}`, refused: "not the name"},
	} {
		st := &groups{all: []store.AgentGroup{{ID: "ag-1", Name: "Nano", Folder: "main"}}}
		var args map[string]json.RawMessage
		if err := json.Unmarshal([]byte(c.args), &args); err != nil {
			t.Fatal(err)
		}
		f := New(Packages(st, machine{}, c.refuse)...).Do(t.Context(), Caller{}, "r", control.AdminRequest{Command: "packages-set-main", Args: args})
		switch {
		case c.refused == "" && (!f.OK || !strings.Contains(f.Human, c.says)):
			t.Errorf("%s: %+v", c.args, f)
		case c.refused != "" && (f.OK || !strings.Contains(f.Error.Message, c.refused) || !st.all[0].Setup.Packages.None()):
			t.Errorf("%s: %+v, %+v", c.args, f, st.all[0].Setup)
		}
	}
}
