package main

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"nanoclaw/internal/sandbox/sandboxtest/ask"
)

func read(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.LimitReader(f, 64<<10))
	return string(b), err
}

func fill(path string, n int64) (done int64, err error) {
	f, err := os.Create(path)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(path)) }()
	block := bytes.Repeat([]byte{1}, 64<<10)
	for done < n {
		w, err := f.Write(block)
		done += int64(w)
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

func sleeper(mark string) *exec.Cmd {
	return &exec.Cmd{Path: "/proc/self/exe", Args: []string{"probe", "sleep", mark}}
}

func fork(n int64, mark string) (started int64, err error) {
	keepThreads(12)
	var all []*exec.Cmd
	for started < n {
		c := sleeper(mark)
		if err = c.Start(); err != nil {
			break
		}
		all = append(all, c)
		started++
	}
	for _, c := range all {
		_ = c.Process.Kill()
		_ = c.Wait()
	}
	return started, err
}

// keepThreads makes the Go runtime hold n threads more, which it keeps for later. Without them the probe would die when the
// runtime wants a thread at the moment at which the limit is reached.
func keepThreads(n int) {
	var all sync.WaitGroup
	gate := make(chan struct{})
	for range n {
		all.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			<-gate
		})
	}
	for range n {
		gate <- struct{}{}
	}
	all.Wait()
}

// family starts processes in the three ways that keep one alive beyond its parent's careless end.
func family(mark string) error {
	child := sleeper(mark)
	apart := sleeper(mark)
	apart.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	for _, c := range []*exec.Cmd{child, apart} {
		if err := c.Start(); err != nil {
			return err
		}
	}
	orphan := exec.Command("/bin/sh", "-c", `"$0" sleep "$1" & exit 0`, os.Args[0], mark)
	return orphan.Run()
}

// hog touches what it takes, page by page.
func hog(n int64) int64 {
	const block = 1 << 20
	var held [][]byte
	for taken := int64(0); taken < n; taken += block {
		b := make([]byte, block)
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
		held = append(held, b)
	}
	total := int64(0)
	for _, b := range held {
		total += int64(len(b))
	}
	return total
}

func spin(d time.Duration) int64 {
	before := cpu()
	end := time.Now().Add(d)
	var all sync.WaitGroup
	for range runtime.NumCPU() {
		all.Go(func() {
			for time.Now().Before(end) {
			}
		})
	}
	all.Wait()
	return (cpu() - before).Milliseconds()
}

func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func report() (r ask.Report, err error) {
	r.Env, r.UID, r.GID = os.Environ(), os.Getuid(), os.Getgid()
	var errs []error
	keep := func(err error) { errs = append(errs, err) }
	r.Groups, err = os.Getgroups()
	keep(err)
	r.Dir, err = os.Getwd()
	keep(err)
	r.Status = map[string]string{}
	status, err := read("/proc/self/status")
	keep(err)
	for line := range strings.Lines(status) {
		k, v, _ := strings.Cut(line, ":")
		r.Status[k] = strings.TrimSpace(v)
	}
	uidMap, err := read("/proc/self/uid_map")
	keep(err)
	for line := range strings.Lines(uidMap) {
		r.UIDMap = append(r.UIDMap, strings.Join(strings.Fields(line), " "))
	}
	r.Processes = commandLines()
	r.Interfaces, r.Addresses, err = network()
	keep(err)
	r.Routes = routes()
	r.Descriptors = descriptors()
	r.Passwd, _ = read("/etc/passwd")
	r.Etc, r.Root = names("/etc"), names("/")
	return r, errors.Join(errs...)
}

func commandLines() (all []string) {
	for _, name := range names("/proc") {
		if _, err := strconv.Atoi(name); err != nil {
			continue
		}
		b, err := os.ReadFile(filepath.Join("/proc", name, "cmdline"))
		if err == nil && len(b) > 0 {
			all = append(all, strings.TrimSpace(string(bytes.ReplaceAll(b, []byte{0}, []byte{' '}))))
		}
	}
	return all
}

func network() (interfaces, addresses []string, err error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, nil, err
	}
	for _, i := range all {
		if i.Flags&net.FlagUp == 0 {
			continue
		}
		interfaces = append(interfaces, i.Name)
		as, err := i.Addrs()
		if err != nil {
			return nil, nil, err
		}
		for _, a := range as {
			if ip, _, err := net.ParseCIDR(a.String()); err != nil || !ip.IsLoopback() {
				addresses = append(addresses, a.String())
			}
		}
	}
	return interfaces, addresses, nil
}

// routes are those over anything but loopback.
func routes() (all []string) {
	v4, _ := read("/proc/net/route")
	for i, line := range strings.Split(strings.TrimSpace(v4), "\n") {
		if i > 0 && !strings.HasPrefix(line, "lo") {
			all = append(all, line)
		}
	}
	v6, _ := read("/proc/net/ipv6_route")
	for line := range strings.Lines(v6) {
		if f := strings.Fields(line); len(f) > 0 && f[len(f)-1] != "lo" {
			all = append(all, strings.TrimSpace(line))
		}
	}
	return all
}

func descriptors() (all []string) {
	for _, name := range names("/proc/self/fd") {
		if to, err := os.Readlink("/proc/self/fd/" + name); err == nil {
			all = append(all, name+" "+to)
		}
	}
	return all
}

func names(dir string) (all []string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}
