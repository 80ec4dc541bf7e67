package runner

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"nanoclaw/internal/crashpoint"
	"nanoclaw/internal/id"
	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/obs"
	"nanoclaw/internal/runner/tool"
	"nanoclaw/internal/runner/turn"
)

// The loop is the session that the tools work on.
var _ tool.Session = (*Runner)(nil)

// prefixRequest is the prefix of the ids of what the host is asked for.
const prefixRequest = "req"

// errNoChat refuses what only a person in a chat could see.
var errNoChat = errors.New("this session has no chat to show it in")

// Send implements tool.Session. The files are durable before the row that names them.
func (r *Runner) Send(ctx context.Context, m tool.Message) (tool.Sent, error) {
	rowID := id.New(id.PrefixMessage)
	for _, f := range m.Files {
		if err := r.attach(ctx, rowID, f); err != nil {
			r.detach(rowID)
			return tool.Sent{}, err
		}
	}
	var undo func()
	if len(m.Files) > 0 {
		undo = func() { r.detach(rowID) }
	}
	var sent tool.Sent
	err := r.run(ctx, func(ctx context.Context) (err error) {
		sent, err = r.sendNow(ctx, rowID, m)
		return err
	}, undo)
	if err != nil {
		return tool.Sent{}, err
	}
	return sent, nil
}

func (r *Runner) attach(ctx context.Context, rowID string, f tool.File) error {
	src, err := f.Open()
	if err != nil {
		return fmt.Errorf("open %q: %w", f.Name, err)
	}
	err = r.opt.Mailbox.PutOutBlob(ctx, rowID, f.Name, src, f.Size)
	return errors.Join(err, src.Close())
}

func (r *Runner) detach(rowID string) {
	if err := r.opt.Mailbox.DropOutBlobs(rowID); err != nil {
		r.log.Warn("files that were not sent after all stay in the outbox", obs.KeyMessage, rowID, obs.Error(err))
	}
}

func (r *Runner) sendNow(ctx context.Context, rowID string, m tool.Message) (tool.Sent, error) {
	row, err := r.rowTo(ctx, m.To)
	if err != nil {
		return tool.Sent{}, err
	}
	files := make([]string, 0, len(m.Files))
	for _, f := range m.Files {
		files = append(files, f.Name)
	}
	if r.running != nil {
		if said, ok := r.running.RepeatsEarlier(row.Address, m.Text, files...); ok {
			r.log.Info("a message that was sent before the restart is not sent again", obs.KeyExchange, r.running.ID(), obs.KeyDestination, m.To)
			r.detach(rowID)
			return tool.Sent{To: m.To, Seq: said.Seq}, nil
		}
	}
	row.ID = rowID
	if row.Content, err = mailbox.EncodeContent(mailbox.ChatOut{Text: m.Text, Files: files}); err != nil {
		return tool.Sent{}, err
	}
	return r.leave(ctx, row, m.To)
}

// rowTo is a row for a named destination. What the model has said before the tool call leaves first.
func (r *Runner) rowTo(ctx context.Context, name string) (mailbox.OutRow, error) {
	d, ok, err := r.opt.Mailbox.Destination(ctx, name)
	if err != nil {
		return mailbox.OutRow{}, fmt.Errorf("look destination up: %w", err)
	}
	if !ok {
		names, err := r.known(ctx)
		if err != nil {
			return mailbox.OutRow{}, err
		}
		return mailbox.OutRow{}, refuse(&tool.UnknownDestination{Name: name, Known: names})
	}
	if err := r.segment(ctx); err != nil {
		return mailbox.OutRow{}, err
	}
	return r.address(ctx, r.running, d)
}

// segment ends the segment of the running exchange, as a tool call does.
func (r *Runner) segment(ctx context.Context) error {
	if r.running == nil {
		return nil
	}
	rows, err := r.gate(ctx, r.running, r.running.Segment())
	if err != nil {
		return err
	}
	return r.write(ctx, rows)
}

// leave writes a row of a tool.
func (r *Runner) leave(ctx context.Context, row mailbox.OutRow, name string) (tool.Sent, error) {
	ex := r.speaker()
	if ex != nil && row.Exchange == "" {
		row.Exchange = ex.ID()
	}
	row, err := r.opt.Mailbox.Write(ctx, row)
	if err != nil {
		return tool.Sent{}, fmt.Errorf("write message: %w", err)
	}
	crashpoint.Hit("runner.block")
	r.opt.Bell.Ring()
	if ex != nil {
		ex.Left(row, true)
	} else if r.q != nil {
		r.loose = append(r.loose, row)
	}
	return tool.Sent{To: name, Seq: row.Seq}, nil
}

// speaker is the exchange that a call of a tool belongs to: the running one; else the one that begins next, since its call may
// overtake its first event; else one whose turn has just ended and that is asked again, since a call may arrive behind the
// result of its turn.
func (r *Runner) speaker() *turn.Exchange {
	switch {
	case r.running != nil:
		return r.running
	case len(r.waiting) > 0:
		return r.waiting[0].exchange
	case r.last != nil && r.last.State() == turn.Claimed:
		return r.last
	}
	return nil
}

// once writes a row of a tool unless an earlier incarnation of the exchange has written the same.
func (r *Runner) once(ctx context.Context, row mailbox.OutRow, name string) (tool.Sent, error) {
	if r.running != nil {
		same := func(o mailbox.OutRow) bool {
			return o.Kind == row.Kind && o.Address == row.Address && bytes.Equal(o.Content, row.Content)
		}
		if done, ok := r.running.Earlier(same); ok {
			r.log.Info("what was done before the restart is not done again", obs.KeyExchange, r.running.ID(), obs.KeyMessage, done.ID)
			return tool.Sent{To: name, Seq: done.Seq}, nil
		}
	}
	return r.leave(ctx, row, name)
}

// Show implements tool.Session.
func (r *Runner) Show(ctx context.Context, c tool.Card) (tool.Sent, error) {
	content, err := mailbox.EncodeContent(mailbox.CardOut{Type: mailbox.TypeCard, Card: c.Card, Fallback: c.Fallback})
	if err != nil {
		return tool.Sent{}, err
	}
	var sent tool.Sent
	err = r.run(ctx, func(ctx context.Context) error {
		var row mailbox.OutRow
		var err error
		name := c.To
		if name != "" {
			row, err = r.rowTo(ctx, name)
		} else {
			row, name, err = r.rowToChat(ctx)
		}
		if err != nil {
			return err
		}
		row.Content = content
		sent, err = r.once(ctx, row, name)
		return err
	}, nil)
	if err != nil {
		return tool.Sent{}, err
	}
	return sent, nil
}

// rowToChat is a row for the person who waits, else for the session's chat.
func (r *Runner) rowToChat(ctx context.Context) (row mailbox.OutRow, name string, err error) {
	if err := r.segment(ctx); err != nil {
		return row, "", err
	}
	row.Kind = mailbox.KindChat
	if r.running != nil {
		if r.running.Task() {
			return row, "", refuse(errNoChat)
		}
		row.Exchange = r.running.ID()
		if asker, ok := r.running.Asker(); ok {
			row.Address, row.InReplyTo = asker.Address, asker.ID
		}
	}
	if row.Address.Zero() {
		if row.Address, err = r.opt.Mailbox.Routing(ctx); err != nil {
			return row, "", fmt.Errorf("read routing: %w", err)
		}
	}
	if !chat(row.Address) {
		return row, "", refuse(errNoChat)
	}
	d, ok, err := r.opt.Mailbox.DestinationFor(ctx, row.Address)
	if err != nil {
		return row, "", fmt.Errorf("look destination up: %w", err)
	}
	if ok {
		name = d.Name
	}
	return row, name, nil
}

// chat reports whether people can be reached at an address.
func chat(a mailbox.Address) bool {
	return a.ChannelType != "" && a.PlatformID != "" && a.ChannelType != mailbox.ChannelAgent && a.ChannelType != mailbox.ChannelEcho &&
		!strings.HasPrefix(a.ThreadID, mailbox.TaskThread)
}

// Request implements tool.Session.
func (r *Runner) Request(ctx context.Context, action json.RawMessage) (string, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(action, &fields); err != nil {
		return "", fmt.Errorf("a request must be an object: %w", err)
	}
	delete(fields, requestID)
	plain, err := mailbox.EncodeContent(fields)
	if err != nil {
		return "", err
	}
	request := id.New(prefixRequest)
	if fields[requestID], err = mailbox.EncodeContent(request); err != nil {
		return "", err
	}
	content, err := mailbox.EncodeContent(fields)
	if err != nil {
		return "", err
	}
	err = r.run(ctx, func(ctx context.Context) error {
		if r.running != nil {
			var earlier string
			if _, ok := r.running.Earlier(func(o mailbox.OutRow) (same bool) {
				earlier, same = samePlain(o, plain)
				return same
			}); ok {
				request = earlier
				return nil
			}
		}
		_, err := r.leave(ctx, mailbox.OutRow{Kind: mailbox.KindSystem, Content: content}, "")
		return err
	}, nil)
	if err != nil {
		return "", err
	}
	return request, nil
}

// requestID is the field of a request's content that names it.
const requestID = "requestId"

// samePlain reports whether a row asks the host for the same, whatever its id, and returns that.
func samePlain(row mailbox.OutRow, plain []byte) (request string, same bool) {
	var fields map[string]json.RawMessage
	if row.Kind != mailbox.KindSystem || json.Unmarshal(row.Content, &fields) != nil || json.Unmarshal(fields[requestID], &request) != nil {
		return "", false
	}
	delete(fields, requestID)
	have, err := mailbox.EncodeContent(fields)
	return request, err == nil && bytes.Equal(have, plain)
}
