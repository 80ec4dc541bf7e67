package claude_test

import (
	"errors"
	"testing"
	"time"

	"nanoclaw/internal/provider"
	"nanoclaw/internal/provider/claude"
)

const okResult = `{"type":"result","subtype":"success","is_error":false,"result":"x"}`

// An idle CLI is ended: no error, no input any more, the events are over; the conversation is resumed by a new query.
func TestIdleClose(t *testing.T) {
	t.Parallel()
	short := func(o *claude.Options) {
		o.IdleClose, o.EndWait, o.CloseWait = 300*time.Millisecond, 5*time.Second, time.Second
	}
	t.Run("closed", func(t *testing.T) {
		t.Parallel()
		start := time.Now()
		q := query(t, driver(t, turns(t, []string{taken, begin, okResult}, []string{taken, begin, okResult}), func(o *claude.Options) { o.IdleClose = 1500 * time.Millisecond }), "hi")
		results := 0
		for e := range q.Events() {
			if e.Kind != provider.Result {
				continue
			}
			if results++; results == 1 { // still open
				if err := q.Push(t.Context(), provider.Input{ID: "b", Text: "again"}); err != nil {
					t.Error(err)
				}
			}
		}
		if results != 2 || q.Err() != nil || time.Since(start) < 1500*time.Millisecond {
			t.Errorf("%d results, %v, after %s", results, q.Err(), time.Since(start))
		}
		if err := q.Push(t.Context(), provider.Input{ID: "c", Text: "late"}); !errors.Is(err, provider.ErrEnded) {
			t.Errorf("Push: %v", err)
		}
	})
	t.Run("not while something runs in the background", func(t *testing.T) {
		t.Parallel()
		tasks := `{"type":"system","subtype":"background_tasks_changed","tasks":[{"task_id":"x"}]}`
		q := query(t, driver(t, turns(t, []string{taken, begin, tasks, okResult}), short), "hi")
		closed := false
		limit := time.After(time.Second)
		for wait := true; wait; {
			select {
			case _, ok := <-q.Events():
				closed, wait = !ok, ok
			case <-limit:
				wait = false
			}
		}
		if closed {
			t.Error("it was closed")
		}
	})
	t.Run("the real one", func(t *testing.T) {
		t.Parallel()
		r := newReal(t, short)
		q := r.ask(provider.QueryInput{}, "remember the heron ")
		all := collect(q, nil)
		if len(only(provider.Result, all)) != 1 || q.Err() != nil {
			t.Errorf("events %+v, Err %v", all, q.Err())
		}
		q = r.ask(provider.QueryInput{Continuation: only(provider.Init, all)[0].Continuation}, "and now? ")
		all = collect(q, nil)
		requests := r.api.Requests()
		if len(only(provider.Result, all)) != 1 || q.Err() != nil || !requests[len(requests)-1].Contains("remember the heron") {
			t.Errorf("resumed: %+v, %v", all, q.Err())
		}
	})
}
