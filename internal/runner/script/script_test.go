package script

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is where scripts run in a test. Nothing may be left in temp.
type rig struct {
	Options
}

func newRig(t *testing.T) rig {
	t.Helper()
	if _, err := exec.LookPath("bash"); err != nil && os.Getenv("CI") != "true" {
		t.Skip("there is no bash")
	}
	r := rig{Options{Dir: t.TempDir(), Temp: t.TempDir(), Timeout: 20 * time.Second}}
	t.Cleanup(func() {
		if left, err := os.ReadDir(r.Temp); err != nil || len(left) > 0 {
			t.Errorf("left in the temporary folder: %v, %v", left, err)
		}
	})
	return r
}

func (r rig) run(t *testing.T, script string) Outcome {
	t.Helper()
	return Run(t.Context(), r.Options, "msg-1", script)
}

// spec/runner.md section 3.7: what a script can say.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		script string
		wake   bool
		data   string
		err    error
	}{
		"wake":             {script: `echo '{"wakeAgent":true,"data":{"n":[1, 2],"s":"<b>"}}'`, wake: true, data: `{"n":[1,2],"s":"<b>"}`},
		"wake, no data":    {script: `echo '{"wakeAgent": true}'`, wake: true, data: `null`},
		"gated":            {script: `echo '{"wakeAgent":false,"data":1}'`},
		"last line counts": {script: "echo 'hello'\necho '{\"wakeAgent\":false}'\necho '{\"wakeAgent\":true}'\necho; echo '  '", wake: true, data: `null`},
		"no line end":      {script: `printf '  {"wakeAgent":true}'`, wake: true, data: `null`},
		"not the last":     {script: "echo '{\"wakeAgent\":true}'\necho bye", err: ErrNotJSON},
		"exit code":        {script: "echo '{\"wakeAgent\":true}'\necho oops >&2\nexit 3", err: ErrExit},
		"syntax":           {script: "if then", err: ErrExit},
		"killed":           {script: "kill -9 $$", err: ErrExit},
		"silent":           {script: "true", err: ErrNoOutput},
		"blank":            {script: "printf ' \\n\\t\\n'", err: ErrNoOutput},
		"empty script":     {script: "", err: ErrNoOutput},
		"list":             {script: "echo '[true]'", err: ErrNotJSON},
		"null":             {script: "echo null", err: ErrNotJSON},
		"two objects":      {script: `echo '{"wakeAgent":true}{}'`, err: ErrNotJSON},
		"no wakeAgent":     {script: `echo '{"wake":true}'`, err: ErrNoWake},
		"wakeAgent text":   {script: `echo '{"wakeAgent":"true"}'`, err: ErrNoWake},
		"wakeAgent number": {script: `echo '{"wakeAgent":1}'`, err: ErrNoWake},
		"wakeAgent null":   {script: `echo '{"wakeAgent":null}'`, err: ErrNoWake},
		"other case":       {script: `echo '{"wakeagent":true}'`, err: ErrNoWake},
		"shebang":          {script: "#!/bin/cat\n{\"wakeAgent\":true,\"data\":\"from cat\"}\n", wake: true, data: `"from cat"`},
		"shebang argument": {script: "#! /bin/sed  -e/^#/d;s/^x// \nx{\"wakeAgent\":true,\"data\":7}\n", wake: true, data: `7`},
		"shebang env":      {script: "#!/usr/bin/env sh\r\necho '{\"wakeAgent\":true}'\n", wake: true, data: `null`},
		"no such program":  {script: "#!/nowhere/interpreter\n", err: ErrStart},
		"empty shebang":    {script: "#!\n", err: ErrStart},
		"not text":         {script: `printf '{"wakeAgent":true,"data":"a\xffb"}'`, wake: true, data: "\"a\ufffdb\""},
		"stdin is empty":   {script: `cat; echo '{"wakeAgent":true}'`, wake: true, data: `null`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := newRig(t).run(t, c.script)
			if !errors.Is(got.Err, c.err) || (c.err == nil && got.Err != nil) || got.Wake != c.wake || string(got.Data) != c.data {
				t.Errorf("got wake %v, data %s, error %v; want %v, %s, %v", got.Wake, got.Data, got.Err, c.wake, c.data, c.err)
			}
			for _, kind := range []error{ErrStart, ErrTimeout, ErrExit, ErrNoOutput, ErrTooMuch, ErrNotJSON, ErrNoWake} {
				if kind != c.err && errors.Is(got.Err, kind) {
					t.Errorf("%v also matches %v", got.Err, kind)
				}
			}
		})
	}
}

func TestExitError(t *testing.T) {
	t.Parallel()
	got := newRig(t).run(t, "for i in $(seq 200); do echo \"line $i\" >&2; done; echo 'disk is full' >&2; exit 7")
	var exit *ExitError
	if !errors.As(got.Err, &exit) || exit.Code != 7 || !strings.HasSuffix(exit.Stderr, "disk is full") || len(exit.Stderr) > maxStderr || strings.Contains(exit.Stderr, "line 1\n") {
		t.Errorf("got %+v", exit)
	}
	if !strings.Contains(got.Err.Error(), "exit code 7") || !strings.Contains(got.Err.Error(), "disk is full") {
		t.Error(got.Err)
	}
	got = newRig(t).run(t, "kill -TERM $$")
	if !errors.As(got.Err, &exit) || exit.Code != -1 || !strings.Contains(got.Err.Error(), "terminated") {
		t.Error(got.Err)
	}
}

// A time-out is told apart from a failure, by kind and in words.
func TestW30Timeout(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Timeout = 200 * time.Millisecond
	start := time.Now()
	got := r.run(t, "trap '' TERM INT HUP; echo '{\"wakeAgent\":true}'; sleep 60 & sleep 60; exit 3")
	if !errors.Is(got.Err, ErrTimeout) || errors.Is(got.Err, ErrExit) || got.Wake {
		t.Errorf("got %+v", got)
	}
	if !strings.Contains(got.Err.Error(), "too long") || !strings.Contains(got.Err.Error(), "200ms") {
		t.Error(got.Err)
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("took %s", took)
	}
}

// The end of the context is neither a failure of the script nor a time-out: the row is to be tried again.
func TestW30ContextEnds(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ctx, cancel := context.WithCancel(t.Context())
	pipe := fifo(t, r.Dir)
	go func() { <-pipe; cancel() }()
	got := Run(ctx, r.Options, "x", "echo $$ > fifo; sleep 60")
	if !errors.Is(got.Err, context.Canceled) || errors.Is(got.Err, ErrTimeout) || errors.Is(got.Err, ErrExit) {
		t.Errorf("got %v", got.Err)
	}
	if got := Run(ctx, r.Options, "x", "echo '{\"wakeAgent\":true}'"); !errors.Is(got.Err, context.Canceled) {
		t.Errorf("with an ended context: %v", got.Err)
	}
	deadline, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if got := Run(deadline, r.Options, "x", "sleep 60"); !errors.Is(got.Err, context.DeadlineExceeded) || errors.Is(got.Err, ErrTimeout) {
		t.Errorf("the caller's own deadline: %v", got.Err)
	}
}

// fifo delivers the first line that a script writes into dir/fifo.
func fifo(t *testing.T, dir string) <-chan string {
	t.Helper()
	path := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	lines := make(chan string, 1)
	go func() {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Error(err)
		}
		lines <- strings.TrimSpace(string(b))
	}()
	return lines
}

// gone waits until a process has ended.
func gone(t *testing.T, pid string) {
	t.Helper()
	n, err := strconv.Atoi(pid)
	if err != nil {
		t.Fatalf("pid %q", pid)
	}
	fd, err := unix.PidfdOpen(n, 0)
	if err != nil {
		return
	}
	defer func() { _ = unix.Close(fd) }()
	if ready, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 5000); err != nil || ready == 0 {
		t.Errorf("process %d is still there: %v", n, err)
	}
}

// A child that a script leaves behind neither hangs Run nor lives on.
func TestW30BackgroundChild(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	pid := fifo(t, r.Dir)
	start := time.Now()
	got := r.run(t, "sleep 60 & echo $! > fifo; echo '{\"wakeAgent\":true,\"data\":1}'")
	if got.Err != nil || !got.Wake || string(got.Data) != "1" {
		t.Errorf("got %+v", got)
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("took %s", took)
	}
	gone(t, <-pid)
}

// A child that has left the session keeps the output open: Run gives up on it.
func TestW30RunawayChild(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("setsid"); err != nil && os.Getenv("CI") != "true" {
		t.Skip("there is no setsid")
	}
	r := newRig(t)
	pid := fifo(t, r.Dir)
	start := time.Now()
	got := r.run(t, "mkfifo ready; setsid sh -c 'echo x > ready; echo $$ > fifo; exec sleep 60' & cat ready; echo '{\"wakeAgent\":true}'")
	if got.Err != nil || !got.Wake {
		t.Errorf("got %+v", got)
	}
	if took := time.Since(start); took > 8*time.Second {
		t.Errorf("took %s", took)
	}
	n, err := strconv.Atoi(<-pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(n, syscall.SIGKILL); err != nil {
		t.Error(err)
	}
}

// The whole session of a script is killed, not only its first process.
func TestW30KillsTheGroup(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	pid := fifo(t, r.Dir)
	grandchild := make(chan string, 1)
	go func() {
		grandchild <- <-pid
		cancel()
	}()
	got := Run(ctx, r.Options, "x", "sh -c 'sleep 61 & echo $! > fifo; wait' & wait")
	if !errors.Is(got.Err, context.Canceled) {
		t.Errorf("got %+v", got)
	}
	gone(t, <-grandchild)
}

// A job of its own process group, as `set -m` makes them, goes with its script too.
func TestW30KillsJobsOfTheirOwn(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("there is no bash")
	}
	r := newRig(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	pid := fifo(t, r.Dir)
	job := make(chan string, 1)
	go func() {
		job <- <-pid
		cancel()
	}()
	if got := Run(ctx, r.Options, "x", "set -m; sleep 62 & echo $! > fifo; wait"); !errors.Is(got.Err, context.Canceled) {
		t.Errorf("got %+v", got)
	}
	gone(t, <-job)
}

// Without bash a script runs in sh.
func TestShells(t *testing.T) {
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("there is no sh")
	}
	bin := t.TempDir()
	if err := os.Symlink(sh, filepath.Join(bin, "sh")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin)
	if got, err := command("echo", "/tmp/x"); err != nil || !slices.Equal(got, []string{filepath.Join(bin, "sh"), "/tmp/x"}) {
		t.Errorf("%q, %v", got, err)
	}
	t.Setenv("PATH", t.TempDir())
	if _, err := command("echo", "/tmp/x"); err == nil {
		t.Error("there is no shell, and nothing was said")
	}
	if got := Run(t.Context(), Options{Temp: t.TempDir()}, "x", "echo"); !errors.Is(got.Err, ErrStart) {
		t.Errorf("got %v", got.Err)
	}
}

// More output than the limit is no reason to kill a healthy script; its last line counts.
func TestW30HugeOutput(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.MaxOutput = 1 << 10
	got := r.run(t, "head -c 3000000 /dev/zero | tr '\\0' x; echo; seq 100000; head -c 300000 /dev/zero >&2; echo '{\"wakeAgent\":true}'")
	if got.Err != nil || !got.Wake {
		t.Errorf("noise before the last line: %+v", got)
	}
	got = r.run(t, "printf '{\"wakeAgent\":true,\"data\":\"'; head -c 2000 /dev/zero | tr '\\0' x; echo '\"}'")
	if !errors.Is(got.Err, ErrTooMuch) {
		t.Errorf("a last line over the limit: %+v", got)
	}
}

func TestLastLine(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pieces []string
		want   string
		over   bool
	}{
		{nil, "", false},
		{[]string{"a"}, "a", false},
		{[]string{"a\n", "b", "c\n"}, "bc", false},
		{[]string{"a\nb\n \n\t"}, "b", false},
		{[]string{"12345678"}, "12345678", false},
		{[]string{"123456789"}, "12345678", true},
		{[]string{"123456789\n", "x"}, "x", false},
		{[]string{"x\n", "12345678", "9"}, "12345678", true},
		{[]string{"12345678   \n"}, "12345678", false},
		{[]string{"x\n          \n"}, "x", false},
		{[]string{"x\n          y\n"}, "", true},
	} {
		l := &lastLine{max: 8}
		for _, p := range c.pieces {
			if n, err := l.Write([]byte(p)); n != len(p) || err != nil {
				t.Fatal(n, err)
			}
		}
		if got, over := l.text(); string(got) != c.want || over != c.over {
			t.Errorf("%q: %q, %v; want %q, %v", c.pieces, got, over, c.want, c.over)
		}
	}
}

func TestTail(t *testing.T) {
	t.Parallel()
	w := &tail{max: 5}
	for _, p := range []string{"abc", "", "def", "0123456789", "é"} {
		if n, err := w.Write([]byte(p)); n != len(p) || err != nil {
			t.Fatal(n, err)
		}
	}
	if got := w.String(); got != "789é" {
		t.Errorf("got %q", got)
	}
}

// W30: keys and proxies of the runner do not reach a script.
func TestW30Environment(t *testing.T) {
	for name, value := range map[string]string{
		"HTTPS_PROXY": "http://nanoclaw:token@127.0.0.1:1", "https_proxy": "x", "ANTHROPIC_API_KEY": "key", "NANOCLAW_X": "1", "TZ": "Asia/Tokyo", "LANG": "C.UTF-8",
	} {
		t.Setenv(name, value)
	}
	r := newRig(t)
	r.Env = []string{"EXTRA=of the caller", "TZ=UTC"}
	got := r.run(t, `#!/usr/bin/env bash
pwd >&2
env -0 | tr '\0\n' '\n ' | grep -v '^\(_\|SHLVL\|PWD\|OLDPWD\)=' | sort | sed 's/.*/"&"/' | paste -sd, | sed 's/.*/{"wakeAgent":true,"data":[&]}/'`)
	if got.Err != nil {
		t.Fatal(got.Err)
	}
	var env []string
	if err := json.Unmarshal(got.Data, &env); err != nil {
		t.Fatal(err)
	}
	names := map[string]string{}
	for _, v := range env {
		name, value, _ := strings.Cut(v, "=")
		names[name] = value
	}
	if names["TZ"] != "UTC" || names["EXTRA"] != "of the caller" || names["TMPDIR"] != r.Temp || names["LANG"] != "C.UTF-8" || names["PATH"] == "" {
		t.Errorf("environment %q", env)
	}
	for name := range names {
		switch name {
		case "PATH", "HOME", "TZ", "LANG", "TMPDIR", "EXTRA":
		default:
			t.Errorf("%s reached the script", name)
		}
	}
}

func TestWhereAScriptRuns(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	got := Run(t.Context(), r.Options, "../../odd id\x00", `#!/bin/sh
printf '{"wakeAgent":true,"data":["%s","%s","%s"]}' "$(pwd)" "$0" "$(stat -c %a "$0")"`)
	var where []string
	if err := errors.Join(got.Err, json.Unmarshal(got.Data, &where)); err != nil {
		t.Fatal(err)
	}
	dir, err := filepath.EvalSymlinks(r.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if where[0] != dir || filepath.Dir(where[1]) != r.Temp || where[2] != "700" {
		t.Errorf("ran at %q", where)
	}
}

func FuzzVerdict(f *testing.F) {
	for _, s := range []string{`{"wakeAgent":true,"data":{"a":1}}`, `{"wakeAgent":false}`, `[]`, `{"wakeAgent":true,"data":"\ud800"}`, "{\"wakeAgent\":true,\"data\":\"\xff\"}", ``} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		out := verdict(line)
		if out.Wake && (out.Err != nil || !json.Valid(out.Data) || bytes.ContainsRune(out.Data, '\n')) {
			t.Errorf("%q: %+v", line, out)
		}
		if out.Err != nil && !errors.Is(out.Err, ErrNotJSON) && !errors.Is(out.Err, ErrNoWake) {
			t.Errorf("%q: %v", line, out.Err)
		}
	})
}
