package sqlite

import (
	"fmt"
	"sync"
	"testing"

	"nanoclaw/internal/mailbox"
)

// A mailbox is looked at by a second host half of the same process while the first one writes and a runner works: nobody
// loses anything or waits for long, and the look sees whole exchanges.
func TestTraceBesideALiveHost(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	opt := HostOptions{OutUID: -1, SandboxGID: -1}
	h, err := Create(t.Context(), dir, opt)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = h.Close() }()
	r, err := OpenRunner(t.Context(), dir, RunnerOptions{Incarnation: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	const n = 40
	put := make(chan string, n)
	done := make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		defer close(put)
		for i := range n {
			row := fmt.Sprintf("msg-%d", i)
			if _, err := h.Put(t.Context(), mailbox.InRow{ID: row, Kind: mailbox.KindChat, Trigger: true, Content: []byte(`{"text":"x"}`)}); err != nil {
				t.Error(err)
			}
			put <- row
		}
	})
	all.Go(func() {
		defer close(done)
		for row := range put {
			ex := "ex-" + row
			if err := r.Claim(t.Context(), ex, []string{row}); err != nil {
				t.Error(err)
			}
			note, _ := mailbox.EncodeContent(mailbox.ExchangeNote{Exchange: ex, Nudged: true})
			if _, err := r.Finish(t.Context(), mailbox.Finish{Out: []mailbox.OutRow{{Kind: mailbox.KindChat, Exchange: ex, Content: []byte(`{"text":"y"}`),
				Address: mailbox.Address{ChannelType: "cli", PlatformID: "cli:x"}}}, Completed: []string{row}, State: map[string]string{mailbox.NoteKey(ex): string(note)},
				Usage: []mailbox.Usage{{Exchange: ex, Provider: "mock"}}}); err != nil {
				t.Error(err)
			}
		}
	})
	looks := 0
	for working := true; working; looks++ {
		select {
		case <-done:
			working = false
		default:
		}
		second, err := Open(t.Context(), dir, opt)
		if err != nil {
			t.Fatal(err)
		}
		for i := range n {
			got, err := second.Trace(t.Context(), fmt.Sprintf("msg-%d", i))
			if err != nil || len(got.Problems) > 0 {
				t.Errorf("%v %q", err, got.Problems)
			}
			final := got.Ack != nil && got.Ack.Status.Final()
			if final && (len(got.Out) != 1 || len(got.Usage) != 1 || got.Row == nil) || !working && !final {
				t.Errorf("msg-%d: %+v", i, got)
			}
		}
		if err := second.Close(); err != nil {
			t.Error(err)
		}
	}
	all.Wait()
	if state, err := h.State(t.Context()); err != nil || len(state.Session) != 0 {
		t.Errorf("notes are no state that is read at every turn of the bell: %v, %v", state.Session, err)
	}
	if rows, err := h.Outbound(t.Context(), 0, 1000); err != nil || len(rows) != n || looks < 2 {
		t.Errorf("%d rows, %d looks, %v", len(rows), looks, err)
	}
}
