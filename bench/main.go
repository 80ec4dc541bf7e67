// Command bench measures what the documents promise: one table, one run, floors measured beside, judged as ratios where
// the machine matters. It uses the programs in bin/ (`make bench` builds them) and leaves nothing behind.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// row of the table and of results.json.
type row struct {
	Name  string  `json:"name"`
	Unit  string  `json:"unit"`
	P50   float64 `json:"p50"`
	P95   float64 `json:"p95"`
	P99   float64 `json:"p99,omitempty"`
	Floor float64 `json:"floor"`           // 0: none
	Ratio float64 `json:"ratio,omitempty"` // to the floor; of the median, if not said otherwise
	Goal  string  `json:"goal"`
	OK    bool    `json:"ok"`
	Note  string  `json:"note,omitempty"` // why a row could not be measured
}

// bundle is what the measurements share.
type bundle struct {
	bin  string // folder of the programs
	work string // private folder
	n    int    // samples
}

// measurement makes some rows.
type measurement struct {
	name string
	do   func(ctx context.Context, b *bundle) ([]row, error)
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	only := flag.String("only", "", "measure only rows whose group contains this")
	n := flag.Int("n", 40, "samples")
	out := flag.String("o", "bench/results.json", "results")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if flag.NArg() == 2 && flag.Arg(0) == peerArgument {
		return peer(ctx, flag.Arg(1))
	}
	work, err := os.MkdirTemp("", "nanoclaw-bench")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()
	if err := os.Chmod(work, 0o755); err != nil {
		return err
	}
	bin, err := filepath.Abs("bin")
	if err != nil {
		return err
	}
	b := &bundle{bin: bin, work: work, n: *n}
	var all []row
	for _, m := range []measurement{
		{"parser", parser}, {"mailbox", mailboxes}, {"runner", alone}, {"tool", tools}, {"warm", warm}, {"cold", cold}, {"host", hosts}, {"live", live}, {"crowd", crowd}, {"scale", scale}, {"hang", hang}, {"program", programs}, {"loop", loop},
	} {
		if !strings.Contains(m.name, *only) {
			continue
		}
		fmt.Fprintln(os.Stderr, "measuring", m.name)
		rows, err := m.do(ctx, b)
		if err != nil {
			rows = append(rows, row{Name: m.name, Note: err.Error()})
		}
		for i, r := range rows {
			if r.Ratio == 0 && r.Floor > 0 {
				rows[i].Ratio = r.P50 / r.Floor
			}
		}
		all = append(all, rows...)
		if ctx.Err() != nil {
			break
		}
	}
	print(all)
	j, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(*out, append(j, '\n'), 0o644)
}

func print(rows []row) {
	fmt.Printf("%-80s %9s %9s %9s %9s %7s  %-5s %-28s %s\n", "what", "p50", "p95", "p99", "floor", "ratio", "unit", "goal", "met")
	figure := func(v float64) string {
		if v == 0 {
			return "-"
		}
		return fmt.Sprintf("%.3g", v)
	}
	for _, r := range rows {
		if r.Note != "" {
			fmt.Printf("%-80s not measured: %s\n", r.Name, r.Note)
			continue
		}
		fmt.Printf("%-80s %9.3g %9.3g %9s %9s %7s  %-5s %-28s %v\n", r.Name, r.P50, r.P95, figure(r.P99), figure(r.Floor), figure(r.Ratio), r.Unit, r.Goal, r.OK)
	}
}

// quantile of samples, q from 0 to 1.
func quantile(samples []float64, q float64) float64 {
	if len(samples) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(samples))
	return s[min(int(q*float64(len(s))), len(s)-1)]
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// result of samples against a goal for the median and, if not 0, for p95.
func result(name, unit string, samples []float64, floor, goal50, goal95 float64, goal string) row {
	r := row{Name: name, Unit: unit, P50: quantile(samples, 0.5), P95: quantile(samples, 0.95), Floor: floor, Goal: goal}
	r.OK = r.P50 <= goal50 && (goal95 == 0 || r.P95 <= goal95)
	return r
}
