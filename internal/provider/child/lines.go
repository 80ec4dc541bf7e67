package child

import (
	"bufio"
	"errors"
	"io"
)

const (
	readSize = 64 << 10
	keepSize = 1 << 20  // a buffer that grew beyond this is not kept for the next line
	maxLine  = 32 << 20 // a longer line is skipped
)

// LineReader reads lines of any length with bounded memory.
type LineReader struct {
	r   *bufio.Reader
	buf []byte
}

// NewLineReader reads from r.
func NewLineReader(r io.Reader) *LineReader { return &LineReader{r: bufio.NewReaderSize(r, readSize)} }

// Next returns a line without its end, valid until the next call. A line that is too long comes back empty with
// tooLong set; a last line without an end is dropped, since half an object means nothing.
func (l *LineReader) Next() (line []byte, tooLong bool, err error) {
	if cap(l.buf) > keepSize {
		l.buf = nil
	}
	l.buf = l.buf[:0]
	for {
		part, err := l.r.ReadSlice('\n')
		switch {
		case err == nil && len(l.buf) == 0 && !tooLong:
			return trimEnd(part), false, nil
		case err != nil && !errors.Is(err, bufio.ErrBufferFull):
			return nil, false, err
		}
		if len(l.buf)+len(part) > maxLine {
			tooLong, l.buf = true, nil
		}
		if !tooLong {
			l.buf = append(l.buf, part...)
		}
		if err == nil {
			return trimEnd(l.buf), tooLong, nil
		}
	}
}

func trimEnd(b []byte) []byte {
	for len(b) > 0 && (b[len(b)-1] == '\n' || b[len(b)-1] == '\r') {
		b = b[:len(b)-1]
	}
	return b
}

// tail keeps the end of what is written to it.
type tail struct {
	max int
	buf []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.buf = append(t.buf, p...)
	if len(t.buf) > 2*t.max {
		t.buf = append([]byte(nil), t.buf[len(t.buf)-t.max:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	if len(t.buf) > t.max {
		return string(t.buf[len(t.buf)-t.max:])
	}
	return string(t.buf)
}
