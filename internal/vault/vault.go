// Package vault keeps the keys of model providers at rest: one file each, mode 0600, in a folder of mode 0700
// (design.md section 8). A value leaves it as an obs.Secret only and stands in no error and no log.
package vault

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"nanoclaw/internal/id"
	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/obs"
)

// Kind says how a key is shown to its provider.
type Kind string

// Kinds of keys.
const (
	APIKey     Kind = "api_key"     // a header of the provider's own
	OAuthToken Kind = "oauth_token" // Authorization: Bearer
)

// Entry is one key.
type Entry struct {
	Name      string
	Kind      Kind
	Value     obs.Secret
	UpdatedAt time.Time
}

// ErrNotFound: there is no key of that name.
var ErrNotFound = errors.New("no such key")

// ErrInvalid: the name, the kind or the value is not acceptable; the error's text says which and why.
var ErrInvalid = errors.New("not acceptable")

const (
	suffix = ".json"
	// version of the file format. Version 1 holds the value as it is; a sealed form will be version 2.
	version  = 1
	maxValue = 16 << 10
	maxFile  = 64 << 10
)

type document struct {
	Version   int    `json:"version"`
	Kind      Kind   `json:"kind"`
	Value     string `json:"value"`
	UpdatedAt string `json:"updated_at"`
}

// Vault is safe for use by several goroutines. Methods block for a few file operations.
type Vault struct {
	dir string

	mu    sync.Mutex
	cache map[string]cached
	known func(obs.Secret)
}

// Known makes the vault call f with every value that it stores or reads from now on, so that a log can keep it out. f must not
// call the vault. Call it before the vault is used.
func (v *Vault) Known(f func(obs.Secret)) { v.known = f }

type cached struct {
	info  os.FileInfo
	entry Entry
}

// Open uses dir, makes it when it is missing, and takes it away from everybody but its owner.
func Open(dir string) (*Vault, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open vault: %w", err)
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return nil, fmt.Errorf("open vault: %w", err)
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("open vault: %s is not a folder (it must be one, and no link)", dir)
	}
	if info.Mode().Perm() != 0o700 {
		if err := os.Chmod(dir, 0o700); err != nil {
			return nil, fmt.Errorf("open vault: %w", err)
		}
	}
	v := &Vault{dir: dir, cache: map[string]cached{}}
	return v, v.sweep()
}

// sweep removes what a writer that was killed left behind.
func (v *Vault) sweep() error {
	names, err := os.ReadDir(v.dir)
	if err != nil {
		return fmt.Errorf("open vault: %w", err)
	}
	for _, n := range names {
		if strings.HasPrefix(n.Name(), ".new-") {
			if err := os.Remove(filepath.Join(v.dir, n.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("open vault: %w", err)
			}
		}
	}
	return nil
}

// Put stores a key under name and replaces an older one. It is durable on return, and the next Get has it.
// ErrInvalid: see there.
func (v *Vault) Put(ctx context.Context, name string, kind Kind, value obs.Secret) error {
	if err := check(name, kind, value); err != nil {
		return fmt.Errorf("store key: %w", err)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("store key %s: %w", name, err)
	}
	b, err := json.Marshal(document{version, kind, value.Reveal(), mailbox.FormatTime(time.Now())})
	if err != nil {
		return fmt.Errorf("store key %s: %w", name, err)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.cache, name)
	if v.known != nil {
		v.known(value)
	}
	if err := v.replace(v.path(name), b); err != nil {
		return fmt.Errorf("store key %s: %w", name, err)
	}
	return nil
}

// Get returns the key of that name. ErrNotFound: there is none. Every other error is one of the file system, or says
// that the file cannot be trusted.
func (v *Vault) Get(ctx context.Context, name string) (Entry, error) {
	if !id.Safe(name) {
		return Entry{}, fmt.Errorf("read key: name %.64q: %w", name, ErrInvalid)
	}
	if err := ctx.Err(); err != nil {
		return Entry{}, fmt.Errorf("read key %s: %w", name, err)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	info, err := os.Lstat(v.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		delete(v.cache, name)
		return Entry{}, fmt.Errorf("read key %s: %w (give the host one: set ANTHROPIC_API_KEY or CLAUDE_CODE_OAUTH_TOKEN and run `nanoclaw chat`)", name, ErrNotFound)
	}
	if err != nil {
		return Entry{}, fmt.Errorf("read key %s: %w", name, err)
	}
	if c, ok := v.cache[name]; ok && same(c.info, info) {
		return c.entry, nil
	}
	c, err := v.read(name)
	if err != nil {
		delete(v.cache, name)
		return Entry{}, fmt.Errorf("read key %s: %w", name, err)
	}
	v.cache[name] = c
	if v.known != nil {
		v.known(c.entry.Value)
	}
	return c.entry, nil
}

// Key is Get in plain types, for whoever adds keys to requests: an empty value and no error when there is no such key.
func (v *Vault) Key(ctx context.Context, name string) (kind string, value obs.Secret, err error) {
	e, err := v.Get(ctx, name)
	if errors.Is(err, ErrNotFound) {
		return "", obs.Secret{}, nil
	}
	return string(e.Kind), e.Value, err
}

// Delete removes a key; one that is not there is no error.
func (v *Vault) Delete(ctx context.Context, name string) error {
	if !id.Safe(name) {
		return fmt.Errorf("delete key: name %.64q: %w", name, ErrInvalid)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("delete key %s: %w", name, err)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.cache, name)
	if err := os.Remove(v.path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("delete key %s: %w", name, err)
	}
	if err := syncDir(v.dir); err != nil {
		return fmt.Errorf("delete key %s: %w", name, err)
	}
	return nil
}

// Names of the keys, sorted.
func (v *Vault) Names(ctx context.Context) ([]string, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("list keys: %w", err)
	}
	files, err := os.ReadDir(v.dir)
	if err != nil {
		return nil, fmt.Errorf("list keys: %w", err)
	}
	var names []string
	for _, f := range files {
		if name, ok := strings.CutSuffix(f.Name(), suffix); ok && id.Safe(name) && f.Type().IsRegular() {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	return names, nil
}

func (v *Vault) path(name string) string { return filepath.Join(v.dir, name+suffix) }

func (v *Vault) read(name string) (cached, error) {
	f, err := os.OpenFile(v.path(name), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return cached{}, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return cached{}, err
	}
	switch {
	case !info.Mode().IsRegular():
		return cached{}, errors.New("not a plain file")
	case info.Mode().Perm()&0o077 != 0:
		return cached{}, fmt.Errorf("its file is open to others, mode %#o (they may have read the key: replace it, or chmod 600 %s)", info.Mode().Perm(), v.path(name))
	case info.Size() > maxFile:
		return cached{}, fmt.Errorf("its file has %d bytes; a key has at most %d", info.Size(), maxFile)
	}
	b, err := io.ReadAll(io.LimitReader(f, maxFile))
	if err != nil {
		return cached{}, err
	}
	var d document
	// A decoder's error may quote what it read, so it is not passed on.
	if json.Unmarshal(b, &d) != nil {
		return cached{}, errors.New("its file is damaged (store the key again)")
	}
	if d.Version != version {
		return cached{}, fmt.Errorf("its file has format %d and this program knows %d (use the newer program, or store the key again)", d.Version, version)
	}
	e := Entry{Name: name, Kind: d.Kind, Value: obs.NewSecret(d.Value)}
	if check(name, e.Kind, e.Value) != nil {
		return cached{}, errors.New("its file is damaged (store the key again)")
	}
	if at, err := mailbox.ParseTime(d.UpdatedAt); err == nil {
		e.UpdatedAt = at
	}
	return cached{info, e}, nil
}

func (v *Vault) replace(path string, b []byte) error {
	f, err := os.CreateTemp(v.dir, ".new-*") // 0600
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // gone after the rename
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return syncDir(v.dir)
}

func check(name string, kind Kind, value obs.Secret) error {
	if !id.Safe(name) || len(name) > 64 {
		return fmt.Errorf("name %.64q: %w (1 to 64 of letters, digits, dot, dash and underscore)", name, ErrInvalid)
	}
	if kind != APIKey && kind != OAuthToken {
		return fmt.Errorf("kind %.32q of %s: %w (%s or %s)", string(kind), name, ErrInvalid, APIKey, OAuthToken)
	}
	s := value.Reveal()
	if s == "" {
		return fmt.Errorf("value of %s: %w (it is empty)", name, ErrInvalid)
	}
	if len(s) > maxValue {
		return fmt.Errorf("value of %s: %w (%d bytes; at most %d)", name, ErrInvalid, len(s), maxValue)
	}
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return fmt.Errorf("value of %s: %w (a space, a line break or a letter that no key has, at byte %d)", name, ErrInvalid, i)
		}
	}
	return nil
}

// same reports whether two looks at a path saw the same file with the same content.
func same(a, b os.FileInfo) bool {
	return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size() && a.Mode() == b.Mode()
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
