package claude_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"

	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
)

type object map[string]any

// fake plays the CLI: its stdin sorted by type, its stdout.
type fake struct {
	lines chan object
	held  []object
	cut   *rand.Rand // cut what is written at random places
}

// fakeCLI runs in the process that the driver starts. A test reads a wrong line of the driver as exit code 3.
func fakeCLI(mode string) int {
	f := &fake{lines: make(chan object, 64)}
	mode, arg, _ := strings.Cut(mode, ":")
	play := map[string]func(*fake, string){
		"replay": (*fake).replay, "big": (*fake).big, "strange": (*fake).strange, "midline": (*fake).midline,
		"mute": (*fake).mute, "hang": (*fake).hang, "quiet": (*fake).quiet, "orphan": (*fake).orphan, "deaf": (*fake).deaf,
		"script": (*fake).script, "refuse": (*fake).refuse, "leave": (*fake).leave, "stay": (*fake).stay,
	}[mode]
	if play == nil {
		fmt.Fprintln(os.Stderr, "no mode", mode)
		return 3
	}
	if mode != "deaf" {
		go f.listen()
	}
	play(f, arg)
	return 0
}

func (f *fake) listen() {
	defer close(f.lines)
	for in := bufio.NewReader(os.Stdin); ; {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		var o object
		if err := json.Unmarshal(line, &o); err != nil {
			fmt.Fprintln(os.Stderr, "the driver wrote no JSON:", err)
			os.Exit(3)
		}
		f.lines <- o
	}
}

// expect waits for the next line of a type.
func (f *fake) expect(kind string) object {
	for i, o := range f.held {
		if o["type"] == kind {
			f.held = append(f.held[:i], f.held[i+1:]...)
			return o
		}
	}
	for o := range f.lines {
		if o["type"] == kind {
			return o
		}
		f.held = append(f.held, o)
	}
	fmt.Fprintln(os.Stderr, "the driver closed the input before", kind)
	os.Exit(3)
	return nil
}

func (f *fake) raw(b []byte) {
	for f.cut != nil && len(b) > 1 {
		n := 1 + f.cut.IntN(min(len(b)-1, 200))
		_, _ = os.Stdout.Write(b[:n])
		b = b[n:]
	}
	_, _ = os.Stdout.Write(b)
}

func (f *fake) out(o object) {
	b, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	f.raw(append(b, '\n'))
}

func (f *fake) ready() {
	r := f.expect("control_request")
	f.out(object{"type": "control_response", "response": object{"subtype": "success", "request_id": r["request_id"], "response": object{"claude_code_version": "2.1.332"}}})
}

func (f *fake) begin() {
	f.ready()
	u := f.expect("user")
	f.out(object{"type": "command_lifecycle", "command_uuid": u["uuid"], "state": "started"})
	f.init()
}

func (f *fake) init() {
	f.out(object{"type": "system", "subtype": "init", "session_id": "fdf298d3-6c31-46cd-b14d-3bbf6dc12ec4"})
}

func (f *fake) say(text string) {
	f.out(object{"type": "assistant", "parent_tool_use_id": nil, "message": object{"model": "m", "content": []object{{"type": "text", "text": text}}}})
}

func (f *fake) done(text string) {
	f.out(object{"type": "result", "subtype": "success", "is_error": false, "result": text, "terminal_reason": "completed"})
}

// drain reads until the driver closes the input.
func (f *fake) drain() {
	for range f.lines {
	}
}

// replay plays a recording: waits for what was written to the CLI then, and writes what it wrote.
func (f *fake) replay(arg string) {
	path, seed, _ := strings.Cut(arg, ",")
	if n, err := strconv.ParseUint(seed, 10, 64); err == nil && n > 0 {
		f.cut = rand.New(rand.NewPCG(n, 1))
	}
	recording, err := os.ReadFile(path)
	if err != nil {
		panic(err)
	}
	uuids := map[string]string{}
	for raw := range bytes.Lines(recording) {
		var entry struct {
			Dir  string          `json:"dir"`
			Line json.RawMessage `json:"line"`
		}
		if err := json.Unmarshal(raw, &entry); err != nil {
			panic(err)
		}
		line := string(entry.Line)
		for recorded, now := range uuids {
			line = strings.ReplaceAll(line, recorded, now)
		}
		if entry.Dir == "out" {
			f.raw([]byte(line + "\n"))
			continue
		}
		var was object
		if err := json.Unmarshal(entry.Line, &was); err != nil {
			panic(err)
		}
		is := f.expect(was["type"].(string))
		switch was["type"] {
		case "user":
			if recorded, ok := was["uuid"].(string); ok {
				uuids[recorded] = is["uuid"].(string)
			}
			f.same(was["message"], is["message"])
		case "control_request":
			f.same(was["request_id"], is["request_id"])
			f.same(was["request"].(map[string]any)["subtype"], is["request"].(map[string]any)["subtype"])
		case "control_response":
			f.same(was["response"], is["response"])
		}
	}
	f.drain()
}

func (f *fake) same(want, got any) {
	a, _ := json.Marshal(want)
	if b, _ := json.Marshal(got); !bytes.Equal(a, b) {
		fmt.Fprintf(os.Stderr, "the driver wrote %s, want %s\n", b, a)
		os.Exit(3)
	}
}

// script writes the given lines as a turn for each user line.
func (f *fake) script(arg string) {
	var turns [][]json.RawMessage
	if err := json.Unmarshal([]byte(arg), &turns); err != nil {
		panic(err)
	}
	f.ready()
	for _, turn := range turns {
		u := f.expect("user")
		for _, line := range turn {
			f.raw([]byte(strings.ReplaceAll(string(line), "$uuid", fmt.Sprint(u["uuid"])) + "\n"))
		}
	}
	f.drain()
}

func (f *fake) big(string) {
	f.begin()
	f.out(object{"type": "user", "message": object{"content": strings.Repeat("r", 5<<20)}})
	f.say(strings.Repeat("t", 5<<20))
	f.raw([]byte(`{"type":"user","message":"`))
	for range 40 {
		f.raw(bytes.Repeat([]byte("x"), 1<<20))
	}
	f.raw([]byte("\"}\n"))
	f.done("over")
	f.drain()
}

func (f *fake) strange(string) {
	f.begin()
	for _, line := range []string{
		``, `{"type":"brand_new","payload":[1,2]}`, `not JSON at all`, `[1,2,3]`, `"text"`, `null`, `7`, `{"type":5}`, `{}`,
		`{"type":"assistant"}`, `{"type":"assistant","message":"a string"}`, `{"type":"assistant","message":{"model":"m","content":"x"}}`,
		`{"type":"system","subtype":"init","session_id":5}`, `{"type":"system","subtype":"never_seen"}`, `{"type":"result","is_error":"yes"}`,
		`{"type":"rate_limit_event"}`, `{"type":"command_lifecycle","command_uuid":"nobody","state":"started"}`,
		`{"type":"control_response","response":{"request_id":"req_999","subtype":"success"}}`,
		`{"type":"control_response","response":{"request_id":"req_1","subtype":"error","error":"late"}}`,
		`{"type":"control_cancel_request","request_id":"x"}`, `{"type":"conversation_reset"}`,
		`{"type":"assistant","parent_tool_use_id":"toolu_1","message":{"model":"m","content":[{"type":"text","text":"sub-agent"}]}}`,
	} {
		f.raw([]byte(line + "\r\n"))
	}
	f.out(object{"type": "control_request", "request_id": "q1", "request": object{"subtype": "never_seen"}})
	answer := f.expect("control_response")["response"].(map[string]any)
	f.same("error", answer["subtype"])
	f.out(object{"type": "control_request", "request_id": "q2", "request": object{"subtype": "hook_callback", "callback_id": "PreToolUse", "input": object{"tool_name": "SendMessage", "tool_use_id": "t1"}}})
	answer = f.expect("control_response")["response"].(map[string]any)
	f.same("q2", answer["request_id"])
	f.same("deny", answer["response"].(map[string]any)["hookSpecificOutput"].(map[string]any)["permissionDecision"])
	f.out(object{"type": "control_request", "request_id": "q3", "request": object{"subtype": "hook_callback", "callback_id": "PreToolUse", "input": object{"tool_name": "Bash", "tool_use_id": "t2", "tool_input": object{"timeout": 90_000}}}})
	f.same(object{"continue": true}, f.expect("control_response")["response"].(map[string]any)["response"])
	f.say("still here")
	f.done("still here")
	f.drain()
}

func (f *fake) midline(string) {
	f.begin()
	f.say("half of it")
	f.raw([]byte(`{"type":"result","subtype":"success","is_er`))
	fmt.Fprintf(os.Stderr, "fatal: key %s is bad\n", os.Getenv("ANTHROPIC_API_KEY"))
	os.Exit(7)
}

func (f *fake) leave(string) { f.begin() }

func (f *fake) mute(string) {
	signal.Ignore(syscall.SIGTERM)
	f.drain()
	select {}
}

func (f *fake) hang(string) {
	signal.Ignore(syscall.SIGTERM)
	f.begin()
	f.drain()
	select {}
}

// quiet says nothing, but an interrupt ends its turn.
func (f *fake) quiet(string) {
	f.begin()
	r := f.expect("control_request")
	f.out(object{"type": "control_response", "response": object{"subtype": "success", "request_id": r["request_id"]}})
	f.out(object{"type": "result", "subtype": "error_during_execution", "is_error": true, "terminal_reason": "aborted_streaming"})
	f.drain()
}

// orphan leaves processes behind, in sessions of their own, and dies.
func (f *fake) orphan(fifo string) {
	f.begin()
	cmd := exec.Command("sh", "-c", `sh -c 'trap "" TERM; echo $$ > "$0"; exec sleep 1000' "$0" & exec sleep 1000`, fifo)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr // they hold our output open
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		panic(err)
	}
	f.say("started")
	f.expect("user")
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
}

// deaf never reads its input.
func (f *fake) deaf(string) { select {} }

func (f *fake) refuse(string) {
	r := f.expect("control_request")
	f.out(object{"type": "control_response", "response": object{"subtype": "error", "request_id": r["request_id"], "error": "bad set-up " + os.Getenv("ANTHROPIC_API_KEY")}})
	f.drain()
}

// stay finishes its work and does not exit.
func (f *fake) stay(string) {
	f.begin()
	f.say("done")
	f.done("done")
	f.drain()
	select {}
}
