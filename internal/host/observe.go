package host

import (
	"context"
	"os"

	"nanoclaw/internal/config"
	"nanoclaw/internal/id"
	"nanoclaw/internal/mailbox/sqlite"
	"nanoclaw/internal/operate"
	"nanoclaw/internal/session"
	"nanoclaw/internal/store"
	"nanoclaw/internal/trace"
)

// observing are the commands that look at the host itself.
func (h *Host) observing() []operate.Command {
	s := h.opt.Settings
	uid, gid := sandboxUser(s)
	tracer := trace.New(trace.Options{
		Store: h.store, MaxTries: s.MaxTries,
		Open: func(ctx context.Context, v store.Session) (trace.Box, error) {
			b, err := sqlite.Open(ctx, session.Dir(s.Home, v), sqlite.HostOptions{OutUID: uid, SandboxGID: gid, Log: h.log})
			if err != nil {
				return nil, err
			}
			return b, nil
		},
		Live: func(wanted id.Session) trace.Live {
			for _, l := range h.sessions.Live() {
				if l.Session == wanted {
					return trace.Live{State: string(l.State), Incarnation: l.Incarnation, Problem: l.Problem}
				}
			}
			return trace.Live{State: string(session.Absent)}
		},
	})
	return []operate.Command{operate.Trace(tracer, config.Zone(s.Zone, os.Getenv)), operate.LogLevel(h.log)}
}
