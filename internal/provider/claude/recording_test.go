package claude

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"strings"
	"testing"
	"testing/iotest"

	"nanoclaw/internal/provider"
	"nanoclaw/internal/provider/child"
)

// recorded is what the CLI wrote in the recorded session.
func recorded(t testing.TB) []byte {
	raw, err := os.ReadFile("testdata/session.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	var out []byte
	for line := range bytes.Lines(raw) {
		var entry struct {
			Dir  string          `json:"dir"`
			Line json.RawMessage `json:"line"`
		}
		if err := json.Unmarshal(line, &entry); err != nil {
			t.Fatal(err)
		}
		if entry.Dir == "out" {
			out = append(append(out, entry.Line...), '\n')
		}
	}
	return out
}

// told is what a reader of the events hears of an output, without activity.
func told(q *query, in io.Reader) []string {
	lines := child.NewLineReader(in)
	for {
		line, tooLong, err := lines.Next()
		if err != nil {
			break
		}
		q.read(line, tooLong)
	}
	q.work.Wait()
	q.events.Close()
	var all []string
	for e := range q.events.Events() {
		if e.Kind != provider.Activity {
			all = append(all, string(e.Kind)+" "+e.Text+e.Tool+e.Continuation)
		}
	}
	return all
}

// A CLI that exits anywhere, in the middle of a line too, was told of up to there and no further, however its output is cut;
// lines that nobody knows change nothing.
func FuzzRecording(f *testing.F) {
	whole := recorded(f)
	f.Add(uint32(len(whole)), uint8(0), []byte("\n{\"type\":\"new\"}\n"))
	f.Add(uint32(len(whole)/2), uint8(1), []byte("{"))
	f.Add(uint32(len(whole)-1), uint8(2), []byte("\x00\xff"))
	p, err := New(Options{Program: "/claude", Home: "/home"})
	if err != nil {
		f.Fatal(err)
	}
	want := told(detached(f, p), bytes.NewReader(whole))
	if len(want) < 15 {
		f.Fatalf("the recording tells only %q", want)
	}
	f.Fuzz(func(t *testing.T, end uint32, cut uint8, strange []byte) {
		part := whole[:min(int(end), len(whole))]
		var in io.Reader = bytes.NewReader(part)
		switch cut % 3 {
		case 1:
			in = iotest.HalfReader(in)
		case 2:
			in = iotest.DataErrReader(in)
		}
		got := told(detached(t, p), in)
		if len(got) > len(want) || strings.Join(got, "\n") != strings.Join(want[:len(got)], "\n") {
			t.Fatalf("cut at %d:\n%s\nwant a beginning of\n%s", end, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		if lines := bytes.Count(part, []byte("\n")); lines == bytes.Count(whole, []byte("\n")) && len(got) != len(want) {
			t.Errorf("%d of %d events of a whole recording", len(got), len(want))
		}
		// a strange line between two others
		if at := bytes.LastIndexByte(part, '\n') + 1; !bytes.Contains(strange, []byte(`"`)) {
			mixed := append(append(append([]byte(nil), part[:at]...), strange...), '\n')
			if again := told(detached(t, p), bytes.NewReader(mixed)); strings.Join(again, "\n") != strings.Join(got, "\n") {
				t.Errorf("%q changed what was told: %q, want %q", strange, again, got)
			}
		}
	})
}
