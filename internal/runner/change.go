package runner

import (
	"context"
	"fmt"
	"time"

	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/runner/tool"
)

// How long an edit or reaction waits until the host has said what the platform calls a message, and how often it looks.
const (
	deliveredPatience = 5 * time.Second
	deliveredPause    = 50 * time.Millisecond
)

// target is the message that a change is about.
type target struct {
	mailbox.Address
	platformID string // empty: the platform has not named it yet
	own        bool
}

// Change implements tool.Session. A message that was sent a moment ago is waited for.
func (r *Runner) Change(ctx context.Context, c tool.Change) (tool.Sent, error) {
	content := mailbox.ChatOut{Operation: "edit", Text: c.Text}
	if c.Emoji != "" {
		content = mailbox.ChatOut{Operation: "reaction", Emoji: c.Emoji}
	}
	var sent tool.Sent
	pending := true
	change := func(ctx context.Context) error {
		at, name, err := r.target(ctx, c)
		if err != nil {
			return err
		}
		if pending = at.platformID == ""; pending {
			return nil
		}
		content.MessageID = at.platformID
		row := mailbox.OutRow{Kind: mailbox.KindChat, Address: at.Address}
		if row.Content, err = mailbox.EncodeContent(content); err != nil {
			return err
		}
		if err := r.segment(ctx); err != nil {
			return err
		}
		sent, err = r.once(ctx, row, name)
		return err
	}
	patience := time.NewTimer(deliveredPatience)
	defer patience.Stop()
	look := time.NewTicker(deliveredPause)
	defer look.Stop()
	for {
		if err := r.run(ctx, change, nil); err != nil {
			return tool.Sent{}, err
		}
		if !pending {
			return sent, nil
		}
		select {
		case <-look.C:
		case <-patience.C:
			return tool.Sent{}, fmt.Errorf("message %d is not delivered yet; nothing was changed, try again later", c.Message)
		case <-ctx.Done():
			return tool.Sent{}, ctx.Err()
		}
	}
}

// target finds the message of a number: its place, which must still be a destination, and the platform's id of it. Only the
// agent's own messages can be edited (spec/runner.md W22).
func (r *Runner) target(ctx context.Context, c tool.Change) (target, string, error) {
	at, err := r.message(ctx, c.Message)
	if err != nil {
		return at, "", err
	}
	if c.Emoji == "" && !at.own {
		return at, "", refuse(fmt.Errorf("message %d is not one of yours: only your own messages can be edited", c.Message))
	}
	d, ok, err := r.opt.Mailbox.DestinationFor(ctx, at.Address)
	if err != nil {
		return at, "", fmt.Errorf("look destination up: %w", err)
	}
	if !ok {
		return at, "", refuse(fmt.Errorf("message %d belongs to a chat that is none of your destinations", c.Message))
	}
	return at, d.Name, nil
}

func (r *Runner) message(ctx context.Context, seq int64) (target, error) {
	in, ok, err := r.opt.Mailbox.InBySeq(ctx, seq)
	if err != nil {
		return target{}, fmt.Errorf("look message up: %w", err)
	}
	if ok {
		if in.Kind != mailbox.KindChat && in.Kind != mailbox.KindChatSDK || !chat(in.Address) {
			return target{}, refuse(fmt.Errorf("number %d is no message of a chat", seq))
		}
		if in.PlatformMessageID == "" {
			return target{}, refuse(fmt.Errorf("message %d has no name on its platform, so nothing can be done to it", seq))
		}
		return target{Address: in.Address, platformID: in.PlatformMessageID}, nil
	}
	out, ok, err := r.opt.Mailbox.OutBySeq(ctx, seq)
	if err != nil {
		return target{}, fmt.Errorf("look message up: %w", err)
	}
	if !ok || out.Kind != mailbox.KindChat || !chat(out.Address) {
		return target{}, refuse(fmt.Errorf("there is no message with the number %d", seq))
	}
	d, said, err := r.opt.Mailbox.Delivered(ctx, out.ID)
	switch {
	case err != nil:
		return target{}, fmt.Errorf("look delivery up: %w", err)
	case said && d.PlatformMessageID == "":
		return target{}, refuse(fmt.Errorf("message %d was not delivered (%s), so nothing can be done to it", seq, d.Status))
	}
	return target{Address: out.Address, platformID: d.PlatformMessageID, own: true}, nil
}
