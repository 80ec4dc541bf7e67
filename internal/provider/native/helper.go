package native

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"nanoclaw/internal/provider/memory"
	"nanoclaw/internal/provider/native/history"
	"nanoclaw/internal/provider/native/tool"
	"nanoclaw/internal/provider/native/wire"
)

func decode(args json.RawMessage, into any) *tool.Result {
	if err := json.Unmarshal(args, into); err != nil {
		return &tool.Result{Text: "The arguments cannot be used: " + err.Error(), IsError: true}
	}
	return nil
}

// todoTool keeps the model's list where a summary does not lose it.
func (t *turn) todoTool() tool.Tool {
	return tool.Tool{
		Tool: tool.Wire("TodoWrite", "Replaces your list of steps. Keep exactly one step in_progress while you work, and mark each as completed as soon as it is done.",
			json.RawMessage(`{"type":"object","properties":{"todos":{"type":"array","items":{"type":"object","properties":{"content":{"type":"string"},`+
				`"status":{"type":"string","enum":["pending","in_progress","completed"]}},"required":["content","status"]}}},"required":["todos"]}`)),
		Run: func(_ context.Context, args json.RawMessage) tool.Result {
			var in struct {
				Todos []history.Todo `json:"todos"`
			}
			if bad := decode(args, &in); bad != nil {
				return *bad
			}
			if err := t.conv.SetTodo(in.Todos); err != nil {
				return tool.Result{Text: err.Error(), IsError: true}
			}
			return tool.Result{Text: "The list is:\n" + t.todoText()}
		},
	}
}

func (t *turn) todoText() string {
	var b strings.Builder
	for _, v := range t.conv.Todo() {
		mark := map[string]string{"completed": "[x]", "in_progress": "[>]"}[v.Status]
		if mark == "" {
			mark = "[ ]"
		}
		fmt.Fprintf(&b, "%s %s\n", mark, v.Content)
	}
	return strings.TrimRight(b.String(), "\n")
}

func (t *turn) skillTool() tool.Tool {
	return tool.Tool{
		ReadOnly: true,
		Tool: tool.Wire("Skill", "Reads a skill by its name.",
			json.RawMessage(`{"type":"object","properties":{"skill":{"type":"string"}},"required":["skill"]}`)),
		Run: func(_ context.Context, args json.RawMessage) tool.Result {
			var in struct {
				Skill string `json:"skill"`
			}
			if bad := decode(args, &in); bad != nil {
				return *bad
			}
			return readSkill(t.skills, in.Skill)
		},
	}
}

func readSkill(skills []memory.Skill, name string) tool.Result {
	names := make([]string, 0, len(skills))
	for _, s := range skills {
		if s.Name == name {
			text, err := s.Text()
			if err != nil {
				return tool.Result{Text: err.Error(), IsError: true}
			}
			return tool.Result{Text: text}
		}
		names = append(names, s.Name)
	}
	return tool.Result{Text: fmt.Sprintf("There is no skill %q. There are: %s.", name, sorted(names)), IsError: true}
}

const helperSteps = 50

const helperPrompt = `You are the helper of another agent. Find out what it asks for, with the tools you have; they only read. Your last words are all that it ` +
	`gets: make them complete, with paths and names. You cannot write to people and cannot ask back.`

// taskTool gives a piece of work to a helper with a conversation of its own, whose tools only read.
func (t *turn) taskTool() tool.Tool {
	return tool.Tool{
		ReadOnly: true,
		Tool: tool.Wire("Task", "Gives a piece of research to a helper that has tools to read and search, and returns what it found. It knows nothing of this "+
			"conversation: say all it needs. Several helpers in one answer work at once.",
			json.RawMessage(`{"type":"object","properties":{"description":{"type":"string","description":"a few words"},"prompt":{"type":"string"}},"required":["prompt"]}`)),
		Run: func(ctx context.Context, args json.RawMessage) tool.Result {
			var in struct {
				Prompt string `json:"prompt"`
			}
			if bad := decode(args, &in); bad != nil {
				return *bad
			}
			if strings.TrimSpace(in.Prompt) == "" {
				return tool.Result{Text: "There is no prompt.", IsError: true}
			}
			return t.help(ctx, in.Prompt)
		},
	}
}

// help runs the helper. Nothing of it is streamed: its words go to the model alone.
func (t *turn) help(ctx context.Context, prompt string) tool.Result {
	tools := map[string]tool.Tool{}
	r := wire.Request{
		System: []string{helperPrompt + "\n\nThe folder is " + t.in.Cwd + "."}, Effort: t.p.opt.Effort, Session: t.conv.ID() + "-helper", Load: t.conv.Load,
		Messages: []history.Message{{Role: history.User, Blocks: []history.Block{{Kind: history.Text, Text: prompt}}}},
	}
	for _, v := range t.box.Tools() {
		if v.ReadOnly {
			tools[v.Name] = v
			r.Tools = append(r.Tools, v.Tool)
		}
	}
	model := t.p.opt.Model
	var g guard
	text := ""
	for step := 1; ; step++ {
		r.NoCalls = step > helperSteps || g.stuck()
		a, err := t.ask(ctx, &model, r, nil)
		t.spendLater(a)
		if err != nil {
			return tool.Result{Text: "The helper failed: " + err.Error(), IsError: true}
		}
		m := history.Message{Role: history.Assistant, Blocks: kept(a, nil)}
		if said := m.Plain(); said != "" {
			text = said
		}
		calls := m.Calls()
		if len(calls) == 0 || r.NoCalls {
			if text == "" {
				return tool.Result{Text: "The helper found nothing.", IsError: true}
			}
			return tool.Result{Text: tool.Cut(text, t.conv.Output(), "task", tool.MaxOutput)}
		}
		answer := history.Message{Role: history.User}
		for _, c := range calls {
			res := tool.Result{Text: "There is no such tool.", IsError: true}
			if v, ok := tools[c.Name]; ok && c.Text == "" {
				res = v.Run(ctx, c.Args)
			}
			g.add(c, res.Text)
			answer.Blocks = append(answer.Blocks, history.Block{Kind: history.Result, ID: c.ID, Name: c.Name, Text: res.Text, IsError: res.IsError})
		}
		r.Messages = history.Repair(append(r.Messages, m, answer))
	}
}

// spendLater counts what a helper used; several may run at once.
func (t *turn) spendLater(a wire.Answer) {
	t.spending.Lock()
	defer t.spending.Unlock()
	t.spend(a)
}
