package history

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func text(s string) Block { return Block{Kind: Text, Text: s} }

func call(id string) Block {
	return Block{Kind: Call, ID: id, Name: "tool", Args: json.RawMessage("{}")}
}

func result(id, s string) Block { return Block{Kind: Result, ID: id, Name: "tool", Text: s} }

func user(b ...Block) Message { return Message{Role: User, Blocks: b} }

func model(b ...Block) Message { return Message{Role: Assistant, Blocks: b} }

func interrupted(id string) Block {
	return Block{Kind: Result, ID: id, Name: "tool", Text: Interrupted, IsError: true}
}

// A crash at any place leaves a history that every model takes.
func TestPRV7Repair(t *testing.T) {
	t.Parallel()
	thought := Block{Kind: Thinking, Wire: "w", Raw: json.RawMessage(`{}`)}
	file := Block{Kind: File, Path: "files/x", MimeType: "image/png"}
	for name, c := range map[string]struct{ in, want []Message }{
		"sound":                      {[]Message{user(text("a")), model(call("1")), user(result("1", "r")), model(text("b"))}, []Message{user(text("a")), model(call("1")), user(result("1", "r")), model(text("b"))}},
		"call without result":        {[]Message{user(text("a")), model(text("x"), call("1"))}, []Message{user(text("a")), model(text("x"), call("1")), user(interrupted("1"))}},
		"then a new prompt":          {[]Message{user(text("a")), model(call("1")), user(text("b"))}, []Message{user(text("a")), model(call("1")), user(interrupted("1"), text("b"))}},
		"one of two results":         {[]Message{user(text("a")), model(call("1"), call("2")), user(result("2", "r"))}, []Message{user(text("a")), model(call("1"), call("2")), user(interrupted("1"), result("2", "r"))}},
		"in the order of the calls":  {[]Message{user(text("a")), model(call("1"), call("2")), user(text("t"), result("2", "r"), file, result("1", "s"))}, []Message{user(text("a")), model(call("1"), call("2")), user(result("1", "s"), result("2", "r"), file, text("t"))}},
		"result without call":        {[]Message{user(text("a"), result("9", "r")), model(text("b")), user(result("1", "r"), text("c"))}, []Message{user(text("a")), model(text("b")), user(text("c"))}},
		"second result":              {[]Message{user(text("a")), model(call("1")), user(result("1", "r"), result("1", "again"))}, []Message{user(text("a")), model(call("1")), user(result("1", "r"))}},
		"late result":                {[]Message{user(text("a")), model(call("1")), user(text("b")), user(result("1", "r"), text("c"))}, []Message{user(text("a")), model(call("1")), user(interrupted("1"), text("b"), text("c"))}},
		"two users":                  {[]Message{user(text("a")), user(text("b"))}, []Message{user(text("a"), text("b"))}},
		"two answers":                {[]Message{user(text("a")), model(text("b")), model(text("c"))}, []Message{user(text("a")), model(text("b"), text("c"))}},
		"two answers with a call":    {[]Message{user(text("a")), model(call("1")), model(text("c"))}, []Message{user(text("a")), model(call("1")), user(interrupted("1")), model(text("c"))}},
		"begins with an answer":      {[]Message{model(text("b")), user(text("a"))}, []Message{user(text("a"))}},
		"empty ones":                 {[]Message{user(text("a")), model(text(" "), thought), user(), model()}, []Message{user(text("a"))}},
		"same id twice":              {[]Message{user(text("a")), model(call("1"), call("1")), user(result("1", "r"))}, []Message{user(text("a")), model(call("1")), user(result("1", "r"))}},
		"arguments that are no JSON": {[]Message{user(text("a")), model(Block{Kind: Call, ID: "1", Name: "tool", Args: json.RawMessage(`[1]`)}), user(result("1", "r"))}, []Message{user(text("a")), model(call("1")), user(result("1", "r"))}},
		"unknown role and kind":      {[]Message{{Role: "system", Blocks: []Block{text("x")}}, user(text("a"), Block{Kind: "sound"})}, []Message{user(text("a"))}},
		"nothing":                    {nil, []Message{}},
	} {
		if diff := cmp.Diff(c.want, Repair(c.in)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// valid says what is wrong with a list for a wire.
func valid(list []Message) string {
	for i, m := range list {
		want := User
		if i%2 == 1 {
			want = Assistant
		}
		if m.Role != want || len(m.Blocks) == 0 {
			return "roles do not alternate, or a message is empty"
		}
		if m.Role == Assistant {
			if i+1 == len(list) && len(m.Calls()) > 0 {
				return "an open call at the end"
			}
			continue
		}
		var open []Block
		if i > 0 {
			open = list[i-1].Calls()
		}
		n := 0
		for _, b := range m.Blocks {
			if b.Kind == Result {
				if n >= len(open) || b.ID != open[n].ID {
					return "results do not answer the calls"
				}
				n++
			}
		}
		if n != len(open) {
			return "calls without results"
		}
	}
	return ""
}

func TestRepairAlwaysHelps(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		block := rapid.Custom(func(t *rapid.T) Block {
			return Block{
				Kind: rapid.SampledFrom([]Kind{Text, Text, Call, Call, Result, Result, Thinking, File, "?"}).Draw(t, "kind"),
				ID:   rapid.SampledFrom([]string{"", "1", "2", "3"}).Draw(t, "id"), Name: rapid.SampledFrom([]string{"", "n"}).Draw(t, "name"),
				Text: rapid.SampledFrom([]string{"", " ", "t"}).Draw(t, "text"), Args: json.RawMessage(rapid.SampledFrom([]string{"", "{}", "1"}).Draw(t, "args")),
			}
		})
		message := rapid.Custom(func(t *rapid.T) Message {
			return Message{Role: rapid.SampledFrom([]Role{User, Assistant, "x"}).Draw(t, "role"), Blocks: rapid.SliceOfN(block, 0, 5).Draw(t, "blocks")}
		})
		in := rapid.SliceOfN(message, 0, 8).Draw(t, "messages")
		once := Repair(in)
		if why := valid(once); why != "" {
			t.Fatalf("%s: %+v", why, once)
		}
		if diff := cmp.Diff(once, Repair(once)); diff != "" {
			t.Fatalf("a sound list was changed: %s", diff)
		}
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func reopen(t *testing.T, c *Conversation) *Conversation {
	t.Helper()
	must(t, c.Close())
	again, err := Open(filepath.Dir(c.dir), c.ID())
	must(t, err)
	t.Cleanup(func() { _ = again.Close() })
	return again
}

func TestConversation(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "native")
	c := Create(dir)
	if _, err := os.Stat(dir); err == nil {
		t.Error("a folder before the first record")
	}
	must(t, c.Append(user(text("<a> & b"))))
	must(t, c.Append(model(text("b"), call("1"))))
	must(t, c.SetTodo([]Todo{{"x", "pending"}}))
	n := c.Len()
	must(t, c.Append(user(text("poison"))))
	must(t, c.Back(n))
	c = reopen(t, c)
	want := []Message{user(text("<a> & b")), model(text("b"), call("1")), user(interrupted("1"))}
	if diff := cmp.Diff(want, c.Messages()); diff != "" || len(c.Todo()) != 1 || c.Lost() != 0 {
		t.Errorf("loaded: %s, todo %v, lost %d", diff, c.Todo(), c.Lost())
	}
	must(t, c.Compact([]Message{user(text("summary"))}))
	must(t, c.Append(model(text("c"))))
	c = reopen(t, c)
	if diff := cmp.Diff([]Message{user(text("summary")), model(text("c"))}, c.Messages()); diff != "" {
		t.Error(diff)
	}
	if info, err := os.Stat(filepath.Join(c.dir, fileName)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v, %v", info, err)
	}
	path, err := c.Keep([]byte("picture"))
	must(t, err)
	again, err := c.Keep([]byte("picture"))
	must(t, err)
	if b, err := c.Load(path); err != nil || string(b) != "picture" || path != again {
		t.Errorf("kept: %q, %v, %s, %s", b, err, path, again)
	}
	if _, err := c.Load("../../etc/passwd"); err == nil {
		t.Error("a path out of the conversation was read")
	}
}

// Every prefix of the file, as a crash leaves it, loads, and what is written then is read back.
func TestPRV7CutOffFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := Create(dir)
	must(t, c.Append(user(text("a"))))
	must(t, c.Append(model(call("1"))))
	must(t, c.Append(user(result("1", "r"))))
	must(t, c.Close())
	path := filepath.Join(dir, c.ID(), fileName)
	whole, err := os.ReadFile(path)
	must(t, err)
	for n := range len(whole) + 1 {
		must(t, os.WriteFile(path, whole[:n], 0o600))
		got, err := Open(dir, c.ID())
		must(t, err)
		if want := strings.Count(string(whole[:n]), "\n"); got.Len() != want {
			t.Fatalf("%d bytes: %d messages, want %d", n, got.Len(), want)
		}
		must(t, got.Append(user(text("after"))))
		must(t, got.Close())
		got, err = Open(dir, c.ID())
		must(t, err)
		all := got.Messages()
		if why := valid(all); why != "" || got.Lost() != 0 || !strings.Contains(all[len(all)-1].Plain(), "after") {
			t.Fatalf("%d bytes: %s, lost %d, %+v", n, why, got.Lost(), all)
		}
		must(t, got.Close())
	}
}

func TestOpenUnknown(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	for _, id := range []string{"", "..", "../x", "file", "0193a5b2-1111-7111-8111-111111111111", "no id"} {
		if _, err := Open(dir, id); !errors.Is(err, ErrUnknown) {
			t.Errorf("%q: %v", id, err)
		}
	}
	c := Create(dir)
	must(t, c.Append(user(text("a"))))
	must(t, c.Close())
	path := filepath.Join(dir, c.ID(), fileName)
	must(t, os.Remove(path))
	must(t, os.Mkdir(path, 0o700))
	if _, err := Open(dir, c.ID()); err == nil || errors.Is(err, ErrUnknown) {
		t.Errorf("an unreadable conversation: %v", err)
	}
}

func FuzzLoad(f *testing.F) {
	f.Add([]byte(`{"type":"message","message":{"role":"user","blocks":[{"kind":"text","text":"a"}]}}` + "\n" + `{"type":"back","keep":0}` + "\n" + `{"type":"compact","replace":[{"role":"assistant"}]}` + "\ncut"))
	f.Add([]byte(`{"type":"message","message":{"role":"assistant","blocks":[{"kind":"call","id":"1","name":"x","args":[]}]}}` + "\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		c := &Conversation{}
		end, err := c.load(strings.NewReader(string(b)))
		if err != nil || end > int64(len(b)) {
			t.Fatalf("%d of %d, %v", end, len(b), err)
		}
		if why := valid(c.Messages()); why != "" {
			t.Fatal(why)
		}
	})
}

// What stands where the file of a conversation was, and is no file, is told: it is neither waited for nor followed.
func TestOpenNoRegularFile(t *testing.T) {
	t.Parallel()
	for name, put := range map[string]func(path string) error{
		"pipe":   func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"folder": func(path string) error { return os.Mkdir(path, 0o700) },
		"link":   func(path string) error { return os.Symlink(path+".other", path) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			c := Create(dir)
			if err := c.Append(user(text("a"))); err != nil {
				t.Fatal(err)
			}
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(dir, c.ID(), fileName)
			if err := os.Rename(path, path+".other"); err != nil {
				t.Fatal(err)
			}
			if err := put(path); err != nil {
				t.Fatal(err)
			}
			if _, err := Open(dir, c.ID()); !errors.Is(err, errNoFile) {
				t.Errorf("%v", err)
			}
		})
	}
}
