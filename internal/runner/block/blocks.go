package block

import (
	"strings"
	"unicode/utf8"
)

// blocks is the structure above the tags.
type blocks struct {
	into     *buffer // where text goes now; nil inside an internal span
	bare     buffer
	internal int               // depth of internal spans
	hidden   []string          // destinations of open tags inside the running internal span
	strip    bool              // only internal spans count
	show     func(Item) string // set: blocks become bare text (Inline)

	depth   int // of open blocks; from 1 on these are set:
	to      string
	body    buffer // text of the outer block up to the first nested tag
	holding bool   // a nested open tag was seen:
	held    buffer // everything from there on
	marks   []mark
}

// mark is a tag inside blocks.held.
type mark struct {
	open    bool
	at, end int // its own text
	to      string
	segment int
	partner int // of an open mark: index of its close mark, 0 if there is none
}

// buffer takes text up to a limit.
type buffer struct {
	b    []byte
	max  int
	over bool
}

func (b *buffer) add(s string) {
	if room := b.max - len(b.b); len(s) > room {
		s = s[:room]
		b.over = true
	}
	b.b = append(b.b, s...)
}

func (b *buffer) addBytes(s []byte) {
	if room := b.max - len(b.b); len(s) > room {
		s = s[:room]
		b.over = true
	}
	b.b = append(b.b, s...)
}

func (b *buffer) reset(limit int) { b.b, b.max, b.over = b.b[:0], limit, false }

func (p *Parser) resetBlocks() {
	p.bare.reset(MaxBare)
	p.internal, p.hidden = 0, nil
	p.depth, p.holding, p.marks = 0, false, p.marks[:0]
	p.into = &p.bare
}

func (p *Parser) text(s string) {
	if p.into != nil {
		p.into.add(s)
	}
}

// textByte is text for one byte. It reports whether it took it; if not, text must.
func (p *Parser) textByte(c byte) bool {
	if b := p.into; b != nil {
		if len(b.b) >= b.max {
			return b.over
		}
		b.b = append(b.b, c)
	}
	return true
}

func (p *Parser) textBytes(s []byte) {
	if p.into != nil {
		p.into.addBytes(s)
	}
}

func (p *Parser) onTag(k kind) {
	switch {
	case p.internal > 0:
		p.onInternal(k)
	case k == internalOpen:
		p.internal = 1
		p.into = nil
	case k == internalEmpty:
	case k == internalClose || p.strip:
		p.textBytes(p.tag.raw)
	case k == openTag && p.depth == 0:
		p.depth, p.to = 1, p.tag.destination()
		p.body.reset(MaxBody)
		p.into = &p.body
	case k == openTag:
		if !p.holding {
			p.holding, p.marks = true, p.marks[:0]
			p.held.reset(MaxHeld)
			p.into = &p.held
		}
		p.depth++
		p.mark(true)
	case p.depth == 0:
		p.textBytes(p.tag.raw)
	case p.depth > 1:
		p.depth--
		p.mark(false)
	default:
		p.closeBlock()
	}
}

// onInternal follows the depth of an internal span; everything else in it is only remembered by name.
func (p *Parser) onInternal(k kind) {
	switch k {
	case internalOpen:
		p.internal++
	case internalClose:
		if p.internal--; p.internal == 0 {
			p.hidden = p.hidden[:0]
			p.into = p.target()
		}
	case openTag:
		if len(p.hidden) < maxNames && !p.strip {
			p.hidden = append(p.hidden, p.tag.destination())
		}
	}
}

// target is where visible text goes.
func (p *Parser) target() *buffer {
	switch {
	case p.depth == 0:
		return &p.bare
	case p.holding:
		return &p.held
	}
	return &p.body
}

// mark keeps the tag just read in held. Once held is over its limit nothing in it matters any more.
func (p *Parser) mark(open bool) {
	m := mark{open: open, at: len(p.held.b), segment: p.segment}
	p.textBytes(p.tag.raw)
	if p.held.over {
		p.marks = p.marks[:0]
		return
	}
	m.end = len(p.held.b)
	if open {
		m.to = p.tag.destination()
	}
	p.marks = append(p.marks, m)
}

// closeBlock ends the outer block.
func (p *Parser) closeBlock() {
	body, large := p.body.b, p.body.over
	if p.holding {
		large = large || p.held.over || len(body)+len(p.held.b) > MaxBody
		if !large {
			body = append(body, p.held.b...)
			p.body.b = body
		}
	}
	if large {
		p.emit(TooLarge, p.to, nil, p.segment)
	} else {
		p.emit(Deliver, p.to, body, p.segment)
	}
	p.depth, p.holding, p.marks = 0, false, p.marks[:0]
	p.into = &p.bare
}

func (p *Parser) emit(f Fate, to string, body []byte, segment int) {
	text := clean(string(body))
	if f == Deliver && text == "" {
		f = Empty
	}
	item := Item{Fate: f, To: to, Body: text, Segment: segment}
	if p.show == nil {
		p.items = append(p.items, item)
	} else if f != Withheld {
		p.bare.add(p.show(item))
	}
}

// finish decides the blocks that are still open and gives up what is left.
func (p *Parser) finish() Rest {
	if p.depth > 0 {
		switch {
		case p.body.over, p.holding && p.held.over:
			p.emit(TooLarge, p.to, nil, p.segment)
		default:
			p.emitUnclosed(p.to, p.body.b)
		}
		if p.holding && !p.held.over {
			p.release()
		}
	}
	for _, to := range p.hidden {
		p.emit(Withheld, to, nil, p.segment)
	}
	bare := p.bare.b
	if p.bare.over {
		bare = wholeRunes(bare)
	}
	return Rest{Bare: clean(string(bare)), BareCut: p.bare.over, OpenInternal: p.internal > 0}
}

// release reads what was held as if the outer block had not been opened: pairs of tags that are not inside another pair
// are blocks, open tags without a partner are unclosed blocks up to the next tag, the rest is bare.
func (p *Parser) release() {
	var open []int
	for i := range p.marks {
		p.marks[i].partner = 0
		if p.marks[i].open {
			open = append(open, i)
		} else if n := len(open); n > 0 {
			p.marks[open[n-1]].partner = i
			open = open[:n-1]
		}
	}
	held := p.held.b
	next := func(i int) int {
		if i+1 < len(p.marks) {
			return p.marks[i+1].at
		}
		return len(held)
	}
	for i := 0; i < len(p.marks); i++ {
		m := p.marks[i]
		if m.partner == 0 {
			p.emitUnclosed(m.to, held[m.end:next(i)])
			continue
		}
		i = m.partner
		p.emit(Deliver, m.to, held[m.end:p.marks[i].at], p.marks[i].segment)
		p.bare.add(string(held[p.marks[i].end:next(i)]))
	}
}

// emitUnclosed reports a block without its close tag. What may be the beginning of that tag is not text.
func (p *Parser) emitUnclosed(to string, body []byte) {
	const tag = "</message>"
	s := string(body)
	for n := len(tag) - 1; n >= 2; n-- {
		if strings.HasSuffix(s, tag[:n]) {
			s = s[:len(s)-n]
			break
		}
	}
	p.emit(Unclosed, to, []byte(s), p.segment)
}

// wholeRunes drops a character that a cut left incomplete at the end.
func wholeRunes(b []byte) []byte {
	for n := 1; n < utf8.UTFMax && n <= len(b); n++ {
		if tail := b[len(b)-n:]; utf8.RuneStart(tail[0]) {
			if !utf8.FullRune(tail) {
				return b[:len(b)-n]
			}
			break
		}
	}
	return b
}
