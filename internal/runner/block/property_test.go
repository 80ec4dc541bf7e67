package block

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// cut is one step of a script: text, or a tool call if tool is set.
type step struct {
	text string
	tool bool
}

func run1(steps []step, size func() int) Rest {
	p := New()
	var items []Item
	for _, s := range steps {
		if s.tool {
			items = append(items, p.Segment()...)
			continue
		}
		for t := s.text; t != ""; {
			n := len(t)
			if size != nil {
				n = min(max(size(), 1), n)
			}
			items = append(items, p.Write(t[:n])...)
			t = t[n:]
		}
	}
	r := p.End()
	r.Items = append(items, r.Items...)
	return r
}

func whole(text string) Rest { return run1([]step{{text: text}}, nil) }

func withoutSegments(items []Item) []Item {
	out := append([]Item(nil), items...)
	for i := range out {
		out[i].Segment = 0
	}
	return out
}

// tagSoup makes texts out of what the grammar is about, whole and in splinters.
func tagSoup(t *rapid.T, label string) string {
	word := rapid.SampledFrom([]string{
		`<message to="a">`, `<message to="b">`, `</message>`, `<internal>`, `</internal>`, `<INTERNAL x="1">`, `<internal/>`,
		"<message\n\tto=\"c\" >", `<message>`, `<message to='a'>`, `<message to="a" x="1">`, `<message to="">`, `<messages to="a">`, `<internal-x>`,
		`</internal-x>`, `<Message to="a">`, `</message >`, `<mess`, `age to="a">`, `<message to="`, `a">`, `</mess`, `age>`, `<inter`, `nal>`, `<`, `</`, `>`, `"`,
		"`", "``", "```", "````", "```go\n", "\n```\n", "\n", "\n\n", " ", "  ", "\t", "\r\n", "a", "text", "héé", "\xff", "</invoke>", "<parameter name=\"x\">",
	})
	return strings.Join(rapid.SliceOfN(word, 0, 24).Draw(t, label), "")
}

func TestWholeTextAgainstOracle(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := tagSoup(t, "text")
		got := whole(text)
		items, want := oracle(text)
		want.Items = items
		got.Items = withoutSegments(got.Items)
		if d := cmp.Diff(want.Items, got.Items); d != "" {
			t.Fatalf("%q: items (-oracle +parser):\n%s", text, d)
		}
		if want.Bare != got.Bare || want.OpenInternal != got.OpenInternal {
			t.Fatalf("%q: rest = %+v, oracle %+v", text, got, want)
		}
	})
}

func TestCutAnywhereIsUncut(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var steps []step
		for i := range rapid.IntRange(1, 4).Draw(t, "segments") {
			if i > 0 {
				steps = append(steps, step{tool: true})
			}
			steps = append(steps, step{text: tagSoup(t, "text")})
		}
		want := run1(steps, nil)
		got := run1(steps, func() int { return rapid.IntRange(1, 9).Draw(t, "piece") })
		if d := cmp.Diff(want, got); d != "" {
			t.Fatalf("%+v (-uncut +cut):\n%s", steps, d)
		}
		bytewise := run1(steps, func() int { return 1 })
		if d := cmp.Diff(want, bytewise); d != "" {
			t.Fatalf("%+v (-uncut +byte by byte):\n%s", steps, d)
		}
	})
}

// TestTooMuchIsCutAlike has texts around every limit, so that a limit depends on the text and never on the pieces.
func TestTooMuchIsCutAlike(t *testing.T) {
	t.Parallel()
	fill := func(n int) string { return strings.Repeat("0123456789abcde\n", n/16+1)[:n] }
	flat := func(n int) string { return strings.Repeat("x", n) }
	texts := map[string]func(d int) string{
		"body": func(d int) string { return `<message to="a">` + fill(MaxBody+d) + `</message>tail` },
		"body and held": func(d int) string {
			return `<message to="a">` + flat(100) + `<message to="b">` + fill(MaxHeld-126+d) + `</message></message>tail`
		},
		"held unclosed":  func(d int) string { return `<message to="a">x<message to="b">y</message>` + fill(MaxHeld-27+d) },
		"bare":           func(d int) string { return fill(MaxBare-1+d) + "é" },
		"fence":          func(d int) string { return "```\n" + fill(maxFence-29+d) + "\n<message to=\"a\">x</message>" },
		"closed fence":   func(d int) string { return "```\n" + fill(maxFence-2+d) + "\n```\n<message to=\"a\">x</message>" },
		"line":           func(d int) string { return "`" + flat(maxLine-28+d) + "<message to=\"a\">x</message>`\n" },
		"run at limit":   func(d int) string { return "``" + flat(maxLine-4+d) + "``<message to=\"a\">x</message>``\n" },
		"name":           func(d int) string { return `<message to="` + flat(maxTag-15+d) + `">x</message>` },
		"internal":       func(d int) string { return `<internal ` + flat(maxTag-11+d) + `>x</internal>` },
		"white space":    func(d int) string { return `<message ` + strings.Repeat(" \n", maxTag/2-8+d) + `to="a">x</message>` },
		"bodies in turn": func(d int) string { return `<message to="a">` + fill(MaxBody+d) + `<message to="b">x</message>` },
	}
	for name, make := range texts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			differ := false
			var first Rest
			for d := -3; d <= 3; d++ {
				text := make(d)
				want := whole(text)
				if d == -3 {
					first = want
				}
				differ = differ || kinds(first) != kinds(want)
				for _, piece := range []int{1, 7, 4096} {
					if got := run1([]step{{text: text}}, func() int { return piece }); !cmp.Equal(want, got) {
						t.Fatalf("at %+d in pieces of %d: %s", d, piece, cmp.Diff(summary(want), summary(got)))
					}
				}
			}
			if !differ && name != "closed fence" { // where being over the limit shows nowhere
				t.Errorf("the limit was not crossed: %+v", summary(first))
			}
		})
	}
}

// kinds is what a limit changes: fates, names, and what kind of text is bare.
func kinds(r Rest) string {
	s := fmt.Sprint(r.BareCut, r.OpenInternal, strings.Contains(r.Bare, "<message"), strings.Contains(r.Bare, "<internal"))
	for _, i := range r.Items {
		s += " " + string(i.Fate) + " " + i.To[:1]
	}
	return s
}

// summary is a Rest that can be printed.
func summary(r Rest) []string {
	short := func(s string) string { return s[:min(40, len(s))] }
	out := []string{short(r.Bare)}
	for _, i := range r.Items {
		out = append(out, string(i.Fate)+" "+short(i.To)+" "+short(i.Body))
	}
	return out
}

func FuzzParser(f *testing.F) {
	f.Add("<message to=\"a\">hi</message>", []byte{3, 0, 200})
	f.Add("<internal>x<message to=\"a\">`</message>", []byte{1})
	f.Add("```\n<message to=\"a\">hi</message>\n```</message>`", []byte{9, 255})
	f.Add("<message to=\"a\">1<message to=\"b\">2</message>3", []byte{5})
	f.Fuzz(func(t *testing.T, text string, cuts []byte) {
		items, want := oracle(text)
		want.Items = items
		i := 0
		got := run1([]step{{text: text}}, func() int {
			if len(cuts) == 0 {
				return len(text)
			}
			i++
			return int(cuts[i%len(cuts)])%17 + 1
		})
		got.Items = withoutSegments(got.Items)
		if len(text) < maxTag && (!cmp.Equal(want.Items, got.Items) || want.Bare != got.Bare || want.OpenInternal != got.OpenInternal) {
			t.Fatalf("%q cut %v: %+v, oracle %+v", text, cuts, got, want)
		}
		for _, item := range got.Items {
			if item.Fate == Deliver && !strings.Contains(text, `to="`+item.To+`"`) {
				t.Fatalf("%q: delivered to %q, which nobody named", text, item.To)
			}
		}
	})
}
