package block

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	toA = `<message to="a">`
	toB = `<message to="b">`
	end = `</message>`
)

func out(to, body string) Item { return Item{Fate: Deliver, To: to, Body: body, Segment: 1} }

func fate(f Fate, to, body string) Item { return Item{Fate: f, To: to, Body: body, Segment: 1} }

// each case is read whole and in pieces of every small size.
func TestGrammar(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text string
		want []Item
		bare string
		open bool // an internal span
	}{
		"block":                         {toA + "hi" + end, []Item{out("a", "hi")}, "", false},
		"block in prose":                {"so " + toA + "hi" + end + " done", []Item{out("a", "hi")}, "so  done", false},
		"two blocks":                    {toA + "1" + end + toB + "2" + end, []Item{out("a", "1"), out("b", "2")}, "", false},
		"equal blocks are both there":   {toA + "1" + end + toA + "1" + end, []Item{out("a", "1"), out("a", "1")}, "", false},
		"body is trimmed":               {toA + " \n hi\n " + end, []Item{out("a", "hi")}, "", false},
		"white space in the tag":        {"<message \n\tto=\"a\" \n>x" + end, []Item{out("a", "x")}, "", false},
		"name as written":               {`<message to="a &amp; b's">x` + end, []Item{out("a &amp; b's", "x")}, "", false},
		"body as written":               {toA + "a &lt; b" + end, []Item{out("a", "a &lt; b")}, "", false},
		"case counts":                   {`<Message to="a">x</message>`, nil, `<Message to="a">x</message>`, false},
		"case counts at the end":        {toA + "x</Message>y" + end, []Item{out("a", "x</Message>y")}, "", false},
		"single quotes":                 {`<message to='a'>x</message>`, nil, `<message to='a'>x</message>`, false},
		"another attribute":             {`<message to="a" id="1">x</message>`, nil, `<message to="a" id="1">x</message>`, false},
		"attribute before":              {`<message id="1" to="a">x</message>`, nil, `<message id="1" to="a">x</message>`, false},
		"no name":                       {`<message to="">x</message>`, nil, `<message to="">x</message>`, false},
		"no gap":                        {`<messageto="a">x</message>`, nil, `<messageto="a">x</message>`, false},
		"gap in the close tag":          {toA + "x</message >y" + end, []Item{out("a", "x</message >y")}, "", false},
		"malformed tag is settled":      {`<message bad>text</message> trailing ` + toA + "x" + end, []Item{out("a", "x")}, "<message bad>text</message> trailing", false},
		"other tags":                    {"<message-x><messages to=\"a\">" + toA + "x" + end, []Item{out("a", "x")}, `<message-x><messages to="a">`, false},
		"broken open before a good one": {`<message to="<message to="a">x</message>`, []Item{out("a", "x")}, `<message to="`, false},
		"comparison":                    {"a < b and 5 > 4", nil, "a < b and 5 > 4", false},
		"prefix at the end":             {"prose <mess", nil, "prose <mess", false},
		"bracket at the end":            {"prose <", nil, "prose <", false},
		"empty":                         {"", nil, "", false},
		"only blanks":                   {" \n\t ", nil, "", false},
		"stray close":                   {"x" + end + toA + "y" + end, []Item{out("a", "y")}, "x</message>", false},
		"empty body":                    {toA + " \n" + end, []Item{fate(Empty, "a", "")}, "", false},
		"harness tags behind the body":  {toA + "hi\n</parameter>\n</invoke>\n" + end, []Item{out("a", "hi")}, "", false},
		"only harness tags":             {toA + "</invoke>" + end, []Item{fate(Empty, "a", "")}, "", false},
		"harness tags behind all":       {toA + "hi" + end + "\n</invoke>\n</function_calls>", []Item{out("a", "hi")}, "", false},

		// Internal spans.
		"internal":                          {"<internal>think</internal>", nil, "", false},
		"internal in any case":              {"<Internal>x</INTERNAL>y", nil, "y", false},
		"internal with attributes":          {`<internal a="1" b>x</internal>y`, nil, "y", false},
		"internal in a body":                {toA + "1<internal>no</internal>2" + end, []Item{out("a", "12")}, "", false},
		"close inside internal":             {toA + "1<internal>" + end + "</internal>2" + end, []Item{out("a", "12")}, "", false},
		"only internal in a body":           {toA + "<internal>no</internal>" + end, []Item{fate(Empty, "a", "")}, "", false},
		"draft in internal":                 {"<internal>q: " + toA + "draft" + end + "</internal> after", nil, "after", false},
		"stray internal close":              {"a</internal>b", nil, "a</internal>b", false},
		"self-closed internal":              {toA + "a<internal/>b<internal x=\"1\" />c" + end, []Item{out("a", "abc")}, "", false},
		"W10 nested internal":               {"<internal>a<internal>b</internal>c" + toA + "draft" + end + "</internal>d", nil, "d", false},
		"W10 three deep":                    {"<internal><internal><internal>a</internal></internal>" + toA + "x" + end + "</internal>" + toB + "y" + end, []Item{out("b", "y")}, "", false},
		"W11 internal-x is no internal":     {"<internal-x>a" + toA + "x" + end, []Item{out("a", "x")}, "<internal-x>a", false},
		"W11 internals is no internal":      {"<internals>" + toA + "x" + end, []Item{out("a", "x")}, "<internals>", false},
		"W11 mention without a bracket":     {"use <internal for notes. " + toA + "x" + end, []Item{out("a", "x")}, "use <internal for notes.", false},
		"W11 mention in code":               {"use `<internal>` for notes. " + toA + "x" + end, []Item{out("a", "x")}, "use `<internal>` for notes.", false},
		"W11 internal close in code":        {"<internal>`</internal>` is the end" + toA + "draft" + end + "</internal>x", nil, "x", false},
		"W11 draft in unclosed internal":    {"ok <internal>hmm " + toA + "draft", []Item{fate(Withheld, "a", "")}, "ok", true},
		"W11 block in unclosed internal":    {"ok <internal>hmm " + toA + "draft" + end + " more", []Item{fate(Withheld, "a", "")}, "ok", true},
		"W11 internal unclosed in a body":   {toA + "body <internal>note" + end, []Item{fate(Unclosed, "a", "body")}, "", true},
		"W11 withheld after unclosed":       {toA + "1<internal>note" + end + toB + "2" + end, []Item{fate(Unclosed, "a", "1"), fate(Withheld, "b", "")}, "", true},
		"W11 closed spans are forgotten":    {"<internal>" + toA + "x" + end + "</internal><internal>y", nil, "", true},
		"internal does not promote a draft": {"<inter" + "nal>" + toA + "x" + end + "</inter" + "nal>", nil, "", false},

		// Nesting.
		"inner block is text of the outer":        {toA + "say: " + toB + "x" + end + " ok" + end + "!", []Item{out("a", `say: <message to="b">x</message> ok`)}, "!", false},
		"three deep":                              {toA + toB + toA + "x" + end + end + end, []Item{out("a", toB+toA+"x"+end+end)}, "", false},
		"internal in the inner block":             {toA + "1" + toB + "<internal>n</internal>2" + end + "3" + end, []Item{out("a", "1"+toB+"2"+end+"3")}, "", false},
		"bare message tag does not count":         {toA + "use <message>x" + end + " ok" + end, []Item{out("a", "use <message>x")}, "ok</message>", false},
		"W9 unclosed block does not swallow":      {toA + "first " + toB + "second" + end, []Item{fate(Unclosed, "a", "first"), out("b", "second")}, "", false},
		"W9 what is behind the second is bare":    {toA + "1" + toB + "2" + end + "tail", []Item{fate(Unclosed, "a", "1"), out("b", "2")}, "tail", false},
		"W9 third behind an unclosed":             {toA + "1" + toB + "2" + end + " " + toB + "3" + end, []Item{fate(Unclosed, "a", "1"), out("b", "2"), out("b", "3")}, "", false},
		"W9 nested pair behind an unclosed":       {toA + "1" + toB + "2" + toA + "3" + end + end, []Item{fate(Unclosed, "a", "1"), out("b", "2"+toA+"3"+end)}, "", false},
		"W9 all unclosed":                         {toA + "1" + toB + "2" + toA + "3", []Item{fate(Unclosed, "a", "1"), fate(Unclosed, "b", "2"), fate(Unclosed, "a", "3")}, "", false},
		"W9 unclosed inner, then balanced":        {toA + "1" + end + toA + "2" + toB + "3" + end, []Item{out("a", "1"), fate(Unclosed, "a", "2"), out("b", "3")}, "", false},
		"W9 empty inner block":                    {toA + "1" + toB + " " + end, []Item{fate(Unclosed, "a", "1"), fate(Empty, "b", "")}, "", false},
		"unclosed":                                {"settled " + toA + "still open", []Item{fate(Unclosed, "a", "still open")}, "settled", false},
		"unclosed with the beginning of the tag":  {toA + "text</messag", []Item{fate(Unclosed, "a", "text")}, "", false},
		"unclosed beside a delivered one":         {toB + "x" + end + toA + "open", []Item{out("b", "x"), fate(Unclosed, "a", "open")}, "", false},
		"unclosed with harness tags at the end":   {toA + "text\n</invoke>", []Item{fate(Unclosed, "a", "text")}, "", false},
		"unclosed body of nothing":                {toA, []Item{fate(Unclosed, "a", "")}, "", false},
		"open tag cut in its name is bare":        {`see <message to="fam`, nil, `see <message to="fam`, false},
		"open tag cut behind its name is no open": {`<message to="a"`, nil, `<message to="a"`, false},

		// Code spans.
		"open tag in a span":                  {"write `" + toA + "` and " + toB + "x" + end, []Item{out("b", "x")}, "write `" + toA + "` and", false},
		"block in a span":                     {"write `" + toA + "hi" + end + "`", nil, "write `" + toA + "hi" + end + "`", false},
		"close tag in a span":                 {toA + "use `</message>` to end" + end, []Item{out("a", "use `</message>` to end")}, "", false},
		"longer runs":                         {toA + "``` a `` b </message>``` c" + end, []Item{out("a", "``` a `` b </message>``` c")}, "", false},
		"run inside a longer one":             {"`` ` " + toA + "x" + end + " ``", nil, "`` ` " + toA + "x" + end + " ``", false},
		"only runs of one length pair":        {"`` " + toA + "x" + end + " `", []Item{out("a", "x")}, "``  `", false},
		"stray tick in a body":                {toA + "it`s" + end, []Item{out("a", "it`s")}, "", false},
		"stray tick before a block":           {"the ` key\n" + toA + "it`s" + end, []Item{out("a", "it`s")}, "the ` key", false},
		"ticks pair only within their line":   {toA + "a ` b\nc" + end + " ` d", []Item{out("a", "a ` b\nc")}, "` d", false},
		"second pair behind a stray":          {"`` x ` " + toA + " ` y " + toB + "z" + end + "\n", []Item{out("b", "z")}, "`` x ` " + toA + " ` y", false},
		"tick in the name":                    {"<message to=\"a`b\">x</message>", nil, "<message to=\"a`b\">x</message>", false},
		"tag across the end of a ticked line": {"it`s <message\nto=\"a\">x" + end, []Item{out("a", "x")}, "it`s", false},

		// Fences.
		"block in a fence":              {"```\n" + toA + "x" + end + "\n```\nok", nil, "```\n" + toA + "x" + end + "\n```\nok", false},
		"fence with info":               {"text\n  ```xml\n" + toA + "x" + end + "\n  ```\n" + toB + "y" + end, []Item{out("b", "y")}, "text\n  ```xml\n" + toA + "x" + end + "\n  ```", false},
		"fence in a body":               {toA + "see\n```\n" + end + "\n```\nok" + end, []Item{out("a", "see\n```\n"+end+"\n```\nok")}, "", false},
		"fence right behind the tag":    {toA + "```\n" + end + "\n```" + end, []Item{out("a", "```\n"+end+"\n```")}, "", false},
		"close tag behind a fence":      {toA + "see\n```\ncode\n``` " + end + toB + "y" + end, []Item{out("a", "see\n```\ncode\n```"), out("b", "y")}, "", false},
		"longer fence":                  {"````\n```\n" + toA + "x" + end + "\n````\n", nil, "````\n```\n" + toA + "x" + end + "\n````", false},
		"fence closed by the end":       {"```\n" + toA + "x" + end + "\n```", nil, "```\n" + toA + "x" + end + "\n```", false},
		"CRLF":                          {"```\r\n" + toA + "x" + end + "\r\n```\r\n" + toB + "y" + end, []Item{out("b", "y")}, "```\r\n" + toA + "x" + end + "\r\n```", false},
		"text behind ticks is no end":   {"```\n``` no\n" + toA + "x" + end + "\n```\n", nil, "```\n``` no\n" + toA + "x" + end + "\n```", false},
		"ticks in mid-line":             {"a ```\n" + toA + "x" + end + "\n```", []Item{out("a", "x")}, "a ```\n\n```", false},
		"unclosed fence":                {"```\ncode\n" + toA + "x" + end, []Item{out("a", "x")}, "```\ncode", false},
		"unclosed fence in a body":      {toA + "```\ncode\n" + end + toB + "y" + end, []Item{out("a", "```\ncode"), out("b", "y")}, "", false},
		"spans count in a reread":       {"```\n`" + toA + "`\n" + toB + "y" + end, []Item{out("b", "y")}, "```\n`" + toA + "`", false},
		"no fences in a reread":         {"````\n" + toA + "x" + end + "\n```\n" + toB + "y" + end + "\n```\n", []Item{out("a", "x"), out("b", "y")}, "````\n\n```\n\n```", false},
		"unclosed fence in internal":    {"<internal>```\n</internal>" + toA + "x" + end, []Item{out("a", "x")}, "", false},
		"fence over a tag to be closed": {toA + "1\n```\n" + toB + "2" + end + "\n```\n3" + end, []Item{out("a", "1\n```\n"+toB+"2"+end+"\n```\n3")}, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for size := 0; size <= len(c.text); size++ {
				piece := func() int { return size }
				if size == 0 {
					piece = nil
				}
				got := run1([]step{{text: c.text}}, piece)
				if d := cmp.Diff(c.want, got.Items); d != "" {
					t.Fatalf("in pieces of %d (-want +got):\n%s", size, d)
				}
				if got.Bare != c.bare || got.OpenInternal != c.open {
					t.Fatalf("in pieces of %d: bare %q, open %v; want %q, %v", size, got.Bare, got.OpenInternal, c.bare, c.open)
				}
			}
		})
	}
}

// TestWhenBlocksLeave pins the byte at which each block leaves.
func TestWhenBlocksLeave(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ before, last string }{
		"at its close":                     {"prose " + toA + "hi</message", ">"},
		"at its close, behind a span":      {toA + "`x` hi</message", ">"},
		"at the end of a ticked line":      {toA + "it`s" + end + " more", "\n"},
		"when the tick finds its partner":  {toA + "x" + end[:9], ">"},
		"behind a closed fence":            {"```\nx\n```\n" + toA + "hi</message", ">"},
		"with the balance of a nested one": {toA + toB + "x" + end + "</message", ">"},
		"even if the next opens":           {toA + "x</message", ">" + toB},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := New()
			if got := p.Write(c.before); len(got) > 0 {
				t.Fatalf("%q: left early: %+v", c.before, got)
			}
			if got := p.Write(c.last); len(got) != 1 || got[0].Fate != Deliver {
				t.Fatalf("%q %q: got %+v, want one block", c.before, c.last, got)
			}
		})
	}
}

func TestHeldFromNestedOpen(t *testing.T) {
	t.Parallel()
	p := New()
	if got := p.Write(toA + "1" + toB + "2" + end + toB + "3" + end); len(got) > 0 {
		t.Fatalf("left before the balance: %+v", got)
	}
	r := p.End()
	want := []Item{fate(Unclosed, "a", "1"), out("b", "2"), out("b", "3")}
	if d := cmp.Diff(want, r.Items); d != "" {
		t.Fatal(d)
	}
}

// GATE-3: a block before a tool call leaves before the call, and the closing words are bare.
func TestGATE3BlockBeforeTool(t *testing.T) {
	t.Parallel()
	p := New()
	got := p.Write(`<message to="family">Dinner is ready</message>`)
	if d := cmp.Diff([]Item{out("family", "Dinner is ready")}, got); d != "" {
		t.Fatal(d)
	}
	p.Segment()
	if got := p.Write("Done, I told them."); got != nil {
		t.Fatalf("got %+v", got)
	}
	if r := p.End(); len(r.Items) > 0 || r.Bare != "Done, I told them." {
		t.Fatalf("rest = %+v", r)
	}
}

// GATE-9: a tag may be split across events, and nothing is read twice.
func TestGATE9SplitTag(t *testing.T) {
	t.Parallel()
	p := New()
	var got []Item
	for _, piece := range []string{"so <mess", `age to="fam`, `ily">Hi</mess`, "age>", " bye <", "/message>"} {
		got = append(got, p.Write(piece)...)
	}
	if d := cmp.Diff([]Item{out("family", "Hi")}, got); d != "" {
		t.Fatal(d)
	}
	if r := p.End(); len(r.Items) > 0 || r.Bare != "so  bye </message>" {
		t.Fatalf("rest = %+v", r)
	}
}

func TestSegments(t *testing.T) {
	t.Parallel()
	tool := step{tool: true}
	for name, c := range map[string]struct {
		steps []step
		want  []Item
		bare  string
	}{
		"block over a tool call, without a separator": {
			[]step{{text: toA + "one"}, tool, {text: " two" + end}}, []Item{{Deliver, "a", "one two", 2}}, "",
		},
		"tag over a tool call": {
			[]step{{text: toA + "x</mess"}, tool, {text: "age>"}}, []Item{{Deliver, "a", "x", 2}}, "",
		},
		"the segment is that of the close": {
			[]step{{text: toA + "1" + end}, tool, {text: toB + "2"}, tool, {text: end}}, []Item{{Deliver, "a", "1", 1}, {Deliver, "b", "2", 3}}, "",
		},
		"a tool call ends the line for ticks": {
			[]step{{text: toA + "it`s" + end}, tool, {text: "it`s"}}, []Item{{Deliver, "a", "it`s", 1}}, "it`s",
		},
		"held blocks keep the segment of their own close": {
			[]step{{text: toA + "open" + toB + "1" + end}, tool, {text: toB + "1" + end}}, []Item{{Unclosed, "a", "open", 2}, {Deliver, "b", "1", 1}, {Deliver, "b", "1", 2}}, "",
		},
		"blocks in an unclosed fence too": {
			[]step{{text: "```\n" + toA + "1" + end}, tool, tool, {text: toA + "1" + end}, tool, {text: toB + "2" + end}},
			[]Item{{Deliver, "a", "1", 1}, {Deliver, "a", "1", 3}, {Deliver, "b", "2", 4}}, "```",
		},
		"a tool call ends the last line of a fence": {
			[]step{{text: "```\n" + toA + "x" + end + "\n```"}, tool, {text: toB + "y" + end}}, []Item{{Deliver, "b", "y", 2}}, "```\n" + toA + "x" + end + "\n```",
		},
		"a fence may begin behind a tool call": {
			[]step{{text: "so"}, tool, {text: "```\n" + toA + "x" + end + "\n```"}}, nil, "so```\n" + toA + "x" + end + "\n```",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, size := range []func() int{nil, func() int { return 1 }} {
				got := run1(c.steps, size)
				if d := cmp.Diff(c.want, got.Items); d != "" {
					t.Errorf("(-want +got):\n%s", d)
				}
				if got.Bare != c.bare {
					t.Errorf("bare = %q, want %q", got.Bare, c.bare)
				}
			}
		})
	}
	p := New()
	if p.Write(toA + "it`s" + end); p.SegmentNumber() != 1 {
		t.Errorf("first segment is %d", p.SegmentNumber())
	}
	if got := p.Segment(); len(got) != 1 {
		t.Errorf("a tool call must let the decided block go, got %+v", got)
	}
}

// TestEndBeginsAnew has a second answer after a nudge: nothing of the first leaks into it.
func TestEndBeginsAnew(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]string{
		"bare": "text", "open": toA + "x", "held": toA + toB, "internal": "<internal>" + toA, "ticks": "it`s", "fence": "```\nx", "tag": "<message to=\"a",
		"sure fence": "```\n" + strings.Repeat("x\n", maxFence), "large": toA + strings.Repeat("x", MaxBody+1),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := New()
			p.Write(first)
			p.End()
			got := p.Write("`y` " + toB + "hi" + end)
			if d := cmp.Diff([]Item{{Deliver, "b", "hi", 2}}, got); d != "" {
				t.Error(d)
			}
			if r := p.End(); r.Bare != "`y`" || len(r.Items) > 0 || r.OpenInternal || r.BareCut {
				t.Errorf("rest = %+v", r)
			}
		})
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	big := strings.Repeat("0123456\n", MaxBody/8)
	for name, c := range map[string]struct {
		text string
		want []Item
	}{
		"largest body":             {toA + strings.Repeat("x", MaxBody) + end, []Item{out("a", strings.Repeat("x", MaxBody))}},
		"body too large":           {toA + big + "x" + end + toB + "y" + end, []Item{fate(TooLarge, "a", ""), out("b", "y")}},
		"unclosed and too large":   {toA + big + "x", []Item{fate(TooLarge, "a", "")}},
		"held too large, balanced": {toA + toB + big + end + end + toB + "y" + end, []Item{fate(TooLarge, "a", ""), out("b", "y")}},
		"held too large, open":     {toA + toB + "x" + end + big, []Item{fate(TooLarge, "a", "")}},
		"too large, then another":  {toA + big + "x" + toB + "y" + end, []Item{fate(TooLarge, "a", ""), out("b", "y")}},
		"internal is not counted":  {toA + "<internal>" + big + "x</internal>hi" + end, []Item{out("a", "hi")}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := whole(c.text)
			if !cmp.Equal(c.want, got.Items) {
				t.Errorf("got %v, want %v", summary(got), summary(Rest{Items: c.want}))
			}
		})
	}
	r := whole(strings.Repeat("é", MaxBare))
	if !r.BareCut || r.Bare != strings.Repeat("é", MaxBare/2) {
		t.Errorf("bare: cut %v, %d bytes", r.BareCut, len(r.Bare))
	}
	p := New()
	for range 64 {
		p.Write(big + "`" + big + "\n```\n" + big + "<internal>" + toA)
	}
	if n := cap(p.bare.b) + cap(p.body.b) + cap(p.held.b) + cap(p.line) + cap(p.fence.text) + cap(p.tag.raw); n > 4<<20 {
		t.Errorf("%d bytes are kept", n)
	}
}
