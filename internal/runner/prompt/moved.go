package prompt

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"nanoclaw/internal/mailbox"
)

// Moved tells a running conversation how its destinations have changed: new, gone, renamed, or described differently. Empty: the
// model can see no difference. It needs no answer, and says so (spec/runner.md W25).
func Moved(before, after []mailbox.Destination) string {
	was, is := byName(before), byName(after)
	var added, removed []mailbox.Destination
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(is)) {
		d := is[name]
		old, had := was[name]
		switch {
		case !had:
			added = append(added, d)
		case described(old) != described(d):
			lines = append(lines, "- changed: "+described(d))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(was)) {
		if _, has := is[name]; !has {
			removed = append(removed, was[name])
		}
	}
	for _, old := range removed {
		i := slices.IndexFunc(added, func(d mailbox.Destination) bool { return !d.Address().Zero() && d.Address() == old.Address() })
		if i < 0 {
			lines = append(lines, "- gone: "+code(old.Name))
			continue
		}
		lines = append(lines, "- renamed: "+code(old.Name)+" is now "+described(added[i]))
		added = slices.Delete(added, i, i+1)
	}
	for _, d := range added {
		lines = append(lines, "- new: "+described(d))
	}
	if len(lines) == 0 {
		return ""
	}
	slices.SortStableFunc(lines, func(a, b string) int { return cmp.Compare(kindOfLine(a), kindOfLine(b)) })
	more := ""
	if len(lines) > maxNames {
		lines, more = lines[:maxNames], "\n- …"
	}
	for i, line := range lines {
		lines[i] = attrText(line)
	}
	return "<system>\nYour destinations have changed. This is only for you to know. It needs no answer: do not write to anybody about it.\n" +
		strings.Join(lines, "\n") + more + "\n" + names(slices.Collect(maps.Keys(is))) + "\n</system>"
}

func byName(all []mailbox.Destination) map[string]mailbox.Destination {
	m := make(map[string]mailbox.Destination, len(all))
	for _, d := range all {
		m[d.Name] = d
	}
	return m
}

// kindOfLine sorts what can be used before what cannot.
func kindOfLine(line string) int {
	return slices.IndexFunc([]string{"- new:", "- renamed:", "- changed:", "- gone:"}, func(p string) bool { return strings.HasPrefix(line, p) })
}
