package providertest

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"nanoclaw/internal/provider"
)

// Hostile runs a provider with programs that do nothing right, in place of the real one: each ends the query with an error that is no
// verdict on the conversation, within a bound, and leaves no process. build makes the provider for a program, a shell script that is
// handed what the real one would be, with a continuation of the right form; it must wait no longer than a few seconds for the program to begin, and give env to it.
func Hostile(t *testing.T, continuation string, build func(t *testing.T, program string, env map[string]string) provider.Provider) {
	for name, script := range map[string]string{
		"ends at once":             `exit 3`,
		"ends well at once":        `exit 0`,
		"ends in mid-line":         `printf '{"type":"sys'; exit 0`,
		"ends by a signal":         `kill -9 $$`,
		"says nothing":             `exec sleep 1000`,
		"reads nothing":            `exec <&-; exec sleep 1000`,
		"closes its output":        `exec >&-; exec sleep 1000`,
		"closes everything":        `exec <&- >&- 2>&-; exec sleep 1000`,
		"garbage":                  `yes '{"id":[1,{}' | head -c 2000000; exec sleep 1000`,
		"other JSON":               `yes '{"id":"x","type":7,"method":null,"result":"?","params":[]}' | head -c 500000; exec sleep 1000`,
		"numbers and lists":        `yes '[1]' | head -c 100000; yes 7 | head -c 100000; yes null | head -c 100000; exec sleep 1000`,
		"a line of 5 MB":           `head -c 5000000 /dev/zero | tr '\0' x; echo; exec sleep 1000`,
		"a line without an end":    `exec tr '\0' x </dev/zero`,
		"errors without an end":    `exec yes 'trouble' >&2`,
		"a child keeps the output": `sleep 1000 & exit 1`,
		"deaf to SIGTERM":          `trap '' TERM INT HUP; while :; do sleep 1; done`,
		"a child of its own group": `setsid sleep 1000 & exec sleep 1000`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			program := filepath.Join(t.TempDir(), "program")
			if err := os.WriteFile(program, []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil { //nolint:gosec // a program
				t.Fatal(err)
			}
			mark := "HOSTILE_MARK=" + program
			p := build(t, program, map[string]string{"HOSTILE_MARK": program, "PATH": "/usr/bin:/bin"})
			ended := make(chan error, 1)
			var events []provider.Event
			go func() {
				q, err := p.Query(t.Context(), provider.QueryInput{Cwd: t.TempDir(), Continuation: continuation, Input: provider.Input{ID: "a", Text: "hi"}})
				if err != nil {
					ended <- err
					return
				}
				for e := range q.Events() {
					if len(events) < 1000 {
						events = append(events, e)
					}
				}
				ended <- q.Err()
			}()
			select {
			case err := <-ended:
				var failed *provider.QueryError
				if !errors.As(err, &failed) {
					t.Fatalf("Err is no QueryError: %v", err)
				}
				if p.IsSessionInvalid(err) || failed.Class != provider.ClassOther {
					t.Errorf("class %v of %v", failed.Class, err)
				}
				if len(err.Error()) > 8000 {
					t.Errorf("the error has %d bytes", len(err.Error()))
				}
			case <-time.After(Limit):
				t.Fatal("the query does not end")
			}
			for _, e := range events {
				if e.Kind == provider.Text || e.Kind == provider.Result && e.Text != "" {
					t.Errorf("words from nowhere: %+v", e)
				}
			}
			for _, pid := range holding(t, mark) {
				if !gone(t, pid) {
					t.Errorf("process %d is left", pid)
				}
			}
		})
	}
}

// holding are the processes whose environment holds the variable.
func holding(t *testing.T, variable string) (pids []int) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range all {
		env, err := os.ReadFile(path) //nolint:gosec // of a process
		if err == nil && bytes.Contains(append(env, 0), append([]byte(variable), 0)) {
			if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}
