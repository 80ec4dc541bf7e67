package host

import (
	"bytes"
	"context"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"nanoclaw/internal/channel"
	"nanoclaw/internal/id"
	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/mailbox/sqlite"
	"nanoclaw/internal/session"
	"nanoclaw/internal/store"
)

// check is what must be true in the end.
func (w *simWorld) check() {
	ctx := context.Background()
	if live := w.host.sessions.Live(); len(live) > 0 {
		w.fault("idle sessions are live: %+v", live)
	}
	if left := w.running(); len(left) > 0 {
		w.fault("%d sandboxes of idle sessions run", len(left))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	sessions, err := w.host.store.Sessions(ctx, "", 1000)
	if err != nil {
		w.fail("%v", err)
		return
	}
	shown := w.shown()
	ledger := map[string]store.Ledger{}
	spoke := map[string]bool{}
	for _, s := range sessions {
		rows, err := w.host.store.Ledgers(ctx, s.ID, 10_000)
		if err != nil {
			w.fail("%v", err)
		}
		for _, v := range rows {
			if _, ok := w.outs[v.OutboundID]; !ok {
				w.fail("delivery %s of %s was written by nobody", v.ID, v.OutboundID)
			}
			ledger[v.OutboundID] = v
			if v.Kind == "chat" && v.Exchange != "" {
				spoke[v.Exchange] = true
			}
		}
		w.checkInbox(ctx, s, rows)
	}
	w.checkOut(ledger, shown)
	w.checkEvents(ctx, spoke)
	w.checkHidden()
}

// shown is what people see of agents: by text, where.
func (w *simWorld) shown() map[string][]mailbox.Address {
	all := map[string][]mailbox.Address{}
	for _, p := range w.platforms {
		for _, post := range p.posts {
			if strings.Contains(post.text, simForbidden) {
				w.fail("%s shows what a refused person wrote", p.info.Type)
			}
			if strings.Contains(post.text, simSaid) {
				a := mailbox.Address{ChannelType: p.info.Type, PlatformID: post.to.PlatformID, ThreadID: post.to.ThreadID}
				all[post.text] = append(all[post.text], a)
			}
		}
	}
	return all
}

// checkOut: every row that an agent wrote ended, was shown where it should be, in order, and nowhere else.
func (w *simWorld) checkOut(ledger map[string]store.Ledger, shown map[string][]mailbox.Address) {
	for outbound, out := range w.outs {
		v, ok := ledger[outbound]
		if !ok {
			w.fail("%s of %s was not taken over", outbound, out.session.ID)
			continue
		}
		if out.row.Kind == mailbox.KindSystem {
			if v.State == store.Sent && w.acted[string(v.ID)] == 0 {
				w.fail("%s was noted as done and was not", v.ID)
			}
			continue
		}
		text := textOfOut(out.row)
		places := shown[text]
		for _, at := range places {
			if at != out.row.Address {
				w.fail("%q for %v was shown in %v", text, out.row.Address, at)
			}
		}
		allowed := out.row.PlatformID != "gamma:private" && out.row.PlatformID != "alpha:nowhere" && out.row.PlatformID != "delta:x"
		switch {
		case !allowed && (len(places) > 0 || v.State == store.Sent):
			w.fail("%q was shown where the agent may not write, and is %s", text, v.State)
		case v.State == store.Sent && len(places) == 0:
			w.fail("%q is sent and nobody sees it", text)
		case len(places) > 1 && !v.Marked:
			w.fail("%q is shown %d times without a mark", text, len(places))
		case !v.State.Final():
			w.fail("%q is %s in the end", text, v.State)
		}
	}
	last := map[[2]string]int64{}
	seen := map[string]bool{}
	for _, p := range w.platforms {
		for _, post := range p.posts {
			if !strings.Contains(post.text, simSaid) || seen[post.text] {
				continue
			}
			seen[post.text] = true
			for _, outbound := range w.order {
				out := w.outs[outbound]
				if out.row.Kind != mailbox.KindChat || textOfOut(out.row) != post.text {
					continue
				}
				key := [2]string{string(out.session.ID), p.info.Type + post.to.PlatformID + post.to.ThreadID}
				if out.row.Seq < last[key] {
					w.fail("%q came behind what was written later", post.text)
				}
				last[key] = out.row.Seq
			}
		}
	}
}

func textOfOut(r mailbox.OutRow) string {
	var c mailbox.ChatOut
	_ = json.Unmarshal(r.Content, &c)
	return c.Text
}

// checkEvents: what was acknowledged is stored, has a named end that is true, and its platform was told; strangers are refused.
func (w *simWorld) checkEvents(ctx context.Context, spoke map[string]bool) {
	for event, verdict := range w.acked {
		m := w.sent[event]
		rows, err := w.host.store.TraceMessages(ctx, event)
		if err != nil {
			w.fail("%v", err)
		}
		forbidden := strings.Contains(m.Text, simForbidden)
		if stored := verdict != channel.Dropped; stored != (len(rows) > 0) || stored == forbidden {
			w.fail("%s is %s, stored %d times, forbidden %v", event, verdict, len(rows), forbidden)
			continue
		}
		if len(rows) > 0 && m.Address.PlatformID == "beta:room" != (len(rows) == 2) {
			w.fail("%s was stored for %d agents", event, len(rows))
		}
		for _, r := range rows {
			if r.State == "context" {
				continue
			}
			e, ended := w.ends[r.RowID]
			want := channel.Silent
			switch {
			case !ended:
				want = channel.Dead
			case e.failed:
				want = channel.Failed
			case spoke[e.exchange]:
				want = channel.Answered
			}
			if r.State != want {
				w.fail("%s (%s) is %s, want %s: %s", event, r.RowID, r.State, want, r.Reason)
			}
			told := false
			for _, p := range w.platforms {
				for _, state := range p.settled[event] {
					told = told || state == r.State
				}
			}
			if !told {
				w.fail("%s was never told as %s", event, r.State)
			}
		}
	}
}

// checkInbox: nothing in it waits, and it tells the agent what led to nothing, or the owner was told.
func (w *simWorld) checkInbox(ctx context.Context, s store.Session, rows []store.Ledger) {
	box, err := sqlite.Open(ctx, session.Dir(w.home, s), sqlite.HostOptions{OutUID: -1, SandboxGID: -1})
	if err != nil {
		w.fail("the mailbox of %s: %v", s.ID, err)
		return
	}
	defer func() { _ = box.Close() }()
	if n, next, err := box.Due(ctx); err != nil || n > 0 || !next.IsZero() {
		w.fail("the inbox of %s has %d rows to do, the next at %v: %v", s.ID, n, next, err)
	}
	inside, err := sqlite.OpenReadOnly(ctx, session.Dir(w.home, s), sqlite.RunnerOptions{Incarnation: s.Incarnation}, sqlite.HostOptions{OutUID: -1})
	if err != nil {
		w.fail("the mailbox of %s: %v", s.ID, err)
		return
	}
	defer func() { _ = inside.Close() }()
	for _, v := range rows {
		if v.State != store.Refused && v.State != store.NoRoute && v.State != store.Dead {
			continue
		}
		if _, err := inside.Row(ctx, id.Derived(id.PrefixNotice, string(s.ID), "undelivered:"+string(v.ID))); err == nil {
			continue
		}
		if _, err := w.host.store.Delivery(ctx, id.Ledger(id.Derived(id.PrefixLedger, "host", "undelivered-owner:"+string(v.ID)))); err != nil {
			w.fail("nobody was told that %s is %s", v.OutboundID, v.State)
		}
	}
}

// checkHidden: what refused people wrote is in no file.
func (w *simWorld) checkHidden() {
	err := filepath.WalkDir(w.home, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		if bytes.Contains(b, []byte(simForbidden)) {
			w.fail("%s has what a refused person wrote", path)
		}
		return err
	})
	if err != nil {
		w.fail("%v", err)
	}
}
