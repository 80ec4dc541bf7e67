package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"nanoclaw/internal/control"
)

// maxCopies of one name in a folder.
const maxCopies = 1000

// saveFiles copies the files of a message to the folder of --save; their paths are those of the copies then. A file that cannot
// be copied is told, keeps the host's path, and is the error of the program.
func (t *talk) saveFiles(ctx context.Context, e *control.Event) error {
	if t.flags.save == "" || len(e.Files) == 0 {
		return nil
	}
	e.Files = append([]control.File(nil), e.Files...)
	var failed error
	for i := range e.Files {
		path, err := t.save(ctx, e.ID, e.Files[i].Name)
		if err != nil {
			err = fmt.Errorf("save %q: %w", e.Files[i].Name, err)
			fmt.Fprintf(t.err, "nanoclaw: %v\n", err)
			failed = &exitError{exitFailed, nil}
			continue
		}
		e.Files[i].Path = path
	}
	if t.unsaved == nil {
		t.unsaved = failed
	}
	return failed
}

// save copies one file and returns its new path. It never writes over anything.
func (t *talk) save(ctx context.Context, message, name string) (path string, err error) {
	if filepath.Base(name) != name || !filepath.IsLocal(name) || name[0] == '.' {
		return "", errors.New("its name is not a plain one")
	}
	src, size, err := t.client.File(ctx, t.conversation, message, name)
	if err != nil {
		return "", err
	}
	defer func() { _ = src.Close() }()
	dst, err := create(t.flags.save, name)
	if err != nil {
		return "", err
	}
	n, err := io.Copy(dst, src)
	if err == nil && n != size {
		err = io.ErrUnexpectedEOF
	}
	if err = errors.Join(err, dst.Close()); err != nil {
		return "", errors.Join(err, os.Remove(dst.Name()))
	}
	return dst.Name(), nil
}

// create makes a new file under a name in a folder, with a number behind it if the name is taken.
func create(dir, name string) (*os.File, error) {
	ext := filepath.Ext(name)
	base := strings.TrimSuffix(name, ext)
	for n := 1; n <= maxCopies; n++ {
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if !errors.Is(err, fs.ErrExist) {
			return f, err
		}
		name = fmt.Sprintf("%s (%d)%s", base, n+1, ext)
	}
	return nil, fmt.Errorf("the folder has %d files of that name", maxCopies)
}
