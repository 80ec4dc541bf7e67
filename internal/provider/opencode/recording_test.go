package opencode

import (
	"bytes"
	"context"
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

// The prompts of the recorded session, and its id.
const (
	recordedSession = "ses_dce5640f4ffelqjK4B1JSTvZ75"
	recordedFirst   = "msg_231a9c259000zXvqH8gelaXokF"
	recordedSecond  = "msg_231aa0003000ZzfBzp8o04YmKW"
)

// stream is the recorded session as the program sent it: a turn that is interrupted in a tool, and the next one.
func stream(t testing.TB) []byte {
	raw, err := os.ReadFile("testdata/session.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	var out []byte
	for line := range bytes.Lines(raw) {
		out = append(append(append(out, "data: "...), line...), '\n')
	}
	return out
}

// told is what a reader of the events hears of a stream, without activity.
func told(t testing.TB, in io.Reader) []string {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	q := &query{
		p: &Provider{}, log: slog.New(slog.NewTextHandler(io.Discard, nil)), events: child.NewQueue(), changed: make(chan struct{}), connected: make(chan struct{}),
		server: &server{}, worker: newWorker(), ctx: ctx, session: recordedSession,
	}
	for _, id := range []string{recordedFirst, recordedSecond} {
		q.inputs = append(q.inputs, &input{Input: provider.Input{ID: id}, id: id, posted: true, stored: make(chan struct{})})
	}
	q.watch, q.alive = time.NewTimer(time.Hour), time.NewTimer(time.Hour)
	defer q.watch.Stop()
	defer q.alive.Stop()
	if err := readEvents(in, q.read); err != nil {
		t.Fatal(err)
	}
	q.work.Wait()
	q.events.Close()
	var all []string
	for e := range q.events.Events() {
		if e.Kind != provider.Activity {
			all = append(all, strings.TrimSpace(string(e.Kind)+" "+e.Text+e.Tool+e.InputID))
		}
	}
	return all
}

const recordedEvents = "taken " + recordedFirst + "|text Starting.|tool_start nanoclaw_block|tool_end nanoclaw_block|result Starting.|" +
	"taken " + recordedSecond + "|text Yes.|result Yes."

// A program that exits anywhere, in the middle of a line too, was told of up to there and no further, however its stream is cut; events that
// nobody knows change nothing.
func FuzzRecording(f *testing.F) {
	whole := stream(f)
	if got := strings.Join(told(f, bytes.NewReader(whole)), "|"); got != recordedEvents {
		f.Fatalf("the recording tells\n%s\nwant\n%s", got, recordedEvents)
	}
	for i := range 20 {
		f.Add(uint32(len(whole)*i/20), uint8(i), []byte("data: {\"type\":\"new\"}\n"))
	}
	f.Add(uint32(len(whole)), uint8(0), []byte("data: {\n\ndata: \x00\xff"))
	f.Add(uint32(len(whole)), uint8(0), []byte("data: ["+strings.Repeat("7,", 2_500_000)+"7]\n"))
	f.Fuzz(func(t *testing.T, end uint32, cut uint8, strange []byte) {
		part := whole[:min(int(end), len(whole))]
		var in io.Reader = bytes.NewReader(part)
		switch cut % 3 {
		case 1:
			in = iotest.HalfReader(in)
		case 2:
			in = iotest.DataErrReader(in)
		}
		got := strings.Join(told(t, in), "|")
		if !strings.HasPrefix(recordedEvents, got) {
			t.Fatalf("cut at %d:\n%s\nwant a beginning of\n%s", end, got, recordedEvents)
		}
		if bytes.Contains(strange, []byte(`"message`)) || bytes.Contains(strange, []byte(`"session`)) || bytes.Contains(strange, []byte("\\u")) {
			return
		}
		at := bytes.LastIndex(part, []byte("\n\n")) + 2
		if at < 2 {
			return
		}
		mixed := append(append(append([]byte(nil), part[:at]...), strange...), "\n\n"...)
		if again := strings.Join(told(t, bytes.NewReader(mixed)), "|"); again != got {
			t.Errorf("%q changed what was told: %s, want %s", strange, again, got)
		}
	})
}
