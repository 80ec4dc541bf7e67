package mock

import (
	"html"
	"regexp"
	"strings"
)

var (
	messageOpen = regexp.MustCompile(`<message(\s[^<>]*)?>`)
	fromName    = regexp.MustCompile(`\sfrom="([^"]*)"`)
	quotedPart  = regexp.MustCompile(`(?s)\s*<quoted_message[^<>]*>.*?</quoted_message>\n?`)
	contextLine = regexp.MustCompile(`(?m)^<context [^<>]*/>\n?`)
	// a tag that the gate would act on if it came back as it was typed
	gateTag = regexp.MustCompile(`(?i)<(/?(message|internal)[\s>/])`)
)

// echo answers a prompt with its newest message.
func echo(prompt string) string {
	last := messageOpen.FindAllStringIndex(prompt, -1)
	for i := len(last) - 1; i >= 0; i-- {
		open := prompt[last[i][0]:last[i][1]]
		body, _, closed := strings.Cut(prompt[last[i][1]:], "</message>")
		if !closed {
			continue
		}
		text := literal(strings.TrimSpace(quotedPart.ReplaceAllString(body, "")))
		if name := fromName.FindStringSubmatch(open); name != nil {
			return `<message to="` + name[1] + `">` + text + "</message>"
		}
		return text
	}
	return literal(strings.TrimSpace(contextLine.ReplaceAllString(prompt, "")))
}

// literal undoes the escaping of the prompt, but for tags that are not the sender's to use.
func literal(s string) string {
	return gateTag.ReplaceAllString(html.UnescapeString(s), "&lt;$1")
}
