package prompt

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"nanoclaw/internal/mailbox"
)

func chat(name, display, platform string) mailbox.Destination {
	return mailbox.Destination{Name: name, DisplayName: display, Type: mailbox.DestinationChannel, ChannelType: "slack", PlatformID: platform}
}

func peer(name, group string) mailbox.Destination {
	return mailbox.Destination{Name: name, Type: mailbox.DestinationAgent, AgentGroupID: group}
}

func TestW25Moved(t *testing.T) {
	t.Parallel()
	before := []mailbox.Destination{chat("work", "Work", "C1"), chat("family", "Family", "C2"), peer("worker", "ag-1"), chat("old", "Old", "C3")}
	after := []mailbox.Destination{
		peer("worker", "ag-1"), chat("office", "Work", "C1"), chat("family", "The <family>\n& friends", "C2"), chat("a-new one", "", "C9"), peer("other", "ag-2"),
	}
	golden(t, "moved", Moved(before, after))
	golden(t, "moved-all", Moved(before, nil))
	golden(t, "moved-first", Moved(nil, before[:1]))
}

// Only what the model can see counts, and the order of a list is not that.
func TestW25MovedSilent(t *testing.T) {
	t.Parallel()
	a, b := chat("work", "Work", "C1"), peer("worker", "ag-1")
	other := a
	other.PlatformID = "C2"
	same := a
	same.DisplayName = "work" // shown as no label
	bare := a
	bare.DisplayName = ""
	for name, c := range map[string][2][]mailbox.Destination{
		"nothing":       {nil, nil},
		"the same":      {{a, b}, {a, b}},
		"another order": {{a, b}, {b, a}},
		"twice":         {{a, b}, {a, b, a}},
		"behind a name": {{a}, {other}},
		"empty label":   {{same}, {bare}},
	} {
		if got := Moved(c[0], c[1]); got != "" {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// Whatever changes, the notice is one system element, and there is one exactly if the list as the model sees it differs.
func TestW25MovedProperty(t *testing.T) {
	t.Parallel()
	one := rapid.Custom(func(t *rapid.T) mailbox.Destination {
		word := rapid.SampledFrom([]string{"a", "b", "c`", "</system>", "x\ny", ""})
		return mailbox.Destination{
			Name: word.Draw(t, "name"), DisplayName: word.Draw(t, "label"), ChannelType: "cli", PlatformID: word.Draw(t, "platform"), AgentGroupID: word.Draw(t, "group"),
			Type: rapid.SampledFrom([]mailbox.DestinationType{mailbox.DestinationAgent, mailbox.DestinationChannel}).Draw(t, "type"),
		}
	})
	byNames := rapid.SliceOfNDistinct(one, 0, 5, func(d mailbox.Destination) string { return d.Name })
	rapid.Check(t, func(t *rapid.T) {
		before, after := byNames.Draw(t, "before"), byNames.Draw(t, "after")
		got := Moved(before, after)
		seen := func(all []mailbox.Destination) (lines []string) {
			for _, d := range all {
				lines = append(lines, d.Name+"\x00"+described(d))
			}
			slices.Sort(lines)
			return lines
		}
		if differ := !slices.Equal(seen(before), seen(after)); differ != (got != "") {
			t.Fatalf("differ %v: %q", differ, got)
		}
		if got == "" {
			return
		}
		if names, err := children(got); err != nil || len(names) != 1 || names[0] != "system" {
			t.Fatalf("%v, %v: %q", names, err, got)
		}
		if !strings.Contains(got, "needs no answer") {
			t.Fatalf("it asks for an answer: %q", got)
		}
	})
}

// A large change is told in bounded words.
func TestW25MovedIsBounded(t *testing.T) {
	t.Parallel()
	var many []mailbox.Destination
	for i := range 500 {
		many = append(many, chat(fmt.Sprintf("name-%03d", i), strings.Repeat("x", 10), fmt.Sprint(i)))
	}
	if got := Moved(nil, many); len(got) > 10<<10 {
		t.Errorf("%d bytes", len(got))
	}
}
