package block

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// mixed is text as a model writes it.
func mixed(size int) string {
	parts := []string{
		"Let me look at the list first; a < b and b > c, as ever. ",
		"<message to=\"family\">Dinner is at eight. Bring **bread**, please.</message>\n",
		"<internal>They asked for a short answer <internal>really</internal>.</internal> ",
		"Use `<message to=\"x\">` or ``a ` b``, and it`s fine.\n",
		"```go\nif a < b {\n\treturn \"</message>\"\n}\n```\n",
		"<message to=\"work\">See:\n```\nls -l\n```</message>\n",
	}
	r := rand.New(rand.NewPCG(7, 7))
	var b strings.Builder
	for b.Len() < size {
		b.WriteString(parts[r.IntN(len(parts))])
	}
	return b.String()[:size]
}

func read(text string, piece int) int {
	p := New()
	n := 0
	for len(text) > 0 {
		k := min(piece, len(text))
		n += len(p.Write(text[:k]))
		text = text[k:]
	}
	return n + len(p.End().Items)
}

func BenchmarkParser(b *testing.B) {
	text := mixed(10 << 20)
	for _, piece := range []int{64 << 10, 1 << 10, 16, 1} {
		b.Run(fmt.Sprintf("mixed/%d", piece), func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				read(text, piece)
			}
		})
	}
	for name, unit := range hostile() {
		text := strings.Repeat(unit, 10<<20/len(unit))
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				read(text, 64<<10)
			}
		})
	}
}

// hostile are units that, repeated, would make a parser that looks back read the same bytes again and again.
func hostile() map[string]string {
	return map[string]string{
		"opens":     `<message to="a">`,
		"halves":    `<message to="`,
		"internals": `<internal>`,
		"ticks":     "`` ` ``` ",
		"less":      "<",
		"closes":    `</message>`,
		"plain":     "a plain sentence without anything in it. ",
		"fences":    "```\n",
		"newlines":  "\n",
	}
}

// TestHostileTextCostsNoMoreThanPlain has texts of 256 KB and 2 MB: work that grew with the square would cost 64 times as much.
func TestHostileTextCostsNoMoreThanPlain(t *testing.T) {
	if testing.Short() {
		t.Skip("measures time")
	}
	units := hostile()
	units["growing runs"] = growingRuns(64 << 10)
	cost := func(text string) time.Duration {
		best := time.Hour
		for range 3 {
			began := time.Now()
			read(text, 4096)
			best = min(best, time.Since(began))
		}
		return best
	}
	for name, unit := range units {
		small, large := strings.Repeat(unit, 256<<10/len(unit)), strings.Repeat(unit, 2<<20/len(unit))
		if a, b := cost(small), cost(large); b > 30*a && b > 200*time.Millisecond {
			t.Errorf("%s: 256 KB cost %v, 2 MB %v", name, a, b)
		}
	}
}

// growingRuns is one line of backtick runs of which no two are alike.
func growingRuns(size int) string {
	var b strings.Builder
	for n := 1; b.Len() < size; n++ {
		b.WriteString(strings.Repeat("`", n) + " ")
	}
	return b.String() + "\n"
}
