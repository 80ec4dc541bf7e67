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

// variable holds `name=N[,name=N…]`: the process dies by SIGKILL at the N-th hit of that name. onceVariable, if set, names
// a file that is made at the first crash; once it is there, nothing crashes any more, in no process.
const (
	variable     = "NANOCLAW_CRASHPOINT"
	onceVariable = "NANOCLAW_CRASHPOINT_ONCE"
)

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
	if c := plan[name]; c == nil || c.Add(-1) != 0 || !first() {
		return
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

func first() bool {
	path := os.Getenv(onceVariable)
	if path == "" {
		return true
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
	if err != nil {
		return false
	}
	return f.Close() == nil
}

// Environ is what a child must be given so that its own crash points work.
func Environ() []string {
	var out []string
	for _, name := range []string{variable, onceVariable} {
		if v := os.Getenv(name); v != "" {
			out = append(out, name+"="+v)
		}
	}
	return out
}
