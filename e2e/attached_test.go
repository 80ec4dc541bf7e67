package e2e

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"nanoclaw/internal/control"
)

// attachedBytes are those of the file that the agent of these tests sends.
var attachedBytes = append(bytes.Repeat([]byte("a\x00b\xff<&>\r\n"), 20_000), 1, 2, 3)

// attaching gives the first agent a file and a script: on "alpha" it sends the file, asks, and says that it has gone on.
func (m *machine) attaching() {
	m.t.Helper()
	line := `{"match":"alpha","events":[{"type":"tool","name":"send_file","args":{"to":"terminal","path":"report.bin","text":"the file"}},` +
		`{"type":"tool","name":"ask_user_question","args":{"title":"Deploy","question":"Now?","options":["Yes",{"label":"No","selectedLabel":"No, wait","value":"n"}]}},` +
		`{"type":"text","text":"<message to=\"terminal\">went on</message>"},{"type":"result","text":"x"}]}`
	m.script(line, line, line)
	if err := os.WriteFile(filepath.Join(m.home, "groups", "main", "report.bin"), attachedBytes, 0o644); err != nil {
		m.t.Fatal(err)
	}
}

// attached is what a person saw.
type attached struct {
	trail []string
	state string
}

// answering follows the conversation to the end of m1 and answers the question by how.
func (m *machine) answering(after int64, how func(ctx context.Context, q control.Question) error) (a attached) {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	ended, shown := false, false
	err := m.client.Follow(ctx, control.DefaultConversation, after, func(e control.Event) error {
		switch {
		case e.Question != nil:
			a.trail = append(a.trail, "question")
			return how(ctx, *e.Question)
		case len(e.Files) > 0:
			a.trail = append(a.trail, "file "+e.Files[0].Name+" "+e.Text)
			return m.sameBytes(ctx, e)
		case e.Kind == control.EventAnswer:
			a.trail = append(a.trail, "answer "+e.Text)
			shown = true
		case e.Kind == control.EventMessage && e.Author == control.AuthorAgent:
			a.trail = append(a.trail, e.Text)
		case e.Kind == control.EventSettled && e.Target == "m1":
			a.state, ended = e.State, true
		}
		if ended && shown {
			return errDone
		}
		return nil
	})
	if !errors.Is(err, errDone) {
		m.t.Fatalf("%v; so far %+v\n%s", err, a, m.log.tail(3000))
	}
	return a
}

func (m *machine) sameBytes(ctx context.Context, e control.Event) error {
	return control.Repeat(ctx, func(ctx context.Context) error {
		r, _, err := m.client.File(ctx, control.DefaultConversation, e.ID, e.Files[0].Name)
		if err != nil {
			return err
		}
		got, err := io.ReadAll(r)
		if err = errors.Join(err, r.Close()); err != nil {
			return &control.Error{Code: control.CodeUnavailable, Message: err.Error()} // the host died meanwhile
		}
		if kept, err := os.ReadFile(e.Files[0].Path); err != nil || !bytes.Equal(got, attachedBytes) || !bytes.Equal(kept, attachedBytes) {
			m.t.Errorf("%d bytes are served, %d are kept, %d were sent; %v", len(got), len(kept), len(attachedBytes), err)
		}
		return nil
	})
}

// noneLeft checks that no outbox holds a file any more.
func (m *machine) noneLeft() {
	m.t.Helper()
	left, err := filepath.Glob(filepath.Join(m.home, "sessions", "*", "*", "out", "outbox", "*"))
	if err != nil || len(left) > 0 {
		m.t.Errorf("files left in the outbox: %v, %v", left, err)
	}
	if left, err = filepath.Glob(filepath.Join(m.home, "files", "*", ".*")); err != nil || len(left) > 0 {
		m.t.Errorf("half copied files: %v, %v", left, err)
	}
}

// P3 on the way of a file to the terminal and of an answer back: the host dies at each point once; the file is there once with
// the same bytes, the question is asked once and answered once, pressed or written.
func TestCrashFilesAndAnswers(t *testing.T) {
	t.Parallel()
	pressed := []string{"host.takeover.before=2", "host.takeover=2", "host.sending=1", "cli.kept=1", "host.delivered=1", "host.sent=1", "host.sending=2",
		"host.delivered=2", "host.sent=2", "host.answered=1", "host.answer.put=1", "host.delivered=3"}
	written := []string{"host.answered=1", "host.answer.put=1", "cli.said=2"}
	limit := make(chan struct{}, 2)
	try := func(name, point string, how func(ctx context.Context, m *machine, q control.Question) error) {
		t.Run(name+"/"+point, func(t *testing.T) {
			t.Parallel()
			limit <- struct{}{}
			defer func() { <-limit }()
			m := setup(t, crashSettings)
			m.attaching()
			flag := filepath.Join(m.home, "groups", "main", "crashed")
			m.env = []string{"NANOCLAW_CRASHPOINT=" + point, "NANOCLAW_CRASHPOINT_ONCE=" + flag}
			stop := sync.OnceFunc(m.keepAlive())
			defer stop()
			acc := m.say("m1", "alpha")
			a := m.answering(acc.Seq, func(ctx context.Context, q control.Question) error { return how(ctx, m, q) })
			stop()
			if _, err := os.Stat(flag); err != nil {
				t.Errorf("the point was not hit: %v", err)
			}
			if got := strings.Join(a.trail, "|"); a.state != control.StateAnswered ||
				got != "file report.bin the file|question|answer No, wait|went on" && got != "file report.bin the file|question|went on|answer No, wait" {
				t.Errorf("%s: %s", a.state, got)
			}
			m.invariants(a.trail)
			m.noneLeft()
		})
	}
	for _, point := range pressed {
		try("pressed", point, func(ctx context.Context, m *machine, q control.Question) error {
			return control.Repeat(ctx, func(ctx context.Context) error {
				_, err := m.client.Answer(ctx, control.DefaultConversation, control.Answer{Question: q.ID, Value: "n"})
				return err
			})
		})
	}
	for _, point := range written {
		try("written", point, func(ctx context.Context, m *machine, _ control.Question) error {
			return control.Repeat(ctx, func(ctx context.Context) error {
				_, err := m.client.Say(ctx, control.DefaultConversation, control.Say{ID: "m2", Text: "2"})
				return err
			})
		})
	}
}

// A person with two terminals: one asks and saves the file, the other one answers the question.
func TestChatSavesFilesAndAnswersQuestions(t *testing.T) {
	t.Parallel()
	m := setup(t, "[sandbox]\nkind = \"process\"\n")
	m.attaching()
	m.start()
	folder := t.TempDir()
	type result struct {
		out, err string
		code     int
	}
	first := make(chan result, 1)
	go func() {
		out, errs, code := m.run("chat", "--save", folder, "alpha")
		first <- result{out, errs, code}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := m.client.Follow(ctx, control.DefaultConversation, 0, func(e control.Event) error {
		if e.Question != nil {
			return errDone
		}
		return nil
	}); !errors.Is(err, errDone) {
		t.Fatal(err)
	}
	if out, errs, code := m.run("chat", "no"); code != 0 || out != "" {
		t.Errorf("the answer: exit %d, %q, %s", code, out, errs)
	}
	r := <-first
	saved := filepath.Join(folder, "report.bin")
	if want := "the file\nfile: report.bin (176 KB) saved at " + saved + "\nwent on\n"; r.code != 0 || r.out != want {
		t.Errorf("exit %d, %q, want %q; %s", r.code, r.out, want, r.err)
	}
	if !strings.Contains(r.err, "1. Yes\n2. No\n") || !strings.Contains(r.err, "nanoclaw chat 1") {
		t.Errorf("the question is shown as %q", r.err)
	}
	if got, err := os.ReadFile(saved); err != nil || !bytes.Equal(got, attachedBytes) {
		t.Errorf("%d bytes are saved, %v", len(got), err)
	}
	m.noneLeft()
}
