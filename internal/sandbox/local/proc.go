package local

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// Proc identifies a process beyond the reuse of its number: by the time it started, in clock ticks since boot.
type Proc struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"`
}

// stat is what /proc/<pid>/stat says and we need.
type stat struct {
	pid, parent, session int
	state                byte
	start                uint64
}

func readStat(pid int) (stat, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return stat{}, err
	}
	return parseStat(b)
}

// parseStat reads a stat line. The name in parentheses is the process's own choice and may hold anything, so the fields
// are counted from the last parenthesis.
func parseStat(b []byte) (stat, error) {
	open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 1 || end < open {
		return stat{}, errors.New("parse process status: no name in it")
	}
	f := strings.Fields(string(b[end+1:]))
	if len(f) < 20 || len(f[0]) != 1 {
		return stat{}, errors.New("parse process status: too few fields")
	}
	if c := f[0][0] | 0x20; c < 'a' || c > 'z' {
		return stat{}, errors.New("parse process status: the state is no letter")
	}
	s := stat{state: f[0][0]}
	var errs [4]error
	s.pid, errs[0] = strconv.Atoi(strings.TrimSpace(string(b[:open])))
	s.parent, errs[1] = strconv.Atoi(f[1])
	s.session, errs[2] = strconv.Atoi(f[3])
	s.start, errs[3] = strconv.ParseUint(f[19], 10, 64)
	return s, errors.Join(errs[:]...)
}

// Identify reads the identity of a living process.
func Identify(pid int) (Proc, error) {
	s, err := readStat(pid)
	if err != nil {
		return Proc{}, fmt.Errorf("identify process %d: %w", pid, err)
	}
	return Proc{PID: pid, Start: s.start}, nil
}

// Alive reports whether this very process lives. A zombie is dead.
func (p Proc) Alive() bool {
	if p.PID <= 0 {
		return false
	}
	s, err := readStat(p.PID)
	return err == nil && s.start == p.Start && s.state != 'Z' && s.state != 'X'
}

// exists is Alive, zombies included.
func (p Proc) exists() bool {
	s, err := readStat(p.PID)
	return p.PID > 0 && err == nil && s.start == p.Start
}

// catches reports whether the process has a handler for a signal.
func catches(pid int, sig syscall.Signal) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(b)) {
		if mask, ok := strings.CutPrefix(line, "SigCgt:"); ok {
			m, err := strconv.ParseUint(strings.TrimSpace(mask), 16, 64)
			return err == nil && m>>(sig-1)&1 == 1
		}
	}
	return false
}

// bootID tells one boot of the machine from another: process numbers and start times mean nothing across them.
func bootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("read boot id: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}

// processes reads all there are; those that end meanwhile are left out.
func processes() []stat {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	all := make([]stat, 0, len(entries))
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if s, err := readStat(pid); err == nil {
			all = append(all, s)
		}
	}
	return all
}

// Parent is the process id of pid's parent, 0 if there is none to be read.
func Parent(pid int) int {
	s, err := readStat(pid)
	if err != nil {
		return 0
	}
	return s.parent
}

// Family is leader, the processes of its process session, and all that descends from these.
func Family(leader Proc) []Proc {
	all := processes()
	in := map[int]bool{}
	for _, s := range all {
		// A session of that number whose leader started at another time belongs to somebody who got the number since.
		if s.pid == leader.PID && s.start != leader.Start {
			return nil
		}
		in[s.pid] = s.session == leader.PID || s.pid == leader.PID
	}
	for grown := true; grown; {
		grown = false
		for _, s := range all {
			if !in[s.pid] && in[s.parent] {
				in[s.pid], grown = true, true
			}
		}
	}
	var family []Proc
	for _, s := range all {
		if in[s.pid] && s.state != 'Z' && s.start >= leader.Start {
			family = append(family, Proc{PID: s.pid, Start: s.start})
		}
	}
	return family
}
