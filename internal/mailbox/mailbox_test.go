package mailbox

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestParseTime(t *testing.T) {
	t.Parallel()
	want := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for s, at := range map[string]time.Time{
		"2026-01-02T03:04:05Z": want, "2026-01-02T03:04:05.000Z": want, "2026-01-02T11:04:05+08:00": want, "2026-01-02 03:04:05": want,
		"2026-01-02T03:04:05": want, "2026-01-02T03:04:05.5Z": want.Add(500 * time.Millisecond), "": {},
	} {
		if got, err := ParseTime(s); err != nil || !got.Equal(at) || got.Location() != time.UTC {
			t.Errorf("%q: got %s, error %v", s, got, err)
		}
	}
	for _, s := range []string{"now", "2026-01-02", "03:04", "2026-13-02T03:04:05Z", "1767322800"} {
		if got, err := ParseTime(s); err == nil {
			t.Errorf("%q was read as %s", s, got)
		}
	}
}

// FuzzParseTime: what is read can be written and read again, to the millisecond.
func FuzzParseTime(f *testing.F) {
	for _, s := range []string{"2026-01-02T03:04:05.678Z", "2026-01-02 03:04:05", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59-23:59", "x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		at, err := ParseTime(s)
		if err != nil || at.Year() > 9999 || at.Year() < 0 {
			return
		}
		again, err := ParseTime(FormatTime(at))
		if err != nil || !again.Equal(at.Truncate(time.Millisecond)) {
			t.Errorf("%q: %s, then %s, error %v", s, at, again, err)
		}
	})
}

func TestW26FormatTimeSortsAsText(t *testing.T) {
	t.Parallel()
	base := time.Date(2026, 9, 9, 23, 59, 59, 999_000_000, time.FixedZone("x", 8*3600))
	last := ""
	for i := range 100 {
		s := FormatTime(base.Add(time.Duration(i*i) * 137 * time.Millisecond))
		if s <= last || !strings.HasSuffix(s, "Z") || len(s) != len(TimeLayout) {
			t.Errorf("%q after %q", s, last)
		}
		last = s
	}
	if FormatTime(time.Time{}) != "" {
		t.Error("the zero time has a form")
	}
}

func TestW34EncodeContentKeepsMarkup(t *testing.T) {
	t.Parallel()
	got, err := EncodeContent(ChatOut{Text: "<b> & \u2028 ü"})
	if err != nil || !strings.Contains(string(got), "<b> & ") || strings.HasSuffix(string(got), "\n") {
		t.Errorf("encoded %q, error %v", got, err)
	}
}

func TestValidateNamesTheField(t *testing.T) {
	t.Parallel()
	content := []byte(`{"text":"x"}`)
	good := InRow{Kind: KindChat, Content: content}
	if err := good.Validate(); err != nil {
		t.Errorf("a good row: %v", err)
	}
	for field, spoil := range map[string]func(*InRow){
		"id":                  func(r *InRow) { r.ID = "a/b" },
		"kind":                func(r *InRow) { r.Kind = KindChatSDK },
		"status":              func(r *InRow) { r.Status = "lost" },
		"tries":               func(r *InRow) { r.Tries = -1 },
		"after_incarnation":   func(r *InRow) { r.AfterIncarnation = -1 },
		"channel_type":        func(r *InRow) { r.ChannelType = "a\x00b" },
		"platform_id":         func(r *InRow) { r.PlatformID = strings.Repeat("x", MaxField+1) },
		"thread_id":           func(r *InRow) { r.ThreadID = "\x00" },
		"platform_message_id": func(r *InRow) { r.PlatformMessageID = "\x00" },
		"content":             func(r *InRow) { r.Content = []byte(`{"text":`) },
	} {
		row := good
		spoil(&row)
		wantField(t, "inbound", field, row.Validate())
	}
	out := OutRow{ID: "out-1", Kind: KindChat, Content: content}
	if err := out.Validate(); err != nil {
		t.Errorf("a good row: %v", err)
	}
	for field, spoil := range map[string]func(*OutRow){
		"id":          func(r *OutRow) { r.ID = "" },
		"in_reply_to": func(r *OutRow) { r.InReplyTo = "../x" },
		"kind":        func(r *OutRow) { r.Kind = KindWebhook },
		"exchange":    func(r *OutRow) { r.Exchange = "a b" },
		"segment":     func(r *OutRow) { r.Segment = -1 },
		"thread_id":   func(r *OutRow) { r.ThreadID = "\x00" },
		"content":     func(r *OutRow) { r.Content = make([]byte, MaxContent+1) },
	} {
		row := out
		spoil(&row)
		wantField(t, "outbound", field, row.Validate())
	}
}

func wantField(t *testing.T, side, field string, err error) {
	t.Helper()
	var bad *FieldError
	if !errors.As(err, &bad) || bad.Field != field || !errors.Is(err, ErrInvalid) {
		t.Errorf("%s %s: got %v", side, field, err)
	}
}
