// Package sweep is the last net: what bells and timers missed is found at the next pass, and what is old goes
// (spec/host.md section 11).
package sweep

import (
	"context"
	"log/slog"
	"time"

	"nanoclaw/internal/obs"
)

// Concern is one thing a pass looks after. Its error is logged; the next pass tries again.
type Concern struct {
	Name  string
	Every time.Duration
	Do    func(ctx context.Context) error
}

// Run does every concern in its period, each on its own, until ctx ends; the first pass comes after one period.
func Run(ctx context.Context, log *slog.Logger, concerns ...Concern) {
	done := make(chan struct{})
	for _, c := range concerns {
		go func() {
			defer func() { done <- struct{}{} }()
			repeat(ctx, log.With(obs.KeyComponent, "sweep", obs.KeyConcern, c.Name), c)
		}()
	}
	for range concerns {
		<-done
	}
}

func repeat(ctx context.Context, log *slog.Logger, c Concern) {
	t := time.NewTicker(c.Every)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			if err := c.Do(ctx); err != nil && ctx.Err() == nil {
				log.Error("a pass of the sweep failed", obs.Error(err))
			}
		}
	}
}
