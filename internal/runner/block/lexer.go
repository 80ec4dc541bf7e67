package block

import "strings"

// mode of the lexer.
type mode uint8

const (
	plain   mode = iota // tags count
	ticked              // behind a run of backticks: whether tags count is decided by the rest of the line
	inFence             // tags do not count if the fence is closed
)

// lexer tells tags from text and keeps code apart. It hands both on in order.
type lexer struct {
	mode    mode
	fresh   bool // nothing but blanks since the start of the line or the last tag: a fence may start
	noFence bool // the text is read again because a fence was not closed
	tag     tag
	line    []byte // ticked: the line from the first waiting run on
	runs    []run
	ticks   int // length of the run at the end of line
	fence   fence
}

// run of backticks in lexer.line.
type run struct{ at, len int }

func (p *Parser) resetLexer() {
	p.mode, p.fresh, p.noFence = plain, true, false
	p.tag.state = idle
	p.line, p.runs, p.ticks = p.line[:0], p.runs[:0], 0
}

func (p *Parser) feed(s string) {
	for len(s) > 0 {
		n := 0
		switch p.mode {
		case plain:
			if p.tag.state == idle {
				n = p.readPlain(s)
			} else {
				n = p.readTag(s)
			}
		case ticked:
			n = p.readTicked(s)
		case inFence:
			n = p.readFence(s)
		}
		s = s[n:]
	}
}

// feedByte reads c where that decides nothing, and reports whether it did. It is the short way for pieces of one byte; feed
// comes to the same.
func (p *Parser) feedByte(c byte) bool {
	switch p.mode {
	case plain:
		if p.tag.state != idle {
			if done, ok := p.tag.step(c); !ok {
				return false
			} else if done != noTag {
				p.fresh = true
				p.onTag(done)
				return true
			}
		} else if c == '<' {
			p.tag.start()
		} else if c == '`' || !p.textByte(c) {
			return false
		}
		if c == '\n' {
			p.fresh = true
		} else if !blank(c) {
			p.fresh = false
		}
		return true
	case ticked:
		if c == '`' || c == '\n' || p.ticks > 0 || len(p.line) >= maxLine {
			return false
		}
		p.line = append(p.line, c)
		return true
	}
	return p.mode == inFence && p.fence.state == lineRest && c != '\n' && p.fence.keepByte(c)
}

// readPlain reads up to and with the next '<', or up to the next backtick.
func (p *Parser) readPlain(s string) int {
	fresh := p.fresh
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c > '`':
			fresh = false
		case c == '`':
			p.text(s[:i])
			p.fresh = fresh
			p.mode, p.line, p.runs, p.ticks = ticked, p.line[:0], p.runs[:0], 0
			return i
		case c == '<':
			p.text(s[:i])
			p.fresh = false
			p.tag.start()
			return i + 1
		case c == '\n':
			fresh = true
		case c != ' ' && c != '\t' && c != '\r':
			fresh = false
		}
	}
	p.text(s)
	p.fresh = fresh
	return len(s)
}

// readTag reads on in a tag, to its end or up to the byte that shows that it is none.
func (p *Parser) readTag(s string) int {
	for i := 0; i < len(s); i++ {
		c := s[i]
		done, ok := p.tag.step(c)
		if !ok {
			p.dropTag()
			return i
		}
		if done != noTag {
			p.fresh = true
			p.onTag(done)
			return i + 1
		}
		if c == '\n' {
			p.fresh = true
		} else if !blank(c) {
			p.fresh = false
		}
	}
	return len(s)
}

// dropTag turns the beginning of a tag back into text.
func (p *Parser) dropTag() {
	if p.tag.state != idle {
		p.tag.state = idle
		p.textBytes(p.tag.raw)
	}
}

// readTicked collects the line behind a run of backticks, up to the run's partner or up to the end of the line.
func (p *Parser) readTicked(s string) int {
	for i := 0; i < len(s); {
		if len(p.line) >= maxLine {
			p.endTicked(false)
			return i
		}
		c := s[i]
		if c == '`' {
			p.line = append(p.line, c)
			p.ticks++
			i++
			continue
		}
		if p.ticks > 0 && p.endRun() {
			p.literal(p.line)
			p.mode = plain
			return i
		}
		if c == '\n' {
			if p.endTicked(true); p.mode == inFence {
				p.text("\n")
				return i + 1
			}
			return i
		}
		n := 1
		for room := min(len(s)-i, maxLine-len(p.line)); n < room && s[i+n] != '`' && s[i+n] != '\n'; n++ {
		}
		p.line = append(p.line, s[i:i+n]...)
		i += n
	}
	return len(s)
}

// endRun notes the run that just ended and reports whether it is the partner of the first one.
func (p *Parser) endRun() bool {
	r := run{len(p.line) - p.ticks, p.ticks}
	p.ticks = 0
	p.runs = append(p.runs, r)
	return len(p.runs) > 1 && r.len == p.runs[0].len
}

// endTicked decides the collected line: every run that has a partner behind it is code up to there, the others are
// text, and tags outside of code count. With eol the line is complete and may be the first of a fence.
func (p *Parser) endTicked(eol bool) {
	if p.ticks > 0 && p.endRun() {
		p.literal(p.line)
		p.mode = plain
		return
	}
	line := string(p.line)
	partner := partners(p.runs)
	runs := p.runs
	p.mode = plain
	at := 0
	for i := 0; i < len(runs); i++ {
		r := runs[i]
		p.feed(line[at:r.at])
		p.dropTag()
		at = r.at + r.len
		switch {
		case eol && i == len(runs)-1 && r.len >= 3 && p.fresh && !p.noFence && strings.IndexByte(line[at:], '<') < 0:
			p.literal(p.line[r.at:])
			p.openFence(r.len)
			return
		case partner[i] > 0:
			i = partner[i]
			at = runs[i].at + runs[i].len
		}
		p.literal(p.line[r.at:at])
	}
	p.feed(line[at:])
}

// partners gives for each run the index of the next one of the same length, 0 if there is none.
func partners(runs []run) []int {
	out := make([]int, len(runs))
	if len(runs) < 2 {
		return out
	}
	next := make(map[int]int, len(runs))
	for i := len(runs) - 1; i >= 0; i-- {
		out[i] = next[runs[i].len]
		next[runs[i].len] = i
	}
	return out
}

// literal hands on text in which nothing counts.
func (p *Parser) literal(s []byte) {
	p.dropTag()
	p.fresh = false
	p.textBytes(s)
}

// endLine ends the line for code, not for tags.
func (p *Parser) endLine() {
	switch p.mode {
	case ticked:
		p.endTicked(true)
	case inFence:
		p.endFenceLine()
	}
	p.fresh = true
}

// endLexer decides everything that is still open.
func (p *Parser) endLexer() {
	p.endLine()
	if p.mode == inFence {
		p.reread()
	}
	p.dropTag()
}

func blank(c byte) bool { return c == ' ' || c == '\t' || c == '\r' }
