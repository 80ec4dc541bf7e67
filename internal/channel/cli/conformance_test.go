package cli

import (
	"context"
	"errors"
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
		Rig: func(*testing.T) channeltest.Rig { return &rig{} },
		New: func(t *testing.T, r channeltest.Rig) channel.Adapter {
			a := New("ann", "Ann", t.TempDir())
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
type rig struct{ adapter *Adapter }

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
				out = append(out, channeltest.Seen{ID: e.ID, Text: e.Text})
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

func (r *rig) last(ctx context.Context, place channel.Address) int64 {
	h, err := r.adapter.History(ctx, place.PlatformID, 0, 0)
	if err != nil {
		return -1
	}
	return h.Last
}
