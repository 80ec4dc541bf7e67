package claude

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nanoclaw/internal/provider"
)

func TestReadMedia(t *testing.T) {
	t.Parallel()
	png := "\x89PNG\r\n\x1a\n"
	for name, c := range map[string]struct {
		content string
		size    int // filled up to that
		left    int
		want    string // kind and media type
		fails   bool
	}{
		"png":                   {png, 100, maxMedia, "image image/png", false},
		"jpeg":                  {"\xff\xd8\xff\xe0", 2000, maxMedia, "image image/jpeg", false},
		"gif":                   {"GIF89a", 50, maxMedia, "image image/gif", false},
		"webp":                  {"RIFF\x00\x00\x00\x00WEBPVP8 ", 700, maxMedia, "image image/webp", false},
		"pdf":                   {"%PDF-1.7\n", 5 << 20, maxMedia, "document application/pdf", false},
		"the largest picture":   {png, maxImage / 4 * 3, maxMedia, "image image/png", false},
		"a picture too large":   {png, maxImage/4*3 + 1, maxMedia, "", true},
		"the largest document":  {"%PDF-1.7\n", maxPDF / 4 * 3, maxMedia, "document application/pdf", false},
		"a document too large":  {"%PDF-1.7\n", maxPDF/4*3 + 3, maxMedia, "", true},
		"nothing left for it":   {png, 4000, 4000, "", true},
		"just enough left":      {png, 3000, 4000, "image image/png", false},
		"text":                  {"hello", 0, maxMedia, "", false},
		"empty":                 {"", 0, maxMedia, "", false},
		"bmp":                   {"BM", 100, maxMedia, "", false},
		"svg":                   {`<svg xmlns="http://www.w3.org/2000/svg"/>`, 0, maxMedia, "", false},
		"a program":             {"MZ", 5000, maxMedia, "", false},
		"shorter than its head": {png + "x", 0, maxMedia, "image image/png", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			content := append([]byte(c.content), make([]byte, max(0, c.size-len(c.content)))...)
			path := filepath.Join(t.TempDir(), "file")
			if err := os.WriteFile(path, content, 0o600); err != nil {
				t.Fatal(err)
			}
			b, err := readMedia(path, c.left)
			if (err != nil) != c.fails || (b == nil) != (c.want == "") {
				t.Fatalf("%+v, %v", b, err)
			}
			if b == nil {
				return
			}
			if got := b.Type + " " + b.Source.MediaType; got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
			if data, err := base64.StdEncoding.DecodeString(b.Source.Data); err != nil || !bytes.Equal(data, content) {
				t.Errorf("%d bytes of %d, %v", len(data), len(content), err)
			}
		})
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink("/etc/passwd", link); err != nil {
		t.Fatal(err)
	}
	if b, err := readMedia(link, maxMedia); b != nil || err == nil {
		t.Errorf("a link: %+v, %v", b, err)
	}
}

func TestMediaOfAPrompt(t *testing.T) {
	t.Parallel()
	p, err := New(Options{Program: "/claude", Home: "/home"})
	if err != nil {
		t.Fatal(err)
	}
	q, path := detached(t, p), filepath.Join(t.TempDir(), "a.png")
	if err := os.WriteFile(path, append([]byte("\x89PNG\r\n\x1a\n"), make([]byte, 3<<20)...), 0o600); err != nil {
		t.Fatal(err)
	}
	var list []provider.Attachment
	for range 30 {
		list = append(list, provider.Attachment{Path: path})
	}
	if n := len(q.prepare(provider.Input{Text: "look", Attachments: list}).media); n != 3 { // 4 MB each of 16
		t.Errorf("%d large pictures", n)
	}
	if err := os.WriteFile(path, []byte("\x89PNG\r\n\x1a\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if n := len(q.prepare(provider.Input{Text: "look", Attachments: list}).media); n != mostMedia {
		t.Errorf("%d small pictures", n)
	}
	if m := q.prepare(provider.Input{Text: "/compact", Attachments: list}).media; m != nil {
		t.Error("a command with pictures is none for the CLI")
	}
	line, err := json.Marshal(userMessage{Role: "user", Content: q.prepare(provider.Input{Text: "look", Attachments: list[:1]}).content()})
	want := `{"role":"user","content":[{"type":"text","text":"look"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"iVBORw0KGgo="}}]}`
	if err != nil || strings.TrimSpace(string(line)) != want {
		t.Errorf("%s, %v", line, err)
	}
}
