package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"nanoclaw/internal/control"
	"nanoclaw/internal/id"
	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/obs"
	"nanoclaw/internal/runner/tool"
)

// prefixQuestion is the prefix of the ids of questions.
const prefixQuestion = "q"

// adminPatience is how long a command of ncl may take (spec/runner.md section 8).
const adminPatience = 30 * time.Second

// waiter is somebody inside who waits for a row of kind system.
type waiter struct {
	got  chan mailbox.InRow // capacity 1
	over chan struct{}      // closed when the turn has ended; nil: that does not matter
}

var errTurnOver = errors.New("the turn has ended; nobody waits for the answer any more")

// answers gives rows of kind system to those who wait for them and finishes all of them: a late answer fills no batch, wakes
// nobody and is not kept (spec/runner.md W15).
func (r *Runner) answers(ctx context.Context, rows []mailbox.InRow) error {
	if len(rows) == 0 {
		return nil
	}
	var f mailbox.Finish
	for _, row := range rows {
		w := r.waiters[row.ID]
		if w == nil {
			r.log.Info("an answer came that nobody waits for", obs.KeyMessage, row.ID)
			f.Failed = append(f.Failed, mailbox.Failure{ID: row.ID, Reason: "nobody waits for this answer any more"})
			continue
		}
		delete(r.waiters, row.ID)
		w.got <- row
		f.Completed = append(f.Completed, row.ID)
	}
	if _, err := r.opt.Mailbox.Finish(ctx, f); err != nil {
		return fmt.Errorf("finish answers: %w", err)
	}
	r.opt.Bell.Ring()
	return nil
}

// turnOver tells those whose question belonged to the turn.
func (r *Runner) turnOver() {
	for rowID, w := range r.waiters {
		if w.over != nil {
			close(w.over)
			delete(r.waiters, rowID)
		}
	}
}

// await returns the row that answers, an error of ctx, or errTurnOver.
func (r *Runner) await(ctx context.Context, w *waiter) (mailbox.InRow, error) {
	var err error
	select {
	case row := <-w.got:
		return row, nil
	case <-w.over:
		err = errTurnOver
	case <-r.gone:
		return mailbox.InRow{}, errGone
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err := r.forget(ctx, w); err != nil {
		return mailbox.InRow{}, err
	}
	select {
	case row := <-w.got: // it came in the last moment
		return row, nil
	default:
		return mailbox.InRow{}, err
	}
}

// forget takes a waiter out, also one whose errand was still under way.
func (r *Runner) forget(ctx context.Context, w *waiter) error {
	return r.run(context.WithoutCancel(ctx), func(context.Context) error {
		maps.DeleteFunc(r.waiters, func(_ string, other *waiter) bool { return other == w })
		return nil
	}, nil)
}

// Ask implements tool.Session. A question that an earlier incarnation of the exchange has put is not put again: its answer
// counts.
func (r *Runner) Ask(ctx context.Context, q tool.Question) (string, error) {
	out := mailbox.QuestionOut{Type: mailbox.TypeQuestion, Title: q.Title, Question: q.Text}
	for _, o := range q.Options {
		out.Options = append(out.Options, mailbox.Option(o))
	}
	w := &waiter{got: make(chan mailbox.InRow, 1), over: make(chan struct{})}
	var rowID string
	err := r.run(ctx, func(ctx context.Context) error {
		question, err := r.put(ctx, out)
		if err != nil {
			return err
		}
		rowID = mailbox.AnswerPrefix + question
		row, err := r.opt.Mailbox.Row(ctx, rowID)
		switch {
		case err == nil: // before the restart, or in this very moment
			w.got <- row
			if _, err := r.opt.Mailbox.Finish(ctx, mailbox.Finish{Completed: []string{rowID}}); err != nil {
				return fmt.Errorf("finish an answer: %w", err)
			}
		case errors.Is(err, mailbox.ErrNotExist):
			r.waiters[rowID] = w
		default:
			return err
		}
		return nil
	}, nil)
	if err != nil {
		return "", errors.Join(err, r.forget(ctx, w))
	}
	limited, cancel := context.WithTimeout(ctx, q.Timeout)
	defer cancel()
	row, err := r.await(limited, w)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return "", fmt.Errorf("timed out after %ds: nobody has answered", int(q.Timeout.Seconds()))
	}
	if err != nil {
		return "", err
	}
	var a mailbox.AnswerIn
	if err := json.Unmarshal(row.Content, &a); err != nil || !slices.ContainsFunc(q.Options, func(o tool.Option) bool { return o.Value == a.SelectedOption }) {
		return "", errors.New("the answer is none of the options")
	}
	return a.SelectedOption, nil
}

// put writes a question and returns its id.
func (r *Runner) put(ctx context.Context, out mailbox.QuestionOut) (string, error) {
	row, name, err := r.rowToChat(ctx)
	if err != nil {
		return "", err
	}
	if r.running != nil {
		if asked, ok := r.running.Earlier(func(o mailbox.OutRow) bool { return sameQuestion(o, out) }); ok {
			return asked.ID, nil
		}
	}
	row.ID = id.New(prefixQuestion)
	out.QuestionID = row.ID
	if row.Content, err = mailbox.EncodeContent(out); err != nil {
		return "", err
	}
	_, err = r.leave(ctx, row, name)
	return row.ID, err
}

func sameQuestion(row mailbox.OutRow, q mailbox.QuestionOut) bool {
	var have mailbox.QuestionOut
	return row.Kind == mailbox.KindChat && json.Unmarshal(row.Content, &have) == nil && have.Type == q.Type && have.Title == q.Title &&
		have.Question == q.Question && slices.Equal(have.Options, q.Options)
}

// Admin implements tool.Session.
func (r *Runner) Admin(ctx context.Context, command string, args map[string]json.RawMessage) (control.Frame, error) {
	request := id.New(prefixRequest)
	content, err := mailbox.EncodeContent(mailbox.AdminOut{Action: mailbox.ActionAdmin, RequestID: request, Command: command, Args: args})
	if err != nil {
		return control.Frame{}, err
	}
	rowID := mailbox.ResponsePrefix + request
	w := &waiter{got: make(chan mailbox.InRow, 1)}
	err = r.run(ctx, func(ctx context.Context) error {
		if err := r.segment(ctx); err != nil {
			return err
		}
		if _, err := r.leave(ctx, mailbox.OutRow{Kind: mailbox.KindSystem, Content: content}, ""); err != nil {
			return err
		}
		r.waiters[rowID] = w
		return nil
	}, nil)
	if err != nil {
		return control.Frame{}, errors.Join(err, r.forget(ctx, w))
	}
	limited, cancel := context.WithTimeout(ctx, adminPatience)
	defer cancel()
	row, err := r.await(limited, w)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return control.Frame{}, &control.Error{
			Code: control.CodeTimeout, Message: fmt.Sprintf("the host did not answer %q within %d s", strings.ReplaceAll(command, "-", " "), int(adminPatience.Seconds())),
			Hint: "it may still do it: look before you try again",
		}
	}
	if err != nil {
		return control.Frame{}, err
	}
	var in mailbox.ResponseIn
	var frame control.Frame
	if err = json.Unmarshal(row.Content, &in); err == nil {
		err = json.Unmarshal(in.Frame, &frame)
	}
	if err != nil {
		return control.Frame{}, &control.Error{Code: control.CodeFailed, Message: "the host's answer cannot be read", Err: err}
	}
	return frame, nil
}
