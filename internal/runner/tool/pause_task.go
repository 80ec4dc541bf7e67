package tool

import _ "embed" // the description

//go:embed pause_task.md
var pauseTaskText string

func pauseTask(s Session) Tool { return changeTask(s, "pause", pauseTaskText) }
