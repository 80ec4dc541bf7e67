package mock

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// lineSet is which lines are used: all up to a number, and single ones after it in ascending order.
type lineSet struct {
	upTo int
	more []int
}

func (s lineSet) has(n int) bool { return n <= s.upTo || slices.Contains(s.more, n) }

func (s *lineSet) add(lines ...int) {
	more := slices.Clone(s.more) // sets are copied by value
	for _, n := range lines {
		if n > s.upTo && !slices.Contains(more, n) {
			more = append(more, n)
		}
	}
	slices.Sort(more)
	for len(more) > 0 && more[0] == s.upTo+1 {
		s.upTo, more = more[0], more[1:]
	}
	s.more = more
}

const prefix = "mock-"

func (s lineSet) continuation() string {
	var b strings.Builder
	b.WriteString(prefix)
	b.WriteString(strconv.Itoa(s.upTo))
	for _, n := range s.more {
		b.WriteByte('.')
		b.WriteString(strconv.Itoa(n))
	}
	return b.String()
}

func parseContinuation(c string) (lineSet, error) {
	var s lineSet
	if c == "" {
		return s, nil
	}
	rest, ok := strings.CutPrefix(c, prefix)
	if !ok {
		return s, fmt.Errorf("%q is no conversation of the mock provider", c)
	}
	for i, part := range strings.Split(rest, ".") {
		n, err := strconv.Atoi(part)
		switch {
		case err != nil || n < 0 || len(part) > 9 || strconv.Itoa(n) != part:
			return lineSet{}, fmt.Errorf("%q is no conversation of the mock provider", c)
		case i == 0:
			s.upTo = n
		default:
			s.add(n)
		}
	}
	return s, nil
}
