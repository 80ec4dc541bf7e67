package child_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"nanoclaw/internal/obs"
	"nanoclaw/internal/provider"
	"nanoclaw/internal/provider/child"
)

func start(t *testing.T, script string, on func(string)) *child.Process {
	t.Helper()
	p, err := child.Start(child.Options{
		Program: "/bin/sh", Args: []string{"-c", script}, Dir: t.TempDir(), Env: []string{"PATH=/usr/bin:/bin"}, Log: obs.Discard(),
		OnLine: func(line []byte, tooLong bool) {
			if tooLong {
				line = []byte("too long")
			}
			on(string(line))
		},
		CloseWait: 200 * time.Millisecond, TermWait: 200 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.End(true) })
	return p
}

// What is sent arrives in order, and what the program says comes back, until its input is closed.
func TestLinesBothWays(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var got []string
	p := start(t, `cat; echo bad >&2; exit 3`, func(l string) { mu.Lock(); defer mu.Unlock(); got = append(got, l) })
	for i := range 3 {
		if err := p.Send(map[string]int{"n": i}); err != nil {
			t.Fatal(err)
		}
	}
	p.CloseInput()
	<-p.Gone()
	stderr, err := p.Exit()
	if err == nil || !strings.Contains(err.Error(), "exit status 3") || stderr != "bad" {
		t.Errorf("exit: %v, %q", err, stderr)
	}
	if want := `{"n":0}|{"n":1}|{"n":2}`; strings.Join(got, "|") != want {
		t.Errorf("lines %q", got)
	}
	if err := p.Send("late"); err != nil {
		t.Errorf("a line to nobody: %v", err)
	}
}

// A program that ignores SIGTERM and one in a session of its own are gone when End returns.
func TestEndLeavesNothing(t *testing.T) {
	t.Parallel()
	pids := make(chan int, 2)
	p := start(t, `trap "" TERM HUP INT; setsid sh -c 'trap "" TERM HUP INT; echo $$; while :; do sleep 60; done' & echo $$; while :; do sleep 60; done`, func(l string) {
		n, err := strconv.Atoi(l)
		if err != nil {
			t.Error(err)
		}
		pids <- n
	})
	a, b := <-pids, <-pids
	began := time.Now()
	p.End(false)
	if took := time.Since(began); took < 400*time.Millisecond || took > 5*time.Second {
		t.Errorf("it took %s", took)
	}
	for _, pid := range []int{a, b} {
		if state, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil && !strings.Contains(string(state), ") Z ") {
			t.Errorf("process %d is still there", pid)
		}
	}
	p.End(true) // and again is nothing
}

// A program that never reads its input does not block who writes to it.
func TestDeafProgram(t *testing.T) {
	t.Parallel()
	p := start(t, `exec sleep 60`, func(string) {})
	for range 64 {
		if err := p.Send(strings.Repeat("x", 64<<10)); err != nil {
			t.Fatal(err)
		}
	}
	p.End(true)
	if err := syscall.Kill(p.PID(), 0); err == nil {
		t.Error("it still runs")
	}
}

func TestStartFails(t *testing.T) {
	t.Parallel()
	if _, err := child.Start(child.Options{Program: filepath.Join(t.TempDir(), "gone"), Log: obs.Discard()}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("err %v", err)
	}
}

// Activity that follows activity is kept once; everything else in order, however late it is read.
func TestQueue(t *testing.T) {
	t.Parallel()
	q := child.NewQueue()
	for range 3 {
		q.Put(provider.Event{Kind: provider.Activity})
	}
	q.Put(provider.Event{Kind: provider.Text, Text: "a"})
	q.Put(provider.Event{Kind: provider.Activity})
	q.Close()
	var got []string
	for e := range q.Events() {
		got = append(got, string(e.Kind))
	}
	joined := strings.Join(got, " ")
	if n := strings.Count(joined, "activity"); !strings.HasSuffix(joined, "text activity") || n > 3 {
		t.Errorf("events %s", joined)
	}
}

// A program lets go of what it started, and that has no mark: it was seen before and is gone when End returns.
func TestRemembered(t *testing.T) {
	t.Parallel()
	pids := make(chan int, 1)
	p := start(t, `env -u NANOCLAW_QUERY setsid sh -c 'trap "" TERM HUP INT; echo $$; while :; do sleep 60; done' & read -r line; exit 0`, func(l string) {
		n, err := strconv.Atoi(l)
		if err != nil {
			t.Error(err)
		}
		pids <- n
	})
	pid := <-pids
	p.Remember()
	if err := p.Send("go"); err != nil {
		t.Fatal(err)
	}
	<-p.Exited()
	p.End(false)
	if state, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil && !strings.Contains(string(state), ") Z ") {
		t.Errorf("process %d is still there", pid)
	}
}

// Of what a program writes to its standard error the end is kept.
func TestEndOfStderr(t *testing.T) {
	t.Parallel()
	p := start(t, `i=0; while [ $i -lt 4000 ]; do echo "line $i of many" >&2; i=$((i+1)); done; exit 1`, func(string) {})
	<-p.Gone()
	stderr, err := p.Exit()
	if err == nil || len(stderr) > 8<<10 || !strings.HasSuffix(stderr, "\nline 3999 of many") {
		t.Errorf("%v, %d bytes: …%s", err, len(stderr), stderr[max(0, len(stderr)-80):])
	}
}

// The lines are those of the input, however it is cut; a last line without an end is none.
func FuzzLines(f *testing.F) {
	f.Add([]byte("a\nbb\r\n\n{\"x\":1}\nrest"), uint8(1))
	f.Add([]byte("\n"), uint8(0))
	f.Add([]byte("0123456789abcdef\n0123456789abcde\n0123456789abcdef0123456789abcdef0\n"), uint8(2)) // parts meet the buffer's edges
	f.Fuzz(func(t *testing.T, text []byte, cut uint8) {
		var in io.Reader = bytes.NewReader(text)
		switch cut % 3 {
		case 1:
			in = iotest.OneByteReader(in)
		case 2:
			in = iotest.HalfReader(in)
		}
		want := strings.Split(string(text), "\n")
		want = want[:len(want)-1]
		r := child.NewLineReader(bufio.NewReaderSize(in, 16))
		for i := 0; ; i++ {
			line, tooLong, err := r.Next()
			if err != nil {
				if !errors.Is(err, io.EOF) || i != len(want) {
					t.Fatalf("%d of %d lines: %v", i, len(want), err)
				}
				return
			}
			if i >= len(want) || tooLong || string(line) != strings.TrimRight(want[i], "\r\n") {
				t.Fatalf("line %d: %q", i, line)
			}
		}
	})
}
