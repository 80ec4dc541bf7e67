package runner_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
)

// TestSimulation plays thousands of random worlds around a loop, each in virtual time: nothing is lost, nothing doubled, nothing
// goes to another destination, every row ends, an exchange is nudged once. NANOCLAW_SIM_SEED replays one seed with a trace,
// NANOCLAW_SIM_SEEDS sets how many are played.
func TestSimulation(t *testing.T) {
	t.Parallel()
	if seed, err := strconv.ParseUint(os.Getenv("NANOCLAW_SIM_SEED"), 10, 64); err == nil {
		replay(t, seed)
		return
	}
	seeds := uint64(simSeeds)
	if testing.Short() {
		seeds = 200
	}
	if n, err := strconv.ParseUint(os.Getenv("NANOCLAW_SIM_SEEDS"), 10, 64); err == nil {
		seeds = n
	}
	const parts = 8
	for part := range uint64(parts) {
		t.Run(fmt.Sprint(part), func(t *testing.T) {
			t.Parallel()
			for seed := part; seed < seeds; seed += parts {
				play(t, seed, nil)
			}
		})
	}
}

// replay plays a seed until it fails, a hundred times at most: what the scheduler decides no seed does. It shows what happened.
func replay(t *testing.T, seed uint64) {
	var trace *simTrace
	defer func() { t.Log("\n" + strings.Join(trace.lines, "\n")) }()
	for n := 0; n < 100 && !t.Failed(); n++ {
		trace = &simTrace{}
		play(t, seed, trace)
	}
}

// play is one world from its beginning to its end.
func play(t *testing.T, seed uint64, trace *simTrace) {
	defer func() {
		if stuck := recover(); stuck != nil {
			t.Errorf("seed %d: %v", seed, stuck)
		}
	}()
	synctest.Test(t, func(t *testing.T) {
		w := newSimWorld(t, seed, trace)
		w.start()
		w.rest()
		for range 60 + w.random.IntN(60) {
			if w.failed.Load() {
				break
			}
			w.move()
		}
		w.settle()
		for _, wait := range w.dying {
			wait()
		}
		if !w.failed.Load() {
			w.check()
		}
		w.cancel()
		w.wait(w.h, w.done)
	})
}
