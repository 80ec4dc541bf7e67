package command

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"runtime"
	"strings"
	"testing"

	"nanoclaw/internal/channel"
	"nanoclaw/internal/channel/cli"
	"nanoclaw/internal/control"
)

func TestChatPrintsTheAnswerAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.want(w.run("chat", "hello", "there"), 0, "re: hello there\n", "starting the host", "offline provider", "ANTHROPIC_API_KEY", "sandbox: bubblewrap (no daemon)")
	r := w.run("chat", "again")
	w.want(r, 0, "re: again\n", "offline provider")
	if strings.Contains(r.err, "starting") || strings.Contains(r.err, "sandbox:") {
		t.Errorf("the second run says it all again: %s", r.err)
	}
	if len(w.spawned) != 1 || strings.Join(w.spawned[0], " ") != "serve --home "+w.home {
		t.Errorf("started: %v", w.spawned)
	}
	w.want(w.run("chat", "--conversation", "work", "x"), 0, "re: x\n")
	if got := w.bootstrap[2].Conversation; got != "cli:work" {
		t.Errorf("prepared the conversation %q", got)
	}
}

func TestChatEnds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		agent    func(*world, *cli.Adapter, channel.Inbound)
		args     []string
		code     int
		out, err string
	}{
		"silent": {func(w *world, a *cli.Adapter, m channel.Inbound) { w.settle(a, m, channel.Silent, "") }, nil, 0, "", ""},
		"failed": {func(w *world, a *cli.Adapter, m channel.Inbound) { w.settle(a, m, channel.Failed, "no credit left") }, nil, 1, "", "no credit left"},
		"dead":   {func(w *world, a *cli.Adapter, m channel.Inbound) { w.settle(a, m, channel.Dead, "") }, nil, 1, "", "dead"},
		"failed with a notice": {func(w *world, a *cli.Adapter, m channel.Inbound) {
			w.deliver(a, m, channel.Op{Kind: channel.OpText, Text: "it broke", Notice: true}, "n")
			w.settle(a, m, channel.Failed, "x")
		}, nil, 1, "", "it broke"},
		"several messages and an edit": {func(w *world, a *cli.Adapter, m channel.Inbound) {
			first := w.reply(a, m, "one")
			w.reply(a, m, "two")
			w.deliver(a, m, channel.Op{Kind: channel.OpEdit, Target: first, Text: "ONE"}, "e")
			w.settle(a, m, channel.Answered, "")
		}, nil, 0, "ONE\ntwo\n", ""},
		"no answer":      {nil, []string{"--timeout", "80ms"}, 7, "", "no answer within 80ms"},
		"half an answer": {func(w *world, a *cli.Adapter, m channel.Inbound) { w.reply(a, m, "half") }, []string{"--timeout", "300ms"}, 7, "half\n", "no answer within"},
		"answers to somebody before": {func(w *world, a *cli.Adapter, m channel.Inbound) {
			w.deliver(a, m, channel.Op{Kind: channel.OpText, Text: "late", ReplyTo: "msg-before"}, "k")
			echo(w, a, m)
		}, nil, 0, "re: q\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.does(c.agent)
			w.want(w.run(append([]string{"chat", "q"}, c.args...)...), c.code, c.out, c.err)
		})
	}
}

func TestChatJSON(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.run("chat", "--json", "q")
	var a answer
	if err := json.Unmarshal([]byte(r.out), &a); err != nil || r.code != 0 || a.State != "answered" || len(a.Messages) != 1 || a.Messages[0].Text != "re: q" {
		t.Errorf("exit %d, %v: %s", r.code, err, r.out)
	}
	w.stop()
	r = w.run("chat", "--json", "--no-start", "q")
	var e struct{ Error control.Error }
	lines := strings.Split(strings.TrimSpace(r.err), "\n")
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &e); err != nil || r.code != 6 || e.Error.Code != control.CodeUnreachable || e.Error.Hint == "" || r.out != "" {
		t.Errorf("exit %d, %v: %s", r.code, err, r.err)
	}
}

func TestChatUsage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for name, args := range map[string][]string{
		"blank text": {"chat", " "}, "conversation": {"chat", "--conversation", "a/b", "x"}, "flag": {"chat", "--bogus"},
		"timeout": {"chat", "--timeout", "-1s", "x"}, "timeout no duration": {"chat", "--timeout", "soon", "x"},
		"sandbox": {"chat", "--sandbox", "vm", "x"}, "long": {"chat", strings.Repeat("x", control.MaxText+1)},
	} {
		if r := w.run(args...); r.code != 2 || r.out != "" || r.err == "" {
			t.Errorf("%s: exit %d, %q, %q", name, r.code, r.out, r.err)
		}
	}
	if len(w.spawned) != 0 {
		t.Error("wrong usage started a host")
	}
}

func TestHostThatCannotBeStarted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.spawn = func(logPath string) (<-chan error, error) {
		writeFile(t, logPath, "an old line\n"+strings.Repeat("noise\n", 20)+"the reason: no sandbox\n")
		ended := make(chan error, 1)
		ended <- errors.New("exit status 1")
		return ended, nil
	}
	r := w.run("chat", "x")
	w.want(r, 6, "", "exit status 1", "the reason: no sandbox")
	if strings.Contains(r.err, "an old line") {
		t.Errorf("the whole log is printed: %s", r.err)
	}
	w.spawn = func(string) (<-chan error, error) { return nil, errors.New("no such program") }
	w.want(w.run("chat", "x"), 6, "", "no such program")
	w.want(w.run("chat", "--no-start", "x"), 6, "", "nanoclaw serve")
}

func TestKeysGoToTheHostAndNowhereElse(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ variable, kind string }{{"ANTHROPIC_API_KEY", "api_key"}, {"CLAUDE_CODE_OAUTH_TOKEN", "oauth_token"}} {
		w := newWorld(t)
		w.env[c.variable] = "sk-marker"
		r := w.run("chat", "x")
		w.want(r, 0, "re: x\n")
		if len(w.secrets) != 1 || w.secrets[0] != (control.Secret{Name: "anthropic", Kind: c.kind, Value: "sk-marker"}) {
			t.Errorf("handed over: %d secrets", len(w.secrets))
		}
		if w.env[c.variable] != "" {
			t.Error("the key is still in this program's environment")
		}
		if all := strings.Join(w.spawnEnv, " ") + strings.Join(w.spawned[0], " ") + r.err; strings.Contains(all, "sk-marker") || strings.Contains(all, "leak") || !strings.Contains(all, "PATH=/bin LANG=C") {
			t.Errorf("the host was started with %s", all)
		}
		if strings.Contains(r.err, "offline") {
			t.Errorf("with a key the offline provider is announced: %s", r.err)
		}
	}
}

func TestEarlierRepliesStayForTheNextAttach(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.does(nil)
	w.want(w.run("chat", "first", "--timeout", "3s"), 7, "", "at the next chat")
	w.stop()
	w.does(echo)
	w.answeredAlone(w.store.Events()[0])

	w.start()
	w.want(w.run("chat", "second"), 0, "re: second\n", "earlier messages not shown here: 1")
	r := w.runIn(t.Context(), strings.NewReader("third\n"), "chat")
	w.want(r, 0, "re: first\nre: second\nre: third\n")
	w.want(w.runIn(t.Context(), strings.NewReader(""), "chat"), 0, "")
}

// answeredAlone answers a message while no client can be attached.
func (w *world) answeredAlone(m channel.Inbound) {
	a := cli.New("ann", "", w.TempDir())
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx, w.store) }()
	for a.Status().State != channel.Connected {
		runtime.Gosched()
	}
	echo(w, a, m)
	cancel()
	<-ended
}

func TestLinesAreSentInOrderAndWaitedFor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.runIn(t.Context(), strings.NewReader("one\r\n\n  \ntwo\nthree 漢字"), "chat")
	w.want(r, 0, "re: one\nre: two\nre: three 漢字\n")

	w.does(func(w *world, a *cli.Adapter, m channel.Inbound) {
		if m.Text == "bad" {
			w.settle(a, m, channel.Failed, "cannot")
			return
		}
		echo(w, a, m)
	})
	w.want(w.runIn(t.Context(), strings.NewReader("bad\ngood\n"), "chat"), 1, "re: good\n", "cannot")
	w.want(w.runIn(t.Context(), strings.NewReader("good\n"+strings.Repeat("x", control.MaxText+1)), "chat"), 2, "re: good\n", "longer than")

	w.does(nil)
	w.want(w.runIn(t.Context(), strings.NewReader("never\n"), "chat", "--timeout", "50ms"), 7, "", "1 messages without an answer")
}

func TestLinesAsJSON(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.runIn(t.Context(), strings.NewReader("one\n"), "chat", "--json")
	var kinds []string
	for _, l := range strings.Split(strings.TrimSpace(r.out), "\n") {
		var e control.Event
		if err := json.Unmarshal([]byte(l), &e); err != nil {
			t.Fatalf("%q: %v", l, err)
		}
		kinds = append(kinds, string(e.Kind)+e.Author)
	}
	if got := strings.Join(kinds, " "); r.code != 0 || got != "messageuser messageagent settled" {
		t.Errorf("exit %d, events %s", r.code, got)
	}
}

func TestChatOutlivesARestartOfTheHost(t *testing.T) {
	t.Parallel()
	for name, run := range map[string]func(w *world) result{
		"once":  func(w *world) result { return w.run("chat", "x") },
		"lines": func(w *world) result { return w.runIn(w.Context(), strings.NewReader("x\n"), "chat") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			got := make(chan channel.Inbound, 1)
			w.does(func(_ *world, _ *cli.Adapter, m channel.Inbound) { got <- m })
			w.start()
			done := make(chan result, 1)
			go func() { done <- run(w) }()
			m := <-got
			w.stop()
			w.does(nil)
			w.answeredAlone(m)
			w.start()
			w.want(<-done, 0, "re: x\n")
		})
	}
}

func TestChatCancelled(t *testing.T) {
	t.Parallel()
	for name, in := range map[string]func() (io.Reader, []string){
		"once": func() (io.Reader, []string) { return strings.NewReader(""), []string{"chat", "x"} },
		"lines": func() (io.Reader, []string) {
			return strings.NewReader("x\n"), []string{"chat"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			ctx, cancel := context.WithCancel(t.Context())
			w.does(func(*world, *cli.Adapter, channel.Inbound) { cancel() })
			stdin, args := in()
			w.want(w.runIn(ctx, stdin, args...), 10, "")
		})
	}
}

func TestSandboxFlagReachesTheHost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.want(w.run("chat", "--sandbox", "process", "x"), 0, "re: x\n")
	if got := strings.Join(w.spawned[0], " "); got != "serve --home "+w.home+" --sandbox process" {
		t.Errorf("started: %s", got)
	}
	w.want(w.run("chat", "--sandbox", "docker", "x"), 0, "re: x\n", "the running host uses bubblewrap")
}

func TestSetup(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		machine fakeMachine
		args    []string
		code    int
		err     string
		ran     string
	}{
		"bubblewrap there":        {fakeMachine{programs: map[string]string{"bwrap": "/b"}}, nil, 0, "sandbox: bubblewrap (no Docker daemon answers)", "/b --unshare-all"},
		"docker with image":       {fakeMachine{docker: DockerState{Daemon: true, Image: true}}, nil, 0, "sandbox: docker", ""},
		"nothing, root on Debian": {fakeMachine{programs: map[string]string{"apt-get": "/a"}}, nil, 0, "installing bubblewrap", "apt-get install -y --no-install-recommends bubblewrap"},
		"nothing, not root":       {fakeMachine{uid: 1000, programs: map[string]string{"apt-get": "/a"}}, nil, 6, "sudo apt-get install bubblewrap", ""},
		"nothing, other system":   {fakeMachine{}, nil, 6, "package manager", ""},
		"bubblewrap broken":       {fakeMachine{programs: map[string]string{"bwrap": "/b"}, broken: map[string]string{"/b": "bwrap: No permissions"}}, nil, 6, "user namespaces", ""},
		"docker without image":    {fakeMachine{docker: DockerState{Daemon: true}}, []string{"--sandbox", "docker"}, 6, "nanoclaw image build", ""},
		"process":                 {fakeMachine{}, []string{"--sandbox", "process"}, 0, "no isolation", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			var ran []string
			w.machine = c.machine
			w.machine.ran = &ran
			if w.machine.programs == nil {
				w.machine.programs = map[string]string{}
			}
			programs := w.machine.programs
			w.machine.onRun = func(line string) error {
				if strings.Contains(line, "apt-get install") {
					programs["bwrap"] = "/b"
				}
				return nil
			}
			out := ""
			if c.code == 0 {
				out = "re: x\n"
			}
			w.want(w.run(append([]string{"chat", "--setup", "x"}, c.args...)...), c.code, out, c.err)
			if !strings.Contains(strings.Join(ran, "\n"), c.ran) {
				t.Errorf("ran %q, want %q in it", ran, c.ran)
			}
		})
	}
}

func TestSpawnedProgramIsApartAndItsEndIsSeen(t *testing.T) {
	t.Parallel()
	// The test program itself, asked to list no tests, stands for the host.
	log := t.TempDir() + "/log"
	ended, err := spawn([]string{"-test.list", "nothing-has-this-name"}, append(os.Environ(), "X=1"), log)
	if err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("it ended with %v", err)
	}
	if fi, err := os.Stat(log); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("its log: %v, %v", fi, err)
	}
	if _, err := spawn(nil, nil, t.TempDir()); err == nil {
		t.Error("a folder was taken for a log")
	}
}
