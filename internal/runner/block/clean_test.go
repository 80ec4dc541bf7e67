package block

import (
	"strings"
	"testing"
)

// spec/runner.md section 4.8.
func TestGATE13CleanHarness(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"hi": "hi", "": "", "hi \n": "hi \n",
		"hi</parameter>":                           "hi",
		"hi <invoke>":                              "hi",
		"hi\n</parameter>\n</invoke>\n":            "hi",
		`hi<invoke name="x"> <parameter name="y">`: "hi",
		"hi</FUNCTION_CALLS></Function_Results>":   "hi",
		"hi<dispatch/>":                            "hi",
		"use </invoke> here":                       "use </invoke> here",
		"</invoke></parameter>":                    "",
		"hi</div>":                                 "hi</div>",
		"hi</invoked>":                             "hi</invoked>",
		"hi</div></invoke>":                        "hi</div>",
		"a > b":                                    "a > b",
		"hi < invoke>":                             "hi < invoke>",
		"hi<>":                                     "hi<>",
		"hi</>":                                    "hi</>",
		"two </invoke> of</invoke>":                "two </invoke> of",
		"</invoke>x" + strings.Repeat("</invoke>", 100): "</invoke>x",
	} {
		if got := CleanHarness(in); got != want {
			t.Errorf("CleanHarness(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestStripInternal(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"hi":                       "hi",
		"":                         "",
		" a < b ":                  " a < b ",
		"a<internal>x</internal>b": "ab",
		"a<INTERNAL>x<internal>y</internal>z</Internal>b": "ab",
		"a</internal>b":                            "a</internal>b",
		"use `<internal>` so":                      "use `<internal>` so",
		"```\n<internal>\n```":                     "```\n<internal>\n```",
		"a <internal>never closed":                 "a ",
		"a <internal-x>b":                          "a <internal-x>b",
		toA + "x" + end + "<internal>n</internal>": toA + "x" + end,
		"<internal>" + toA + "</internal>x":        "x",
		"it`s <internal>n</internal>":              "it`s ",
		"<inter":                                   "<inter",
	} {
		if got := StripInternal(in); got != want {
			t.Errorf("StripInternal(%q) = %q, want %q", in, got, want)
		}
	}
	long := strings.Repeat("x<internal>y</internal>", MaxBare)
	if got := StripInternal(long); got != strings.Repeat("x", MaxBare) {
		t.Errorf("a long text became %d bytes", len(got))
	}
}

func TestInline(t *testing.T) {
	t.Parallel()
	show := func(b Item) string { return "[" + string(b.Fate) + " " + b.To + ": " + b.Body + "]" }
	for in, want := range map[string]string{
		"":                                "",
		"plain":                           "plain",
		`a <message to="x">b</message> c`: "a [deliver x: b] c",
		`<message to="x">b <internal>no</internal></message></invoke>`:     "[deliver x: b]",
		`<message to="x"> </message>`:                                      "[empty x: ]",
		`a <internal><message to="x">draft</message></internal> b`:         "a  b",
		`a <internal><message to="x">draft</message>`:                      "a",
		`a <message to="x">open`:                                           "a [unclosed x: open]",
		`<message to="x">a<message to="y">b</message>`:                     "[unclosed x: a][deliver y: b]",
		`<message to="x">a<message to="y">b</message></message>`:           `[deliver x: a<message to="y">b</message>]`,
		"`<message to=\"x\">b</message>` a":                                "`<message to=\"x\">b</message>` a",
		"```\n<message to=\"x\">b</message>\n":                             "```\n[deliver x: b]",
		`<message to="x">` + strings.Repeat("b", MaxBody+1) + `</message>`: "[too-large x: ]",
	} {
		if got := Inline(in, show); got != want {
			t.Errorf("Inline(%.60q) = %q, want %q", in, got, want)
		}
	}
	if long := strings.Repeat("x", MaxBare+10); Inline(long, show) != long {
		t.Error("a long text was cut")
	}
}
