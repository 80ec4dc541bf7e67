package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// direct drives the program of another agent with as little as its protocol allows: the floor of what ours costs on top.
type direct struct {
	cmd   *exec.Cmd
	lines chan []byte // of its output or, for opencode, of its events
	post  func(ctx context.Context, text string) error
	end   string // stands in the line that ends a turn
	close []func()
}

// dialect is how to start a program and to give it a turn.
type dialect struct {
	name string
	args func(url string) []string
	env  []string
	open func(ctx context.Context, d *direct, in io.Writer, folder string) error
}

func dialects() []dialect {
	return []dialect{
		{name: "claude", open: openClaude,
			args: func(string) []string {
				return []string{"--output-format", "stream-json", "--verbose", "--input-format", "stream-json", "--strict-mcp-config", "--model=bench"}
			}},
		{name: "codex", open: openCodex, env: []string{"BENCH_KEY=none"},
			args: func(url string) []string {
				return []string{"app-server", "--listen", "stdio://", "--disable", "plugins", "-c", `model_provider="bench"`, "-c", "analytics.enabled=false", "-c", "check_for_update_on_startup=false",
					"-c", fmt.Sprintf(`model_providers.bench={name="bench",base_url=%q,wire_api="responses",env_key="BENCH_KEY",supports_websockets=false}`, url+"/v1")}
			}},
		{name: "opencode", open: openOpencode, args: func(string) []string { return []string{"serve", "--hostname=127.0.0.1", "--port=0"} }},
	}
}

// start runs the program in folder, with url as its model API, until it takes a turn.
func (d dialect) start(ctx context.Context, program, folder, url string) (*direct, error) {
	settings, err := json.Marshal(map[string]any{
		"model": "anthropic/bench", "small_model": "anthropic/bench", "enabled_providers": []string{"anthropic"}, "permission": "allow", "autoupdate": false, "snapshot": false, "share": "disabled",
		"provider": map[string]any{"anthropic": map[string]any{"npm": "@ai-sdk/anthropic", "options": map[string]any{"baseURL": url + "/v1", "apiKey": "sk-bench"}, "models": map[string]any{"bench": map[string]any{"tool_call": true}}}},
	})
	if err != nil {
		return nil, err
	}
	p := &direct{cmd: exec.Command(program, d.args(url)...), lines: make(chan []byte, 1<<14)}
	p.cmd.Dir = folder
	p.cmd.Env = append([]string{"PATH=/usr/bin:/bin", "HOME=" + folder, "CODEX_HOME=" + folder, "TMPDIR=" + folder, "ANTHROPIC_BASE_URL=" + url, "ANTHROPIC_API_KEY=sk-bench",
		"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "OPENCODE_CONFIG_CONTENT=" + string(settings), "OPENCODE_DISABLE_AUTOUPDATE=1", "OPENCODE_DISABLE_MODELS_FETCH=1",
		"OPENCODE_DISABLE_LSP_DOWNLOAD=1", "OPENCODE_DISABLE_DEFAULT_PLUGINS=1", "HTTPS_PROXY=http://127.0.0.1:9", "HTTP_PROXY=http://127.0.0.1:9", "NO_PROXY=127.0.0.1"}, d.env...)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go p.read(out)
	if err := d.open(ctx, p, in, folder); err != nil {
		p.stop()
		return nil, fmt.Errorf("open %s: %w", d.name, err)
	}
	return p, nil
}

func (p *direct) stop() {
	for _, c := range p.close {
		c()
	}
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	_ = p.cmd.Wait()
}

func (p *direct) read(r io.Reader) {
	s := bufio.NewScanner(r)
	s.Buffer(nil, 16<<20)
	for s.Scan() {
		p.lines <- bytes.Clone(s.Bytes())
	}
}

// until returns the next line that holds text.
func (p *direct) until(ctx context.Context, text string) ([]byte, error) {
	limit := time.NewTimer(time.Minute)
	defer limit.Stop()
	for {
		select {
		case line := <-p.lines:
			if bytes.Contains(line, []byte(text)) {
				return line, nil
			}
		case <-limit.C:
			return nil, fmt.Errorf("nothing said %q within a minute", text)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// turn takes from the prompt to the answer, which holds want; the program is at rest when it returns.
func (p *direct) turn(ctx context.Context, text, want string) (time.Duration, error) {
	began := time.Now()
	if err := p.post(ctx, text); err != nil {
		return 0, err
	}
	if _, err := p.until(ctx, want); err != nil {
		return 0, err
	}
	took := time.Since(began)
	_, err := p.until(ctx, p.end)
	return took, err
}

func openClaude(_ context.Context, p *direct, in io.Writer, _ string) error {
	p.end = `"type":"result"`
	p.post = func(_ context.Context, text string) error {
		line, err := json.Marshal(map[string]any{"type": "user", "message": map[string]any{"role": "user", "content": text}})
		if err != nil {
			return err
		}
		_, err = in.Write(append(line, '\n'))
		return err
	}
	return nil
}

func openCodex(ctx context.Context, p *direct, in io.Writer, folder string) error {
	p.end = `"turn/completed"`
	id := 0
	call := func(method string, params any) error {
		id++
		line, err := json.Marshal(map[string]any{"id": id, "method": method, "params": params})
		if err != nil {
			return err
		}
		_, err = in.Write(append(line, '\n'))
		return err
	}
	if err := call("initialize", map[string]any{"clientInfo": map[string]string{"name": "bench", "title": "bench", "version": "1"}}); err != nil {
		return err
	}
	if _, err := p.until(ctx, `"id":1`); err != nil {
		return err
	}
	if _, err := io.WriteString(in, `{"method":"initialized"}`+"\n"); err != nil {
		return err
	}
	if err := call("thread/start", map[string]any{"cwd": folder, "model": "bench", "sandbox": "danger-full-access", "approvalPolicy": "never"}); err != nil {
		return err
	}
	line, err := p.until(ctx, `"id":2`)
	if err != nil {
		return err
	}
	var opened struct {
		Result struct {
			Thread struct {
				ID string `json:"id"`
			} `json:"thread"`
		} `json:"result"`
	}
	if err := json.Unmarshal(line, &opened); err != nil || opened.Result.Thread.ID == "" {
		return fmt.Errorf("no thread: %s", line)
	}
	p.post = func(_ context.Context, text string) error {
		return call("turn/start", map[string]any{"threadId": opened.Result.Thread.ID, "input": []any{map[string]string{"type": "text", "text": text}}})
	}
	return nil
}

func openOpencode(ctx context.Context, p *direct, _ io.Writer, _ string) error {
	p.end = `"session.idle"`
	line, err := p.until(ctx, "listening on http://")
	if err != nil {
		return err
	}
	_, address, _ := strings.Cut(string(line), "listening on ")
	address = strings.TrimSpace(address)
	c := &http.Client{Transport: &http.Transport{}}
	p.close = append(p.close, c.CloseIdleConnections)
	send := func(ctx context.Context, path string, body any) ([]byte, error) {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, address+path, bytes.NewReader(b))
		if err != nil {
			return nil, err
		}
		r.Header.Set("Content-Type", "application/json")
		a, err := c.Do(r)
		if err != nil {
			return nil, err
		}
		defer func() { _ = a.Body.Close() }()
		answer, err := io.ReadAll(a.Body)
		if err == nil && a.StatusCode/100 != 2 {
			err = fmt.Errorf("%s: status %d: %s", path, a.StatusCode, answer)
		}
		return answer, err
	}
	answer, err := send(ctx, "/session", struct{}{})
	if err != nil {
		return err
	}
	var made struct {
		ID string `json:"id"`
	}
	if err := json.Unmarshal(answer, &made); err != nil || made.ID == "" {
		return errors.Join(err, fmt.Errorf("no session: %s", answer))
	}
	listen, cancel := context.WithCancel(ctx)
	p.close = append(p.close, cancel)
	r, err := http.NewRequestWithContext(listen, http.MethodGet, address+"/event", nil)
	if err != nil {
		return err
	}
	events, err := c.Do(r)
	if err != nil {
		return err
	}
	p.close = append(p.close, func() { _ = events.Body.Close() })
	go p.read(events.Body)
	if _, err := p.until(ctx, "server.connected"); err != nil {
		return err
	}
	p.post = func(ctx context.Context, text string) error {
		_, err := send(ctx, "/session/"+made.ID+"/prompt_async", map[string]any{"parts": []any{map[string]string{"type": "text", "text": text}}})
		return err
	}
	return nil
}
