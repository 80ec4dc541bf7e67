package control

import (
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestConversationID(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"": "cli:local", "work": "cli:work", "cli:work": "cli:work", "a.b-c_9": "cli:a.b-c_9", strings.Repeat("x", 64): "cli:" + strings.Repeat("x", 64),
	} {
		if got, err := ConversationID(in); got != want || err != nil {
			t.Errorf("ConversationID(%q) = %q, %v, want %q", in, got, err, want)
		}
	}
	for _, in := range []string{"cli:", ".x", "a/b", "a:b", "ä", "a b", "x\x00", strings.Repeat("x", 65), "telegram:1"} {
		if got, err := ConversationID(in); !IsCode(err, CodeInvalid) {
			t.Errorf("ConversationID(%q) = %q, %v, want it refused", in, got, err)
		}
	}
}

func TestUnreachableSaysWhatToDo(t *testing.T) {
	t.Parallel()
	c := NewClient(t.TempDir())
	defer c.Close()
	for cause, want := range map[error]string{syscall.ENOENT: "nanoclaw serve", syscall.ECONNREFUSED: "nanoclaw serve", syscall.EACCES: "--home"} {
		err := c.broken(t.Context(), fmt.Errorf("dial: %w", cause))
		if !Temporary(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v; want %s in it", cause, err, want)
		}
	}
}

func TestTimeOnTheWire(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 4, 5, 6, 7, 8_000_000, time.FixedZone("", 3600))
	b, err := json.Marshal(struct {
		A Time `json:"a"`
		B Time `json:"b,omitzero"`
		C Time `json:"c"`
	}{A: At(at)})
	if want := `{"a":"2026-03-04T04:06:07.008Z","c":""}`; err != nil || string(b) != want {
		t.Errorf("%s, %v, want %s", b, err, want)
	}
	for in, want := range map[string]time.Time{`""`: {}, `null`: {}, `"2026-03-04T05:06:07.008+01:00"`: at, `"2026-03-04T04:06:07.008Z"`: at} {
		var got Time
		if err := json.Unmarshal([]byte(in), &got); err != nil || !got.Equal(want) {
			t.Errorf("%s is read as %v, %v", in, got, err)
		}
	}
	var got Time
	if err := json.Unmarshal([]byte(`"yesterday"`), &got); err == nil || !strings.Contains(err.Error(), "RFC 3339") {
		t.Errorf("a wrong time: %v", err)
	}
}

func TestEveryCodeHasAnExitStatusOfTheTable(t *testing.T) {
	t.Parallel()
	for code, want := range map[Code]int{
		CodeInvalid: 2, CodeTooLarge: 2, CodeNotFound: 4, CodeForbidden: 5, CodeUnreachable: 6, CodeUnavailable: 6, CodeTimeout: 7,
		CodeConflict: 8, CodeVersion: 8, CodeCancelled: 10, CodeFailed: 1, "a code of the future": 1,
	} {
		if got := code.Exit(); got != want {
			t.Errorf("exit status of %s is %d, want %d", code, got, want)
		}
		if s := code.Status(); s < 400 {
			t.Errorf("HTTP status of %s is %d", code, s)
		}
	}
}
