package tool

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"nanoclaw/internal/provider/native/wire"
)

type bashInput struct {
	Command     string `json:"command"`
	Timeout     int64  `json:"timeout"`
	Description string `json:"description"`
	Background  bool   `json:"run_in_background"`
}

// limit of a call; zero for one in the background.
func (in bashInput) limit() time.Duration {
	switch t := time.Duration(in.Timeout) * time.Millisecond; {
	case in.Background:
		return 0
	case in.Timeout <= 0:
		return DefaultTimeout
	case in.Timeout > MaxTimeout.Milliseconds():
		return MaxTimeout
	default:
		return t
	}
}

func (b *Box) bash() Tool {
	return typed(Tool{
		Wire("Bash", `Runs a shell command in your folder and returns what it prints, with both streams in one. Every call is a new shell: `+
			`a changed directory or variable is gone afterwards. A call ends after timeout milliseconds (120000 if you name none, 600000 at `+
			`most). Start what runs longer, or never ends, with run_in_background; BashOutput then reads what it prints and BashKill ends it. `+
			`Nobody can answer a question of a program: use options that need no terminal. For files use Read, Edit, Write, Glob and Grep.`,
			schema(`"command"`, `"command":{"type":"string"},"timeout":{"type":"integer","description":"milliseconds"},`+
				`"description":{"type":"string","description":"what it does, in a few words"},"run_in_background":{"type":"boolean"}`)),
		false,
		func(args json.RawMessage) time.Duration {
			var in bashInput
			_ = decode(args, &in) // Run says what is wrong
			return in.limit()
		}, nil,
	}, b.runBash)
}

// Wire makes what the model is told of a tool.
func Wire(name, description string, schema json.RawMessage) wire.Tool {
	return wire.Tool{Name: name, Description: description, Schema: schema}
}

func (b *Box) runBash(ctx context.Context, in bashInput) Result {
	if strings.TrimSpace(in.Command) == "" {
		return failed("There is no command.")
	}
	j, err := b.run(in.Command, in.Background)
	if err != nil {
		return failed("The command could not be started: %v", err)
	}
	if in.Background {
		return Result{Text: fmt.Sprintf("The command runs in the background as %s. Its output goes to %s.", j.id, j.out.Name())}
	}
	b.wait(ctx, j, in.limit())
	text, _, whole := j.output(0)
	b.forget(j, !whole)
	text = strings.TrimRight(text, "\n")
	switch {
	case j.why != "":
		return Result{Text: join(text, "The command was ended: "+j.why+"."), IsError: true}
	case j.code != 0:
		return Result{Text: join(text, fmt.Sprintf("Exit code %d", j.code)), IsError: true}
	case text == "":
		return Result{Text: "(no output)"}
	}
	return Result{Text: text}
}

func join(text, line string) string {
	if text == "" {
		return line
	}
	return text + "\n" + line
}

type jobInput struct {
	ID   string `json:"id"`
	Wait int64  `json:"wait"`
}

func (b *Box) job(id string) (*job, Result, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	j, ok := b.jobs[id]
	if ok {
		return j, Result{}, true
	}
	var known []string
	for k := range b.jobs {
		known = append(known, k)
	}
	if len(known) == 0 {
		return nil, failed("There is no background command."), false
	}
	return nil, failed("There is no background command %q; there are: %s", id, strings.Join(known, ", ")), false
}

func (b *Box) bashOutput() Tool {
	return typed(Tool{
		Wire("BashOutput", `Reads what a background command has printed since the last look, and whether it still runs. With wait it first waits `+
			`that many milliseconds (600000 at most) for the command to end.`,
			schema(`"id"`, `"id":{"type":"string"},"wait":{"type":"integer","description":"milliseconds"}`)),
		false,
		func(args json.RawMessage) time.Duration {
			var in jobInput
			_ = decode(args, &in) // Run says what is wrong
			return min(time.Duration(max(in.Wait, 0))*time.Millisecond, MaxTimeout)
		}, nil,
	}, func(ctx context.Context, in jobInput) Result {
		j, no, ok := b.job(in.ID)
		if !ok {
			return no
		}
		if in.Wait > 0 {
			t := time.NewTimer(min(time.Duration(in.Wait)*time.Millisecond, MaxTimeout))
			defer t.Stop()
			select {
			case <-j.done:
			case <-t.C:
			case <-ctx.Done():
			}
		}
		state := "It still runs."
		select {
		case <-j.done:
			state = fmt.Sprintf("It has ended with code %d.", j.code)
		default:
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		text, end, _ := j.output(j.seen)
		if j.seen = end; text == "" {
			text = "(nothing new)"
		}
		return Result{Text: join(strings.TrimRight(text, "\n"), state)}
	})
}

func (b *Box) bashKill() Tool {
	return typed(Tool{Wire("BashKill", "Ends a background command and everything it started.", schema(`"id"`, `"id":{"type":"string"}`)), false, nil, nil},
		func(_ context.Context, in jobInput) Result {
			j, no, ok := b.job(in.ID)
			if !ok {
				return no
			}
			b.kill(j)
			b.forget(j, true)
			return Result{Text: in.ID + " is ended. Its output stays in " + j.out.Name() + "."}
		})
}
