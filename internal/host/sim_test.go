package host

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
)

// TestSimulation plays random worlds around the services of a host, each in virtual time: hosts crash between any two commits, disks
// are full, sandboxes die, platforms fail in every way, and in the end every message has a named end and nothing was said twice or
// in the wrong place. NANOCLAW_SIM_SEED replays one seed with a trace, NANOCLAW_SIM_SEEDS sets how many are played,
// NANOCLAW_SIM_FROM the first of them.
func TestSimulation(t *testing.T) {
	t.Parallel()
	if seed, err := strconv.ParseUint(os.Getenv("NANOCLAW_SIM_SEED"), 10, 64); err == nil {
		replay(t, seed)
		return
	}
	seeds := uint64(simSeeds)
	if n, err := strconv.ParseUint(os.Getenv("NANOCLAW_SIM_SEEDS"), 10, 64); err == nil {
		seeds = n
	}
	from, _ := strconv.ParseUint(os.Getenv("NANOCLAW_SIM_FROM"), 10, 64)
	const parts = 4
	for part := range uint64(parts) {
		t.Run(fmt.Sprint(part), func(t *testing.T) {
			t.Parallel()
			for seed := from + part; seed < from+seeds; seed += parts {
				play(t, seed, nil)
			}
		})
	}
}

// replay plays a seed until it fails, twenty times at most: what the scheduler decides no seed does. It shows what happened.
func replay(t *testing.T, seed uint64) {
	var trace *simTrace
	defer func() { t.Log("\n" + strings.Join(trace.lines, "\n")) }()
	for n := 0; n < 20 && !t.Failed(); n++ {
		trace = &simTrace{}
		play(t, seed, trace)
	}
}

// play is one world from its beginning to its end.
func play(t *testing.T, seed uint64, trace *simTrace) {
	home := t.TempDir()
	defer func() {
		if stuck := recover(); stuck != nil {
			t.Errorf("seed %d: %v", seed, stuck)
		}
		if err := os.RemoveAll(home); err != nil {
			t.Error(err)
		}
	}()
	synctest.Test(t, func(t *testing.T) {
		w := newSimWorld(t, home, seed, trace)
		w.start()
		for range 30 + w.n(40) {
			if w.failed.Load() {
				break
			}
			w.move()
		}
		w.settle()
		if !w.failed.Load() {
			w.check()
		}
		w.end()
	})
}
