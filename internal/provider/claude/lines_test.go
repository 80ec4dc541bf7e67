package claude

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os/exec"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"nanoclaw/internal/provider"
)

// The lines are those of the input, however it is cut; a last line without an end is none.
func FuzzLines(f *testing.F) {
	f.Add([]byte("a\nbb\r\n\n{\"x\":1}\nrest"), uint8(1))
	f.Add([]byte("\n"), uint8(0))
	f.Add([]byte("0123456789abcdef\n0123456789abcde\n0123456789abcdef0123456789abcdef0\n"), uint8(2))
	f.Fuzz(func(t *testing.T, text []byte, cut uint8) {
		var in io.Reader = bytes.NewReader(text)
		switch cut % 3 {
		case 1:
			in = iotest.OneByteReader(in)
		case 2:
			in = iotest.HalfReader(in)
		}
		want := strings.Split(string(text), "\n")
		want = want[:len(want)-1]
		r := &lineReader{r: bufio.NewReaderSize(in, 16)} // the smallest: parts meet their edges everywhere
		for i := 0; ; i++ {
			line, tooLong, err := r.next()
			if err != nil {
				if !errors.Is(err, io.EOF) || i != len(want) {
					t.Fatalf("%d of %d lines: %v", i, len(want), err)
				}
				return
			}
			if i >= len(want) || tooLong || string(line) != strings.TrimRight(want[i], "\r\n") {
				t.Fatalf("line %d: %q", i, line)
			}
		}
	})
}

func TestTailKeepsTheEnd(t *testing.T) {
	t.Parallel()
	k := tail{max: 10}
	for _, c := range []struct{ write, want string }{{"abc", "abc"}, {strings.Repeat("x", 100) + "123", "xxxxxxx123"}, {"4567", "xxx1234567"}, {"", "xxx1234567"}} {
		_, _ = k.Write([]byte(c.write))
		if got := k.String(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
		if len(k.buf) > 2*k.max {
			t.Errorf("it holds %d bytes", len(k.buf))
		}
	}
}

// Nobody reads: activity does not pile up, everything else does, in order.
func TestQueueWithoutReader(t *testing.T) {
	t.Parallel()
	q := newQueue()
	for range 1000 {
		q.put(provider.Event{Kind: provider.Activity})
	}
	for range 3 {
		q.put(provider.Event{Kind: provider.Text, Text: "x"})
		q.put(provider.Event{Kind: provider.Activity})
	}
	q.mu.Lock()
	held := len(q.items)
	q.mu.Unlock()
	if held > 8 {
		t.Errorf("%d events are held", held)
	}
	q.close()
	texts := 0
	for e := range q.out {
		if e.Kind == provider.Text {
			texts++
		}
	}
	if texts != 3 {
		t.Errorf("%d texts", texts)
	}
}

func TestVersions(t *testing.T) {
	t.Parallel()
	for v, want := range map[string]bool{OldestTested: true, NewestTested: true, "2.1.300": true, "2.1.260": false, "2.2.0": false, "1.9.999": false, "": false, "x.y": false, "2.1.333-beta": false} {
		if got := tested(v); got != want {
			t.Errorf("%q: %v", v, got)
		}
	}
}

// detached is a query without a process.
func detached(p *Provider) *query {
	q := &query{
		p: p, log: p.opt.Log, changed: make(chan struct{}), exited: make(chan struct{}), inputs: map[string]prompt{"u": {Input: provider.Input{ID: "a"}}},
		tools: map[string]string{}, answers: map[string]chan error{}, stdin: &writer{wake: make(chan struct{}, 1)},
		events: &queue{out: make(chan provider.Event), wake: make(chan struct{}, 1)}, watch: time.NewTimer(time.Hour),
		alive: time.NewTimer(time.Hour), rules: newRules(nil), cmd: &exec.Cmd{},
	}
	q.watch.Stop()
	q.alive.Stop()
	return q
}

// Whatever the CLI writes, reading it neither fails nor blocks.
func FuzzLine(f *testing.F) {
	f.Add([]byte(`{"type":"system","subtype":"init","session_id":"x","mcp_servers":[{"name":"a","status":"failed"}]}`))
	f.Add([]byte(`{"type":"assistant","message":{"model":"m","content":[{"type":"text","text":"x"}]}}`))
	f.Add([]byte(`{"type":"result","is_error":true,"errors":["No conversation"],"usage":{"input_tokens":5}}`))
	f.Add([]byte(`{"type":"rate_limit_event","rate_limit_info":{"status":"rejected","resetsAt":1e300}}`))
	f.Add([]byte(`{"type":"control_request","request_id":"a","request":{"subtype":"hook_callback","callback_id":"PreToolUse","input":{"tool_name":"Bash","tool_input":{"timeout":-1}}}}`))
	f.Add([]byte(`{"type":"command_lifecycle","command_uuid":"u","state":"started"}`))
	p, err := New(Options{Program: "/claude", Home: "/home"})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		q := detached(p)
		q.line(line)
		q.work.Wait()
		if q.err != nil {
			t.Fatalf("a line of a conversation that was not resumed, without servers, ended it: %v", q.err)
		}
	})
}
