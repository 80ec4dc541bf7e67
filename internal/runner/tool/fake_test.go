package tool

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"

	"nanoclaw/internal/control"
)

// fake is a session that notes what the tools do to it.
type fake struct {
	mu     sync.Mutex
	did    []any             // Message, Change, Question, Card, json.RawMessage, command
	bodies map[string]string // of files, by name
	answer string            // of a question; empty: that of the first option
	frame  control.Frame
	err    error // of every method
}

type command struct {
	Name string
	Args map[string]string // as JSON
}

func (f *fake) note(v any) (Sent, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return Sent{}, f.err
	}
	f.did = append(f.did, v)
	return Sent{To: "me", Seq: int64(2*len(f.did) + 1)}, nil
}

func (f *fake) Send(_ context.Context, m Message) (Sent, error) {
	if m.To != "me" {
		return Sent{}, &UnknownDestination{Name: m.To, Known: []string{"me"}}
	}
	for _, file := range m.Files {
		r, err := file.Open()
		if err != nil {
			return Sent{}, err
		}
		b, err := io.ReadAll(io.LimitReader(r, file.Size))
		if err = errors.Join(err, r.Close()); err != nil {
			return Sent{}, err
		}
		f.mu.Lock()
		if f.bodies == nil {
			f.bodies = map[string]string{}
		}
		f.bodies[file.Name] = string(b)
		f.mu.Unlock()
	}
	return f.note(m)
}

func (f *fake) Change(_ context.Context, c Change) (Sent, error) { return f.note(c) }

func (f *fake) Ask(_ context.Context, q Question) (string, error) {
	if _, err := f.note(q); err != nil {
		return "", err
	}
	if f.answer != "" {
		return f.answer, nil
	}
	return q.Options[0].Value, nil
}

func (f *fake) Show(_ context.Context, c Card) (Sent, error) { return f.note(c) }

func (f *fake) Request(_ context.Context, action json.RawMessage) (string, error) {
	_, err := f.note(action)
	return "req-1", err
}

func (f *fake) Admin(_ context.Context, name string, args map[string]json.RawMessage) (control.Frame, error) {
	c := command{Name: name, Args: map[string]string{}}
	for key, v := range args {
		c.Args[key] = string(v)
	}
	if _, err := f.note(c); err != nil {
		return control.Frame{}, err
	}
	if f.frame.OK || f.frame.Error != nil {
		return f.frame, nil
	}
	return control.Frame{OK: true, Human: "as you wish"}, nil
}

// last is the newest thing that was done, and how many there are.
func (f *fake) last() (any, int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.did) == 0 {
		return nil, 0
	}
	return f.did[len(f.did)-1], len(f.did)
}

// call runs a tool over a fresh session.
func call(t *testing.T, name, args string) (*fake, string, error) {
	t.Helper()
	f := &fake{}
	got, err := New(Options{Session: f, Cwd: t.TempDir()}).Call(t.Context(), name, json.RawMessage(args))
	return f, got, err
}

// refused fails the test unless err says want and nothing was done.
func refused(t *testing.T, f *fake, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %q", err, want)
	}
	if did, n := f.last(); n != 0 {
		t.Errorf("did %+v", did)
	}
}
