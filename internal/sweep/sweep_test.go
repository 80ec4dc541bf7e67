package sweep

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"nanoclaw/internal/obs"
)

func TestEveryConcernInItsPeriodAndAfterAFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		often, seldom := 0, 0
		done := make(chan struct{})
		go func() {
			defer close(done)
			Run(ctx, obs.Discard(),
				Concern{"often", time.Minute, func(context.Context) error { often++; return errors.New("broken") }},
				Concern{"seldom", time.Hour, func(context.Context) error { seldom++; return nil }})
		}()
		time.Sleep(time.Hour + time.Second)
		synctest.Wait()
		if often != 60 || seldom != 1 {
			t.Errorf("often ran %d times, seldom %d; want 60 and 1", often, seldom)
		}
		cancel()
		<-done
	})
}
