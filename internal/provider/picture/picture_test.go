package picture

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"nanoclaw/internal/obs"
	"nanoclaw/internal/provider"
)

const gif = "R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7"

// Only regular files that are pictures by their content, in order; the rest neither fails nor blocks.
func TestRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	content, err := base64.StdEncoding.DecodeString(gif)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name string, b []byte) provider.Attachment {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		return provider.Attachment{Name: name, Path: path, MimeType: "image/png"}
	}
	good := write("good.txt", content)
	link, pipe := filepath.Join(dir, "link"), filepath.Join(dir, "pipe")
	if err := os.Symlink(good.Path, link); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	list := []provider.Attachment{
		{}, {URL: "https://example.org/a.png"}, {Path: "relative.png"}, {Path: dir}, {Path: pipe}, {Path: link}, {Path: filepath.Join(dir, "gone")},
		write("text.png", []byte("words")), write("empty.png", nil), write("big.png", append(content, make([]byte, maxOne)...)), good,
	}
	got := Read(list, obs.Discard())
	if len(got) != 1 || got[0] != (Picture{Name: "good.txt", Type: "image/gif", Data: gif}) || got[0].URL() != "data:image/gif;base64,"+gif {
		t.Errorf("pictures %+v", got)
	}
	var many []provider.Attachment
	for range most + 5 {
		many = append(many, good)
	}
	if n := len(Read(many, obs.Discard())); n != most {
		t.Errorf("%d pictures", n)
	}
	var large []provider.Attachment
	for range 6 {
		large = append(large, write("large.gif", append(content, make([]byte, maxOne-1-len(content))...)))
	}
	if n := len(Read(large, obs.Discard())); n != 3 {
		t.Errorf("%d large pictures", n)
	}
	if strings.Contains(got[0].Data, "\n") {
		t.Error("base64 in lines")
	}
}
