package program

import (
	"testing"
	"time"
)

func TestLimitsOfTranscripts(t *testing.T) {
	t.Parallel()
	for v, want := range map[string]int64{"": 0, "1000": 1000, "0": 0, "-5": 0, "12MiB": 0, "99999999999999999999": 0} {
		if got := rotateBytes(v); got != want {
			t.Errorf("%q bytes: %d, want %d", v, got, want)
		}
	}
	const day = 24 * time.Hour
	for v, want := range map[string]time.Duration{"": 0, "7": 7 * day, "0.5": day / 2, "0": -1, "-3": -1, "soon": 0, "NaN": 0, "1e300": 36500 * day} {
		if got := rotateAge(v); got != want {
			t.Errorf("%q days: %s, want %s", v, got, want)
		}
	}
}
