package tool

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"nanoclaw/internal/control"
)

// Section 7.3 and `ncl tasks`: each tool is one command of ncl, times and cron as they were given.
func TestTasks(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		tool, args string
		want       command
		fails      string
	}{
		{tool: "schedule_task", args: `{"prompt":"p <b> & 'x'","when":"2026-03-01T09:00"}`, want: command{"tasks-create", map[string]string{"prompt": `"p <b> & 'x'"`, "process_after": `"2026-03-01T09:00"`}}},
		{tool: "schedule_task", args: `{"prompt":"p","processAfter":"2026-03-01T09:00:30"}`, want: command{"tasks-create", map[string]string{"prompt": `"p"`, "process_after": `"2026-03-01T09:00:30"`}}},
		{tool: "schedule_task", args: `{"prompt":"p","when":"2026-03-01T09:00:00.5+02:00"}`, want: command{"tasks-create", map[string]string{"prompt": `"p"`, "process_after": `"2026-03-01T09:00:00.5+02:00"`}}},
		{tool: "schedule_task", args: `{"prompt":"p","when":"2026-03-01T09:00:00Z","recurrence":"0 9 * * MON-FRI","script":"exit 0","name":"n"}`,
			want: command{"tasks-create", map[string]string{"prompt": `"p"`, "process_after": `"2026-03-01T09:00:00Z"`, "recurrence": `"0 9 * * MON-FRI"`, "script": `"exit 0"`, "name": `"n"`}}},
		{tool: "schedule_task", args: `{"prompt":"p","recurrence":"0 0 9 */2 1,3 *"}`, want: command{"tasks-create", map[string]string{"prompt": `"p"`, "recurrence": `"0 0 9 */2 1,3 *"`}}},
		{tool: "schedule_task", args: `{"when":"2026-03-01T09:00"}`, fails: "`prompt` is required"},
		{tool: "schedule_task", args: `{"prompt":" \n","when":"2026-03-01T09:00"}`, fails: "`prompt` is required"},
		{tool: "schedule_task", args: `{"prompt":"p"}`, fails: "`when` or `recurrence` is required"},
		{tool: "schedule_task", args: `{"prompt":"p","when":"2026-03-01T09:00","processAfter":"2026-03-01T09:00"}`, fails: "give one of the two"},
		{tool: "schedule_task", args: `{"prompt":"p","when":"tomorrow"}`, fails: "`when` is \"tomorrow\""},
		{tool: "schedule_task", args: `{"prompt":"p","processAfter":"2026-03-01"}`, fails: "`processAfter` is"},
		{tool: "schedule_task", args: `{"prompt":"p","when":"2026-13-01T09:00"}`, fails: "no time"},
		{tool: "schedule_task", args: `{"prompt":"p","when":"2026-03-01 09:00"}`, fails: "no time"},
		{tool: "schedule_task", args: `{"prompt":"p","recurrence":"daily"}`, fails: "cron"},
		{tool: "schedule_task", args: `{"prompt":"p","recurrence":"* * * *"}`, fails: "cron"},
		{tool: "schedule_task", args: `{"prompt":"p","recurrence":"* * * * * * *"}`, fails: "cron"},
		{tool: "schedule_task", args: `{"prompt":"p","recurrence":"0 9 * * $(x)"}`, fails: "cron"},
		{tool: "list_tasks", args: ``, want: command{"tasks-list", map[string]string{}}},
		{tool: "list_tasks", args: `{"status":"paused"}`, want: command{"tasks-list", map[string]string{"status": `"paused"`}}},
		{tool: "list_tasks", args: `{"status":"done"}`, fails: "one of: pending, paused"},
		{tool: "update_task", args: `{"taskId":"t1","prompt":"p"}`, want: command{"tasks-update", map[string]string{"id": `"t1"`, "prompt": `"p"`}}},
		{tool: "update_task", args: `{"taskId":" t1 ","recurrence":"","script":""}`, want: command{"tasks-update", map[string]string{"id": `"t1"`, "recurrence": `"none"`, "script": `"none"`}}},
		{tool: "update_task", args: `{"taskId":"t1","recurrence":"0 9 * * *","script":"s","processAfter":"2026-03-01T09:00","name":"n"}`,
			want: command{"tasks-update", map[string]string{"id": `"t1"`, "recurrence": `"0 9 * * *"`, "script": `"s"`, "process_after": `"2026-03-01T09:00"`, "name": `"n"`}}},
		{tool: "update_task", args: `{"taskId":"t1"}`, fails: "at least one change"},
		{tool: "update_task", args: `{"prompt":"p"}`, fails: "`taskId` is required"},
		{tool: "update_task", args: `{"taskId":"t1","prompt":""}`, fails: "must not be empty"},
		{tool: "update_task", args: `{"taskId":"t1","name":" "}`, fails: "must not be empty"},
		{tool: "update_task", args: `{"taskId":"t1","when":""}`, fails: "no time"},
		{tool: "update_task", args: `{"taskId":"t1","recurrence":"x"}`, fails: "cron"},
		{tool: "cancel_task", args: `{"taskId":"t1"}`, want: command{"tasks-cancel", map[string]string{"id": `"t1"`}}},
		{tool: "pause_task", args: `{"taskId":"t1"}`, want: command{"tasks-pause", map[string]string{"id": `"t1"`}}},
		{tool: "resume_task", args: `{"taskId":"t1"}`, want: command{"tasks-resume", map[string]string{"id": `"t1"`}}},
		{tool: "cancel_task", args: `{}`, fails: "`taskId` is required"},
		{tool: "cancel_task", args: `{"taskId":" "}`, fails: "`taskId` is required"},
		{tool: "cancel_task", args: `{"taskId":"t1","all":true}`, fails: `unknown field "all"`},
	} {
		t.Run(tt.tool+tt.args, func(t *testing.T) {
			t.Parallel()
			f, got, err := call(t, tt.tool, tt.args)
			if tt.fails != "" {
				refused(t, f, err, tt.fails)
				return
			}
			if did, _ := f.last(); err != nil || got != "as you wish" || !reflect.DeepEqual(did, tt.want) {
				t.Errorf("did %+v, %q, %v; want %+v", did, got, err, tt.want)
			}
		})
	}
}

func TestAnswersOfTheHost(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		frame control.Frame
		want  string
		fails string
	}{
		{name: "words", frame: control.Frame{OK: true, Human: "SERIES  NEXT", Data: json.RawMessage(`[1]`)}, want: "SERIES  NEXT"},
		{name: "data", frame: control.Frame{OK: true, Data: json.RawMessage(`{"touched":1}`)}, want: "{\n  \"touched\": 1\n}"},
		{name: "nothing", frame: control.Frame{OK: true}, want: "done"},
		{name: "null", frame: control.Frame{OK: true, Data: json.RawMessage(`null`)}, want: "done"},
		{name: "broken", frame: control.Frame{OK: true, Data: json.RawMessage(`{`)}, fails: "cannot be read"},
		{name: "error", frame: control.Frame{Error: &control.Error{Code: control.CodeNotFound, Message: "no live task matched", Hint: "see: ncl tasks list"}}, fails: "no live task matched (see: ncl tasks list)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := New(Options{Session: &fake{frame: tt.frame}}).Call(t.Context(), "list_tasks", nil)
			if tt.fails != "" {
				if err == nil || !strings.Contains(err.Error(), tt.fails) {
					t.Errorf("%q, %v", got, err)
				}
			} else if err != nil || got != tt.want {
				t.Errorf("%q, %v; want %q", got, err, tt.want)
			}
		})
	}
}
