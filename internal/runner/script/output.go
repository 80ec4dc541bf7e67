package script

import "bytes"

// lastLine takes output of any length and keeps the last line that is not blank, at most max bytes of it.
type lastLine struct {
	max      int
	line     []byte // the line being written
	last     []byte // the last complete line that is not blank
	lastOver bool   // last is only its beginning
	over     bool   // line has more than what was kept, and not only blanks
}

// Write never fails, so that a script is never stopped by its own output.
func (l *lastLine) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		i := bytes.IndexByte(p, '\n')
		if i < 0 {
			l.add(p)
			break
		}
		l.add(p[:i])
		l.end()
		p = p[i+1:]
	}
	return n, nil
}

func (l *lastLine) add(p []byte) {
	if room := l.max - len(l.line); len(p) > room {
		l.over = l.over || len(bytes.TrimSpace(p[room:])) > 0
		p = p[:room]
	}
	l.line = append(l.line, p...)
}

func (l *lastLine) end() {
	if l.over || len(bytes.TrimSpace(l.line)) > 0 {
		l.line, l.last = l.last, l.line
		l.lastOver = l.over
	}
	l.line, l.over = l.line[:0], false
}

// text is the line, trimmed; over says that it is only a part. Nothing may be written after it.
func (l *lastLine) text() (line []byte, over bool) {
	l.end()
	return bytes.TrimSpace(l.last), l.lastOver
}

// tail keeps the last max bytes of what is written.
type tail struct {
	max int
	b   []byte
}

// Write never fails.
func (t *tail) Write(p []byte) (int, error) {
	n := len(p)
	if len(p) > t.max {
		p = p[len(p)-t.max:]
	}
	if drop := len(t.b) + len(p) - t.max; drop > 0 {
		t.b = append(t.b[:0], t.b[drop:]...)
	}
	t.b = append(t.b, p...)
	return n, nil
}

func (t *tail) String() string { return string(bytes.TrimSpace(bytes.ToValidUTF8(t.b, nil))) }
