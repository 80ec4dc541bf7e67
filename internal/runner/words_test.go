package runner

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// /files lists the folder also where the runner reaches it by a link, as in the process sandbox, and no name of the agent's
// choosing can change what the reader sees around it.
func TestFilesBehindALink(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"a.txt", "b\u202etxt.exe", "c\u2028d"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	link := filepath.Join(t.TempDir(), "agent")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	got := filesWords(link)
	if !strings.Contains(got, "3 files") || !strings.Contains(got, "`a.txt`") {
		t.Errorf("through a link: %q", got)
	}
	if strings.ContainsAny(got, "\u202e\u2028") {
		t.Errorf("a name turns the text around: %q", got)
	}
}
