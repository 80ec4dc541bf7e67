package tool

import (
	"context"
	_ "embed" // the description
	"errors"
	"strings"
)

//go:embed schedule_task.md
var scheduleTaskText string

type scheduleTaskArgs struct {
	Prompt       string `json:"prompt"`
	When         string `json:"when"`
	ProcessAfter string `json:"processAfter"`
	Recurrence   string `json:"recurrence"`
	Script       string `json:"script"`
	Name         string `json:"name"`
}

func scheduleTask(s Session) Tool {
	schema := object(
		need("prompt", text("what you are told when the task runs: everything needed, and the destination to report to")),
		may("when", text(aboutWhen)),
		may("processAfter", text("another name of when; give one of the two")),
		may("recurrence", text(aboutRecurrence)),
		may("script", text(aboutScript)),
		may("name", text("short name, which becomes part of the id")),
	)
	return define("schedule_task", scheduleTaskText, schema, func(ctx context.Context, args scheduleTaskArgs) (string, error) {
		if strings.TrimSpace(args.Prompt) == "" {
			return "", errors.New("`prompt` is required: what you are told when the task runs")
		}
		if args.When != "" && args.ProcessAfter != "" {
			return "", errors.New("`when` and `processAfter` are the same; give one of the two")
		}
		if args.When == "" && args.ProcessAfter == "" && args.Recurrence == "" {
			return "", errors.New("`when` or `recurrence` is required: the time of the run, or a cron expression")
		}
		out := map[string]any{"prompt": args.Prompt}
		for what, at := range map[string]string{"when": args.When, "processAfter": args.ProcessAfter} {
			if at == "" {
				continue
			}
			if err := checkTime(what, at); err != nil {
				return "", err
			}
			out["process_after"] = at
		}
		if args.Recurrence != "" {
			if err := checkCron(args.Recurrence); err != nil {
				return "", err
			}
			out["recurrence"] = args.Recurrence
		}
		if args.Script != "" {
			out["script"] = args.Script
		}
		if args.Name != "" {
			out["name"] = args.Name
		}
		return admin(ctx, s, "tasks-create", out)
	})
}
