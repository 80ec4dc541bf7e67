package e2e

import (
	"database/sql"
	"path/filepath"
	"strings"
	"testing"

	_ "modernc.org/sqlite" // the driver

	"nanoclaw/internal/control"
)

// An act that this host does not know is refused: the session goes on, and the agent is told with its next message, once.
func TestMCP5UnknownActionIsRefusedAndTold(t *testing.T) {
	t.Parallel()
	m := setup(t, sandboxes(t)["process"])
	m.script(
		`{"events":[{"type":"tool","name":"create_agent","args":{"name":"Helper"}},{"type":"result","text":"<message to=\"terminal\">asked</message>"}]}`,
	)
	m.start()
	a := m.ask("m1", "make a helper")
	if a.state != control.StateAnswered || strings.Join(a.texts, "|") != "asked" {
		t.Fatalf("%+v", a)
	}
	const refusal = "A request of yours (create_agent) was not carried out (refused): this host knows no such action"
	for _, id := range []string{"m2", "m3"} {
		if b := m.ask(id, "what became of it?"); b.state != control.StateAnswered || len(b.texts) != 1 {
			t.Fatalf("%s: %+v", id, b)
		}
	}
	found, err := filepath.Glob(filepath.Join(m.home, "sessions", "*", "*", "in", "inbound.db"))
	if err != nil || len(found) != 1 {
		t.Fatalf("%v, %v", found, err)
	}
	db, err := sql.Open("sqlite", "file:"+found[0]+"?mode=ro&_pragma=busy_timeout(10000)")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	var told int
	if err := db.QueryRowContext(t.Context(), `SELECT count(*) FROM messages_in WHERE trigger = 0 AND instr(content, ?)`, refusal).Scan(&told); err != nil || told != 1 {
		t.Errorf("the agent was told %d times, want once; %v", told, err)
	}
}
