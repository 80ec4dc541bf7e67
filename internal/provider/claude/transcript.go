package claude

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"nanoclaw/internal/provider/child"
)

// projects is where the CLI keeps its transcripts, below its folder of settings.
const projects = "projects"

// transcript is the file of a conversation. The agent owns the folder, so it is opened beneath a handle, without blocking.
type transcript struct {
	root *os.Root
	name string // below root
	file *os.File
	size int64
}

// errNoTranscript: the CLI has written none for this conversation.
var errNoTranscript = errors.New("the conversation has no transcript")

// transcript opens the transcript of a conversation, whatever folder it was made in.
func (p *Provider) transcript(session string) (*transcript, error) {
	if !sessionID.MatchString(session) {
		return nil, errNoTranscript
	}
	config := p.opt.Env["CLAUDE_CONFIG_DIR"]
	if config == "" {
		config = filepath.Join(p.opt.Home, ".claude")
	}
	root, err := os.OpenRoot(filepath.Dir(config))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errNoTranscript
	}
	if err != nil {
		return nil, fmt.Errorf("open the folder of the claude CLI: %w", err)
	}
	t, err := find(root, path.Join(filepath.Base(config), projects), session+".jsonl")
	if err != nil {
		_ = root.Close()
		return nil, err
	}
	return t, nil
}

func find(root *os.Root, below, base string) (*transcript, error) {
	list, err := root.OpenFile(below, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errNoTranscript
	}
	if err != nil {
		return nil, fmt.Errorf("open the folder of transcripts: %w", err)
	}
	defer func() { _ = list.Close() }()
	folders, err := list.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("list the folders of transcripts: %w", err)
	}
	for _, folder := range folders {
		name := path.Join(below, folder, base)
		file, size, err := openRegular(root, name)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("open the transcript: %w", err)
		}
		return &transcript{root: root, name: name, file: file, size: size}, nil
	}
	return nil, errNoTranscript
}

// openRegular opens a regular file below root for reading.
func openRegular(root *os.Root, name string) (*os.File, int64, error) {
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no regular file", name)
	}
	if err != nil {
		_ = f.Close()
		return nil, 0, err
	}
	return f, info.Size(), nil
}

func (t *transcript) close() {
	_ = t.file.Close()
	_ = t.root.Close()
}

// OpenTranscript implements provider.Keeper.
func (p *Provider) OpenTranscript(continuation string) (io.ReadCloser, string, error) {
	t, err := p.transcript(continuation)
	if err != nil {
		return nil, "", err
	}
	return handle{t.file, t.root}, path.Base(t.name), nil
}

// handle is a file with the folder it was opened in.
type handle struct {
	*os.File
	root *os.Root
}

func (h handle) Close() error { return errors.Join(h.File.Close(), h.root.Close()) }

// entry is one line of a transcript.
type entry struct {
	Type      string    `json:"type"`
	Timestamp time.Time `json:"timestamp"`
	Meta      bool      `json:"isMeta"`      // of the CLI to itself
	Sidechain bool      `json:"isSidechain"` // of a sub-agent
	Compact   bool      `json:"isCompactSummary"`
	Message   struct {
		Content json.RawMessage `json:"content"`
	} `json:"message"`
}

// entries calls use for each line that is an entry, until it returns false. Lines that are none are skipped, and one that is too
// long is too.
func (t *transcript) entries(use func(entry) bool) error {
	lines := child.NewLineReader(io.LimitReader(t.file, t.size))
	for {
		line, tooLong, err := lines.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the transcript: %w", err)
		}
		var e entry
		if tooLong || json.Unmarshal(line, &e) != nil {
			continue
		}
		if !use(e) {
			return nil
		}
	}
}

// began is the time of the first entry that has one; zero without one.
func (t *transcript) began() (time.Time, error) {
	var first time.Time
	err := t.entries(func(e entry) bool {
		first = e.Timestamp
		return first.IsZero()
	})
	return first, err
}

// text is what was said in an entry, without the calls of tools and what they gave.
func (e entry) text() string {
	var s string
	if json.Unmarshal(e.Message.Content, &s) == nil {
		return strings.TrimSpace(s)
	}
	var blocks []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	if json.Unmarshal(e.Message.Content, &blocks) != nil {
		return ""
	}
	var texts []string
	for _, b := range blocks {
		if b.Type == "text" && strings.TrimSpace(b.Text) != "" {
			texts = append(texts, strings.TrimSpace(b.Text))
		}
	}
	return strings.Join(texts, "\n\n")
}

// title is the summary that the CLI keeps of the conversation; empty if it has none.
func (t *transcript) title(session string) string {
	const most = 4 << 20
	f, size, err := openRegular(t.root, path.Join(path.Dir(t.name), "sessions-index.json"))
	if err != nil || size > most {
		return ""
	}
	defer func() { _ = f.Close() }()
	var index struct {
		Entries []struct {
			SessionID string `json:"sessionId"`
			Summary   string `json:"summary"`
		} `json:"entries"`
	}
	if json.NewDecoder(io.LimitReader(f, most)).Decode(&index) != nil {
		return ""
	}
	for _, e := range index.Entries {
		if e.SessionID == session {
			return strings.Join(strings.Fields(e.Summary), " ")
		}
	}
	return ""
}
