package session

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"nanoclaw/internal/sandbox"
	"nanoclaw/internal/store"
)

// heard notes what an Observer hears.
type heard struct {
	mu     sync.Mutex
	ends   []string
	worked int
}

func (h *heard) SandboxEnded(_ store.Session, reason string, _ sandbox.Exit) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ends = append(h.ends, reason)
}

func (h *heard) Worked(context.Context, store.Session, Mailbox) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.worked++
}

// Why a sandbox ended is told: what the host wanted, else what its exit says.
func TestReasonsOfEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, good)
		w.host()
		h := &heard{}
		w.m.opt.Observe = h
		w.message("a")
		pass(time.Second)
		w.m.Recycle(w.session.AgentGroupID)
		pass(time.Second)
		w.message("b")
		pass(time.Second)
		pass(11 * time.Minute)
		h.mu.Lock()
		defer h.mu.Unlock()
		if got := strings.Join(h.ends, " "); got != "recycled idle" || h.worked != 2 {
			t.Errorf("ends %q, %d looks at what work cost", got, h.worked)
		}
	})
	for want, c := range map[string]struct {
		state  State
		ending string
		exit   sandbox.Exit
	}{
		EndedMemory: {Stopping, EndedIdle, sandbox.Exit{OOM: true, Code: -1}},
		EndedStuck:  {Stopping, EndedStuck, sandbox.Exit{Code: -1, Signal: "SIGKILL"}},
		EndedItself: {Running, "", sandbox.Exit{}},
		EndedFailed: {Running, EndedIdle, sandbox.Exit{Code: 75}},
	} {
		if got := (&actor{state: c.state, ending: c.ending}).endedBy(c.exit); got != want {
			t.Errorf("%+v: %s, want %s", c, got, want)
		}
	}
}
