// Package picture reads the pictures among the attachments of a prompt, for providers whose programs take them as data.
package picture

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"syscall"

	"nanoclaw/internal/obs"
	"nanoclaw/internal/provider"
)

// What is shown to a model. Any other file is named in the text of the prompt, and the model can read it from there.
const (
	maxOne = 5 << 20  // bytes of one picture
	maxAll = 16 << 20 // of all of one prompt: they are sent again with every request of the conversation
	most   = 20
)

// Picture is a file that a model can look at.
type Picture struct {
	Name string
	Type string // media type, from its content
	Data string // base64
}

// URL is the picture as a data URL.
func (p Picture) URL() string { return "data:" + p.Type + ";base64," + p.Data }

// Read gives the pictures of the list, in order. It never fails, and never blocks on a file that is no regular one: what cannot be
// shown is left out and logged.
func Read(list []provider.Attachment, log *slog.Logger) []Picture {
	var out []Picture
	left := int64(maxAll)
	for _, a := range list {
		if a.Path == "" {
			continue
		}
		if len(out) == most {
			log.Info("further attachments are only named", obs.KeyCount, len(list))
			break
		}
		data, kind, err := read(a.Path, min(left, maxOne))
		if err != nil {
			log.Info("an attachment is only named", obs.KeyName, a.Name, obs.Error(err))
		}
		if kind != "" {
			left -= int64(len(data))
			out = append(out, Picture{Name: a.Name, Type: kind, Data: base64.StdEncoding.EncodeToString(data)})
		}
	}
	return out
}

// read gives a picture, and no kind for any other file. Its content says what it is, not its name.
func read(path string, limit int64) (data []byte, kind string, err error) {
	if !filepath.IsAbs(path) {
		return nil, "", errors.New("its path is not absolute")
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil, "", fmt.Errorf("open the attachment: %w", err)
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, "", fmt.Errorf("look at the attachment: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, "", errors.New("it is no regular file")
	}
	if info.Size() > limit {
		return nil, "", fmt.Errorf("it has %d bytes, at most %d can be shown", info.Size(), limit)
	}
	if data, err = io.ReadAll(io.LimitReader(f, limit+1)); err != nil {
		return nil, "", fmt.Errorf("read the attachment: %w", err)
	}
	if int64(len(data)) > limit {
		return nil, "", errors.New("it grows while it is read")
	}
	switch kind = http.DetectContentType(data); kind {
	case "image/png", "image/jpeg", "image/gif", "image/webp":
		return data, kind, nil
	}
	return nil, "", nil
}
