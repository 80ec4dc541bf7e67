package server

import (
	"errors"
	"io"
	"strings"
	"testing"

	"nanoclaw/internal/control"
)

func TestAnswersAndFiles(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	big := strings.Repeat("0123456789abcdef", 3*filePiece/16) + "end"
	const odd = "Ü «x» 100%#?.bin"
	f := &fakeHost{files: map[string]string{"cli:local|out-1|" + odd: "a\x00b", "cli:work|out-2|big": big, "cli:local|out-1|empty": ""}}
	t.Cleanup(serve(t, home, f, Options{}))
	c := client(t, home)
	for i := range 2 {
		got, err := c.Answer(t.Context(), "cli:local", control.Answer{Question: "led-1", Value: "y"})
		if err != nil || got.Duplicate != (i == 1) {
			t.Errorf("answer %d: %+v, %v", i, got, err)
		}
	}
	if len(f.answers) != 2 || f.answers[0] != (control.Answer{Question: "led-1", Value: "y"}) {
		t.Errorf("the host got %+v", f.answers)
	}
	for name, want := range map[[3]string]string{{"cli:local", "out-1", odd}: "a\x00b", {"cli:work", "out-2", "big"}: big, {"cli:local", "out-1", "empty"}: ""} {
		r, size, err := c.File(t.Context(), name[0], name[1], name[2])
		if err != nil {
			t.Fatalf("%q: %v", name, err)
		}
		got, err := io.ReadAll(r)
		if err != nil || string(got) != want || size != int64(len(want)) {
			t.Errorf("%q: %d bytes (%d), want %d; %v", name, len(got), size, len(want), err)
		}
		_ = r.Close()
	}
	for _, name := range [][3]string{{"cli:local", "out-1", "no"}, {"cli:local", "../x", odd}, {"cli:local", "out-1", "../" + odd}, {"cli:local", "out-1", "a/b"}} {
		if _, _, err := c.File(t.Context(), name[0], name[1], name[2]); !control.IsCode(err, control.CodeNotFound) {
			t.Errorf("%q: %v", name, err)
		}
	}
	if _, _, err := c.File(t.Context(), "cli:../x", "out-1", odd); !control.IsCode(err, control.CodeInvalid) {
		t.Errorf("a conversation that is none: %v", err)
	}
	f.err = &control.Error{Code: control.CodeConflict, Message: "this question is no longer open"}
	if _, err := c.Answer(t.Context(), "cli:local", control.Answer{Question: "led-1", Value: "y"}); !control.IsCode(err, control.CodeConflict) || !strings.Contains(err.Error(), "no longer open") {
		t.Errorf("a refusal: %v", err)
	}
}

func TestBadAnswers(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	f := &fakeHost{}
	t.Cleanup(serve(t, home, f, Options{}))
	c := client(t, home)
	for field, a := range map[string]control.Answer{"question": {Question: "../x", Value: "y"}, "value": {Question: "led-1"}} {
		_, err := c.Answer(t.Context(), "cli:local", a)
		var e *control.Error
		if !errors.As(err, &e) || e.Code != control.CodeInvalid || e.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	if len(f.answers) != 0 {
		t.Errorf("the host got %+v", f.answers)
	}
}

// The client notices a file that ends too early: the host died, or the file was cut.
func TestFileThatEndsEarly(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	f := &fakeHost{files: map[string]string{"cli:local|out-1|x": "half of it"}, cut: 10}
	t.Cleanup(serve(t, home, f, Options{}))
	r, _, err := client(t, home).File(t.Context(), "cli:local", "out-1", "x")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(r); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("%v, want an unexpected end", err)
	}
	_ = r.Close()
}
