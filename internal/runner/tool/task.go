package tool

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"nanoclaw/internal/mailbox"
)

// The tools for tasks are thin forms of `ncl tasks …`; the host has the rules. Only what is wrong without doubt is refused here.

const (
	aboutWhen       = "when it runs first: 2026-03-01T09:00 in the person's time zone, or RFC 3339 with offset or Z; required without recurrence"
	aboutRecurrence = "cron expression of 5 fields (minute hour day month weekday), or 6 with seconds first, in the person's time zone"
	aboutTask       = "id of the task, from schedule_task or list_tasks"
	aboutScript     = "bash script that runs before; its last line {\"wakeAgent\": true or false} says whether you are woken"
)

// admin runs a command of ncl and returns what it says in words.
func admin(ctx context.Context, s Session, command string, args map[string]any) (string, error) {
	encoded := make(map[string]json.RawMessage, len(args))
	for key, v := range args {
		b, err := mailbox.EncodeContent(v)
		if err != nil {
			return "", err
		}
		encoded[key] = b
	}
	frame, err := s.Admin(ctx, command, encoded)
	switch {
	case err != nil:
		return "", err
	case frame.Error != nil:
		return "", frame.Error
	case !frame.OK:
		return "", errors.New("the host refused and gave no reason")
	case frame.Human != "":
		return frame.Human, nil
	case len(frame.Data) == 0 || string(frame.Data) == "null":
		return "done", nil
	}
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, frame.Data, "", "  "); err != nil {
		return "", fmt.Errorf("the host's answer cannot be read: %w", err)
	}
	return pretty.String(), nil
}

var errNoTask = errors.New("`taskId` is required: the " + aboutTask)

func taskID(id string) (string, error) {
	if id = strings.TrimSpace(id); id == "" {
		return "", errNoTask
	}
	return id, nil
}

// checkTime refuses what is no time; a good one is sent as it was given.
func checkTime(what, s string) error {
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02T15:04"} {
		if _, err := time.Parse(layout, s); err == nil {
			return nil
		}
	}
	return fmt.Errorf("`%s` is %q, which is no time: give 2026-03-01T09:00 (the person's time zone) or RFC 3339", what, shorten(s))
}

// checkCron refuses what has not the form of a cron expression; whether it means something is said by the host.
func checkCron(s string) error {
	n := len(strings.Fields(s))
	if (n != 5 && n != 6) || regexp.MustCompile(`[^0-9A-Za-z*,/?#\s-]`).MatchString(s) {
		return fmt.Errorf("`recurrence` is %q, which is no cron expression of 5 or 6 fields, for example `0 9 * * 1-5`", shorten(s))
	}
	return nil
}

type changeTaskArgs struct {
	Task string `json:"taskId"`
}

// changeTask is one of the tools whose only argument is a task.
func changeTask(s Session, verb, description string) Tool {
	schema := object(need("taskId", text(aboutTask)))
	return define(verb+"_task", description, schema, func(ctx context.Context, args changeTaskArgs) (string, error) {
		id, err := taskID(args.Task)
		if err != nil {
			return "", err
		}
		return admin(ctx, s, "tasks-"+verb, map[string]any{"id": id})
	})
}
