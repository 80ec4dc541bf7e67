package channeltest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"

	"nanoclaw/internal/channel"
)

// attachedCases are those about files, questions and cards.
func attachedCases() []testCase {
	files := func(p Profile) bool { return p.Info.Caps.Files }
	buttons := func(p Profile) bool { return p.Info.Caps.Buttons }
	cards := func(p Profile) bool { return p.Info.Caps.Cards }
	return []testCase{
		{id: "C7", title: "files arrive with the same bytes and names, with a text and without", needs: files, run: func(b *bench) {
			b.start()
			place := b.rig.Place(0)
			all := []file{{"report.pdf", noise(300_000)}, {"empty", nil}, {"Übersicht 表 (1).txt", []byte(marker + "\r\n\x00")}}
			b.deliver(place, channel.Op{Kind: channel.OpText, Text: marker + " text", Files: sources(all)}, "k1")
			b.deliver(place, channel.Op{Kind: channel.OpText, Files: sources(all[:1])}, "k2")
			got := b.seen(place, 2)
			if len(got) != 2 || got[0].Text != marker+" text" {
				b.Fatalf("the human sees %d messages", len(got))
			}
			b.same(all, got[0].Files)
			b.same(all[:1], got[1].Files)
		}},
		{id: "C7b", title: "a file that cannot be read, or is cut while it is, is no success; the next try is", needs: files, run: func(b *bench) {
			b.start()
			place := b.rig.Place(0)
			good := file{"a.bin", noise(70_000)}
			for i, broken := range []channel.File{
				{Name: "a.bin", Size: int64(len(good.content)), Open: func() (io.ReadCloser, error) { return nil, errors.New("gone") }},
				{Name: "a.bin", Size: int64(len(good.content)), Open: func() (io.ReadCloser, error) {
					return io.NopCloser(bytes.NewReader(good.content[:40_000])), nil
				}},
			} {
				b.refused(channel.Transient, place, channel.Op{Kind: channel.OpText, Text: marker, Files: []channel.File{broken}}, fmt.Sprintf("k%d", i))
			}
			for i := range 2 {
				b.deliver(place, channel.Op{Kind: channel.OpText, Text: marker, Files: sources([]file{good})}, fmt.Sprintf("k%d", i))
			}
			got := b.seen(place, 2)
			if len(got) != 2 {
				b.Fatalf("the human sees %d messages, want 2", len(got))
			}
			b.same([]file{good}, got[0].Files)
		}},
		{id: "C7c", title: "the same key again: the file is there once, also when the first answer was lost", needs: func(p Profile) bool {
			return p.Info.Caps.Files && p.Info.Caps.Idempotent
		}, run: func(b *bench) {
			b.start()
			place := b.rig.Place(0)
			op := func() channel.Op {
				return channel.Op{Kind: channel.OpText, Files: sources([]file{{"a.bin", noise(1000)}})}
			}
			b.host.LoseWrites(1)
			b.refused(channel.Transient, place, op(), "k")
			for i := range 2 {
				if i == 1 {
					b.stop()
					b.start()
				}
				b.deliver(place, op(), "k")
			}
			b.deliver(place, text(marker+" next"), "k2")
			got := b.seen(place, 2)
			if len(got) != 2 {
				b.Fatalf("the human sees %+v", got)
			}
			b.same([]file{{"a.bin", noise(1000)}}, got[0].Files)
		}},
		{id: "C7d", title: "names that are no names of files are refused", needs: files, run: func(b *bench) {
			b.start()
			place := b.rig.Place(0)
			for i, name := range []string{"", ".", "..", "../up", "a/b", `a\b`, "/etc/passwd", "nul\x00", "esc\x1b[2J", "csi\u009b2J", "rtl\u202egpj.exe", "bad\xff", strings.Repeat("x", 300)} {
				b.refused(channel.Permanent, place, channel.Op{Kind: channel.OpText, Text: marker, Files: sources([]file{{name, nil}})}, fmt.Sprintf("k%d", i))
			}
			b.deliver(place, text(marker), "last")
			if got := b.seen(place, 1); len(got) != 1 {
				b.Errorf("the human sees %+v", got)
			}
		}},
		{id: "Q1", title: "a question can be pressed; the host gets it once, and the chat shows what was chosen", needs: buttons, run: func(b *bench) {
			b.start()
			place := b.rig.Place(0)
			id := b.deliver(place, question("led-1"), "k1").IDs[0]
			got := b.seen(place, 1)
			if len(got) != 1 || !slices.Equal(got[0].Options, []string{"Yes", "No"}) || !strings.Contains(got[0].Text, "Delete it?") {
				b.Fatalf("the human sees %+v", got)
			}
			if told := b.press(place, got[0], 1); told != "" {
				b.Errorf("the human is told %q", told)
			}
			want := channel.Answer{QuestionID: "led-1", Value: "no!", Address: place}
			all := b.host.Answers()
			if len(all) != 1 || all[0].QuestionID != want.QuestionID || all[0].Value != want.Value || all[0].Address != place || all[0].Sender.ID != b.subject.Profile.Sender {
				b.Errorf("the host got %+v, want %+v by %s", all, want, b.subject.Profile.Sender)
			}
			closed := question("led-1")
			closed.Kind, closed.Target, closed.Chosen = channel.OpAnswered, id, &closed.Question.Options[1]
			b.deliver(place, closed, "k2")
			got = b.seen(place, 1)
			if len(got) != 1 || got[0].Chosen != "No, keep it" || len(got[0].Options) != 0 {
				b.Errorf("after the answer the human sees %+v", got)
			}
		}},
		{id: "Q2", title: "what the host says to an answer is shown; a failed store is tried again", needs: buttons, run: func(b *bench) {
			b.start()
			place := b.rig.Place(0)
			b.deliver(place, question("led-1"), "k1")
			shown := b.seen(place, 1)[0]
			b.host.Verdicts(channel.Verdict{Kind: channel.Dropped, Reason: "it is not for you"}, channel.Verdict{Kind: channel.Duplicate})
			if told := b.press(place, shown, 0); !strings.Contains(told, "it is not for you") {
				b.Errorf("the human is told %q", told)
			}
			if told := b.press(place, shown, 0); told != "" {
				b.Errorf("after the same answer again the human is told %q", told)
			}
			b.host.FailNext(1)
			if told := b.press(place, shown, 0); told != "" || len(b.host.Answers()) != 3 {
				b.Errorf("told %q; %d answers", told, len(b.host.Answers()))
			}
		}},
		{id: "Q3", title: "a question that nobody answered is closed", needs: buttons, run: func(b *bench) {
			b.start()
			place := b.rig.Place(0)
			op := question("led-1")
			id := b.deliver(place, op, "k1").IDs[0]
			op.Kind, op.Target = channel.OpAnswered, id
			b.deliver(place, op, "k2")
			if got := b.seen(place, 1); len(got) != 1 || len(got[0].Options) != 0 || got[0].Chosen != "" {
				b.Errorf("the human sees %+v", got)
			}
			op.Target = "nothing-like-it"
			b.refused(channel.Permanent, place, op, "k3")
		}},
		{id: "Q3a", title: "a word stands in the place of all options", needs: buttons, run: func(b *bench) {
			b.start()
			place := b.rig.Place(0)
			op := question("led-1")
			op.Target = b.deliver(place, op, "k1").IDs[0]
			op.Kind, op.Chosen = channel.OpAnswered, &channel.Option{Label: "Expired", Selected: "Expired: nobody decided in time."}
			b.deliver(place, op, "k2")
			got := b.seen(place, 1)
			if len(got) != 1 || got[0].Chosen != "Expired: nobody decided in time." || len(got[0].Options) != 0 || !strings.Contains(got[0].Text, "Delete it?") {
				b.Errorf("the human sees %+v", got)
			}
		}},
		{id: "Q4", title: "a card arrives with all that is on it", needs: cards, run: func(b *bench) {
			b.start()
			place := b.rig.Place(0)
			b.deliver(place, channel.Op{Kind: channel.OpCard, Card: &channel.Card{Title: "Title", Body: marker + " body", Paragraphs: []string{"one"},
				Links: []channel.Link{{Label: "more", URL: "https://example.org/x"}}}}, "k1")
			got := b.seen(place, 1)
			for _, part := range []string{"Title", marker + " body", "one", "more", "https://example.org/x"} {
				if len(got) != 1 || !strings.Contains(got[0].Text, part) {
					b.Errorf("the human sees %+v, without %q", got, part)
				}
			}
		}},
	}
}

func question(id string) channel.Op {
	return channel.Op{Kind: channel.OpQuestion, Question: &channel.Question{ID: id, Title: marker + " title", Text: "Delete it?",
		Options: []channel.Option{{Label: "Yes", Selected: "Yes, gone", Value: "yes!"}, {Label: "No", Selected: "No, keep it", Value: "no!"}}}}
}

func (b *bench) press(place channel.Address, question Seen, option int) string {
	b.Helper()
	p, ok := b.rig.(Presser)
	if !ok {
		b.Fatal("the channel has buttons; its rig needs a method Press")
	}
	told, err := p.Press(b.ctx, place, question, option)
	if err != nil {
		b.Fatalf("press option %d: %v", option, err)
	}
	return told
}

type file struct {
	name    string
	content []byte
}

func sources(all []file) (out []channel.File) {
	for _, f := range all {
		out = append(out, channel.File{Name: f.name, Size: int64(len(f.content)), Open: func() (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader(f.content)), nil
		}})
	}
	return out
}

// same checks that files arrived as they were sent.
func (b *bench) same(want []file, got []SeenFile) {
	b.Helper()
	if len(got) != len(want) {
		b.Errorf("%d files arrived, %d were sent", len(got), len(want))
		return
	}
	for i, w := range want {
		if got[i].Name != w.name || got[i].Content != string(w.content) {
			b.Errorf("file %d is %q with %d bytes, want %q with %d", i, got[i].Name, len(got[i].Content), w.name, len(w.content))
		}
	}
}

// noise is n bytes of every value, the same each time.
func noise(n int) []byte {
	r := rand.NewChaCha8([32]byte{1})
	out := make([]byte, n)
	_, _ = r.Read(out)
	return out
}
