package command

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/mailbox/sqlite"
)

// runMailbox runs one mailbox command.
func runMailbox(t *testing.T, stdin string, args ...string) (stdout string, code int, err error) {
	t.Helper()
	cmd := mailboxCommand()
	var out bytes.Buffer
	cmd.SetArgs(args)
	cmd.SetIn(strings.NewReader(stdin))
	cmd.SetOut(&out)
	cmd.SetErr(&bytes.Buffer{})
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err = cmd.ExecuteContext(t.Context())
	return out.String(), exitCode(t.Context(), err), err
}

func mailboxDir(t *testing.T, args ...string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "s")
	if _, code, err := runMailbox(t, "", append([]string{"init", dir}, args...)...); code != exitDone {
		t.Fatalf("init: code %d, %v", code, err)
	}
	return dir
}

func TestMailboxByHand(t *testing.T) {
	t.Parallel()
	dir := mailboxDir(t, "--destination", "family=telegram:telegram:-100", "--agent-destination", "helper=ag-2", "--routing", "telegram:telegram:-100:7")
	if b, err := os.ReadFile(filepath.Join(dir, "agent", "container.json")); err != nil || !strings.Contains(string(b), `"provider": "mock"`) {
		t.Errorf("settings %q, error %v", b, err)
	}
	out, code, err := runMailbox(t, `{"id":"msg-1","content":{"text":"<hi>"}}

{"id":"msg-2","content":{"text":"later"},"process_after":"2999-01-01T00:00:00Z","trigger":0}
{"id":"msg-3","kind":"system","content":{"x":1},"platform_id":"p"}
{"id":"msg-1","content":{"text":"again"}}
`, "put", dir)
	if code != exitDone || out != `{"id":"msg-1","seq":2}
{"id":"msg-2","seq":4}
{"id":"msg-3","seq":6}
{"id":"msg-1","seq":2,"duplicate":true}
` {
		t.Errorf("put printed %q, code %d, error %v", out, code, err)
	}
	out, code, err = runMailbox(t, "", "prompt", dir)
	if code != exitDone || !strings.HasPrefix(out, "<context timezone=") || !strings.Contains(out, `<message id="2" from="family"`) ||
		!strings.Contains(out, "&lt;hi&gt;</message>\n") || strings.Count(out, "<message") != 1 {
		t.Errorf("prompt printed %q, code %d, error %v", out, code, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "out", "outbound.db")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("prompt made the outbound file: %v", err)
	}

	r, err := sqlite.OpenRunner(t.Context(), dir, sqlite.RunnerOptions{Incarnation: 1})
	if err != nil {
		t.Fatal(err)
	}
	in, err := r.Row(t.Context(), "msg-1")
	if err != nil || in.Address != (mailbox.Address{ChannelType: "telegram", PlatformID: "telegram:-100", ThreadID: "7"}) {
		t.Errorf("address %+v, error %v", in.Address, err)
	}
	finishRow(t, r, "msg-1")
	out, code, err = runMailbox(t, "", "out", dir)
	var row map[string]any
	if e := json.Unmarshal([]byte(out), &row); e != nil || code != exitDone {
		t.Fatalf("out printed %q, code %d, error %v", out, code, err)
	}
	for column, want := range map[string]any{
		"seq": 7.0, "in_reply_to": "msg-1", "kind": "chat", "thread_id": nil, "incarnation": 1.0, "exchange": "ex-1", "fallback": false,
	} {
		if row[column] != want {
			t.Errorf("column %s is %v, want %v", column, row[column], want)
		}
	}
	if content, ok := row["content"].(map[string]any); !ok || content["text"] != "<yo>" || !strings.Contains(out, "<yo>") {
		t.Errorf("content %v in %s", row["content"], out)
	}
	out, code, err = runMailbox(t, "", "state", dir)
	var state struct {
		Acks []struct {
			MessageID string `json:"message_id"`
			Status    string `json:"status"`
		} `json:"acks"`
		Session   map[string]string `json:"session_state"`
		Container struct {
			Turn string `json:"turn"`
		} `json:"container_state"`
	}
	if e := json.Unmarshal([]byte(out), &state); e != nil || code != exitDone {
		t.Fatalf("state printed %q, code %d, error %v", out, code, err)
	}
	if len(state.Acks) != 1 || state.Acks[0].MessageID != "msg-1" || state.Acks[0].Status != "completed" || state.Session["continuation:mock"] != "c" ||
		state.Container.Turn != "idle" {
		t.Errorf("state %+v", state)
	}
	if out, code, err := runMailbox(t, "", "prompt", dir); code != exitDone || out != "" {
		t.Errorf("prompt with nothing due printed %q, code %d, error %v", out, code, err)
	}
}

func finishRow(t *testing.T, r *sqlite.Runner, rowID string) {
	t.Helper()
	_, err := r.Finish(context.Background(), mailbox.Finish{
		Out:       []mailbox.OutRow{{Kind: mailbox.KindChat, InReplyTo: rowID, Content: []byte(`{"text":"<yo>"}`), Exchange: "ex-1", Segment: 1}},
		Completed: []string{rowID}, State: map[string]string{"continuation:mock": "c"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
}

// An exchange that a dead incarnation left is asked again with what it has sent already.
func TestMailboxPromptOfAnUnfinishedExchange(t *testing.T) {
	t.Parallel()
	dir := mailboxDir(t, "--destination", "family=telegram:5", "--routing", "telegram:5")
	if _, code, err := runMailbox(t, `{"id":"msg-1","content":{"text":"asked"}}`, "put", dir); code != exitDone {
		t.Fatal(err)
	}
	r, err := sqlite.OpenRunner(t.Context(), dir, sqlite.RunnerOptions{Incarnation: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Claim(t.Context(), "ex-1", []string{"msg-1"}); err != nil {
		t.Fatal(err)
	}
	said := mailbox.OutRow{Kind: mailbox.KindChat, Content: []byte(`{"text":"already said"}`), Exchange: "ex-1", Segment: 1}
	said.Address = mailbox.Address{ChannelType: "telegram", PlatformID: "5"}
	if _, err := r.Write(t.Context(), said); err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if out, code, err := runMailbox(t, "", "prompt", dir); code != exitDone || out != "" {
		t.Errorf("of the incarnation that works on it: %q, code %d, error %v", out, code, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "agent", "container.json"), []byte(`{"incarnation":2}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 { // looking claims nothing
		if out, code, err := runMailbox(t, "", "prompt", dir); code != exitDone || !strings.Contains(out, "asked") || !strings.Contains(out, "already said") {
			t.Errorf("of the next incarnation: %q, code %d, error %v", out, code, err)
		}
	}
}

func TestMailboxPutRefusesTheWholeCall(t *testing.T) {
	t.Parallel()
	dir := mailboxDir(t)
	for line, want := range map[string]string{
		`nonsense`:                               "row: not a JSON object",
		`[1]`:                                    "row: not a JSON object",
		`null`:                                   "row: not a JSON object",
		`{"content":"{}"}`:                       "content: a string",
		`{"content":[1]}`:                        "content: not a JSON object",
		`{"content":null}`:                       "content: not a JSON object",
		`{}`:                                     "content: missing",
		`{"content":{},"kind":"rumour"}`:         "kind: ",
		`{"content":{},"kind":7}`:                "kind: not a string",
		`{"content":{},"id":"../x"}`:             "id: ",
		`{"content":{},"trigger":"yes"}`:         "trigger: ",
		`{"content":{},"tries":-1}`:              "tries: ",
		`{"content":{},"status":"lost"}`:         "status: ",
		`{"content":{},"timestamp":"x"}`:         "timestamp: ",
		`{"content":{},"process_after":5}`:       "process_after: ",
		`{"content":{},"after_incarnation":1.5}`: "after_incarnation: ",
		`{"content":{},"seq":2}`:                 "seq: ",
		`{"content":{},"colour":"red"}`:          "colour: no such column",
		`{"content":{},"channel_type":"x"}`:      "platform_id: missing",
		`{"content":{},"platform_id":"x"}`:       "channel_type: missing",
		`{"content":{},"thread_id":"x"}`:         "thread_id: needs",
		`{"content":{"text":"` + strings.Repeat("x", mailbox.MaxContent) + `"}}`: "content: ",
		`{"content":{"text":"` + strings.Repeat("x", maxLine) + `"}}`:            "row: longer than",
	} {
		out, code, err := runMailbox(t, `{"content":{"text":"good"}}`+"\n"+line+"\n", "put", dir)
		if code != exitUsage || out != "" || err == nil || !strings.Contains(err.Error(), "line 2: "+want) {
			t.Errorf("%.60s: printed %q, code %d, error %.200v; want line 2 and %q", line, out, code, err, want)
		}
	}
	if out, code, err := runMailbox(t, "", "prompt", dir); code != exitDone || out != "" {
		t.Errorf("something was stored: %q, code %d, error %v", out, code, err)
	}
}

func TestMailboxArguments(t *testing.T) {
	t.Parallel()
	dir := mailboxDir(t)
	none := filepath.Join(t.TempDir(), "none")
	for _, c := range []struct {
		want int
		args []string
	}{
		{exitUsage, []string{"init"}},
		{exitUsage, []string{"put", dir, "extra"}},
		{exitUsage, []string{"init", dir, "--destination", "family"}},
		{exitUsage, []string{"init", dir, "--destination", "a=b:c", "--destination", "a=b:d"}},
		{exitUsage, []string{"init", dir, "--agent-destination", "=x"}},
		{exitUsage, []string{"init", dir, "--routing", "telegram"}},
		{exitFailed, []string{"put", none}},
		{exitFailed, []string{"out", none}},
		{exitFailed, []string{"state", none}},
		{exitFailed, []string{"prompt", none}},
		{exitDone, []string{"init", dir, "--routing", "cli:local"}},
		{exitDone, []string{"out", dir}},
		{exitDone, []string{"state", dir}},
	} {
		if _, code, err := runMailbox(t, "", c.args...); code != c.want {
			t.Errorf("%v: code %d, want %d, error %v", c.args, code, c.want, err)
		}
	}
	if _, err := os.Lstat(none); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("looking made a folder: %v", err)
	}
}

func TestRoutingSplitsPlatformAndThread(t *testing.T) {
	t.Parallel()
	for routing, want := range map[string]mailbox.Address{
		"telegram:5":         {ChannelType: "telegram", PlatformID: "5"},
		"telegram:5:7":       {ChannelType: "telegram", PlatformID: "5", ThreadID: "7"},
		"cli:cli:local":      {ChannelType: "cli", PlatformID: "cli:local"},
		"cli:cli:local:main": {ChannelType: "cli", PlatformID: "cli:local", ThreadID: "main"},
		"slack:C1:17.5:x":    {ChannelType: "slack", PlatformID: "C1", ThreadID: "17.5:x"},
	} {
		if _, got, err := parseDestinations([]string{"me=cli:cli:local"}, nil, routing); err != nil || got != want {
			t.Errorf("%s: got %+v, error %v", routing, got, err)
		}
	}
}
