package opencode

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"time"

	"nanoclaw/internal/obs"
	"nanoclaw/internal/provider"
)

// strandWait is how long after a turn the program may take to look at a prompt that came at its very end. It may never do.
const strandWait = time.Second

// flush posts the inputs that may be posted now, and ends the program when nothing is left after End; mu is held. A turn that is
// ending takes nothing, and one that has no answer yet neither: the program orders messages by their ids, and the prompt would stand
// before an answer that does not know it.
func (q *query) flush() {
	if q.session == "" || q.aborted || q.err != nil || q.recovers {
		return
	}
	for len(q.inputs) > 0 {
		i := q.firstHeld()
		if i == nil || q.turn != nil && (q.turn.aborting || !q.turn.began || q.turn.command) {
			break
		}
		if i.command {
			if q.turn != nil || q.inputs[0] != i {
				break
			}
			q.summarize(i)
			break
		}
		if q.turn == nil {
			q.turn = newTurn()
		}
		i.posted = true
		i.id = q.newID()
		body := promptBody{MessageID: i.id, System: q.instructions, Variant: q.p.opt.Effort, Parts: i.parts}
		q.worker.do(func() { q.post(i, body) })
	}
	if q.ended && q.idle() {
		go q.child.End(true)
	}
}

// summarize has the program summarise the conversation, in a turn of its own; mu is held. The answer comes when that is done.
func (q *query) summarize(i *input) {
	t := newTurn()
	t.command = true
	q.turn = t
	q.take(i)
	session := q.session
	q.work.Go(func() {
		err := q.server.call(q.ctx, http.MethodPost, []string{"session", session, "summarize"}, summarizeBody{q.p.opt.API, q.p.opt.Model, false}, nil)
		if q.ctx.Err() != nil {
			return
		}
		if err == nil { // the events come by another way: the last of them may still be on theirs
			q.wait(storeWait, func() bool { return q.turn != t })
			err = errors.New("the program summarised nothing")
		}
		q.mu.Lock()
		defer q.mu.Unlock()
		if q.turn == t {
			if q.turn.aborting {
				q.complete()
				return
			}
			if q.turn = nil; t.order != "" {
				q.withdraw(t.order)
			}
			q.refused(err)
		}
	})
}

// withdraw takes back the order for a summary that failed: the program would follow it at the next prompt, and leave that unanswered.
func (q *query) withdraw(order string) {
	session := q.session
	q.worker.do(func() {
		ctx, cancel := context.WithTimeout(q.ctx, callWait)
		defer cancel()
		if err := q.server.call(ctx, http.MethodDelete, []string{"session", session, "message", order}, nil, nil); err != nil && q.ctx.Err() == nil {
			q.log.Warn("opencode: the order for a summary could not be taken back", obs.Error(err))
		}
	})
}

func (q *query) firstHeld() *input {
	for _, i := range q.inputs {
		if !i.posted {
			return i
		}
	}
	return nil
}

func (q *query) post(i *input, body promptBody) {
	ctx, cancel := context.WithTimeout(q.ctx, callWait)
	defer cancel()
	err := q.server.call(ctx, http.MethodPost, []string{"session", q.session, "prompt_async"}, body, nil)
	if err == nil || q.ctx.Err() != nil {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.drop(i)
	q.refused(err)
}

// refused ends the turn that a request should have opened; mu is held.
func (q *query) refused(err error) {
	q.events.Put(provider.Event{
		Kind: provider.Result, IsError: true, Class: provider.ClassOther, Retryable: true, Message: q.redact(err.Error()), Usage: &provider.Usage{},
	})
	if q.turn != nil && !q.turn.began {
		q.turn = nil
	}
	q.flush()
	q.arm()
	q.notify()
}

// recover takes back what lies there unanswered, and gives it again; mu is held.
func (q *query) recover() {
	var left []string
	for _, i := range q.inputs {
		if i.posted {
			left = append(left, i.id)
		}
	}
	if len(left) == 0 {
		return
	}
	q.recovers = true
	session := q.session
	q.worker.do(func() {
		for _, id := range left {
			ctx, cancel := context.WithTimeout(q.ctx, callWait)
			if err := q.server.call(ctx, http.MethodDelete, []string{"session", session, "message", id}, nil, nil); err != nil && q.ctx.Err() == nil {
				q.log.Warn("opencode: an unanswered prompt could not be taken back, the model sees it twice", obs.Error(err))
			}
			cancel()
		}
		q.mu.Lock()
		defer q.mu.Unlock()
		q.recovers = false
		for _, i := range q.inputs {
			i.posted = false
		}
		q.flush()
		q.arm()
		q.notify()
	})
}

// strand waits a moment for the program to look at what is left, before it is taken back; mu is held.
func (q *query) strand() {
	t := newTurn()
	q.turn = t
	q.work.Go(func() {
		timer := time.NewTimer(strandWait)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-q.ctx.Done():
			return
		}
		q.mu.Lock()
		defer q.mu.Unlock()
		if q.turn != t || t.began || t.busy {
			return
		}
		q.log.Info("opencode: a prompt was left lying, giving it again")
		q.turn = nil
		q.recover()
	})
}

func (q *query) drop(gone *input) {
	for n, i := range q.inputs {
		if i == gone {
			q.inputs = append(q.inputs[:n:n], q.inputs[n+1:]...)
			return
		}
	}
}

// store says that the program has the input; mu is held.
func (i *input) store() {
	select {
	case <-i.stored:
	default:
		close(i.stored)
	}
}

func (q *query) take(i *input) {
	i.store()
	q.drop(i)
	q.events.Put(provider.Event{Kind: provider.Taken, InputID: i.ID})
}

const (
	idLetters = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	idRandom  = 14
)

// newID is a message id as the program makes them: it orders messages by id. mu is held.
func (q *query) newID() string {
	q.lastID = max(q.lastID+1, time.Now().UnixMilli()<<12)
	letters := make([]byte, idRandom)
	for i := range letters {
		n, err := rand.Int(rand.Reader, big.NewInt(int64(len(idLetters))))
		if err != nil {
			n = big.NewInt(0) // crypto/rand promises never to fail
		}
		letters[i] = idLetters[n.Int64()]
	}
	return fmt.Sprintf("msg_%012x%s", q.lastID&(1<<48-1), letters)
}
