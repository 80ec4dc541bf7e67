package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"testing"

	"go.uber.org/goleak"

	"nanoclaw/internal/channel"
	"nanoclaw/internal/channel/channeltest"
	"nanoclaw/internal/control"
	"nanoclaw/internal/id"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	t.Parallel()
	channeltest.Run(t, channeltest.Subject{
		Rig: func(t *testing.T) channeltest.Rig { return &rig{files: t.TempDir()} },
		New: func(_ *testing.T, r channeltest.Rig) channel.Adapter {
			a := New("ann", "Ann", r.(*rig).files)
			r.(*rig).adapter = a
			return a
		},
		Profile: channeltest.Profile{
			Info:    channel.Info{Type: "cli", Instance: "cli", Caps: channel.Caps{Edit: true, React: true, Buttons: true, Cards: true, Files: true, Idempotent: true}},
			Sender:  "cli:ann",
			Unknown: channel.Address{PlatformID: "cli:../up"},
		},
	})
}

// rig is a person with a client: it sends a message again, under the same id, until it is accepted.
type rig struct {
	adapter *Adapter
	files   string // outlives adapters, as the store does
}

func (r *rig) Place(n int) channel.Address {
	return channel.Address{PlatformID: "cli:place" + string(rune('a'+n/26)) + string(rune('a'+n%26))}
}

func (r *rig) Say(ctx context.Context, place channel.Address, text string) (string, error) {
	event := id.New(id.PrefixMessage)
	return event, r.Redeliver(ctx, place, event, text)
}

func (r *rig) Redeliver(ctx context.Context, place channel.Address, event, text string) error {
	for {
		_, err := r.adapter.Say(ctx, place.PlatformID, control.Say{ID: event, Text: text})
		if !errors.Is(err, channeltest.ErrStore) {
			return err
		}
	}
}

var errEnough = errors.New("enough")

func (r *rig) Seen(ctx context.Context, place channel.Address, n int) ([]channeltest.Seen, error) {
	var out []channeltest.Seen
	err := r.adapter.Events(ctx, place.PlatformID, 0, func(events []control.Event) error {
		for _, e := range events {
			switch {
			case e.Kind == control.EventMessage && e.Author == control.AuthorAgent:
				seen := channeltest.Seen{ID: e.ID, Text: e.Text}
				if e.Question != nil {
					for _, o := range e.Question.Options {
						seen.Options = append(seen.Options, o.Label)
					}
				}
				for _, f := range e.Files {
					content, err := r.read(ctx, place, e.ID, f)
					if err != nil {
						return err
					}
					seen.Files = append(seen.Files, channeltest.SeenFile{Name: f.Name, Content: content})
				}
				out = append(out, seen)
			case e.Kind == control.EventAnswer:
				for i := range out {
					if out[i].ID == e.Target {
						out[i].Options, out[i].Chosen = nil, e.Text
					}
				}
			case e.Kind == control.EventEdit || e.Kind == control.EventReaction:
				for i := range out {
					if out[i].ID == e.Target && e.Kind == control.EventEdit {
						out[i].Text = e.Text
					} else if out[i].ID == e.Target {
						out[i].Reactions = append(out[i].Reactions, e.Emoji)
					}
				}
			}
			if e.Seq > 0 && e.Seq == r.last(ctx, place) && len(out) >= n {
				return errEnough
			}
		}
		return nil
	})
	if !errors.Is(err, errEnough) {
		return nil, err
	}
	return out, nil
}

// read gives the bytes of a file: those that are served and those at its path must be the same.
func (r *rig) read(ctx context.Context, place channel.Address, entry string, f control.File) (string, error) {
	src, size, err := r.adapter.File(ctx, place.PlatformID, entry, f.Name)
	if err != nil {
		return "", err
	}
	defer func() { _ = src.Close() }()
	served, err := io.ReadAll(src)
	if err != nil {
		return "", err
	}
	kept, err := os.ReadFile(f.Path)
	if err == nil && (string(kept) != string(served) || size != f.Size || int64(len(kept)) != size) {
		err = fmt.Errorf("%s: %d bytes are served as %d, %d are kept, the event says %d", f.Name, len(served), size, len(kept), f.Size)
	}
	return string(served), err
}

func (r *rig) Press(ctx context.Context, place channel.Address, question channeltest.Seen, option int) (string, error) {
	h, err := r.adapter.History(ctx, place.PlatformID, 0, 100)
	if err != nil {
		return "", err
	}
	for _, e := range h.Events {
		if e.ID != question.ID || e.Question == nil {
			continue
		}
		for {
			_, err := r.adapter.Answer(ctx, place.PlatformID, control.Answer{Question: e.Question.ID, Value: e.Question.Options[option].Value})
			switch {
			case errors.Is(err, channeltest.ErrStore):
				continue
			case control.IsCode(err, control.CodeConflict):
				return err.Error(), nil
			}
			return "", err
		}
	}
	return "", errors.New("there is no such question")
}

func (r *rig) last(ctx context.Context, place channel.Address) int64 {
	h, err := r.adapter.History(ctx, place.PlatformID, 0, 0)
	if err != nil {
		return -1
	}
	return h.Last
}
