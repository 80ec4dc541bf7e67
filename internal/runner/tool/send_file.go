package tool

import (
	"context"
	_ "embed" // the description
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"unicode/utf8"
)

//go:embed send_file.md
var sendFileText string

type sendFileArgs struct {
	To       string `json:"to"`
	Path     string `json:"path"`
	Text     string `json:"text"`
	Filename string `json:"filename"`
}

func sendFile(opt Options) Tool {
	schema := object(
		need("to", text(aboutTo)),
		need("path", text("path of the file, absolute or relative to your folder")),
		may("text", text("text that goes with the file")),
		may("filename", text("plain name under which it arrives; default: that of the file")),
	)
	return define("send_file", sendFileText, schema, func(ctx context.Context, args sendFileArgs) (string, error) {
		switch {
		case args.To == "":
			return "", errNoDestination
		case args.Path == "":
			return "", errors.New("`path` is required: the path of a file")
		}
		text, err := outward("text", args.Text)
		if err != nil {
			return "", err
		}
		name := args.Filename
		if name == "" {
			name = filepath.Base(args.Path)
		}
		if why := badName(name); why != "" {
			return "", fmt.Errorf("the file name %q cannot be used: %s; give a plain name in `filename`; nothing was sent", shorten(name), why)
		}
		f, size, err := openFile(opt, args.Path)
		if err != nil {
			return "", fmt.Errorf("%w; nothing was sent", err)
		}
		held := &heldFile{f: f}
		defer held.release()
		sent, err := opt.Session.Send(ctx, Message{To: args.To, Text: text, Files: []File{{Name: name, Size: size, Open: held.take}}})
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("sent to %s (id: %d), file %s", sent.To, sent.Seq, name), nil
	})
}

// badName says why a name is no plain file name, or nothing. The rules are those of attachments in a mailbox; a name is taken as
// it is or refused, never repaired, so that two names cannot meet (spec/runner.md W22).
func badName(name string) string {
	const most = 255
	switch {
	case name == "":
		return "it is empty"
	case len(name) > most:
		return fmt.Sprintf("it is longer than %d bytes", most)
	case strings.ContainsAny(name, `/\`):
		return "it has path parts"
	case name[0] == '.':
		return "it starts with a dot"
	case !utf8.ValidString(name):
		return "it is not UTF-8"
	case strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return "it has a control character"
	}
	return ""
}

// openFile opens a regular file below the agent's folder or another root, following no link out of that root, and returns its
// size. Opening does not block, whatever is there.
func openFile(opt Options, path string) (*os.File, int64, error) {
	if strings.ContainsRune(path, 0) {
		return nil, 0, fmt.Errorf("the path %q has a NUL character", shorten(path))
	}
	full := path
	if !filepath.IsAbs(full) {
		full = filepath.Join(opt.Cwd, path)
	}
	base, rest, ok := within(append([]string{opt.Cwd}, opt.Roots...), full)
	if !ok {
		return nil, 0, fmt.Errorf("%q is outside of the folders that files may be sent from: copy it to your folder first", shorten(path))
	}
	root, err := os.OpenRoot(base)
	if err != nil {
		return nil, 0, fmt.Errorf("open folder of %q: %w", shorten(path), cause(err))
	}
	defer func() { _ = root.Close() }()
	// Looked at before it is opened too: opening alone has effects on some devices.
	st, err := root.Stat(rest)
	if err == nil {
		err = regular(path, st, opt.MaxFile)
	}
	if err != nil {
		return nil, 0, explain(path, err)
	}
	f, err := root.OpenFile(rest, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, 0, explain(path, err)
	}
	st, err = f.Stat()
	if err == nil {
		err = regular(path, st, opt.MaxFile)
	}
	if err != nil {
		_ = f.Close()
		return nil, 0, explain(path, err)
	}
	return f, st.Size(), nil
}

// within returns the deepest of the folders that path is below, and the rest of path.
func within(folders []string, path string) (base, rest string, ok bool) {
	try := func(folder, named string) {
		if r, err := filepath.Rel(named, path); err == nil && filepath.IsLocal(r) && (!ok || len(r) < len(rest)) {
			base, rest, ok = folder, r, true
		}
	}
	for _, folder := range folders {
		if folder == "" {
			continue
		}
		try(folder, folder)
		if real, err := filepath.EvalSymlinks(folder); err == nil && real != folder {
			try(folder, real) // the agent may have asked the system where it is
		}
	}
	return base, rest, ok
}

// refusal is a reason in words for the model.
type refusal string

func (r refusal) Error() string { return string(r) }

func regular(path string, st fs.FileInfo, most int64) error {
	switch mode := st.Mode(); {
	case mode.IsDir():
		return refusal(fmt.Sprintf("%q is a folder; send one file, for example an archive of it", shorten(path)))
	case !mode.IsRegular():
		return refusal(fmt.Sprintf("%q is not a regular file", shorten(path)))
	case st.Size() > most:
		return refusal(fmt.Sprintf("%q has %d bytes, at most %d are allowed", shorten(path), st.Size(), most))
	}
	return nil
}

func explain(path string, err error) error {
	var r refusal
	switch {
	case errors.As(err, &r):
		return r
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("there is no file %q: %w", shorten(path), fs.ErrNotExist)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%q may not be read: %w", shorten(path), fs.ErrPermission)
	}
	return fmt.Errorf("%q cannot be opened without leaving its folder, or not at all: %w", shorten(path), cause(err))
}

// cause drops the paths of the runner from an error of the file system.
func cause(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// heldFile is an open file that belongs to the tool until the session takes it, and then to the session: a call that was given
// up cannot close a file that is being read.
type heldFile struct {
	mu sync.Mutex
	f  *os.File
}

func (h *heldFile) take() (io.ReadCloser, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.f == nil {
		return nil, fmt.Errorf("read the file of a call that has ended: %w", fs.ErrClosed)
	}
	f := h.f
	h.f = nil
	return f, nil
}

func (h *heldFile) release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.f != nil {
		_ = h.f.Close()
		h.f = nil
	}
}
