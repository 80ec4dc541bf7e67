package tool

import _ "embed" // the description

//go:embed cancel_task.md
var cancelTaskText string

func cancelTask(s Session) Tool { return changeTask(s, "cancel", cancelTaskText) }
