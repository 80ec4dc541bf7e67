package block

// fence is an open fence. Its text is kept until it is closed, because it counts as plain text if it never is.
type fence struct {
	ticks  int // of the first line
	state  fenceState
	count  int // ticks of the run in state closing
	text   []byte
	sure   bool // longer than maxFence: it is code in any case and nothing is kept
	breaks []segmentBreak
}

// segmentBreak is a tool call inside an open fence.
type segmentBreak struct {
	at      int // in fence.text
	segment int // that ended there
}

type fenceState uint8

const (
	lineStart fenceState = iota
	closing              // blanks and a run of backticks
	closed               // the same, long enough, and blanks behind it
	closedTag            // the same and a '<', which is not in text yet
	lineRest             // this line closes nothing
)

func (p *Parser) openFence(ticks int) {
	f := &p.fence
	*f = fence{ticks: ticks, text: f.text[:0], breaks: f.breaks[:0]}
	p.mode = inFence
}

func (p *Parser) readFence(s string) int {
	f := &p.fence
	from := 0 // s[from:i] is not kept yet
	for i := 0; i < len(s); i++ {
		c := s[i]
		if f.state == closing && c != '`' {
			f.state = lineRest
			if f.count >= f.ticks {
				f.state = closed
			}
		}
		switch f.state {
		case lineStart:
			switch {
			case c == '`':
				f.state, f.count = closing, 1
			case c != '\n' && !blank(c):
				f.state = lineRest
			}
		case closing:
			f.count++
		case closed:
			switch {
			case c == '\n':
				p.keep(s[from : i+1])
				p.closeFence()
				p.fresh = true
				return i + 1
			case c == '<':
				p.keep(s[from:i])
				from = i + 1
				f.state = closedTag
			case !blank(c):
				f.state = lineRest
			}
		case closedTag:
			if c == '/' {
				p.closeFence()
				p.fresh = false
				p.tag.start()
				return i
			}
			p.keep("<")
			if f.state = lineRest; c == '\n' {
				f.state = lineStart
			}
		case lineRest:
			if c == '\n' {
				f.state = lineStart
			}
		}
	}
	p.keep(s[from:])
	return len(s)
}

// keep adds to the text of the fence, exactly up to maxFence; what is beyond is passed on as code.
func (p *Parser) keep(s string) {
	f := &p.fence
	if !f.sure {
		if len(f.text)+len(s) <= maxFence {
			f.text = append(f.text, s...)
			return
		}
		f.sure = true
		p.textBytes(f.text)
		f.text, f.breaks = f.text[:0], f.breaks[:0]
	}
	p.text(s)
}

// keepByte is keep for a byte for which there is room.
func (f *fence) keepByte(c byte) bool {
	if f.sure || len(f.text) >= maxFence {
		return false
	}
	f.text = append(f.text, c)
	return true
}

func (p *Parser) closeFence() {
	p.textBytes(p.fence.text)
	p.fence.text = p.fence.text[:0]
	p.mode = plain
}

// endFenceLine ends the line at a tool call or at the end of the text.
func (p *Parser) endFenceLine() {
	f := &p.fence
	switch {
	case f.state == closed, f.state == closing && f.count >= f.ticks:
		p.closeFence()
		return
	case f.state == closedTag:
		p.keep("<")
	}
	f.state = lineStart
	if n := len(f.breaks); !f.sure && (n == 0 || f.breaks[n-1].at < len(f.text)) {
		f.breaks = append(f.breaks, segmentBreak{len(f.text), p.segment})
	}
}

// reread reads the text of a fence that was not closed again, without fences.
func (p *Parser) reread() {
	f := &p.fence
	p.mode, p.noFence = plain, true
	if f.sure {
		return
	}
	text, at, last := string(f.text), 0, p.segment
	for _, b := range f.breaks {
		p.segment = b.segment
		p.feed(text[at:b.at])
		p.endLine()
		at = b.at
	}
	p.segment = last
	p.feed(text[at:])
	p.endLine()
}
