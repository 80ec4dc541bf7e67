package egress

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// meter counts what is read and runs before each read, and after the last one.
type meter struct {
	io.ReadCloser
	n      atomic.Int64 // the transport may still read when the call ends
	before func()
	after  func()
	eof    func() // at the end of the body, if it came
	done   sync.Once
}

func (m *meter) Read(b []byte) (int, error) {
	m.before()
	n, err := m.ReadCloser.Read(b)
	m.n.Add(int64(n))
	if err != nil {
		m.done.Do(m.after)
		if m.eof != nil && errors.Is(err, io.EOF) {
			m.eof()
		}
	}
	return n, err
}

func (m *meter) Close() error {
	m.done.Do(m.after)
	return m.ReadCloser.Close()
}

var errSilent = errors.New("the upstream said nothing for too long")

// watch returns a context that is cancelled when nothing called beat for silence, and stop, which ends the watch.
func watch(ctx context.Context, silence time.Duration) (_ context.Context, beat, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	t := time.AfterFunc(silence, func() { cancel(errSilent) })
	return ctx, func() { t.Reset(silence) }, func() { t.Stop(); cancel(nil) }
}

// buffers keeps copy buffers for answers.
type buffers struct{ pool sync.Pool }

const bufferSize = 32 << 10

func (b *buffers) Get() []byte {
	if v, ok := b.pool.Get().(*[bufferSize]byte); ok {
		return v[:]
	}
	return make([]byte, bufferSize)
}

func (b *buffers) Put(v []byte) {
	if len(v) == bufferSize {
		b.pool.Put((*[bufferSize]byte)(v))
	}
}
