package providertest

import (
	"bytes"
	"errors"
	"image"
	"image/color"
	"image/gif"
	"image/jpeg"
	"image/png"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"nanoclaw/internal/provider"
)

// commands: each that is listed gives exactly one result, with its output, and says nothing in the model's place. It works as the
// first input of a conversation too.
func commands(s *session) {
	list := s.p.Caps().Commands
	if len(list) == 0 {
		s.Skip("runs no commands")
	}
	q, err := s.p.Query(s.ctx, provider.QueryInput{Input: provider.Input{ID: "first", Text: list[0]}, Cwd: s.sub.Cwd, MCP: []provider.MCPServer{s.tools.Server()}})
	if err != nil {
		s.Fatal(err)
	}
	first := &running{session: s, Query: q}
	first.output(list[0])
	first.End()
	if rest := first.rest(); len(of(provider.Result, rest)) != 0 {
		s.Errorf("one more result: %+v", rest)
	}

	r := s.start("", "", "hello", Step{Text: "hi"})
	r.until(provider.Result)
	for _, word := range list {
		if !strings.HasPrefix(word, "/") || strings.ContainsAny(word, " \t\n") || word != strings.ToLower(word) {
			s.Errorf("%q is no word of a command", word)
		}
		if err := r.Push(s.ctx, provider.Input{ID: word, Text: word}); err != nil {
			s.Fatal(err)
		}
		r.output(word)
	}
	// the conversation goes on, and each result belonged to its command
	r.push("on", "and now?", Step{Text: "still here"})
	if events, result := r.until(provider.Result); result.Text != "still here" || texts(events) != "still here" || result.IsError {
		s.Errorf("after the commands: %+v", events)
	}
	r.End()
	if rest := r.rest(); len(of(provider.Result, rest)) != 0 {
		s.Errorf("one more result: %+v", rest)
	}
}

func (r *running) output(word string) {
	r.Helper()
	events, result := r.until(provider.Result)
	if result.IsError || result.Interrupted || strings.TrimSpace(result.Text) == "" {
		r.Errorf("%s: %+v", word, result)
	}
	if got := texts(events); got != "" {
		r.Errorf("%s: its output as words of the model: %q", word, got)
	}
}

// commandWaits: a command that is pushed while a turn runs is no text of that turn, and what is pushed behind it comes after it.
func commandWaits(s *session) {
	list := s.p.Caps().Commands
	if len(list) == 0 {
		s.Skip("runs no commands")
	}
	word := list[len(list)-1]
	r := s.start("", "", "wait", Step{Text: "Waiting.", Tool: "block", Args: `{}`}, Step{Text: "Awake."})
	r.until(provider.ToolStart)
	s.signal(s.tools.Blocked)
	if err := r.Push(s.ctx, provider.Input{ID: "command", Text: word}); err != nil {
		s.Fatal(err)
	}
	r.push("behind", "and then?", Step{Text: "Then this."})
	r.End()
	s.tools.Release()
	if _, result := r.until(provider.Result); result.Text != "Awake." {
		s.Errorf("the running turn: %+v", result)
	}
	r.output(word)
	if _, result := r.until(provider.Result); result.Text != "Then this." {
		s.Errorf("the turn behind the command: %+v", result)
	}
	r.rest()
	r.receipt(r.seen, "command")
	r.receipt(r.seen, "behind")
	if err := r.Err(); err != nil {
		s.Errorf("Err: %v", err)
	}
}

// noCommand: a text with a slash that is none of Caps.Commands goes to the model, whatever else the provider knows.
func noCommand(s *session) {
	for _, text := range []string{"/model opus", "/etc/hosts is where?", "/"} {
		r := s.start("", "", text, Step{Text: "I read it."})
		events, result := r.until(provider.Result)
		if result.Text != "I read it." || texts(events) != "I read it." {
			s.Errorf("%q: %+v", text, result)
		}
		if s.sub.Received != nil && !s.sub.Received(text) {
			s.Errorf("the model did not get %q", text)
		}
		r.Abort()
	}
}

// picture encodes a small image.
func picture(s *session, encode func(*bytes.Buffer, image.Image) error) []byte {
	s.Helper()
	m := image.NewRGBA(image.Rect(0, 0, 16, 16))
	for i := range 16 {
		m.Set(i, i, color.RGBA{R: 200, A: 255})
	}
	var b bytes.Buffer
	if err := encode(&b, m); err != nil {
		s.Fatal(err)
	}
	return b.Bytes()
}

func (s *session) file(name string, content []byte) provider.Attachment {
	s.Helper()
	path := filepath.Join(s.TempDir(), name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		s.Fatal(err)
	}
	return provider.Attachment{Name: name, Path: path}
}

// attachments: pictures reach the model as pictures, whatever their name claims, with the prompt that they came with.
func attachments(s *session) {
	if !s.p.Caps().Attachments {
		s.Skip("shows no attachments")
	}
	one := picture(s, func(b *bytes.Buffer, m image.Image) error { return png.Encode(b, m) })
	two := picture(s, func(b *bytes.Buffer, m image.Image) error { return jpeg.Encode(b, m, nil) })
	three := picture(s, func(b *bytes.Buffer, m image.Image) error { return gif.Encode(b, m, nil) })
	in := s.input("", "", "look at these", Step{Text: "A red line."})
	in.Input.Attachments = []provider.Attachment{s.file("a.png", one), s.file("b.bin", two), s.file("c.txt", three)}
	in.Input.Attachments[0].MimeType, in.Input.Attachments[1].MimeType = "image/png", "image/png" // the second is a lie
	q, err := s.p.Query(s.ctx, in)
	if err != nil {
		s.Fatal(err)
	}
	r := &running{session: s, Query: q}
	s.Cleanup(r.Abort)
	if events, result := r.until(provider.Result); result.Text != "A red line." || result.IsError {
		s.Errorf("events: %+v", events)
	}
	if s.sub.Received != nil && !s.sub.Received("look at these") {
		s.Error("the text did not come with the pictures")
	}
	if s.sub.Shown != nil {
		if got, want := s.sub.Shown(), []string{"image/png", "image/jpeg", "image/gif"}; !slices.Equal(got, want) {
			s.Errorf("the model was shown %v, want %v", got, want)
		}
	}
	// a follow-up can bring one too
	again := provider.Input{ID: "again", Text: s.sub.Prompt(s.T, "and this", Step{Text: "The same."}), Attachments: []provider.Attachment{s.file("d.png", one)}}
	if err := r.Push(s.ctx, again); err != nil {
		s.Fatal(err)
	}
	if _, result := r.until(provider.Result); result.Text != "The same." {
		s.Errorf("result: %+v", result)
	}
	if s.sub.Shown != nil {
		if got := s.sub.Shown(); !slices.Equal(got, []string{"image/png"}) {
			s.Errorf("the model was shown %v with the follow-up", got)
		}
	}
	r.End()
	r.rest()
}

// badAttachments: what cannot be shown stays named in the text, and harms nothing; nothing blocks.
func badAttachments(s *session) {
	if !s.p.Caps().Attachments {
		s.Skip("shows no attachments")
	}
	big := append(picture(s, func(b *bytes.Buffer, m image.Image) error { return png.Encode(b, m) }), make([]byte, 12<<20)...)
	pipe := provider.Attachment{Name: "pipe.png", Path: filepath.Join(s.TempDir(), "pipe.png")}
	if err := syscall.Mkfifo(pipe.Path, 0o600); err != nil {
		s.Fatal(err)
	}
	in := s.input("", "", "look at these", Step{Text: "I see nothing."})
	in.Input.Attachments = []provider.Attachment{
		s.file("huge.png", big), pipe, {Name: "folder.png", Path: s.TempDir()}, {Name: "gone.png", Path: filepath.Join(s.TempDir(), "gone.png")},
		s.file("lie.png", []byte("no picture at all")), s.file("empty.png", nil), s.file("notes.txt", []byte("notes")),
		{Name: "far.png", URL: "https://example.org/far.png"}, {Name: "relative.png", Path: "relative.png"}, {},
	}
	q, err := s.p.Query(s.ctx, in)
	if err != nil {
		s.Fatal(err)
	}
	r := &running{session: s, Query: q}
	s.Cleanup(r.Abort)
	if _, result := r.until(provider.Result); result.Text != "I see nothing." || result.IsError {
		s.Errorf("result: %+v", result)
	}
	if s.sub.Shown != nil {
		if got := s.sub.Shown(); len(got) != 0 {
			s.Errorf("the model was shown %v", got)
		}
	}
	r.End()
	r.rest()
}

// activity: whoever watches the events knows that a tool still runs.
func activity(s *session) {
	if s.sub.Quiet == 0 {
		s.Skip("no limit is given")
	}
	r := s.start("", "", "wait", Step{Tool: "block", Args: `{}`}, Step{Text: "Awake."})
	r.until(provider.ToolStart)
	s.signal(s.tools.Blocked)
	last, end := time.Now(), time.Now().Add(4*s.sub.Quiet)
	for n := 0; time.Now().Before(end); {
		select {
		case e := <-r.Events():
			if e.Kind != provider.Activity {
				s.Errorf("while the tool runs: %+v", e)
			}
			last = time.Now()
			if n++; n > 1000 {
				s.Fatal("activity without a pause")
			}
		case <-time.After(time.Until(last.Add(s.sub.Quiet))):
			s.Fatalf("nothing for %s while a tool runs", s.sub.Quiet)
		}
	}
	s.tools.Release()
	if _, result := r.until(provider.Result); result.Text != "Awake." {
		s.Errorf("result: %+v", result)
	}
	r.End()
	r.rest()
}

const silence = 2 * time.Second

// watchdog: a model that says nothing any more ends its turn with an error that is worth a retry, and the conversation goes on.
func watchdog(s *session) {
	if s.sub.Watchdog == nil {
		s.Skip("has no watchdog")
	}
	s.p = s.sub.Watchdog(s.T, s.tools, silence)
	r := s.start("", "", "remember the word heron", Step{Text: "I will."})
	r.until(provider.Result)
	continuation := r.continuation()
	r.push("mute", "say something", Step{Silent: true})
	started, told := time.Now(), false
	for !told {
		e, ok := r.next()
		switch {
		case !ok: // the query may end instead
			told = true
			var failed *provider.QueryError
			if err := r.Err(); !errors.As(err, &failed) || !failed.Retryable || s.p.IsSessionInvalid(err) {
				s.Errorf("Err: %v", err)
			}
		case e.Kind == provider.Result:
			told = true
			if !e.IsError || !e.Retryable || e.Interrupted || e.Text != "" || e.Message == "" {
				s.Errorf("result: %+v", e)
			}
		}
	}
	if took := time.Since(started); took < silence/2 {
		s.Errorf("given up after %s", took)
	}
	r.Abort()
	r = s.start(continuation, "", "which word?", Step{Text: "Heron."})
	if _, result := r.until(provider.Result); result.Text != "Heron." {
		s.Errorf("after the silence: %+v", result)
	}
	if s.sub.Received != nil && !s.sub.Received("remember the word heron") {
		s.Error("the conversation was lost")
	}
	r.End()
	r.rest()
}

func toolIsNoSilence(s *session) {
	if s.sub.Watchdog == nil {
		s.Skip("has no watchdog")
	}
	s.p = s.sub.Watchdog(s.T, s.tools, silence)
	r := s.start("", "", "wait", Step{Tool: "block", Args: `{}`}, Step{Text: "Awake."})
	r.until(provider.ToolStart)
	s.signal(s.tools.Blocked)
	timer := time.AfterFunc(2*silence, s.tools.Release)
	defer timer.Stop()
	if _, result := r.until(provider.Result); result.Text != "Awake." || result.IsError {
		s.Errorf("result: %+v", result)
	}
	r.End()
	r.rest()
}

// spontaneous: results are never counted against prompts.
func spontaneous(s *session) {
	if s.sub.Spontaneous == nil {
		s.Skip("begins no turn by itself")
	}
	q, err := s.p.Query(s.ctx, provider.QueryInput{
		Input: provider.Input{ID: "first", Text: s.sub.Spontaneous(s.T, "start it", "It runs.", "It is done.")}, Cwd: s.sub.Cwd,
		MCP: []provider.MCPServer{s.tools.Server()},
	})
	if err != nil {
		s.Fatal(err)
	}
	r := &running{session: s, Query: q}
	s.Cleanup(r.Abort)
	if _, result := r.until(provider.Result); result.Text != "It runs." || result.IsError {
		s.Errorf("result: %+v", result)
	}
	events, result := r.until(provider.Result)
	if result.Text != "It is done." || texts(events) != "It is done." || result.IsError {
		s.Errorf("the turn nobody asked for: %+v", events)
	}
	if taken := of(provider.Taken, events); len(taken) != 0 {
		s.Errorf("it took a prompt: %+v", taken)
	}
	r.push("on", "and now?", Step{Text: "Nothing more."})
	if _, result := r.until(provider.Result); result.Text != "Nothing more." {
		s.Errorf("result: %+v", result)
	}
	r.End()
	r.rest()
}
