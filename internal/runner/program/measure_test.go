package program

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// runnerBinary is a release build that the benchmarks measure: NANOCLAW_AGENT_RUNNER names it.
func runnerBinary(b *testing.B) string {
	b.Helper()
	path := os.Getenv("NANOCLAW_AGENT_RUNNER")
	if path == "" {
		b.Skip("NANOCLAW_AGENT_RUNNER names no program; build one with CGO_ENABLED=0 -trimpath -ldflags '-s -w'")
	}
	return path
}

func median(all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[len(all)/2]
}

func resident(b *testing.B, pid int, field string) float64 {
	b.Helper()
	status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if v, ok := strings.CutPrefix(line, field+":"); ok {
			kb, err := strconv.Atoi(strings.Fields(v)[0])
			if err != nil {
				b.Fatal(err)
			}
			return float64(kb) / 1024
		}
	}
	b.Fatalf("no %s", field)
	return 0
}

// BenchmarkWarm is the way from an inbound commit to the outbound row, echo over the bell.
func BenchmarkWarm(b *testing.B) {
	r := newRig(b)
	r.listen()
	p := r.spawn(runnerBinary(b), nil)
	r.put(message("first", "hi"))
	r.until("the first answer", func() bool { return len(r.out()) == 1 })
	var took []time.Duration
	n := int64(0)
	for b.Loop() {
		n++
		after := r.out()[len(r.out())-1].Seq
		start := time.Now()
		r.put(message(fmt.Sprintf("m%d", n), "hi"))
		for {
			<-r.bell.Rung()
			rows, err := r.host.Outbound(b.Context(), after, 10)
			r.must(err)
			if len(rows) > 0 {
				break
			}
		}
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)*95/100].Microseconds())/1000, "p95-ms")
	b.ReportMetric(resident(b, p.Process.Pid, "VmRSS"), "rss-MB")
	b.ReportMetric(resident(b, p.Process.Pid, "RssAnon"), "anon-MB")
}

// BenchmarkCold is exec to the first look at an inbox without work (the program ends then), and to the end of the first
// exchange.
func BenchmarkCold(b *testing.B) {
	binary := runnerBinary(b)
	for _, work := range []bool{false, true} {
		b.Run(fmt.Sprintf("work=%v", work), func(b *testing.B) {
			r := newRig(b)
			var took []time.Duration
			n := 0
			for b.Loop() {
				n++
				if work {
					r.put(message(fmt.Sprintf("m%d", n), "hi"))
				}
				start := time.Now()
				if p := r.spawn(binary, nil, "--once"); p.code() != 0 {
					b.Fatal(p.stderr.String())
				}
				took = append(took, time.Since(start))
			}
			b.ReportMetric(float64(median(took).Microseconds())/1000, "p50-ms")
		})
	}
}

// BenchmarkIdle is the memory of a runner that waits.
func BenchmarkIdle(b *testing.B) {
	for b.Loop() {
		r := newRig(b)
		r.listen()
		p := r.spawn(runnerBinary(b), nil)
		r.put(message("first", "hi"))
		r.until("the first answer", func() bool { return len(r.out()) == 1 })
		time.Sleep(300 * time.Millisecond)
		b.ReportMetric(resident(b, p.Process.Pid, "VmRSS"), "rss-MB")
		b.ReportMetric(resident(b, p.Process.Pid, "RssAnon"), "anon-MB")
	}
}
