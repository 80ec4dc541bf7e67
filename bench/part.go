package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/mailbox/sqlite"
	"nanoclaw/internal/runner/block"
)

// parser is the block parser on mixed text, whole and in single bytes.
func parser(_ context.Context, b *bundle) ([]row, error) {
	text := mixed(10 << 20)
	var whole, single []float64
	for range min(b.n, 30) {
		whole = append(whole, rate(text, 64<<10))
		single = append(single, rate(text, 1))
	}
	fast, slow := quantile(whole, 0.5), quantile(single, 0.5)
	return []row{
		{Name: "block parser, pieces of 64 KB", Unit: "MB/s", P50: fast, P95: quantile(whole, 0.05), Goal: "≥ 100", OK: fast >= 100},
		{Name: "block parser: 10 MB in single bytes, cost per byte", Unit: "×", P50: fast / slow, P95: fast / quantile(single, 0.05), Floor: 1, Goal: "≤ 3 × pieces of 64 KB", OK: fast/slow <= 3},
	}, nil
}

func rate(text string, piece int) float64 {
	p := block.New()
	began := time.Now()
	for i := 0; i < len(text); i += piece {
		p.Write(text[i:min(i+piece, len(text))])
	}
	p.End()
	return float64(len(text)) / 1e6 / time.Since(began).Seconds()
}

// mixed is text as models write it: prose, blocks, code, internal spans.
func mixed(size int) string {
	r := rand.New(rand.NewPCG(1, 2))
	parts := []string{
		"The quick brown fox jumps over the lazy dog, and a < b while c > d. ",
		"<message to=\"family\">Dinner is ready at eight, bring **something** to drink.</message>\n",
		"<internal>I should check the list first.</internal> ",
		"Use `<message to=\"x\">` to send; ``a `b` c`` too. ",
		"```go\nif a < b { return \"<message>\" }\n```\n",
	}
	var s strings.Builder
	for s.Len() < size {
		s.WriteString(parts[r.IntN(len(parts))])
	}
	return s.String()[:size]
}

// mailboxes is what a message costs in a mailbox that has seen many, beside one that has seen few.
func mailboxes(ctx context.Context, b *bundle) ([]row, error) {
	var sessions []*session
	for _, history := range []int{1000, 100_000} {
		s, err := b.session(ctx, fmt.Sprintf("history-%d", history))
		if err != nil {
			return nil, err
		}
		defer s.end()
		if err := s.live(ctx, history); err != nil {
			return nil, fmt.Errorf("make a history of %d messages: %w", history, err)
		}
		if err := s.start(b); err != nil {
			return nil, err
		}
		sessions = append(sessions, s)
	}
	const warmUp = 20
	samples := make([][]float64, len(sessions))
	for i := range 10*b.n + warmUp {
		for j, s := range sessions {
			began := time.Now()
			if err := s.put(ctx, 1); err != nil {
				return nil, err
			}
			s.bell.Ring()
			if err := s.settled(ctx); err != nil {
				return nil, err
			}
			if i >= warmUp {
				samples[j] = append(samples[j], millis(time.Since(began)))
			}
		}
	}
	early, late := samples[0], samples[1]
	ratio := quantile(late, 0.5) / quantile(early, 0.5)
	return []row{{Name: "per-message cost at message 100,000 against message 1,000", Unit: "×", P50: ratio, P95: quantile(late, 0.95) / quantile(early, 0.95),
		Floor: 1, Goal: "≤ 1.2", OK: ratio <= 1.2}}, nil
}

// live gives the mailbox a past: n messages that were claimed, answered and settled by an earlier incarnation.
func (s *session) live(ctx context.Context, n int) error {
	past, err := sqlite.OpenRunner(ctx, s.dir, sqlite.RunnerOptions{Incarnation: 0})
	if err != nil {
		return err
	}
	defer func() { _ = past.Close() }()
	const page = 500
	for s.n < n {
		first := s.n + 1
		if err := s.put(ctx, page); err != nil {
			return err
		}
		var f mailbox.Finish
		var acks []mailbox.Ack
		for i := first; i <= s.n; i++ {
			name := fmt.Sprintf("msg-%d", i)
			f.Completed = append(f.Completed, name)
			acks = append(acks, mailbox.Ack{MessageID: name, Status: mailbox.AckCompleted})
			f.Out = append(f.Out, mailbox.OutRow{ID: fmt.Sprintf("out-%d", i), InReplyTo: name, Timestamp: time.Now(), Kind: mailbox.KindChat, Exchange: fmt.Sprintf("ex-%d", i),
				Address: mailbox.Address{ChannelType: "cli", PlatformID: "cli:local"}, Content: []byte(`{"text":"an answer of the past"}`)})
		}
		if err := past.Claim(ctx, "ex-past", f.Completed); err != nil {
			return err
		}
		if _, err := past.Finish(ctx, f); err != nil {
			return err
		}
		if err := s.host.Settle(ctx, acks...); err != nil {
			return err
		}
	}
	for {
		acks, next, err := s.host.Acks(ctx, s.change)
		if err != nil || len(acks) == 0 {
			return err
		}
		s.change = next
	}
}

// settled waits for the ack of the newest row and copies it into the inbox.
func (s *session) settled(ctx context.Context) error {
	want := fmt.Sprintf("msg-%d", s.n)
	limit := time.NewTimer(30 * time.Second)
	defer limit.Stop()
	for {
		acks, next, err := s.host.Acks(ctx, s.change)
		if err != nil {
			return err
		}
		s.change = next
		for _, a := range acks {
			if a.MessageID == want && a.Status.Final() {
				return s.host.Settle(ctx, a)
			}
		}
		if len(acks) > 0 {
			continue
		}
		select {
		case <-s.bell.Rung():
		case <-limit.C:
			return fmt.Errorf("no ack for %s within 30 s", want)
		}
	}
}
