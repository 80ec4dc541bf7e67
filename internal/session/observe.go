package session

import (
	"context"

	"nanoclaw/internal/sandbox"
	"nanoclaw/internal/store"
)

// Observer hears what happens to sandboxes, for those who count.
type Observer interface {
	// SandboxEnded is called once for each sandbox that ended, with the reason: one of the Ended constants. It must not block.
	SandboxEnded(s store.Session, reason string, exit sandbox.Exit)
	// Worked is called off the warm path after exchanges ended, with the session's mailbox. It may read a little there.
	Worked(ctx context.Context, s store.Session, box Mailbox)
}

// Why a sandbox ended.
const (
	EndedIdle     = "idle"     // it had nothing to do
	EndedYielded  = "yielded"  // it had nothing to do, and another session waited for its place
	EndedStuck    = "stuck"    // it gave no sign of life
	EndedRecycled = "recycled" // settings had changed
	EndedHostile  = "hostile"  // what it wrote was refused
	EndedMemory   = "memory"   // the limit of memory
	EndedItself   = "exited"   // in order
	EndedFailed   = "failed"   // with an error, or by a signal of somebody else
)

type deaf struct{}

func (deaf) SandboxEnded(store.Session, string, sandbox.Exit) {}
func (deaf) Worked(context.Context, store.Session, Mailbox)   {}

// endedBy is the reason of an end: what the host meant by stopping it, else what the exit says.
func (a *actor) endedBy(exit sandbox.Exit) string {
	switch {
	case exit.OOM:
		return EndedMemory
	case a.state == Stopping && a.ending != "":
		return a.ending
	case exit.Code == 0:
		return EndedItself
	}
	return EndedFailed
}
