package tool

import (
	"context"
	_ "embed" // the description
)

//go:embed list_tasks.md
var listTasksText string

type listTasksArgs struct {
	Status string `json:"status"`
}

func listTasks(s Session) Tool {
	schema := object(may("status", shape{kind: "string", oneOf: []string{"pending", "paused"}, about: "only the tasks in this state"}))
	return define("list_tasks", listTasksText, schema, func(ctx context.Context, args listTasksArgs) (string, error) {
		out := map[string]any{}
		if args.Status != "" {
			out["status"] = args.Status
		}
		return admin(ctx, s, "tasks-list", out)
	})
}
