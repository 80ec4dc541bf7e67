package docker

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/moby/moby/client"

	"nanoclaw/internal/id"
)

// script is what a builder sends: each string one message of the stream.
func script(t testing.TB, last string, lines ...string) io.Reader {
	t.Helper()
	var b strings.Builder
	enc := json.NewEncoder(&b)
	for _, l := range lines {
		if err := enc.Encode(map[string]string{"stream": l}); err != nil {
			t.Fatal(err)
		}
	}
	b.WriteString(last)
	return strings.NewReader(b.String())
}

// steady is a clock that moves a second at each look.
func steady() func() time.Time {
	at := time.Unix(0, 0)
	return func() time.Time {
		at = at.Add(time.Second)
		return at
	}
}

func TestFollow(t *testing.T) {
	t.Parallel()
	var got []Step
	err := follow(script(t, `{"aux":{"ID":"sha256:1"}}`,
		"Step 1/3 : ARG BASE=x\n", " ---> 11\n",
		"Step 2/3 : RUN  a &&     b\n", " ---> Using cache\n", " ---> 22\n",
		"[2/2] ST", "EP 3/3: COPY c d\n", "noise",
	), steady(), func(s Step) { got = append(got, s) })
	if err != nil {
		t.Fatal(err)
	}
	want := []Step{
		{N: 1, Of: 3, Text: "ARG BASE=x"}, {N: 1, Of: 3, Text: "ARG BASE=x", Done: true, Elapsed: time.Second},
		{N: 2, Of: 3, Text: "RUN a && b"}, {N: 2, Of: 3, Text: "RUN a && b", Done: true, Cached: true, Elapsed: time.Second},
		{N: 3, Of: 3, Stage: "2/2", Text: "COPY c d"}, {N: 3, Of: 3, Stage: "2/2", Text: "COPY c d", Done: true, Elapsed: time.Second},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestFollowFailure(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		stream io.Reader
		want   []string
	}{
		"step": {script(t, `{"error":"x","errorDetail":{"message":"The command '/bin/sh -c make' returned a non-zero code: 2"}}`,
			"Step 1/2 : RUN make\n", " ---> Running in 1\n", "\x1b[91mno rule\x1b[0m\n", "10%\r20%\n", "\x1b[0mRemoving intermediate container 1\n"),
			[]string{"step 1/2 failed (RUN make): exit code 2", "\n  no rule\n  20%"}},
		"broken connection": {script(t, "", "Step 1/2 : RUN make\n"), []string{"step 1/2", "without an image"}},
		"no JSON":           {strings.NewReader("<html>"), []string{"read the daemon's messages"}},
		"empty":             {strings.NewReader(""), []string{"without an image"}},
	} {
		err := follow(c.stream, steady(), func(Step) {})
		var failed *BuildError
		if !errors.As(err, &failed) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, w := range c.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %q lacks %q", name, err, w)
			}
		}
		if strings.Contains(err.Error(), "\x1b") || strings.Contains(err.Error(), "Removing") {
			t.Errorf("%s: noise in %q", name, err)
		}
	}
}

func FuzzFollow(f *testing.F) {
	f.Add(`{"stream":"Step 1/2 : RUN make\n"}{"aux":{"ID":"x"}}`)
	f.Add(`{"stream":"Step 9999/1 : \u001b[0m\r\r\n"}{"errorDetail":{"message":"exit status 1"}}`)
	f.Fuzz(func(t *testing.T, stream string) {
		open := false
		err := follow(strings.NewReader(stream), steady(), func(s Step) {
			if s.N != 0 && s.Done != open {
				t.Errorf("step %+v ends or begins out of turn", s)
			}
			open = s.N != 0 && !s.Done
			if len(s.Text) > textLimit+len(" …") {
				t.Errorf("an instruction of %d bytes", len(s.Text))
			}
		})
		if err == nil && open {
			t.Error("a build that succeeded leaves a step open")
		}
		var failed *BuildError
		if err != nil && (!errors.As(err, &failed) || len(failed.Lines) > errorLines) {
			t.Errorf("error %v", err)
		}
	})
}

func TestBuild(t *testing.T) {
	t.Parallel()
	r, install := daemon(t)
	tag := "nanoclaw-built:" + install
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_, _ = r.api.ImageRemove(ctx, tag, client.ImageRemoveOptions{Force: true, PruneChildren: true})
	})
	dockerfile := "ARG BASE\nFROM ${BASE}\nARG TARGETARCH\nARG WORD\nRUN echo $WORD-$TARGETARCH >/word && test $(dpkg --print-architecture) = $TARGETARCH\nCOPY sub/file /copied\n"
	opt := BuildOptions{
		Files: map[string][]byte{"Dockerfile": []byte(dockerfile), "sub/file": []byte("content\n")},
		Tags:  []string{tag}, Network: "none", Args: map[string]string{"BASE": testImage, "WORD": id.New("word")},
	}
	var steps []Step
	if err := r.Build(deadline(t), opt, func(s Step) { steps = append(steps, s) }); err != nil {
		t.Fatal(err)
	}
	if len(steps) == 0 || len(steps)%2 != 0 || !steps[len(steps)-1].Done || !strings.HasPrefix(steps[len(steps)-1].Text, "COPY") {
		t.Errorf("steps %+v", steps)
	}
	spec, dir := shell(t, install, "cat /word /copied >/workspace/out/up")
	spec.Image = tag
	h := start(t, r, spec)
	if exit, err := h.Wait(deadline(t)); err != nil || exit.Code != 0 {
		t.Fatalf("%+v, %v", exit, err)
	}
	if got := readFile(t, dir+"/out/up"); !strings.HasPrefix(got, opt.Args["WORD"]+"-") || !strings.HasSuffix(got, "\ncontent\n") {
		t.Errorf("the image holds %q", got)
	}

	opt.Files["Dockerfile"] = []byte("ARG BASE\nFROM ${BASE}\nRUN echo the reason >&2; exit 7\n")
	err := r.Build(deadline(t), opt, func(Step) {})
	var failed *BuildError
	if !errors.As(err, &failed) || !strings.Contains(failed.Step.Text, "exit 7") || !strings.Contains(err.Error(), "exit code 7") ||
		!strings.Contains(strings.Join(failed.Lines, "\n"), "the reason") {
		t.Errorf("a failing step: %v", err)
	}
	if _, err := r.api.ImageInspect(deadline(t), tag); err != nil {
		t.Errorf("the image there was is gone: %v", err)
	}

	opt.Files["Dockerfile"] = []byte("ARG BASE\nFROM ${BASE}\nRUN sleep 300\n")
	ctx, cancel := context.WithCancel(deadline(t))
	err = r.Build(ctx, opt, func(s Step) {
		if strings.Contains(s.Text, "sleep") {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled build: %v", err)
	}
}
