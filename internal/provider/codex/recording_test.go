package codex

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"nanoclaw/internal/provider"
	"nanoclaw/internal/provider/child"
)

// recorded is what the CLI wrote in the recorded session, and the id of its thread.
func recorded(t testing.TB) (out []byte, thread string) {
	raw, err := os.ReadFile("testdata/session.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(raw) {
		var entry struct {
			Out json.RawMessage `json:"out"`
		}
		if err := json.Unmarshal(line, &entry); err != nil {
			t.Fatal(err)
		}
		if entry.Out == nil {
			continue
		}
		var opened struct {
			Result struct {
				Thread struct {
					ID string `json:"id"`
				} `json:"thread"`
			} `json:"result"`
		}
		if err := json.Unmarshal(entry.Out, &opened); err == nil && opened.Result.Thread.ID != "" {
			thread = opened.Result.Thread.ID
		}
		out = append(append(out, entry.Out...), '\n')
	}
	return out, thread
}

// told is what a reader of the events hears of an output, without activity.
func told(t testing.TB, thread string, in io.Reader) []string {
	q := &query{
		p: &Provider{}, log: slog.New(slog.NewTextHandler(io.Discard, nil)), events: child.NewQueue(), changed: make(chan struct{}),
		answers: map[int64]func(message){}, thread: thread,
	}
	q.watch, q.alive = time.NewTimer(time.Hour), time.NewTimer(time.Hour)
	defer q.watch.Stop()
	defer q.alive.Stop()
	for lines := child.NewLineReader(in); ; {
		line, tooLong, err := lines.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		q.read(line, tooLong)
	}
	q.events.Close()
	var all []string
	for e := range q.events.Events() {
		if e.Kind != provider.Activity {
			all = append(all, strings.TrimSpace(string(e.Kind)+" "+e.Text+e.Tool+string(e.Class)))
		}
	}
	return all
}

const recordedEvents = "text Adding.|tool_start mcp__nanoclaw__add|tool_end mcp__nanoclaw__add|text Five.|result Five.|error auth|result auth|" +
	"text Waiting.|tool_start mcp__nanoclaw__block|tool_end mcp__nanoclaw__block|result Waiting.|text Eggs.|result Eggs."

// A CLI that exits anywhere, in the middle of a line too, was told of up to there and no further, however its output is cut; lines that
// nobody knows change nothing.
func FuzzRecording(f *testing.F) {
	whole, thread := recorded(f)
	if got := strings.Join(told(f, thread, bytes.NewReader(whole)), "|"); got != recordedEvents {
		f.Fatalf("the recording tells\n%s\nwant\n%s", got, recordedEvents)
	}
	for i := range 20 {
		f.Add(uint32(len(whole)*i/20), uint8(i), []byte(`{"method":"item/new","params":{}}`))
	}
	f.Add(uint32(len(whole)), uint8(0), []byte("\x00\xff"))
	f.Add(uint32(len(whole)), uint8(0), []byte("["+strings.Repeat("7,", 2_500_000)+"7]"))
	f.Fuzz(func(t *testing.T, end uint32, cut uint8, strange []byte) {
		part := whole[:min(int(end), len(whole))]
		var in io.Reader = bytes.NewReader(part)
		switch cut % 3 {
		case 1:
			in = iotest.HalfReader(in)
		case 2:
			in = iotest.DataErrReader(in)
		}
		got := strings.Join(told(t, thread, in), "|")
		if !strings.HasPrefix(recordedEvents, got) {
			t.Fatalf("cut at %d:\n%s\nwant a beginning of\n%s", end, got, recordedEvents)
		}
		// a strange line behind the others; one with an id would be a question, and there is no process to answer to
		if bytes.Contains(strange, []byte(`"id"`)) || bytes.Contains(strange, []byte("\\u")) || bytes.Contains(strange, []byte(thread)) || bytes.ContainsRune(strange, '\n') {
			return
		}
		at := bytes.LastIndexByte(part, '\n') + 1
		mixed := append(append(append([]byte(nil), part[:at]...), strange...), '\n')
		if again := strings.Join(told(t, thread, bytes.NewReader(mixed)), "|"); again != got && !bytes.Contains(strange, []byte(`"method"`)) {
			t.Errorf("%q changed what was told: %s, want %s", strange, again, got)
		}
	})
}
