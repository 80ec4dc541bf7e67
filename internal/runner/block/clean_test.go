package block

import (
	"strings"
	"testing"
)

// spec/runner.md section 4.8.
func TestCleanHarness(t *testing.T) {
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
