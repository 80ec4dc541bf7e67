package route

import (
	"context"
	"fmt"
	"io"
	"path"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"nanoclaw/internal/channel"
	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/obs"
	"nanoclaw/internal/store"
)

// Limits of the attachments of one message (spec/host.md section 28.2).
const (
	maxAttachments = 20
	maxFetch       = 2 * time.Minute // for all of them
	maxNameBytes   = 120
)

// stage streams the attachments of an event into a session's inbox and describes them. One that cannot be had is described
// without a path: it never costs the message. The error is only that the host is ending.
func (r *Router) stage(ctx context.Context, s store.Session, rowID string, all []channel.Attachment) ([]mailbox.Attachment, error) {
	fetch, cancel := context.WithTimeout(ctx, maxFetch)
	defer cancel()
	out := make([]mailbox.Attachment, 0, len(all))
	for i, name := range fileNames(all) {
		a := mailbox.Attachment{Type: all[i].Kind, Name: name, MimeType: all[i].MimeType, Size: max(all[i].Size, 0)}
		local, err := "", fmt.Errorf("more than %d attachments", maxAttachments)
		if i < maxAttachments {
			local, err = r.fetch(fetch, s, rowID, name, all[i])
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			r.log.Warn("an attachment is left out", obs.KeyMessage, rowID, obs.Error(err))
		}
		a.LocalPath = local
		out = append(out, a)
	}
	return out, nil
}

func (r *Router) fetch(ctx context.Context, s store.Session, rowID, name string, a channel.Attachment) (local string, err error) {
	limit := r.opt.MaxAttachment
	if a.Size > limit {
		return "", fmt.Errorf("larger than %d bytes", limit)
	}
	if a.Open == nil {
		return "", fmt.Errorf("the channel cannot open it")
	}
	body, err := a.Open(ctx)
	if err != nil {
		return "", fmt.Errorf("open attachment: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = body.Close() }) // a source that hangs is cut off
	defer func() {
		if stop() {
			_ = body.Close()
		}
	}()
	return r.opt.Inbox.Attach(ctx, s, rowID, name, io.LimitReader(body, limit+1), limit)
}

// fileNames gives every attachment a name that is one plain file name, readable and different from the others, the same at
// every replay.
func fileNames(all []channel.Attachment) []string {
	names, taken := make([]string, len(all)), map[string]bool{}
	for i, a := range all {
		name := safeName(a.Name)
		if name == "" {
			name = "attachment-" + strconv.Itoa(i+1) + extension(a)
		}
		ext := path.Ext(name)
		stem := strings.TrimSuffix(name, ext)
		for n := 2; taken[strings.ToLower(name)]; n++ {
			name = stem + "-" + strconv.Itoa(n) + ext
		}
		taken[strings.ToLower(name)] = true
		names[i] = name
	}
	return names
}

// safeName is the base name of what a stranger calls a file, without what could lead elsewhere or be shown as something else;
// empty if nothing is left.
func safeName(s string) string {
	s = strings.ReplaceAll(s, `\`, "/")
	s = s[strings.LastIndexByte(s, '/')+1:]
	s = strings.Map(func(r rune) rune {
		switch {
		case r == utf8.RuneError || !unicode.IsPrint(r) && r != '\u200d' || unicode.Is(unicode.Bidi_Control, r):
			return -1
		case strings.ContainsRune(`<>:"|?*`, r):
			return '_'
		}
		return r
	}, s)
	s = strings.TrimRight(strings.TrimLeft(s, ". "), ". ")
	if len(s) > maxNameBytes {
		ext := path.Ext(s)
		if len(ext) > 16 {
			ext = ""
		}
		s = strings.ToValidUTF8(s[:maxNameBytes-len(ext)], "") + ext
	}
	switch stem, _, _ := strings.Cut(strings.ToLower(s), "."); stem {
	case "con", "prn", "aux", "nul", "com1", "com2", "com3", "com4", "lpt1", "lpt2", "lpt3":
		return "_" + s
	}
	return s
}

// extension of a file without a name, by its MIME type, else by what the platform calls it.
func extension(a channel.Attachment) string {
	mime, _, _ := strings.Cut(a.MimeType, ";")
	if ext, ok := map[string]string{
		"image/jpeg": ".jpg", "image/png": ".png", "image/webp": ".webp", "image/gif": ".gif", "image/heic": ".heic", "audio/ogg": ".ogg",
		"audio/mpeg": ".mp3", "audio/wav": ".wav", "audio/x-wav": ".wav", "audio/mp4": ".m4a", "video/mp4": ".mp4", "video/webm": ".webm",
		"video/quicktime": ".mov", "application/pdf": ".pdf", "text/plain": ".txt", "application/json": ".json", "application/zip": ".zip",
	}[strings.ToLower(strings.TrimSpace(mime))]; ok {
		return ext
	}
	return map[string]string{"image": ".jpg", "photo": ".jpg", "sticker": ".webp", "voice": ".ogg", "audio": ".mp3", "video": ".mp4",
		"animation": ".mp4"}[strings.ToLower(a.Kind)]
}
