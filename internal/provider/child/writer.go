package child

import (
	"encoding/json"
	"fmt"
	"os"
	"sync"
)

// writer sends lines to the program from a goroutine of its own, so that a program that does not read never blocks the reader of
// its answers. Lines wait without limit; they are prompts and short answers.
type writer struct {
	file *os.File
	wake chan struct{}
	done chan struct{}

	mu      sync.Mutex
	lines   [][]byte
	closing bool
}

func newWriter(file *os.File) *writer {
	w := &writer{file: file, wake: make(chan struct{}, 1), done: make(chan struct{})}
	go w.run()
	return w
}

func (w *writer) send(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode a line for the program: %w", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closing {
		w.lines = append(w.lines, append(b, '\n'))
		w.ring()
	}
	return nil
}

// finish closes the file after the lines that wait.
func (w *writer) finish() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closing = true
	w.ring()
}

// stop closes the file now, also below a write that blocks, and waits for the goroutine.
func (w *writer) stop() {
	w.finish()
	_ = w.file.Close()
	<-w.done
}

func (w *writer) ring() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *writer) run() {
	defer close(w.done)
	defer func() { _ = w.file.Close() }()
	for range w.wake {
		w.mu.Lock()
		lines, closing := w.lines, w.closing
		w.lines = nil
		w.mu.Unlock()
		for _, l := range lines {
			if _, err := w.file.Write(l); err != nil {
				return // the program is going away; its exit says why
			}
		}
		if closing {
			return
		}
	}
}
