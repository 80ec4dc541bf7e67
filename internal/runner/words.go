package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"
	"unicode"

	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/obs"
	"nanoclaw/internal/provider"
)

// costWords says what the conversation has cost, from the usage log. The provider's own figures count, failed answers too.
func costWords(all []mailbox.Usage) string {
	if len(all) == 0 {
		return "Nothing was spent here yet, or the model does not report what it uses."
	}
	var sum mailbox.Usage
	failed := 0
	for _, u := range all {
		sum.InputTokens += u.InputTokens
		sum.OutputTokens += u.OutputTokens
		sum.CacheReadTokens += u.CacheReadTokens
		sum.CacheCreationTokens += u.CacheCreationTokens
		sum.CostUSD += u.CostUSD
		if u.Failed {
			failed++
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d answers since %s UTC", len(all), all[0].Timestamp.UTC().Format("2006-01-02 15:04"))
	if failed > 0 {
		fmt.Fprintf(&b, ", %d of them failed", failed)
	}
	fmt.Fprintf(&b, ".\nTokens: %d in, %d out, %d read from cache, %d written to cache.", sum.InputTokens, sum.OutputTokens, sum.CacheReadTokens, sum.CacheCreationTokens)
	if sum.CostUSD > 0 {
		fmt.Fprintf(&b, "\nCost: $%.4f, as the model's program reckons it.", sum.CostUSD)
	}
	return b.String()
}

// Bounds of /files.
const (
	maxWalked = 5000
	maxListed = 30
)

// filesWords lists the newest files of the agent's folder. Hidden ones are left out, and no link is followed.
func filesWords(dir string) string {
	type file struct {
		name string
		size int64
		at   time.Time
	}
	var all []file
	walked := 0
	root, err := os.OpenRoot(dir) // the folder may be reached by a link, as it is without isolation
	if err != nil {
		return "My folder cannot be read at the moment."
	}
	defer func() { _ = root.Close() }()
	err = fs.WalkDir(root.FS(), ".", func(path string, d fs.DirEntry, err error) error {
		walked++
		switch {
		case err != nil && path == ".":
			return err
		case err != nil:
			return nil
		case walked > maxWalked:
			return fs.SkipAll
		case path != "." && strings.HasPrefix(d.Name(), "."):
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		case !d.Type().IsRegular():
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return nil
		}
		if path != "container.json" {
			all = append(all, file{path, info.Size(), info.ModTime()})
		}
		return nil
	})
	if err != nil {
		return "My folder cannot be read at the moment."
	}
	if len(all) == 0 {
		return "My folder is empty."
	}
	slices.SortFunc(all, func(a, b file) int { return cmp.Or(b.at.Compare(a.at), cmp.Compare(a.name, b.name)) })
	var b strings.Builder
	fmt.Fprintf(&b, "%d files in my folder", len(all))
	if walked > maxWalked {
		b.WriteString(" (and more)")
	}
	if len(all) > maxListed {
		fmt.Fprintf(&b, ", the newest %d", maxListed)
	}
	b.WriteString(":\n")
	for _, f := range all[:min(len(all), maxListed)] {
		fmt.Fprintf(&b, "\n- `%s`, %d bytes, %s UTC", strings.Map(printable, f.name), f.size, f.at.UTC().Format("2006-01-02 15:04"))
	}
	return b.String()
}

// printable keeps a file's name from breaking the line or the code span it stands in.
func printable(c rune) rune {
	if !unicode.IsPrint(c) || c == '`' {
		return '?'
	}
	return c
}

// uploadTrace hands the transcript of the conversation to the operator's account, if the operator allows that at all.
func (r *Runner) uploadTrace(ctx context.Context) string {
	if r.opt.UploadTrace == nil {
		return "Uploading transcripts is switched off here. The person who runs this system can allow it."
	}
	keeper, ok := r.driver().Provider.(provider.Keeper)
	if !ok {
		return "This provider keeps no transcript that could be uploaded."
	}
	if r.continuation == "" {
		return "There is no conversation yet."
	}
	file, name, err := keeper.OpenTranscript(r.continuation)
	if err != nil {
		r.log.Warn("the transcript cannot be read", obs.Error(err))
		return "The transcript of this conversation cannot be read."
	}
	words, err := r.opt.UploadTrace(ctx, name, file)
	err = errors.Join(err, file.Close())
	if err != nil {
		r.log.Warn("the transcript was not uploaded", obs.Error(err))
		return "The transcript was not uploaded; the person who runs this system finds the reason in its log."
	}
	return words
}
