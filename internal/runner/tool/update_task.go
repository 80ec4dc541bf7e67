package tool

import (
	"context"
	_ "embed" // the description
	"errors"
	"strings"
)

//go:embed update_task.md
var updateTaskText string

// cleared is how `ncl tasks update` is told to take a field away.
const cleared = "none"

type updateTaskArgs struct {
	Task         string  `json:"taskId"`
	Prompt       *string `json:"prompt"`
	When         *string `json:"when"`
	ProcessAfter *string `json:"processAfter"`
	Recurrence   *string `json:"recurrence"`
	Script       *string `json:"script"`
	Name         *string `json:"name"`
}

func updateTask(s Session) Tool {
	schema := object(
		need("taskId", text(aboutTask)),
		may("prompt", text("new prompt")),
		may("when", text("new time of the next run, as in schedule_task")),
		may("processAfter", text("another name of when; give one of the two")),
		may("recurrence", text("new cron expression, as in schedule_task; empty: it runs once more and not again")),
		may("script", text("new script; empty: none")),
		may("name", text("new name")),
	)
	return define("update_task", updateTaskText, schema, func(ctx context.Context, args updateTaskArgs) (string, error) {
		id, err := taskID(args.Task)
		if err != nil {
			return "", err
		}
		if args.When != nil && args.ProcessAfter != nil {
			return "", errors.New("`when` and `processAfter` are the same; give one of the two")
		}
		out := map[string]any{"id": id}
		if args.Prompt != nil {
			if strings.TrimSpace(*args.Prompt) == "" {
				return "", errors.New("`prompt` must not be empty; to end a task use cancel_task")
			}
			out["prompt"] = *args.Prompt
		}
		for what, at := range map[string]*string{"when": args.When, "processAfter": args.ProcessAfter} {
			if at == nil {
				continue
			}
			if err := checkTime(what, *at); err != nil {
				return "", err
			}
			out["process_after"] = *at
		}
		if r := args.Recurrence; r != nil && *r == "" {
			out["recurrence"] = cleared
		} else if r != nil {
			if err := checkCron(*r); err != nil {
				return "", err
			}
			out["recurrence"] = *r
		}
		if sc := args.Script; sc != nil && *sc == "" {
			out["script"] = cleared
		} else if sc != nil {
			out["script"] = *sc
		}
		if args.Name != nil {
			if strings.TrimSpace(*args.Name) == "" {
				return "", errors.New("`name` must not be empty")
			}
			out["name"] = *args.Name
		}
		if len(out) == 1 {
			return "", errors.New("at least one change is required: prompt, when, recurrence, script or name")
		}
		return admin(ctx, s, "tasks-update", out)
	})
}
