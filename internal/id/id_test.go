package id

import (
	"sort"
	"testing"
	"time"
)

func TestNewSortsByTimeAndIsSafe(t *testing.T) {
	t.Parallel()
	base := time.UnixMilli(1_700_000_000_000)
	var ids []string
	for i := range 300 {
		ids = append(ids, newAt(PrefixSession, base.Add(time.Duration(i)*time.Millisecond)))
	}
	if !sort.StringsAreSorted(ids) {
		t.Error("ids made in later milliseconds do not sort behind earlier ones")
	}
	seen := map[string]bool{}
	for _, s := range ids {
		if !Safe(s) || len(s) != len("sess-")+26 || seen[s] {
			t.Errorf("id %q: unsafe, of the wrong length, or seen before", s)
		}
		seen[s] = true
	}
}

func TestInboundSeparatesItsParts(t *testing.T) {
	t.Parallel()
	a := Inbound("cli", "cli:local", "1", "ag-x")
	if a != Inbound("cli", "cli:local", "1", "ag-x") {
		t.Error("the same event has two row ids")
	}
	for _, other := range []string{
		Inbound("cli", "cli:local", "1", "ag-y"),
		Inbound("cli", "cli:loca", "l1", "ag-x"),
		Inbound("cli2", "cli:local", "1", "ag-x"),
	} {
		if a == other {
			t.Errorf("two events share the row id %s", a)
		}
	}
}

func TestSafe(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]bool{
		"msg-abc": true, "a.b_c": true, "": false, ".": false, "..": false, ".hidden": false, "a/b": false, "a\x00": false,
		"ä": false,
	} {
		if Safe(s) != want {
			t.Errorf("Safe(%q) = %v, want %v", s, !want, want)
		}
	}
}
