package providertest

import (
	"bytes"
	"image"
	"image/color"
	"image/gif"
	"image/jpeg"
	"image/png"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"nanoclaw/internal/provider"
)

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
		want := []string{"image/png", "image/jpeg", "image/gif"}
		for i, kind := range want {
			if other, ok := s.sub.Recodes[kind]; ok {
				want[i] = other
			}
		}
		if got := s.sub.Shown(); !slices.Equal(got, want) {
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
