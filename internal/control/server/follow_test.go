package server

import (
	"context"
	"errors"
	"testing"
	"time"

	"nanoclaw/internal/control"
)

func entry(seq int64) control.Event {
	return control.Event{Seq: seq, Kind: control.EventMessage, Author: control.AuthorAgent, ID: "x", Text: "t"}
}

func hello(cursor, last int64) control.Event {
	return control.Event{Kind: control.EventHello, Hello: &control.Hello{Cursor: cursor, Last: last}}
}

func TestFollowGoesOnBehindTheLastEventAfterARestart(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	f := &fakeHost{events: make(chan []control.Event), after: make(chan int64, 10)}
	stop := serve(t, home, f, Options{})
	c := client(t, home)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	got := make(chan control.Event, 100)
	ended := make(chan error, 1)
	go func() {
		ended <- c.Follow(ctx, "cli:local", control.FromCursor, func(e control.Event) error {
			got <- e
			return nil
		})
	}()
	if after := <-f.after; after != control.FromCursor {
		t.Errorf("the first stream starts at %d", after)
	}
	f.events <- []control.Event{hello(4, 6)}
	f.events <- []control.Event{entry(5), entry(6)}
	for _, want := range []int64{0, 5, 6} {
		if e := <-got; e.Seq != want {
			t.Errorf("got %+v, want entry %d", e, want)
		}
	}
	stop()
	if e := <-got; e.Kind != control.EventLost || e.Reason == "" {
		t.Errorf("the outage shows as %+v", e)
	}
	stop = serve(t, home, f, Options{})
	if after := <-f.after; after != 6 {
		t.Errorf("the stream goes on at %d, want 6", after)
	}
	f.events <- []control.Event{hello(4, 7), entry(7)}
	if e := <-got; e.Kind != control.EventHello {
		t.Errorf("got %+v, want a hello", e)
	}
	if e := <-got; e.Seq != 7 {
		t.Errorf("got %+v", e)
	}
	cancel()
	if err := <-ended; !control.IsCode(err, control.CodeCancelled) {
		t.Errorf("follow ended with %v", err)
	}
	stop()
}

func TestFollowKeepsTheCursorOfAnIdleStream(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	f := &fakeHost{events: make(chan []control.Event), after: make(chan int64, 10)}
	stop := serve(t, home, f, Options{})
	enough := errors.New("enough")
	hellos := 0
	ended := make(chan error, 1)
	go func() {
		ended <- client(t, home).Follow(t.Context(), "cli:local", control.FromCursor, func(e control.Event) error {
			if e.Kind == control.EventHello {
				hellos++
			}
			if hellos == 2 {
				return enough
			}
			return nil
		})
	}()
	<-f.after
	f.events <- []control.Event{hello(9, 9)}
	stop()
	serve(t, home, f, Options{})
	if after := <-f.after; after != 9 {
		t.Errorf("after a restart the stream starts at %d, want the position it had, 9", after)
	}
	f.events <- []control.Event{hello(9, 9)}
	if err := <-ended; !errors.Is(err, enough) {
		t.Errorf("follow ended with %v", err)
	}
}

func TestFollowEndsOnWhatNoRepetitionCures(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	serve(t, home, &fakeHost{err: control.Invalid("x", "y")}, Options{})
	err := client(t, home).Follow(t.Context(), "cli:local", 0, func(e control.Event) error {
		t.Errorf("got %+v", e)
		return nil
	})
	if !control.IsCode(err, control.CodeInvalid) {
		t.Errorf("follow ended with %v", err)
	}
}

func TestRepeatReachesAHostThatComesLater(t *testing.T) {
	t.Parallel()
	home, f := t.TempDir(), &fakeHost{}
	c := client(t, home)
	tries := 0
	err := control.Repeat(t.Context(), func(ctx context.Context) error {
		if tries++; tries == 2 {
			serve(t, home, f, Options{})
		}
		_, err := c.Say(ctx, "cli:local", control.Say{ID: "a", Text: "b"})
		if tries == 1 && !control.IsCode(err, control.CodeUnreachable) {
			t.Errorf("without a host: %v", err)
		}
		return err
	})
	if err != nil || tries != 2 || len(f.said) != 1 {
		t.Errorf("after %d tries: %v, %d messages", tries, err, len(f.said))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Millisecond)
	defer cancel()
	nobody := client(t, t.TempDir())
	if err := control.Repeat(ctx, func(ctx context.Context) error {
		_, err := nobody.Status(ctx)
		return err
	}); err == nil {
		t.Error("a host that never comes was reached")
	}
}
