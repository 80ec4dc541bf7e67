package claude

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"nanoclaw/internal/obs"
)

// What an archive holds.
const (
	maxEntry  = 2000 // characters of one message
	maxSlug   = 50
	mostNames = 1000 // archives of one day with the same title
)

// archive writes what was said in a conversation as Markdown into the folder of conversations, under a name that is not taken
// (spec/runner.md W24). A conversation without a transcript, or without words, leaves none.
func (p *Provider) archive(session, cwd string) error {
	t, err := p.transcript(session)
	if errors.Is(err, errNoTranscript) {
		return nil
	}
	if err != nil {
		return err
	}
	defer t.close()
	return p.write(t, session, cwd)
}

func (p *Provider) write(t *transcript, session, cwd string) error {
	folder := p.opt.Conversations
	if folder == "" {
		folder = filepath.Join(cwd, "conversations")
	}
	var f *os.File
	var out *bufio.Writer
	var failed error
	title, now := t.title(session), time.Now()
	err := t.entries(func(e entry) bool {
		who := map[string]string{"user": "User", "assistant": "Assistant"}[e.Type]
		text := e.text()
		if who == "" || text == "" || e.Meta || e.Sidechain || e.Compact {
			return true
		}
		if f == nil {
			if f, failed = create(folder, archiveName(title, now)); failed != nil {
				return false
			}
			out = bufio.NewWriter(f)
			fmt.Fprintf(out, "# %s\n\nArchived %s.\n", cmp.Or(title, "Conversation"), now.Format("2006-01-02 15:04 MST"))
		}
		when := ""
		if !e.Timestamp.IsZero() {
			when = ", " + e.Timestamp.Local().Format("2006-01-02 15:04")
		}
		fmt.Fprintf(out, "\n## %s%s\n\n%s\n", who, when, shorten(text))
		return true
	})
	if f == nil {
		return errors.Join(err, failed)
	}
	return errors.Join(err, out.Flush(), f.Close())
}

// create makes a new file in a folder, and the folder if need be. The agent owns what is around it: nothing leads out of
// that, and nothing blocks.
func create(folder, name string) (*os.File, error) {
	parent, err := os.OpenRoot(filepath.Dir(folder))
	if err != nil {
		return nil, fmt.Errorf("open the folder of conversations: %w", err)
	}
	defer func() { _ = parent.Close() }()
	base := filepath.Base(folder)
	if err := parent.Mkdir(base, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("make the folder of conversations: %w", err)
	}
	for n := 1; n <= mostNames; n++ {
		full := name
		if n > 1 {
			full += "-" + strconv.Itoa(n)
		}
		f, err := parent.OpenFile(filepath.Join(base, full+".md"), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if !errors.Is(err, fs.ErrExist) {
			if err != nil {
				return nil, fmt.Errorf("make the archive: %w", err)
			}
			return f, nil
		}
	}
	return nil, fmt.Errorf("make the archive: %d are called %s already", mostNames, name)
}

// archiveName begins with the day, as the agent's zone has it.
func archiveName(title string, now time.Time) string {
	day := now.Format(time.DateOnly)
	if s := slug(title); s != "" {
		return day + "-" + s
	}
	return day + "-conversation-" + now.Format("1504")
}

// slug keeps letters a to z and digits; what is between them becomes one dash.
func slug(title string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(title) {
		switch {
		case r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
			b.WriteRune(r)
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "-"):
			b.WriteByte('-')
		}
		if b.Len() >= maxSlug {
			break
		}
	}
	return strings.Trim(b.String(), "-")
}

func shorten(text string) string {
	n := 0
	for at := range text {
		if n++; n > maxEntry {
			return text[:at] + "…"
		}
	}
	return text
}

// Rotate gives up a conversation whose transcript is too large, or began too long ago: it is archived and moved aside. A
// conversation without a transcript is kept; whether it exists is for the CLI to say.
func (p *Provider) Rotate(ctx context.Context, continuation, cwd string) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", fmt.Errorf("look at the transcript: %w", context.Cause(ctx))
	}
	t, err := p.transcript(continuation)
	if errors.Is(err, errNoTranscript) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer t.close()
	reason := ""
	if t.size > p.opt.RotateBytes {
		reason = fmt.Sprintf("the transcript has %d bytes, more than %d", t.size, p.opt.RotateBytes)
	} else if p.opt.RotateAge > 0 {
		began, err := t.began()
		if err != nil {
			return "", err
		}
		if age := time.Since(began); !began.IsZero() && age > p.opt.RotateAge {
			reason = fmt.Sprintf("the conversation began %s ago, more than %s", age.Round(time.Hour), p.opt.RotateAge)
		}
	}
	if reason == "" {
		return "", nil
	}
	if _, err := t.file.Seek(0, 0); err != nil {
		return "", fmt.Errorf("read the transcript: %w", err)
	}
	if err := p.write(t, continuation, cwd); err != nil {
		p.opt.Log.Warn("claude: the conversation could not be archived", obs.Error(err))
	}
	if err := t.root.Rename(t.name, t.name+".rotated-"+strconv.FormatInt(time.Now().UnixMilli(), 10)); err != nil {
		return "", fmt.Errorf("move the transcript aside: %w", err)
	}
	return reason, nil
}
