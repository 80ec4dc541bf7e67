package tool

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"
)

// MaxOutput is how many bytes of an output the model gets to see; the rest is in a file.
const MaxOutput = 30_000

// Cut shortens text to its head and its tail if it has more than limit bytes. The whole is put into a file of folder, which the
// text in the middle names.
func Cut(text, folder, name string, limit int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= limit {
		return text
	}
	where := "The rest could not be kept."
	if path, err := spill(folder, name, text); err == nil {
		where = "The whole output is in " + path + "."
	}
	head, tail := headTail(text, limit)
	return head + gap(len(text)-len(head)-len(tail), where) + tail
}

func gap(left int, where string) string {
	return fmt.Sprintf("\n\n[… %d bytes left out. %s …]\n\n", left, where)
}

// headTail are the beginning and the end of a text, whole characters, whole lines where that costs little.
func headTail(text string, limit int) (head, tail string) {
	half := limit / 2
	end := half
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	head, tail = text[:end], text[len(text)-half:]
	for len(tail) > 0 && !utf8.RuneStart(tail[0]) {
		tail = tail[1:]
	}
	if i := strings.LastIndexByte(head, '\n'); i > half*3/4 {
		head = head[:i+1]
	}
	if i := strings.IndexByte(tail, '\n'); i >= 0 && i < half/4 {
		tail = tail[i+1:]
	}
	return head, tail
}

func spill(folder, name, text string) (string, error) {
	f, err := outputFile(folder, name)
	if err != nil {
		return "", err
	}
	_, err = f.WriteString(text)
	if e := f.Close(); err == nil {
		err = e
	}
	return f.Name(), err
}

// outputFile makes a new file in folder.
func outputFile(folder, name string) (*os.File, error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, fmt.Errorf("keep an output: %w", err)
	}
	f, err := os.CreateTemp(folder, filepath.Base(name)+"-*.txt")
	if err != nil {
		return nil, fmt.Errorf("keep an output: %w", err)
	}
	return f, nil
}
