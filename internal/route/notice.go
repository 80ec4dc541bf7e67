package route

import (
	"context"
	"errors"
	"time"

	"nanoclaw/internal/channel"
	"nanoclaw/internal/id"
	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/obs"
	"nanoclaw/internal/store"
)

// HeldKind says what somebody has to decide or to know.
type HeldKind string

// Kinds of what is held.
const (
	HeldSender   HeldKind = "sender"   // a stranger in a wired chat: let in or not
	HeldChat     HeldKind = "chat"     // a chat without an agent: connect it or not
	HeldDeclined HeldKind = "declined" // a stranger was declined: nothing to decide
)

// Held is an event that was not stored because somebody has to decide first.
type Held struct {
	Key    string // the same for the same question
	Kind   HeldKind
	Chat   store.MessagingGroup
	Sender channel.Sender
	Agents []id.AgentGroup // that the event was for
	Event  channel.Inbound // as it came, for Replay once it is decided
}

// Keeper keeps what is held and asks those who may decide.
type Keeper interface {
	// Hold returns after durable storage; the same event again changes nothing. decided: there is nothing to decide any more, the
	// event was not kept and is to be routed again.
	Hold(ctx context.Context, h Held) (decided bool, err error)
}

// Grant is what was decided about a held event and does not stand in the central store until all that is held is routed.
type Grant struct {
	Members []id.AgentGroup // agents that the sender may talk to
	Wiring  *store.Wiring   // of the event's chat
}

// Voice says the host's own words in a chat: durable on return, once per key.
type Voice interface {
	Say(ctx context.Context, d store.Destination, key, text string) error
}

// A person is declined at most once in this time.
const quiet = 24 * time.Hour

// mostPerHour of such words in all: strangers cannot flood an owner (spec/host.md W54).
const mostPerHour = 30

// errDecided: an event that was to be held is to be routed again.
var errDecided = errors.New("it was decided while the event was routed")

const declined = "Sorry, I only talk with people I know. The owner was told that you wrote."

// hold asks about a sender or a chat. That a sender was declined is told once within quiet.
func (r *Router) hold(ctx context.Context, h Held) error {
	h.Key = string(h.Kind) + "|" + h.Chat.Instance + "|" + h.Chat.PlatformID + "|" + h.Sender.ID
	if h.Kind != HeldDeclined {
		return r.keep(ctx, h)
	}
	return r.once(ctx, h.Key, func(key string) error {
		h.Key = key
		to := store.Destination{Instance: h.Chat.Instance, PlatformID: h.Chat.PlatformID, ThreadID: h.Event.Address.ThreadID}
		if err := r.opt.Voice.Say(ctx, to, "decline|"+key, declined); err != nil {
			return err
		}
		return r.keep(ctx, h)
	})
}

func (r *Router) keep(ctx context.Context, h Held) error {
	decided, err := r.opt.Keeper.Hold(ctx, h)
	if err == nil && decided {
		return errDecided
	}
	return err
}

// once does something that must not be done again within quiet. say gets a key that is the same until it was done, so that a
// crash in between repeats nothing.
func (r *Router) once(ctx context.Context, what string, say func(key string) error) error {
	now := r.opt.Now()
	last, err := r.opt.Store.LastTold(ctx, what)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	if at, err := mailbox.ParseTime(last); err == nil && !at.IsZero() && now.Sub(at) < quiet {
		return nil
	}
	told, err := r.opt.Store.ToldSince(ctx, mailbox.FormatTime(now.Add(-time.Hour)))
	if err != nil {
		return err
	}
	if told >= mostPerHour {
		r.log.Warn("nobody is told: too many strangers within an hour", obs.KeyReason, what)
		return nil
	}
	if err := say(what + "|" + last); err != nil {
		return err
	}
	return r.opt.Store.Told(ctx, what, mailbox.FormatTime(now))
}
