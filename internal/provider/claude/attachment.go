package claude

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"nanoclaw/internal/obs"
	"nanoclaw/internal/provider"
)

// What the API takes. A file that is left out is named in the text of the prompt, and the model can read it from there.
const (
	maxImage  = 5 << 20  // of one picture, in base64
	maxPDF    = 10 << 20 // of one document, in base64: it is sent again with every request of the conversation, which may have 32 MB
	maxMedia  = 16 << 20 // of all of one prompt, in base64
	mostMedia = 20       // the API limits the size of pictures further when there are more
)

// media reads the attachments that can be shown to the model. It never fails, and never blocks on a file that is no regular one.
func (q *query) media(list []provider.Attachment) []block {
	var out []block
	left := maxMedia
	for _, a := range list {
		if a.Path == "" {
			continue
		}
		if len(out) == mostMedia {
			q.log.Info("claude: further attachments are only named", obs.KeyCount, len(list))
			break
		}
		b, err := readMedia(a.Path, left)
		if err != nil {
			q.log.Info("claude: an attachment is only named", obs.KeyName, a.Name, obs.Error(err))
			continue
		}
		if b != nil {
			left -= len(b.Source.Data)
			out = append(out, *b)
		}
	}
	return out
}

// readMedia gives the block of a picture or document, nil for any other file. Its content says what it is, not its name.
func readMedia(path string, left int) (*block, error) {
	if !filepath.IsAbs(path) {
		return nil, errors.New("its path is not absolute")
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil, fmt.Errorf("open the attachment: %w", err)
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("look at the attachment: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("it is no regular file")
	}
	head := make([]byte, 512) // what DetectContentType looks at
	n, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read the attachment: %w", err)
	}
	b := &block{Source: &source{Type: "base64", MediaType: http.DetectContentType(head[:n])}}
	limit := maxImage
	switch b.Source.MediaType {
	case "image/png", "image/jpeg", "image/gif", "image/webp":
		b.Type = "image"
	case "application/pdf":
		b.Type, limit = "document", maxPDF
	default:
		return nil, nil
	}
	limit = base64.StdEncoding.DecodedLen(min(limit, left))
	if info.Size() > int64(limit) {
		return nil, fmt.Errorf("it has %d bytes, at most %d can be shown", info.Size(), limit)
	}
	var data strings.Builder
	data.Grow(base64.StdEncoding.EncodedLen(int(info.Size())))
	encoder := base64.NewEncoder(base64.StdEncoding, &data)
	_, _ = encoder.Write(head[:n]) // a Builder takes everything
	rest, err := io.Copy(encoder, io.LimitReader(f, int64(limit-n)+1))
	if err != nil {
		return nil, fmt.Errorf("read the attachment: %w", err)
	}
	if rest > int64(limit-n) {
		return nil, errors.New("it grows while it is read")
	}
	_ = encoder.Close()
	b.Source.Data = data.String()
	return b, nil
}
