package program

import (
	"context"
	"log/slog"
	"runtime/debug"
	"time"

	"nanoclaw/internal/mailbox/sqlite"
	"nanoclaw/internal/obs"
)

// quiet is how long nothing may have happened before memory is given back. Measured: after 300 messages an idle runner keeps
// 8 MB of anonymous memory without this and 4.5 MB with it.
const quiet = 2 * time.Second

// collectAt makes the garbage collector run when the heap has grown by this percentage. The heap of a runner is below 1 MB:
// the collections cost little, and the default of 100 would keep up to 4 MB.
const collectAt = 50

// How old what the host is done with must be to go, and how often it is looked for.
const (
	pruneAge   = 30 * 24 * time.Hour
	pruneEvery = 24 * time.Hour
)

// trim gives memory back to the system, and old rows, when the loop has come to rest. Between busy times it holds no timer.
func trim(ctx context.Context, worked <-chan struct{}, box *sqlite.Runner, log *slog.Logger) {
	debug.SetGCPercent(collectAt)
	var pruned time.Time
	timer := time.NewTimer(quiet)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-worked:
			timer.Reset(quiet)
		case <-timer.C:
			if now := time.Now(); now.Sub(pruned) >= pruneEvery {
				pruned = now
				if _, err := box.Prune(ctx, now.Add(-pruneAge)); err != nil && ctx.Err() == nil {
					log.Warn("old rows could not be removed", obs.Error(err))
				}
			}
			debug.FreeOSMemory()
		}
	}
}
