package wire

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// MaxLine bounds one line of a stream: a broken server must not fill the memory.
const MaxLine = 32 << 20

var errLongLine = errors.New("a line of the stream is too long")

// Lines calls each with every line of r, without its end, until r ends or each returns an error. A last line without an end counts.
// The slice is valid during the call.
func Lines(r io.Reader, each func(line []byte) error) error {
	in := bufio.NewReaderSize(r, 16<<10)
	var long []byte
	for {
		part, err := in.ReadSlice('\n')
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			if len(long)+len(part) > MaxLine {
				return errLongLine
			}
			long = append(long, part...)
			continue
		case err != nil && !errors.Is(err, io.EOF):
			return err
		}
		line := part
		if len(long) > 0 {
			long = append(long, part...)
			line = long
		}
		if len(line) > 0 {
			if e := each(bytes.TrimRight(line, "\r\n")); e != nil {
				return e
			}
		}
		if err != nil {
			return nil
		}
		long = long[:0]
		if cap(long) > 1<<20 {
			long = nil
		}
	}
}

// Events calls each with the name and the data of every server-sent event of r (HTML Living Standard, section 9.2.6, for
// LF and CRLF): data lines are joined by newlines, comments and unknown fields are skipped, an event without data is none, and
// one that is cut off by the end of the stream is none.
func Events(r io.Reader, each func(name string, data []byte) error) error {
	var name string
	var data []byte
	has := false
	first := true
	return Lines(r, func(line []byte) error {
		if first {
			line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
			first = false
		}
		if len(line) == 0 {
			n, had := name, has
			name, has = "", false
			if !had {
				return nil
			}
			err := each(n, data)
			data = data[:0]
			return err
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "event":
			name = string(value)
		case "data":
			if len(data)+len(value) > MaxLine {
				return errLongLine
			}
			if has {
				data = append(data, '\n')
			}
			data = append(data, value...)
			has = true
		}
		return nil
	})
}

// Unexpected is the error of a stream that says what it should not.
func Unexpected(what string, err error) *Error {
	return &Error{Class: "network", Retryable: true, Message: "the model's answer could not be read: " + what, Err: fmt.Errorf("%s: %w", what, err)}
}
