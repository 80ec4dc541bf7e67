package prompt

import (
	"net/url"
	"path"
	"strings"

	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/provider"
)

// Attachments are the files that came with the chat rows, for providers that show them to the model itself; the prompt names them
// too. Entries that are no objects, or have neither a file below root nor an http address, are skipped; the name that the host has
// cleaned (name) goes before the platform's own (filename). Rows copied from other conversations have none here. No path leaves
// root, which is DefaultRoot if empty (spec/runner.md section 6.3).
func Attachments(rows []mailbox.InRow, root string) []provider.Attachment {
	if root == "" {
		root = DefaultRoot
	}
	var out []provider.Attachment
	for _, row := range bySeq(rows) {
		if (row.Kind != mailbox.KindChat && row.Kind != mailbox.KindChatSDK) || row.ChannelType == mailbox.ChannelEcho {
			continue
		}
		o, ok := decode(row.Content)
		if !ok {
			continue
		}
		for _, raw := range o.list("attachments") {
			a, ok := decode(raw)
			if !ok {
				continue
			}
			file := provider.Attachment{Name: fileName(a), MimeType: oneLine(a.first("mimeType", "mime")), Path: below(root, a.plain("localPath"))}
			if file.Path == "" {
				if file.URL = webAddress(a.first("url")); file.URL == "" {
					continue
				}
			}
			out = append(out, file)
		}
	}
	return out
}

func fileName(a object) string {
	if name := oneLine(a.first("name", "filename")); name != "" {
		return name
	}
	return "attachment"
}

// webAddress is s if it is an http or https address of a host, else empty: nothing else may be fetched for a message.
func webAddress(s string) string {
	s = strings.TrimSpace(s)
	u, err := url.Parse(s)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return ""
	}
	return s
}

func (env Env) attachment(a object, copied bool) string {
	kind := a.first("type")
	if kind == "" {
		kind = "file"
	}
	label := attrText(kind) + ": " + attrText(fileName(a))
	if local := below(env.Root, a.plain("localPath")); local != "" && !copied {
		return "[" + label + " — saved to " + attrText(local) + "]"
	}
	if url := a.first("url"); url != "" {
		return "[" + label + " (" + attrText(url) + ")]"
	}
	return "[" + label + "]"
}

// below is local under root, empty if it is not a path that stays there.
func below(root, local string) string {
	clean := path.Clean(local)
	if local == "" || clean == "." || path.IsAbs(clean) || clean == ".." || strings.HasPrefix(clean, "../") || strings.ContainsRune(local, 0) {
		return ""
	}
	return path.Join(root, clean)
}
