package host

import (
	"context"
	"fmt"

	"nanoclaw/internal/channel"
	"nanoclaw/internal/control"
	"nanoclaw/internal/id"
	"nanoclaw/internal/mailbox/sqlite"
	"nanoclaw/internal/obs"
	"nanoclaw/internal/operate"
	"nanoclaw/internal/session"
	"nanoclaw/internal/store"
)

var _ operate.Directory = (*Host)(nil)

// info of an adapter instance.
func (h *Host) info(instance string) (channel.Info, bool) {
	for _, a := range h.adapters {
		if a.Info().Instance == instance {
			return a.Info(), true
		}
	}
	return channel.Info{}, false
}

// Threads reports whether the channel of an adapter instance has threads.
func (h *Host) Threads(instance string) bool {
	info, _ := h.info(instance)
	return info.Caps.Threads
}

// RouteTest decides an event as the router would and does nothing.
func (h *Host) RouteTest(ctx context.Context, e operate.RouteEvent) (operate.RouteResult, error) {
	info, ok := h.info(e.Instance)
	if !ok {
		return operate.RouteResult{}, &control.Error{Code: control.CodeNotFound, Field: "instance", Message: fmt.Sprintf("no channel %q runs here", e.Instance)}
	}
	m := channel.Inbound{ID: id.New("test"), Kind: "chat", Address: channel.Address{PlatformID: e.PlatformID, ThreadID: e.Thread}, Text: e.Text,
		Sender: channel.Sender{ID: e.User, IsBot: e.Bot}, Mention: channel.No, Group: e.Group}
	if e.Mention || !e.Group {
		m.Mention = channel.Yes
	}
	p, err := h.router.Test(ctx, info, m)
	if err != nil {
		return operate.RouteResult{}, err
	}
	out := operate.RouteResult{Outcome: "the wirings of the chat decide", Wirings: []operate.RouteChoice{}}
	switch {
	case p.Invalid != "":
		out.Outcome = "refused: " + p.Invalid
	case p.Silent:
		out.Outcome = "passed over: no agent is wired to this chat, and nothing would be written"
	case p.Ask:
		out.Outcome = "dropped: no agent is wired to this chat; the owner would be asked"
	case len(p.Choices) == 0:
		out.Outcome = "dropped: no agent is wired to this chat"
	}
	for _, c := range p.Choices {
		out.Wirings = append(out.Wirings, operate.RouteChoice{Wiring: string(c.ID), Agent: c.AgentName, Action: string(c.Action), Code: string(c.Code),
			Reason: c.Reason, Standing: string(c.Standing), Session: c.Key})
	}
	return out, nil
}

// keepDestinations refreshes what running agents know of their destinations, until ctx ends; first for those of an earlier
// host, which may have missed a change.
func (h *Host) keepDestinations(ctx context.Context) {
	h.refreshDestinations(ctx, "")
	for {
		select {
		case <-ctx.Done():
			return
		case group := <-h.moved:
			h.refreshDestinations(ctx, group)
		}
	}
}

// refreshDestinations has the running agents of a group ("" is all of them) know where they may write to now (I11, W66). A sandbox
// that starts gets them anyway. Whose session it is says the store: an actor that has just begun does not know it yet.
func (h *Host) refreshDestinations(ctx context.Context, group id.AgentGroup) {
	for _, l := range h.sessions.Live() {
		s, err := h.store.Session(ctx, l.Session)
		if err == nil && (group == "" || s.AgentGroupID == group) {
			err = h.tellDestinations(ctx, s)
		}
		if err != nil {
			h.log.Warn("a running agent keeps its old destinations until its next start", obs.KeySession, string(l.Session), obs.Error(err))
		}
	}
}

func (h *Host) tellDestinations(ctx context.Context, s store.Session) error {
	all, err := h.store.Destinations(ctx, s.AgentGroupID)
	if err != nil {
		return err
	}
	uid, gid := sandboxUser(h.opt.Settings)
	b, err := sqlite.Open(ctx, session.Dir(h.opt.Settings.Home, s), sqlite.HostOptions{OutUID: uid, SandboxGID: gid, Log: h.log})
	if err != nil {
		return err
	}
	defer func() { _ = b.Close() }()
	return b.SetDestinations(ctx, all)
}
