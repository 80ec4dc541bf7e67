package delivery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"nanoclaw/internal/channel"
	"nanoclaw/internal/control"
	"nanoclaw/internal/crashpoint"
	"nanoclaw/internal/id"
	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/obs"
	"nanoclaw/internal/store"
)

// Limits of a question. The sandbox's tool has closer ones; these are for rows that no tool wrote.
const (
	questionLife = 24 * time.Hour
	maxLabel     = 200  // characters of a title or label
	maxValue     = 1024 // bytes
	closedPage   = 200
)

// Why an answer is not taken, in words for whoever gave it.
const (
	notKnown     = "this question is not known here"
	notYours     = "this question is for somebody else"
	noSuchOption = "that is none of the options"
	notOpen      = "this question is no longer open"
)

// asked is a question as adapters see it.
func asked(row id.Ledger, title, text string, options []mailbox.Option) channel.Question {
	q := channel.Question{ID: string(row), Title: title, Text: text}
	for _, o := range options {
		q.Options = append(q.Options, channel.Option{Label: o.Label, Selected: o.SelectedLabel, Value: o.Value})
	}
	return q
}

// parseQuestion reads a question as an agent may have written it. Its id must be that of its row: so it is there once.
func parseQuestion(content json.RawMessage, rowID string) (mailbox.QuestionOut, error) {
	var q mailbox.QuestionOut
	if err := json.Unmarshal(content, &q); err != nil {
		return q, fmt.Errorf("the question cannot be read: %w", err)
	}
	q.Title, q.Question = strings.TrimSpace(q.Title), strings.TrimSpace(q.Question)
	switch {
	case q.QuestionID != rowID || !id.Safe(mailbox.AnswerPrefix+q.QuestionID):
		return q, errors.New("the question's id is not that of its row")
	case q.Title == "" || q.Question == "":
		return q, errors.New("the question has no title or no text")
	case utf8.RuneCountInString(q.Title) > maxLabel:
		return q, fmt.Errorf("the question's title has more than %d characters", maxLabel)
	case len(q.Options) < 1 || len(q.Options) > channel.MaxOptions:
		return q, fmt.Errorf("the question has %d options; 1 to %d are possible", len(q.Options), channel.MaxOptions)
	}
	values := map[string]bool{}
	for i := range q.Options {
		o := &q.Options[i]
		o.Label = strings.TrimSpace(o.Label)
		if o.SelectedLabel = strings.TrimSpace(o.SelectedLabel); o.SelectedLabel == "" {
			o.SelectedLabel = o.Label
		}
		if o.Value == "" {
			o.Value = o.Label
		}
		switch {
		case o.Label == "":
			return q, fmt.Errorf("option %d of the question has no label", i+1)
		case utf8.RuneCountInString(o.Label) > maxLabel || utf8.RuneCountInString(o.SelectedLabel) > maxLabel || len(o.Value) > maxValue:
			return q, fmt.Errorf("option %d of the question is too long", i+1)
		case values[o.Value]:
			return q, fmt.Errorf("two options of the question have the value %q", short(o.Value))
		}
		values[o.Value] = true
	}
	return q, nil
}

// question is what a row asks. person is whom it goes to, if that is known.
func (s *Service) question(r mailbox.OutRow, person string) (*store.Question, error) {
	q, err := parseQuestion(r.Content, r.ID)
	if err != nil {
		return nil, err
	}
	return &store.Question{QuestionID: q.QuestionID, Asked: person, Title: q.Title, Text: q.Question, Options: q.Options,
		ExpiresAt: s.opt.Now().Add(questionLife)}, nil
}

// Answer takes a pressed option. The first answer of a person who may give one closes the question; it is durable, also in the
// inbox of the session that asked, before the verdict. The same answer again is a duplicate; every other one is dropped with a
// reason and changes nothing. An error means that it must be tried again. It blocks for some commits.
func (s *Service) Answer(ctx context.Context, info channel.Info, a channel.Answer) (channel.Verdict, error) {
	q, err := s.opt.Store.Question(ctx, id.Ledger(a.QuestionID))
	if errors.Is(err, store.ErrNotFound) || err == nil && (q.Instance != info.Instance || q.PlatformID != a.Address.PlatformID || q.ThreadID != a.Address.ThreadID) {
		return dropped(notKnown), nil
	}
	if err != nil {
		return channel.Verdict{}, err
	}
	if may, err := s.mayAnswer(ctx, q, a.Sender); err != nil || !may {
		return dropped(notYours), err
	}
	if a.Number > 0 && a.Number <= len(q.Options) {
		a.Value = q.Options[a.Number-1].Value
	} else if a.Number != 0 || q.Option(a.Value) == nil {
		return dropped(noSuchOption), nil
	}
	kind := channel.Duplicate
	if q.Open(s.opt.Now()) {
		q.Value, q.By = a.Value, a.Sender.ID
		first, err := s.opt.Store.AnswerQuestion(ctx, q)
		if err != nil {
			return channel.Verdict{}, err
		}
		if first {
			kind = channel.Stored
			s.log.Info("a question was answered", obs.KeySession, string(q.SessionID), obs.KeyLedger, string(q.ID))
			crashpoint.Hit("host.answered")
		}
		if q, err = s.opt.Store.Question(ctx, q.ID); err != nil {
			return channel.Verdict{}, err
		}
	}
	switch {
	case q.Answered.IsZero():
		return dropped(notOpen), nil
	case q.By != a.Sender.ID || q.Value != a.Value:
		return dropped("it is answered already: " + q.Option(q.Value).SelectedLabel), nil
	}
	if err := s.tell(ctx, q); err != nil {
		return channel.Verdict{}, err
	}
	return channel.Verdict{Kind: kind}, nil
}

func dropped(reason string) channel.Verdict {
	return channel.Verdict{Kind: channel.Dropped, Reason: reason}
}

// mayAnswer: the one person that was asked, or, where nobody in particular was, whoever has access to the agent.
func (s *Service) mayAnswer(ctx context.Context, q store.Question, who channel.Sender) (bool, error) {
	if who.ID == "" || who.IsBot {
		return false, nil
	}
	if q.Asked != "" {
		return who.ID == q.Asked, nil
	}
	sess, err := s.opt.Store.Session(ctx, q.SessionID)
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return s.opt.Store.HasAccess(ctx, id.User(who.ID), sess.AgentGroupID)
}

// Waiting is how many questions are open for a message's sender in its chat. answered: the message has answered one already.
func (s *Service) Waiting(ctx context.Context, info channel.Info, m channel.Inbound) (open int, answered bool, err error) {
	all, answer, err := s.waiting(ctx, info, m)
	return len(all), answer != nil, err
}

func (s *Service) waiting(ctx context.Context, info channel.Info, m channel.Inbound) (open []store.Question, answer *store.Question, err error) {
	all, err := s.opt.Store.QuestionsAt(ctx, info.Instance, m.Address.PlatformID, m.ID)
	if err != nil {
		return nil, nil, err
	}
	for i, q := range all {
		if q.MessageID == m.ID && !q.Answered.IsZero() {
			if q.By == m.Sender.ID {
				answer = &all[i]
			}
			return nil, answer, nil
		}
		if q.ThreadID != m.Address.ThreadID || !q.Open(s.opt.Now()) {
			continue
		}
		may, err := s.mayAnswer(ctx, q, m.Sender)
		if err != nil {
			return nil, nil, err
		}
		if may {
			open = append(open, q)
		}
	}
	return open, nil, nil
}

// AnswerText takes a message as an answer if it is one: the number, the label or the value of an option, from a person who may
// answer, while exactly one question is open for that person in that chat; others is how many there are that are not the
// Service's. It reports whether it was; every other message is left alone. The same message again is the same answer.
func (s *Service) AnswerText(ctx context.Context, info channel.Info, m channel.Inbound, others int) (taken bool, err error) {
	open, answer, err := s.waiting(ctx, info, m)
	if err != nil || answer != nil {
		if answer != nil {
			err = s.tell(ctx, *answer)
		}
		return answer != nil, err
	}
	if len(open) != 1 || others > 0 || len(m.Attachments) > 0 {
		return false, nil
	}
	q := open[0]
	o := choice(q.Options, m.Text)
	if o == nil {
		return false, nil
	}
	sess, err := s.opt.Store.Session(ctx, q.SessionID)
	if err != nil {
		return false, err
	}
	if seen, err := s.opt.Store.Seen(ctx, info.Instance, m.Address.PlatformID, m.ID, sess.AgentGroupID); err != nil || seen {
		return false, err // it came before the question did
	}
	q.Value, q.By, q.MessageID = o.Value, m.Sender.ID, m.ID
	first, err := s.opt.Store.AnswerQuestion(ctx, q)
	if err != nil || !first {
		return false, err
	}
	crashpoint.Hit("host.answered")
	if q, err = s.opt.Store.Question(ctx, q.ID); err != nil {
		return false, err
	}
	return true, s.tell(ctx, q)
}

// choice is the option that a text names, or nil.
func choice(options []mailbox.Option, text string) *mailbox.Option {
	shown := make([]control.Option, 0, len(options))
	for _, o := range options {
		shown = append(shown, control.Option{Label: o.Label, Value: o.Value})
	}
	if i := control.Choice(shown, text); i >= 0 {
		return &options[i]
	}
	return nil
}

// tell carries on with a closed question: its answer, if it has one, goes into the inbox of the session that asked, which rings
// its runner and wakes nobody; and the chat shows that the question is closed. Every step is idempotent.
func (s *Service) tell(ctx context.Context, q store.Question) error {
	if q.Told {
		return nil
	}
	if !q.Answered.IsZero() {
		if err := s.putAnswer(ctx, q); err != nil {
			return err
		}
		crashpoint.Hit("host.answer.put")
	}
	if a, ok := s.opt.Adapters[q.Instance]; ok && a.Info().Caps.Buttons {
		content, err := mailbox.EncodeContent(mailbox.AnswerIn{Type: mailbox.TypeClosed, QuestionID: string(q.ID)})
		if err != nil {
			return err
		}
		if err := s.sayRow(ctx, q.Destination, "closed:"+string(q.ID), content); err != nil {
			return err
		}
	}
	return s.opt.Store.QuestionTold(ctx, q.ID)
}

func (s *Service) putAnswer(ctx context.Context, q store.Question) error {
	sess, err := s.opt.Store.Session(ctx, q.SessionID)
	if errors.Is(err, store.ErrNotFound) {
		return nil // nobody waits
	}
	if err != nil {
		return err
	}
	content, err := mailbox.EncodeContent(mailbox.AnswerIn{Type: mailbox.TypeAnswer, QuestionID: q.QuestionID, SelectedOption: q.Value, UserID: q.By})
	if err != nil {
		return err
	}
	row := mailbox.InRow{ID: mailbox.AnswerPrefix + q.QuestionID, Kind: mailbox.KindSystem, Timestamp: q.Answered, Content: content}
	if err := s.opt.Put(ctx, sess, row); err != nil {
		return fmt.Errorf("put the answer into the inbox: %w", err)
	}
	return nil
}

// tellClosed carries on with closed questions; what fails is left for the next call.
func (s *Service) tellClosed(ctx context.Context) {
	all, err := s.opt.Store.UntoldQuestions(ctx, closedPage)
	if err != nil {
		s.log.Error("closed questions cannot be read", obs.Error(err))
		return
	}
	for _, q := range all {
		if !q.Answered.IsZero() { // its answer goes through the session, which may be waiting for this call
			continue
		}
		if err := s.tell(ctx, q); err != nil {
			s.log.Warn("a closed question is told later", obs.KeyLedger, string(q.ID), obs.Error(err))
		}
	}
}

// Questions closes those that are too old and finishes what an earlier host left half done. The host calls it once sessions
// take rows, and then every now and then.
func (s *Service) Questions(ctx context.Context) error {
	if err := s.opt.Store.ExpireQuestions(ctx, s.opt.Now()); err != nil {
		return err
	}
	all, err := s.opt.Store.UntoldQuestions(ctx, closedPage)
	if err != nil {
		return err
	}
	var failed error
	for _, q := range all {
		failed = errors.Join(failed, s.tell(ctx, q))
	}
	return failed
}
