package sqlite

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"nanoclaw/internal/id"
	"nanoclaw/internal/mailbox"
)

// FuzzDecodeOut: whatever stands in a sandbox's file, a decoded row keeps the promises of mailbox.OutRow, and a refused one
// names its field.
func FuzzDecodeOut(f *testing.F) {
	f.Add(int64(1), "out-1", "msg-1", "2026-01-02T03:04:05.000Z", "", "chat", "cli", "cli:local", "", `{"text":"hi"}`, int64(1), "ex-1", int64(1), uint16(0))
	f.Add(int64(2), "../x", "", "noon", "soon", "rumour", "\x00", strings.Repeat("x", 2000), "", `{`, int64(-1), ".", int64(-1), uint16(0xffff))
	f.Add(int64(3), "a", "", "2026-01-02 03:04:05", "", "task_log", "", "", "", "{\"text\":\"\xff\"}", int64(1), "", int64(0), uint16(1<<9))
	f.Fuzz(func(t *testing.T, seq int64, rowID, reply, stamp, after, kind, channel, platform, thread, content string, incarnation int64, exchange string,
		segment int64, odd uint16) {
		n := 0
		// Bits of odd put another type than the right one into a column.
		value := func(v any) any {
			n++
			if odd&(1<<n) == 0 {
				return v
			}
			return []any{nil, []byte{}, 1.5, int64(7), "text"}[(int(odd)+n)%5]
		}
		row, err := DecodeOut(RawOut{
			Seq: seq, ID: value(rowID), InReplyTo: value(reply), Timestamp: value(stamp), DeliverAfter: value(after), Kind: value(kind),
			ChannelType: value(channel), PlatformID: value(platform), ThreadID: value(thread), Content: value(content),
			Incarnation: value(incarnation), Exchange: value(exchange), Segment: value(segment), IsFallback: value(int64(0)),
		})
		if err != nil {
			var bad *mailbox.FieldError
			if !errors.As(err, &bad) || bad.Field == "" || bad.Reason == "" || len(bad.Reason) > 400 {
				t.Errorf("error %v", err)
			}
			if row.Seq != seq || row.Content != nil || row.Kind != "" {
				t.Errorf("a refused row carries %+v", row)
			}
			return
		}
		if row.Seq%2 == 0 || row.Seq < 1 || !id.Safe(row.ID) || !row.Kind.Outbound() || row.Timestamp.IsZero() || row.Segment < 0 ||
			row.Exchange != "" && !id.Safe(row.Exchange) || row.InReplyTo != "" && !id.Safe(row.InReplyTo) || len(row.Content) > mailbox.MaxContent ||
			len(row.ChannelType)+len(row.PlatformID)+len(row.ThreadID) > 3*mailbox.MaxField {
			t.Errorf("decoded %+v", row)
		}
		var object map[string]json.RawMessage
		if err := json.Unmarshal(row.Content, &object); err != nil || !utf8.Valid(row.Content) {
			t.Errorf("content %q: %v", row.Content, err)
		}
	})
}
