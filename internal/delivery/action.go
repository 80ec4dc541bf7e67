package delivery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"nanoclaw/internal/crashpoint"
	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/obs"
	"nanoclaw/internal/store"
)

// Action carries out one kind of system row: an act that an agent asks of the host. The list is Options.Actions, by the name
// in the field "action".
type Action interface {
	// Do carries the act out and returns rows for the inbox of the session that asked. content is as the agent wrote it, a JSON
	// object of at most mailbox.MaxContent bytes; nothing in it is believed. key is the ledger row's id. A host that is killed
	// before the act is noted as done runs it again under the same key (P3): effects must be idempotent under it, and the ids of
	// the rows must be the same each time. An error refuses the act, once and for all; the agent is told its text. When ctx ends
	// the act is left for the next host, whatever is returned.
	Do(ctx context.Context, s store.Session, key string, content json.RawMessage) ([]mailbox.InRow, error)
}

const (
	unknownAction = "this host knows no such action"
	// maxActs are the tries of an act whose rows cannot be put into the inbox, over about four minutes.
	maxActs = 10
	// maxActionName is the longest name of an action, in bytes.
	maxActionName = 64
)

// actionOf is the name of the action that a system row asks for; "" if it has none.
func actionOf(content json.RawMessage) string {
	var c struct {
		Action json.RawMessage `json:"action"`
	}
	var name string
	if json.Unmarshal(content, &c) != nil || json.Unmarshal(c.Action, &name) != nil || len(name) > maxActionName {
		return ""
	}
	return name
}

// own is the queue of a session's own matters: acts and words about rows that were refused. They have no destination.
func own(s store.Session) store.Destination { return store.Destination{PlatformID: string(s.ID)} }

// act carries a system row out, or leaves it open when ctx ends.
func (s *Service) act(ctx context.Context, row *store.Ledger) {
	for !row.State.Final() {
		if !s.waitUntil(ctx, row.NotBefore) {
			return
		}
		refusal, err := s.carryOut(ctx, row)
		switch {
		case err == nil && refusal == nil:
			s.finish(ctx, row, store.Sent, "")
		case ctx.Err() != nil:
			return
		case refusal != nil:
			s.finish(ctx, row, store.Refused, refusal.Error())
		default:
			row.Tries++
			if row.Tries >= maxActs {
				s.finish(ctx, row, store.Dead, fmt.Sprintf("gave up after %d tries: %v", row.Tries, err))
				return
			}
			s.retry(ctx, row, s.opt.Now().Add(min(offlinePause<<(row.Tries-1), offlineMost)), err.Error())
		}
	}
}

// carryOut makes one try. err is a failure that may pass.
func (s *Service) carryOut(ctx context.Context, row *store.Ledger) (refusal, err error) {
	name := actionOf(row.Content)
	action, ok := s.opt.Actions[name]
	if !ok { // an older or newer host took the row over
		return errors.New(unknownAction), nil
	}
	sess, err := s.opt.Store.Session(ctx, row.SessionID)
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	rows, refusal := action.Do(ctx, sess, string(row.ID), row.Content)
	if refusal != nil || ctx.Err() != nil {
		return refusal, ctx.Err()
	}
	crashpoint.Hit("host.acted")
	if len(rows) > 0 {
		if err := s.opt.Put(ctx, sess, rows...); err != nil {
			return nil, fmt.Errorf("put the answer into the inbox: %w", err)
		}
	}
	s.log.Debug("an action was carried out", obs.KeyAction, name, obs.KeySession, string(sess.ID), obs.KeyLedger, string(row.ID), obs.Elapsed(begun))
	return nil, nil
}

// failureText is what an agent is told about a row that led to nothing.
func failureText(row *store.Ledger) string {
	if row.Kind == kindSystem {
		what := "A request of yours"
		if name := actionOf(row.Content); name != "" {
			what += fmt.Sprintf(" (%s)", name)
		}
		return fmt.Sprintf("%s was not carried out (%s): %s", what, row.State, row.Reason)
	}
	return fmt.Sprintf("A message of yours to %s was not delivered (%s): %s", orNothing(row.PlatformID), row.State, row.Reason)
}
