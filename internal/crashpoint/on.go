//go:build crashpoint

// Package crashpoint names the places where a test kills the process.
package crashpoint

import (
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

// variable holds `name=N[,name=N…]`: the process dies by SIGKILL at the N-th hit of that name.
const variable = "NANOCLAW_CRASHPOINT"

var plan = parse(os.Getenv(variable))

func parse(s string) map[string]*atomic.Int64 {
	m := map[string]*atomic.Int64{}
	for _, item := range strings.Split(s, ",") {
		name, n, ok := strings.Cut(item, "=")
		if v, err := strconv.ParseInt(n, 10, 64); ok && err == nil {
			c := &atomic.Int64{}
			c.Store(v)
			m[name] = c
		}
	}
	return m
}

// Hit kills this process with SIGKILL when the plan says so for this hit of name.
func Hit(name string) {
	if c := plan[name]; c != nil && c.Add(-1) == 0 {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}

// Environ is what a child must be given so that its own crash points work.
func Environ() []string {
	if v := os.Getenv(variable); v != "" {
		return []string{variable + "=" + v}
	}
	return nil
}
