package native

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"sync"

	"nanoclaw/internal/obs"
	"nanoclaw/internal/provider"
	"nanoclaw/internal/provider/native/history"
	"nanoclaw/internal/provider/native/tool"
)

// parallel is how many calls that change nothing run at once.
const parallel = 4

// calls runs the calls of one answer and returns their results in the same order. Neighbours that only read run at once.
func (t *turn) calls(ctx context.Context, tools []tool.Tool, calls []history.Block) []history.Block {
	defer t.beat()()
	byName := map[string]tool.Tool{}
	for _, v := range tools {
		byName[v.Name] = v
	}
	results := make([]tool.Result, len(calls))
	for i := 0; i < len(calls); {
		n := 1
		for i+n < len(calls) && byName[calls[i].Name].ReadOnly && byName[calls[i+n].Name].ReadOnly {
			n++
		}
		slots := make(chan struct{}, parallel)
		var all sync.WaitGroup
		for k := i; k < i+n; k++ {
			slots <- struct{}{}
			all.Go(func() {
				results[k] = t.call(ctx, byName, calls[k])
				<-slots
			})
		}
		all.Wait()
		i += n
	}
	var out []history.Block
	for i, c := range calls {
		out = append(out, t.resultBlocks(c, results[i])...)
	}
	return out
}

// resultBlocks are the result and its files, with a word about a call that repeats itself.
func (t *turn) resultBlocks(c history.Block, r tool.Result) []history.Block {
	if n := t.guard.add(c, r.Text); n >= warnAt {
		r.Text += "\n" + fmt.Sprintf(wordsRepeat, n)
	}
	if r.Text == "" && len(r.Files) == 0 {
		r.Text = "(no output)"
	}
	out := []history.Block{{Kind: history.Result, ID: c.ID, Name: c.Name, Text: strings.ToValidUTF8(r.Text, "\uFFFD"), IsError: r.IsError}}
	for _, f := range r.Files {
		b, err := t.keep(f.Name, f.Content)
		if err != nil {
			out[0].Text += fmt.Sprintf("\n[%s (%s) cannot be shown]", f.Name, f.MimeType)
			continue
		}
		out = append(out, b)
	}
	return out
}

// call runs one call. Whatever happens in it, the model gets a result.
func (t *turn) call(ctx context.Context, tools map[string]tool.Tool, c history.Block) (r tool.Result) {
	v, known := tools[c.Name]
	start := provider.Event{Kind: provider.ToolStart, Tool: c.Name}
	if known && v.Timeout != nil {
		start.Timeout = v.Timeout(c.Args)
	}
	t.emit(start)
	defer t.emit(provider.Event{Kind: provider.ToolEnd, Tool: c.Name})
	defer func() {
		if p := recover(); p != nil {
			t.log.Error("a tool panicked", obs.KeyTool, c.Name, slog.Any(obs.KeyError, p), slog.String(obs.KeyStack, string(debug.Stack())))
			r = tool.Result{Text: "The tool failed.", IsError: true}
		}
	}()
	switch {
	case ctx.Err() != nil:
		return tool.Result{Text: history.Interrupted, IsError: true}
	case !known:
		names := make([]string, 0, len(tools))
		for n := range tools {
			names = append(names, n)
		}
		return tool.Result{Text: fmt.Sprintf("There is no tool %q. There are: %s.", c.Name, sorted(names)), IsError: true}
	case c.Text != "":
		return tool.Result{Text: "The arguments are no JSON object: " + clip(c.Text, 500), IsError: true}
	}
	return v.Run(ctx, c.Args)
}

// Limits of repetition within window calls.
const (
	warnAt      = 4
	stopAt      = 8
	guardWindow = 24
)

// guard sees a model that does the same again and again.
type guard struct {
	recent [][sha256.Size]byte
	most   int
}

// add returns how often this call had this result among the newest.
func (g *guard) add(c history.Block, result string) int {
	var args any
	if json.Unmarshal(c.Args, &args) == nil { // the order of keys does not matter
		if b, err := json.Marshal(args); err == nil {
			c.Args = b
		}
	}
	sum := sha256.Sum256([]byte(c.Name + "\x00" + string(c.Args) + "\x00" + result))
	if g.recent = append(g.recent, sum); len(g.recent) > guardWindow {
		g.recent = g.recent[1:]
	}
	n := 0
	for _, s := range g.recent {
		if s == sum {
			n++
		}
	}
	g.most = max(g.most, n)
	return n
}

func (g *guard) stuck() bool { return g.most >= stopAt }
