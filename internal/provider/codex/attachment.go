package codex

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"syscall"

	"nanoclaw/internal/obs"
	"nanoclaw/internal/provider"
)

// What is shown to the model. Any other file is named in the text of the prompt, and the model can read it from there.
const (
	maxImage   = 5 << 20  // bytes of one picture
	maxImages  = 16 << 20 // of all of one prompt: they are sent again with every request of the thread
	mostImages = 20
)

// images are the pictures among the attachments, as data URLs. It never fails, and never blocks on a file that is no regular one.
func (q *query) images(list []provider.Attachment) []userInput {
	var out []userInput
	left := int64(maxImages)
	for _, a := range list {
		if a.Path == "" {
			continue
		}
		if len(out) == mostImages {
			q.log.Info("codex: further attachments are only named", obs.KeyCount, len(list))
			break
		}
		url, size, err := readImage(a.Path, min(left, maxImage))
		if err != nil {
			q.log.Info("codex: an attachment is only named", obs.KeyName, a.Name, obs.Error(err))
		}
		if url != "" {
			left -= size
			out = append(out, userInput{Type: "image", URL: url})
		}
	}
	return out
}

// readImage gives a picture as a data URL, and nothing for any other file. Its content says what it is, not its name.
func readImage(path string, limit int64) (url string, size int64, err error) {
	if !filepath.IsAbs(path) {
		return "", 0, errors.New("its path is not absolute")
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return "", 0, fmt.Errorf("open the attachment: %w", err)
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return "", 0, fmt.Errorf("look at the attachment: %w", err)
	}
	if !info.Mode().IsRegular() {
		return "", 0, errors.New("it is no regular file")
	}
	if info.Size() > limit {
		return "", 0, fmt.Errorf("it has %d bytes, at most %d can be shown", info.Size(), limit)
	}
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return "", 0, fmt.Errorf("read the attachment: %w", err)
	}
	if int64(len(data)) > limit {
		return "", 0, errors.New("it grows while it is read")
	}
	switch kind := http.DetectContentType(data); kind {
	case "image/png", "image/jpeg", "image/gif", "image/webp":
		return "data:" + kind + ";base64," + base64.StdEncoding.EncodeToString(data), int64(len(data)), nil
	}
	return "", 0, nil
}
