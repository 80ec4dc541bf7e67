package history

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"time"
)

// ErrUnknown: there is no such conversation.
var ErrUnknown = errors.New("no such conversation")

var errNoFile = errors.New("it is no regular file")

// Names below the folder of a conversation.
const (
	fileName   = "history.jsonl"
	filesName  = "files"
	outputName = "output"
)

// record is one line of the file.
type record struct {
	Type    string    `json:"type"` // message, compact, back, todo
	Message *Message  `json:"message,omitempty"`
	Replace []Message `json:"replace,omitempty"` // compact: what stands for all before
	Keep    int       `json:"keep,omitempty"`    // back: that many messages of the file stay
	Todo    []Todo    `json:"todo,omitempty"`
}

// Todo is one line of the model's own list.
type Todo struct {
	Content string `json:"content"`
	Status  string `json:"status"` // pending, in_progress, completed
}

// Conversation is one conversation on disk. It is used by one goroutine. Each change is on disk when the method returns.
type Conversation struct {
	id       string
	dir      string
	file     *os.File
	messages []Message // as recorded, not repaired
	todo     []Todo
	lost     int
}

var idForm = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// Create starts a conversation below dir, which is made if need be. Its folder appears with the first record.
func Create(dir string) *Conversation {
	id := newID(time.Now())
	return &Conversation{id: id, dir: filepath.Join(dir, id)}
}

// Open loads a conversation. ErrUnknown means that there is none of that id; any other error that it could not be read.
func Open(dir, id string) (*Conversation, error) {
	if !idForm.MatchString(id) {
		return nil, ErrUnknown
	}
	c := &Conversation{id: id, dir: filepath.Join(dir, id)}
	path := filepath.Join(c.dir, fileName)
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrUnknown
	}
	if err == nil && !info.Mode().IsRegular() { // a pipe would be waited for, for ever
		err = errNoFile
	}
	var f *os.File
	if err == nil {
		f, err = os.OpenFile(path, os.O_RDWR, 0)
	}
	if err != nil {
		return nil, fmt.Errorf("open the conversation: %w", err)
	}
	c.file = f
	end, err := c.load(f)
	if err == nil {
		err = f.Truncate(end) // a line that was cut off by a crash
	}
	if err == nil {
		_, err = f.Seek(end, io.SeekStart)
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("read the conversation: %w", err)
	}
	return c, nil
}

// load reads records up to the last whole line and returns where that ends. Lines that are no record are counted and left out.
func (c *Conversation) load(r io.Reader) (end int64, err error) {
	in := bufio.NewReader(r)
	for {
		line, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			if len(line) > 0 {
				c.lost++
			}
			return end, nil
		}
		if err != nil {
			return end, err
		}
		end += int64(len(line))
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		var rec record
		if json.Unmarshal(line, &rec) != nil || !c.apply(rec) {
			c.lost++
		}
	}
}

func (c *Conversation) apply(rec record) bool {
	switch {
	case rec.Type == "message" && rec.Message != nil:
		c.messages = append(c.messages, *rec.Message)
	case rec.Type == "compact":
		c.messages = rec.Replace
	case rec.Type == "back" && rec.Keep >= 0 && rec.Keep <= len(c.messages):
		c.messages = c.messages[:rec.Keep:rec.Keep]
	case rec.Type == "todo":
		c.todo = rec.Todo
	default:
		return false
	}
	return true
}

// ID is the continuation.
func (c *Conversation) ID() string { return c.id }

// Lost is how many lines of the file could not be read.
func (c *Conversation) Lost() int { return c.lost }

// Len is the number of recorded messages, for Back.
func (c *Conversation) Len() int { return len(c.messages) }

// Messages is the conversation, repaired.
func (c *Conversation) Messages() []Message { return Repair(c.messages) }

// Todo is the model's own list.
func (c *Conversation) Todo() []Todo { return c.todo }

// Append adds a message.
func (c *Conversation) Append(m Message) error {
	return c.write(record{Type: "message", Message: &m})
}

// Back drops all messages after the first n, which Len returned before.
func (c *Conversation) Back(n int) error {
	if n == len(c.messages) {
		return nil
	}
	return c.write(record{Type: "back", Keep: n})
}

// Compact replaces all messages.
func (c *Conversation) Compact(messages []Message) error {
	return c.write(record{Type: "compact", Replace: messages})
}

// SetTodo replaces the list.
func (c *Conversation) SetTodo(list []Todo) error {
	return c.write(record{Type: "todo", Todo: list})
}

// write appends a record and waits for the disk.
func (c *Conversation) write(rec record) error {
	if err := c.open(); err != nil {
		return fmt.Errorf("write the conversation: %w", err)
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b) // ends with a newline
	enc.SetEscapeHTML(false)
	if err := enc.Encode(rec); err != nil {
		return fmt.Errorf("encode the conversation: %w", err)
	}
	if _, err := c.file.Write(b.Bytes()); err != nil {
		return fmt.Errorf("write the conversation: %w", err)
	}
	if err := c.file.Sync(); err != nil {
		return fmt.Errorf("write the conversation: %w", err)
	}
	c.apply(rec)
	return nil
}

func (c *Conversation) open() error {
	if c.file != nil {
		return nil
	}
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(c.dir, fileName), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	c.file = f
	for _, dir := range []string{c.dir, filepath.Dir(c.dir)} {
		d, err := os.Open(dir)
		if err != nil {
			return err
		}
		err = d.Sync()
		_ = d.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// Close closes the file.
func (c *Conversation) Close() error {
	if c.file == nil {
		return nil
	}
	return c.file.Close()
}

// Keep stores the content of a file for as long as the conversation lives and returns the Path for a block: what a message brought
// may be gone from where it lay, and a request must be the same each time.
func (c *Conversation) Keep(content []byte) (string, error) {
	sum := sha256.Sum256(content)
	name := hex.EncodeToString(sum[:16])
	path := filepath.Join(c.dir, filesName, name)
	if _, err := os.Stat(path); err == nil {
		return filepath.Join(filesName, name), nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", fmt.Errorf("keep a file of the conversation: %w", err)
	}
	next := path + ".new"
	err := os.WriteFile(next, content, 0o600)
	if err == nil {
		err = os.Rename(next, path)
	}
	if err != nil {
		return "", fmt.Errorf("keep a file of the conversation: %w", err)
	}
	return filepath.Join(filesName, name), nil
}

// Load reads what Keep stored.
func (c *Conversation) Load(path string) ([]byte, error) {
	if !filepath.IsLocal(path) {
		return nil, fs.ErrInvalid
	}
	path = filepath.Join(c.dir, path)
	if info, err := os.Stat(path); err != nil {
		return nil, err
	} else if !info.Mode().IsRegular() {
		return nil, fs.ErrInvalid
	}
	return os.ReadFile(path)
}

// Output is the folder for long outputs of tools. It need not exist.
func (c *Conversation) Output() string { return filepath.Join(c.dir, outputName) }

// newID is a UUID of version 7: its first 48 bits are the time.
func newID(now time.Time) string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	ms := now.UnixMilli()
	for i := range 6 {
		b[i] = byte(ms >> (8 * (5 - i)))
	}
	b[6], b[8] = b[6]&0x0f|0x70, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
