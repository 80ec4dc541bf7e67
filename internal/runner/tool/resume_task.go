package tool

import _ "embed" // the description

//go:embed resume_task.md
var resumeTaskText string

func resumeTask(s Session) Tool { return changeTask(s, "resume", resumeTaskText) }
