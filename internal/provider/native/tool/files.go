package tool

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"
)

// Limits of Read.
const (
	maxLines    = 2_000
	maxColumns  = 2_000
	maxReadText = 200_000
	maxEditFile = 20 << 20
	maxPicture  = 5 << 20
	maxPDF      = 20 << 20
)

type readInput struct {
	Path   string `json:"file_path"`
	Offset int    `json:"offset"`
	Limit  int    `json:"limit"`
}

func (b *Box) readFile() Tool {
	return typed(Tool{
		Wire("Read", `Reads a file: text with line numbers, 2000 lines at a time (offset is the first line, counted from 1), or a picture `+
			`(PNG, JPEG, GIF, WebP) or a PDF, which you then see. Paths are absolute or start in your folder.`,
			schema(`"file_path"`, `"file_path":{"type":"string"},"offset":{"type":"integer"},"limit":{"type":"integer"}`)),
		true, nil, nil,
	}, func(_ context.Context, in readInput) Result {
		path := b.path(in.Path)
		f, info, err := openRegular(path)
		if err != nil {
			return failed("%s cannot be read: %s", in.Path, reason(err))
		}
		defer func() { _ = f.Close() }()
		var head [512]byte
		n, _ := io.ReadFull(f, head[:])
		if kind := http.DetectContentType(head[:n]); viewable(kind) {
			return b.look(f, info, kind)
		}
		if bytes.IndexByte(head[:n], 0) >= 0 {
			return failed("%s is no text (%s, %d bytes). Use Bash to look into it.", in.Path, http.DetectContentType(head[:n]), info.Size())
		}
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return failed("%s cannot be read: %s", in.Path, reason(err))
		}
		text, err := numbered(f, max(in.Offset, 1), in.Limit)
		if err != nil {
			return failed("%s cannot be read: %s", in.Path, reason(err))
		}
		b.note(path, info.ModTime())
		return Result{Text: text}
	})
}

func viewable(kind string) bool {
	switch kind {
	case "image/png", "image/jpeg", "image/gif", "image/webp", "application/pdf":
		return true
	}
	return false
}

func (b *Box) look(f *os.File, info fs.FileInfo, kind string) Result {
	limit := int64(maxPicture)
	if kind == "application/pdf" {
		limit = maxPDF
	}
	if info.Size() > limit {
		return failed("The file has %d bytes; a %s of at most %d can be shown.", info.Size(), kind, limit)
	}
	content := make([]byte, info.Size())
	n, err := f.ReadAt(content, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return failed("The file cannot be read: %s", reason(err))
	}
	name := filepath.Base(f.Name())
	return Result{Text: fmt.Sprintf("%s (%s, %d bytes)", name, kind, n), Files: []File{{Name: name, MimeType: kind, Content: content[:n]}}}
}

// openRegular opens a file without waiting for one that is none, such as a pipe.
func openRegular(path string) (*os.File, fs.FileInfo, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, nil, err
	}
	if info.IsDir() {
		return nil, nil, errors.New("it is a folder; Glob or Bash list it")
	}
	if !info.Mode().IsRegular() {
		return nil, nil, errors.New("it is no regular file")
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	return f, info, nil
}

// reason is what went wrong without the path, which the model knows.
func reason(err error) string {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err.Error()
	}
	return err.Error()
}

// numbered gives lines from first on.
func numbered(r io.Reader, first, limit int) (string, error) {
	if limit <= 0 || limit > maxLines {
		limit = maxLines
	}
	var out strings.Builder
	line, shown, more := 0, 0, false
	err := eachLine(r, func(text []byte) bool {
		line++
		if line < first {
			return true
		}
		if shown == limit || out.Len() > maxReadText {
			more = true
			return false
		}
		shown++
		if len(text) > maxColumns {
			cut := maxColumns
			for cut > 0 && !utf8.RuneStart(text[cut]) {
				cut--
			}
			text = append(bytes.Clone(text[:cut]), "… [line cut]"...)
		}
		fmt.Fprintf(&out, "%6d\t%s\n", line, clean(string(text)))
		return true
	})
	switch {
	case err != nil:
		return "", err
	case line == 0:
		return "(the file is empty)", nil
	case shown == 0:
		return fmt.Sprintf("(the file has only %d lines)", line), nil
	case more:
		fmt.Fprintf(&out, "[there is more: go on with offset %d]\n", first+shown)
	}
	return out.String(), nil
}

// eachLine reads lines of any length but keeps no more than a little over maxColumns of each.
func eachLine(r io.Reader, each func([]byte) bool) error {
	const keep = maxColumns + 2*utf8.UTFMax
	buf := make([]byte, 32<<10)
	var line []byte
	begun := false
	for {
		n, err := r.Read(buf)
		for rest := buf[:n]; len(rest) > 0; {
			i := bytes.IndexByte(rest, '\n')
			part := rest
			if i >= 0 {
				part = rest[:i]
			}
			begun = true
			line = append(line, part[:min(len(part), max(keep-len(line), 0))]...)
			if i < 0 {
				break
			}
			if !each(bytes.TrimSuffix(line, []byte("\r"))) {
				return nil
			}
			line, begun, rest = line[:0], false, rest[i+1:]
		}
		if errors.Is(err, io.EOF) {
			if begun {
				each(line)
			}
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (b *Box) note(path string, changed time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.read[path] = changed
}

// fresh says why a file must be read before it is changed; "" if it may be.
func (b *Box) fresh(path string, info fs.FileInfo) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	at, ok := b.read[path]
	switch {
	case !ok:
		return "read it first"
	case !at.Equal(info.ModTime()):
		return "it was changed since you read it; read it again"
	}
	return ""
}

type writeInput struct {
	Path    string `json:"file_path"`
	Content string `json:"content"`
}

func (b *Box) writeFile() Tool {
	return typed(Tool{
		Wire("Write", `Writes a whole file; missing folders are made. A file that is there must have been read before. To change a part of a file use Edit.`,
			schema(`"file_path","content"`, `"file_path":{"type":"string"},"content":{"type":"string"}`)),
		false, nil, nil,
	}, func(_ context.Context, in writeInput) Result {
		path := b.path(in.Path)
		old, err := os.Stat(path)
		switch {
		case err == nil && !old.Mode().IsRegular():
			return failed("%s is no regular file.", in.Path)
		case err == nil:
			if why := b.fresh(path, old); why != "" {
				return failed("%s is there already: %s.", in.Path, why)
			}
		}
		if err := b.put(path, []byte(in.Content), old); err != nil {
			return failed("%s cannot be written: %s", in.Path, reason(err))
		}
		return Result{Text: fmt.Sprintf("%s is written (%d bytes).", in.Path, len(in.Content))}
	})
}

// put writes a file in place: its owner, links and mode stay.
func (b *Box) put(path string, content []byte, old fs.FileInfo) error {
	mode := fs.FileMode(0o644)
	if old != nil {
		mode = old.Mode().Perm()
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(path, content, mode); err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	b.note(path, info.ModTime())
	return nil
}

type editInput struct {
	Path string `json:"file_path"`
	Old  string `json:"old_string"`
	New  string `json:"new_string"`
	All  bool   `json:"replace_all"`
}

func (b *Box) editFile() Tool {
	return typed(Tool{
		Wire("Edit", `Replaces old_string, which must stand in the file exactly once, by new_string; with replace_all each place where it stands. The file `+
			`must have been read before. Give enough of the surroundings to make the place unique, without the line numbers of Read.`,
			schema(`"file_path","old_string","new_string"`, `"file_path":{"type":"string"},"old_string":{"type":"string"},`+
				`"new_string":{"type":"string"},"replace_all":{"type":"boolean"}`)),
		false, nil, nil,
	}, func(_ context.Context, in editInput) Result {
		path := b.path(in.Path)
		f, info, err := openRegular(path)
		if err != nil {
			return failed("%s cannot be edited: %s", in.Path, reason(err))
		}
		defer func() { _ = f.Close() }()
		switch {
		case info.Size() > maxEditFile:
			return failed("%s is too large to edit (%d bytes). Use Bash.", in.Path, info.Size())
		case in.Old == "":
			return failed("old_string is empty. Write makes new files.")
		case in.Old == in.New:
			return failed("old_string and new_string are the same.")
		}
		if why := b.fresh(path, info); why != "" {
			return failed("%s was not changed: %s.", in.Path, why)
		}
		content, err := io.ReadAll(f)
		if err != nil {
			return failed("%s cannot be read: %s", in.Path, reason(err))
		}
		text := string(content)
		n := strings.Count(text, in.Old)
		if n == 0 && strings.Contains(text, "\r\n") { // the model does not see the ends of lines
			in.Old, in.New = crlf(in.Old), crlf(in.New)
			n = strings.Count(text, in.Old)
		}
		switch {
		case n == 0:
			return failed("%s was not changed: old_string does not stand in it.", in.Path)
		case n > 1 && !in.All:
			return failed("%s was not changed: old_string stands in it %d times. Make it unique, or use replace_all.", in.Path, n)
		}
		if err := b.put(path, []byte(strings.ReplaceAll(text, in.Old, in.New)), info); err != nil {
			return failed("%s cannot be written: %s", in.Path, reason(err))
		}
		return Result{Text: fmt.Sprintf("%s is changed (%d places).", in.Path, n)}
	})
}

func crlf(s string) string {
	return strings.ReplaceAll(strings.ReplaceAll(s, "\r\n", "\n"), "\n", "\r\n")
}
