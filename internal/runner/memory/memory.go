// Package memory is what an agent remembers between conversations: files of its own below `memory/` in its folder, two of which
// are shown to the model with every query (spec/runner.md section 1.6).
//
// The agent writes these files itself, and other sessions of the same agent may write them at the same time. Nothing here
// follows a link out of the folder, waits for a file, or fails a query because of what a file holds.
package memory

import (
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"
	"unicode"
	"unicode/utf8"
)

//go:embed template
var templates embed.FS

// The files below the agent's folder.
const (
	Index       = "memory/index.md"             // the map, and what must be known always
	Definition  = "memory/system/definition.md" // the rules of the memory
	SystemIndex = "memory/system/index.md"
)

// Ensure makes the files of the memory that are not there yet, from our templates. What is there in any form is left as it is. dir is
// the agent's folder. An error is one of the file system (a full disk, a folder that cannot be written, a link that leads
// out of dir); the rest of the files may be missing then.
func Ensure(dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("make memory: open the agent's folder: %w", err)
	}
	defer func() { _ = root.Close() }()
	for _, sub := range []string{"memory", "memory/system"} {
		if err := root.Mkdir(sub, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("make memory: %w", err)
		}
	}
	for _, name := range []string{Index, Definition, SystemIndex} {
		if err := create(root, name); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("make memory: %w", err)
		}
	}
	return nil
}

func create(root *os.Root, name string) (err error) {
	body, err := templates.ReadFile(path.Join("template", strings.TrimPrefix(name, "memory/")))
	if err != nil {
		return err
	}
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(body)
	if err = errors.Join(err, f.Close()); err != nil {
		_ = root.Remove(name) // half a file would stay for ever
	}
	return err
}

// Limits of one file in the section.
const (
	maxUnits = 16000     // UTF-16 units shown
	maxRead  = 128 << 10 // bytes read
)

// Section is the memory for the system prompt: a heading, where the two files are, that the disk is the truth, and both bodies.
// It is made anew for each query and never fails: a file that cannot be shown is named as unavailable. dir is the agent's folder.
func Section(dir string) string {
	var b strings.Builder
	b.WriteString("## Memory\n\n" +
		"What you remember between conversations is in files below `memory/` in your folder. Two of them are shown here: `" + Index + "`, the map and what you always need to know, and `" +
		Definition + "`, how to file, correct and link. Read the others when the map points to them.\n\n" +
		"The files on disk are what counts. What you see here was read when this conversation was started or continued: before you change a file, read it again. " +
		"These are notes that you wrote yourself; they are no messages, and nobody is waiting for an answer to them.\n")
	root, err := os.OpenRoot(dir)
	if err != nil {
		return b.String() + "\n" + unavailable(Index) + "\n" + unavailable(Definition)
	}
	defer func() { _ = root.Close() }()
	for _, name := range []string{Index, Definition} {
		b.WriteString("\n" + shown(root, name))
	}
	return b.String()
}

func unavailable(name string) string {
	return "(`" + name + "` is unavailable: it is missing or cannot be read.)\n"
}

const tag = "memory_file"

func shown(root *os.Root, name string) string {
	body, whole, err := read(root, name)
	if err != nil {
		return unavailable(name)
	}
	body = strings.TrimSpace(body)
	if n := prefix(body, maxUnits); n < len(body) {
		body, whole = body[:n], false
	}
	s := "<" + tag + " path=\"" + name + "\">\n" + enclose(body) + "\n</" + tag + ">\n"
	if !whole {
		s += "(`" + name + "` is longer than what is shown here. Slim it: move details into files of their own and link them.)\n"
	}
	return s
}

var errNotText = errors.New("not UTF-8 text")

// read is a file's text, at most its first maxRead bytes; whole says that this is all. It never waits: a pipe is opened without
// blocking, and refused.
func read(root *os.Root, name string) (body string, whole bool, err error) {
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", false, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return "", false, err
	}
	if !info.Mode().IsRegular() {
		return "", false, fmt.Errorf("%s is not a regular file", name)
	}
	raw, err := io.ReadAll(io.LimitReader(f, maxRead+1))
	if err != nil {
		return "", false, err
	}
	whole = true
	if len(raw) > maxRead {
		raw, whole = raw[:maxRead], false
		for n := 1; n < utf8.UTFMax && !utf8.Valid(raw); n++ { // the cut may go through a character
			raw = raw[:len(raw)-1]
		}
	}
	if !utf8.Valid(raw) {
		return "", false, fmt.Errorf("%s: %w", name, errNotText)
	}
	return string(raw), whole, nil
}

// prefix is the length in bytes of the longest beginning of s with at most units UTF-16 units. It splits no character.
func prefix(s string, units int) int {
	for i, r := range s {
		if r > 0xffff {
			units--
		}
		if units--; units < 0 {
			return i
		}
	}
	return len(s)
}

// enclose keeps a body from closing or opening the element around it, in any case: the bracket of such a tag becomes an entity.
// Control characters other than line ends and tabs are dropped.
func enclose(s string) string {
	s = strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || !unicode.IsControl(r) {
			return r
		}
		return -1
	}, s)
	var b strings.Builder
	for i, r := range s {
		if r == '<' && ours(s[i+1:]) {
			b.WriteString("&lt;")
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// ours reports whether s, behind a bracket, starts with the name of our element, white space and a slash before it allowed.
func ours(s string) bool {
	s = strings.TrimLeftFunc(s, func(r rune) bool { return r == '/' || unicode.IsSpace(r) })
	return len(s) >= len(tag) && strings.EqualFold(s[:len(tag)], tag)
}
