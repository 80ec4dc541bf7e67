package route

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"nanoclaw/internal/channel"
	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/store"
)

// Whatever a platform repeats, and wherever a host fails in between: in the end every message is stored once for every agent that
// takes it, wakes it once at most, and nobody is told twice.
func TestReplayChangesNothing(t *testing.T) {
	t.Parallel()
	policies := store.UnknownSenderPolicy("").Words()
	modes := store.EngageMode("").Words()
	ignored := store.IgnoredPolicy("").Words()
	sessions := store.SessionMode("").Words()
	b := setup(t)
	for run := range 15 { // the seed
		rnd := rand.New(rand.NewPCG(uint64(run), 1))
		place := fmt.Sprint("web:", run) // a chat of its own in one home: making homes is slow
		policy := pick(rnd, policies)
		group := pick(rnd, []bool{true, false})
		for _, folder := range []string{"main", "second"} {
			b.wire(t, folder, place, group, policy, func(w *store.Wiring) {
				w.EngageMode, w.IgnoredMessagePolicy = pick(rnd, modes), pick(rnd, ignored)
				w.SessionMode = pick(rnd, sessions)
				w.EngagePattern = pick(rnd, []string{".", "x", ""})
			})
		}
		var events []channel.Inbound
		for i := range 1 + rnd.IntN(5) {
			m := say(fmt.Sprint(run, "-", i), pick(rnd, []string{"hello", "x", "/clear", "/stop", "/help"}))
			m.Address = channel.Address{PlatformID: place, ThreadID: pick(rnd, []string{"", "t"})}
			m.Group, m.Mention = group, pick(rnd, []channel.Tri{channel.Yes, channel.No, channel.Unknown})
			m.Sender.ID = pick(rnd, []string{"web:kim", "web:lee"})
			events = append(events, m)
		}
		if pick(rnd, []bool{true, false}) {
			b.member(t, "web:lee", b.agent(t, "main"))
		}
		b.inbox.rows, b.inbox.events = map[string]mailbox.InRow{}, nil
		var first []channel.VerdictKind
		for _, m := range events {
			if pick(rnd, []bool{true, false}) { // of one agent's inbox, then it is tried again
				b.inbox.fail, b.inbox.failFor = errors.New("disk full"), b.agent(t, pick(rnd, []string{"main", "second"}))
				_, _ = b.r.Inbound(t.Context(), web, m)
				b.inbox.fail = nil
			}
			v, err := b.r.Inbound(t.Context(), web, m)
			if err != nil {
				t.Fatal(run, err)
			}
			first = append(first, v.Kind)
		}
		rows, words, held := len(b.inbox.rows), len(b.inbox.words), len(b.inbox.held)
		puts := 0
		for _, e := range b.inbox.events {
			if len(e) > 3 && e[:3] == "put" {
				puts++
			}
		}
		if puts != rows {
			t.Errorf("run %d: %d puts for %d rows", run, puts, rows)
		}
		for range 2 {
			for i, m := range events {
				v, err := b.r.Inbound(t.Context(), web, m)
				if err != nil {
					t.Fatal(run, err)
				}
				// A dropped message may engage later, once its thread does; what was taken is never taken again.
				if first[i] != channel.Dropped && v.Kind != channel.Duplicate {
					t.Errorf("run %d: message %d: first %s, then %s", run, i, first[i], v.Kind)
				}
			}
		}
		if len(b.inbox.words) != words || len(b.inbox.held) != held {
			t.Errorf("run %d: told again: %d words, then %d; held %d, then %d", run, words, len(b.inbox.words), held, len(b.inbox.held))
		}
	}
}

func pick[T any](rnd *rand.Rand, of []T) T { return of[rnd.IntN(len(of))] }

// Cost per message: the same with 1,000 and 10,000 sessions, each with history.
func BenchmarkInbound(bm *testing.B) {
	for _, sessions := range []int{1000, 10_000} {
		bm.Run(fmt.Sprint("sessions=", sessions), func(bm *testing.B) {
			b := setup(bm)
			w := b.wire(bm, "main", team, true, store.Public, nil)
			db := b.raw(bm)
			tx, err := db.Begin()
			if err != nil {
				bm.Fatal(err)
			}
			for i := range sessions {
				for _, q := range []string{
					`INSERT INTO sessions (id, session_key, agent_group_id, messaging_group_id, created_at, last_active) VALUES ('sess-' || ?1, 'k' || ?1, ?2, ?3, 'x', 'x')`,
					`INSERT INTO inbound_messages (instance, platform_id, platform_message_id, agent_group_id, row_id, session_id, received_at, state)
						VALUES ('web', 'web:team', 'old' || ?1, ?2, 'msg-' || ?1, 'sess-' || ?1, 'x', 'answered')`,
				} {
					if _, err := tx.Exec(q, i, w.AgentGroupID, w.MessagingGroupID); err != nil {
						bm.Fatal(err)
					}
				}
			}
			if err := tx.Commit(); err != nil {
				bm.Fatal(err)
			}
			bm.ResetTimer()
			for i := range bm.N {
				if v, err := b.r.Inbound(bm.Context(), web, say(fmt.Sprint("new", i), "hello")); err != nil || v.Kind != channel.Stored {
					bm.Fatal(v, err)
				}
			}
		})
	}
}
