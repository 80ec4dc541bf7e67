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

// Keeper asks those who may decide. It returns after durable storage and does nothing for a key that it has had.
type Keeper interface {
	Hold(ctx context.Context, h Held) error
}

// Voice says the host's own words in a chat: durable on return, once per key.
type Voice interface {
	Say(ctx context.Context, d store.Destination, key, text string) error
}

// A person is declined, and an owner asked about a person or a chat, at most once in this time.
const quiet = 24 * time.Hour

// mostPerHour of such words in all: strangers cannot flood an owner (spec/host.md W54).
const mostPerHour = 30

const declined = "Sorry, I only talk with people I know. The owner was told that you wrote."

// hold asks about a sender or a chat, unless that was done within quiet.
func (r *Router) hold(ctx context.Context, h Held) error {
	h.Key = string(h.Kind) + "|" + h.Chat.Instance + "|" + h.Chat.PlatformID
	if h.Kind != HeldChat {
		h.Key += "|" + h.Sender.ID
	}
	return r.once(ctx, h.Key, func(key string) error {
		h.Key = key
		if h.Kind == HeldDeclined {
			to := store.Destination{Instance: h.Chat.Instance, PlatformID: h.Chat.PlatformID, ThreadID: h.Event.Address.ThreadID}
			if err := r.opt.Voice.Say(ctx, to, "decline|"+key, declined); err != nil {
				return err
			}
		}
		return r.opt.Keeper.Hold(ctx, h)
	})
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
