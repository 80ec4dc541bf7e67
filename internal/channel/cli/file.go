package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode"
	"unicode/utf8"

	"nanoclaw/internal/channel"
	"nanoclaw/internal/control"
	"nanoclaw/internal/id"
)

// CrashKept is the crash point between the files of a message and its entry in the log.
const CrashKept = "cli.kept"

// Files that agents sent lie in <files>/<conversation>/<entry id>/<name>, as long as the entry is in the log.
const (
	keptFolder = 0o700
	keptFile   = 0o600
)

// staging is where the files of an entry lie until all are there; no entry id starts with a dot.
func staging(entry string) string { return ".part-" + entry }

// keep copies files durably into the host's own keeping before their entry is appended. They appear all at once under the
// entry's id; a try after a crash starts again. The error is an *Outcome.
func (c *conversation) keep(ctx context.Context, entry string, files []channel.File) ([]control.File, error) {
	var out []control.File
	for _, f := range files {
		if why := badName(f.Name); why != "" {
			return nil, permanent(fmt.Sprintf("the file name %.60q cannot be used: %s", f.Name, why), "send it under a plain name")
		}
		out = append(out, control.File{Name: f.Name, Size: f.Size, Path: filepath.Join(c.files, c.name, entry, f.Name)})
	}
	if err := c.copyAll(ctx, entry, files); err != nil {
		return nil, &channel.Outcome{Kind: channel.Transient, Err: fmt.Errorf("keep the files of a message: %w", err)}
	}
	return out, nil
}

func (c *conversation) copyAll(ctx context.Context, entry string, files []channel.File) error {
	own := filepath.Join(c.files, c.name)
	if err := os.MkdirAll(own, keptFolder); err != nil {
		return err
	}
	stage, final := filepath.Join(own, staging(entry)), filepath.Join(own, entry)
	err := errors.Join(os.RemoveAll(stage), os.RemoveAll(final)) // of a try that was killed
	if err == nil {
		err = os.Mkdir(stage, keptFolder)
	}
	for _, f := range files {
		if err == nil {
			err = copyFile(ctx, filepath.Join(stage, f.Name), f)
		}
	}
	if err == nil {
		err = syncDir(stage)
	}
	if err == nil {
		err = os.Rename(stage, final)
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(stage))
	}
	return errors.Join(syncDir(own), syncDir(c.files))
}

func copyFile(ctx context.Context, path string, f channel.File) error {
	src, err := f.Open()
	if err != nil {
		return err
	}
	defer func() { _ = src.Close() }()
	dst, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, keptFile)
	if err != nil {
		return err
	}
	n, err := io.Copy(dst, io.LimitReader(source{ctx, src}, f.Size+1))
	if err == nil && n != f.Size {
		err = fmt.Errorf("%q changed while it was read: %d bytes instead of %d", f.Name, n, f.Size)
	}
	if err == nil {
		err = dst.Sync()
	}
	return errors.Join(err, dst.Close())
}

// source ends with ctx, between two reads.
type source struct {
	ctx context.Context
	r   io.Reader
}

func (s source) Read(b []byte) (int, error) {
	if err := s.ctx.Err(); err != nil {
		return 0, err
	}
	return s.r.Read(b)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func (c *conversation) dropFiles(entry string) error {
	if err := os.RemoveAll(filepath.Join(c.files, c.name, entry)); err != nil {
		return fmt.Errorf("remove the files of a message: %w", err)
	}
	return nil
}

// badName says why a name is no plain one that a terminal can show, or nothing.
func badName(name string) string {
	switch {
	case name == "" || name[0] == '.':
		return "it is empty or starts with a dot"
	case len(name) > 255:
		return "it is longer than 255 bytes"
	case strings.ContainsAny(name, `/\`):
		return "it has path parts"
	case !utf8.ValidString(name):
		return "it is not UTF-8"
	case strings.ContainsFunc(name, func(r rune) bool {
		return unicode.IsControl(r) || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069
	}):
		return "it has control characters"
	}
	return ""
}

// File opens a file of an entry. Links are not followed out of the entry's folder.
func (a *Adapter) File(_ context.Context, conversation, entry, name string) (io.ReadCloser, int64, error) {
	folder, err := Decode(conversation)
	if err != nil {
		return nil, 0, err
	}
	missing := &control.Error{Code: control.CodeNotFound, Message: "there is no such file in this conversation", Hint: "files go with their messages when the log grows long"}
	if !id.Safe(entry) || badName(name) != "" {
		return nil, 0, missing
	}
	root, err := os.OpenRoot(filepath.Join(a.files, folder, entry))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, missing
	}
	if err != nil {
		return nil, 0, fmt.Errorf("open a received file: %w", err)
	}
	defer func() { _ = root.Close() }()
	f, err := root.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, missing
	}
	if err != nil {
		return nil, 0, fmt.Errorf("open a received file: %w", err)
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = missing
	}
	if err != nil {
		_ = f.Close()
		return nil, 0, err
	}
	return f, st.Size(), nil
}
