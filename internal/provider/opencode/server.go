package opencode

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	callWait  = 60 * time.Second // of a request that does not wait for the model
	mostBody  = 16 << 20
	mostEvent = 32 << 20
)

// server speaks to the program's API.
type server struct {
	port     int
	password string
	client   *http.Client
}

func newServer() (*server, error) {
	l, err := net.Listen("tcp", hostAddress+":0")
	if err != nil {
		return nil, fmt.Errorf("find a free port: %w", err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	if err := l.Close(); err != nil {
		return nil, fmt.Errorf("find a free port: %w", err)
	}
	var secret [24]byte
	_, _ = rand.Read(secret[:])
	return &server{port: port, password: hex.EncodeToString(secret[:]), client: &http.Client{Transport: &http.Transport{}}}, nil // no proxy: it is on loopback
}

func (s *server) close() { s.client.CloseIdleConnections() }

func (s *server) arguments() []string {
	return []string{"serve", "--hostname=" + hostAddress, "--port=" + strconv.Itoa(s.port)}
}

// listening reports whether a line of the program's output says that it answers.
func (s *server) listening(line []byte) bool {
	_, address, ok := bytes.Cut(line, []byte("listening on http://"))
	return ok && strings.HasSuffix(strings.TrimSpace(string(address)), ":"+strconv.Itoa(s.port))
}

// statusError is an answer that is no success.
type statusError struct {
	status int
	body   string
}

func (e *statusError) Error() string { return fmt.Sprintf("status %d: %s", e.status, e.body) }

func (s *server) request(ctx context.Context, method string, path []string, body any) (*http.Request, error) {
	var in io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		in = bytes.NewReader(b)
	}
	for i := range path {
		path[i] = url.PathEscape(path[i])
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://"+net.JoinHostPort(hostAddress, strconv.Itoa(s.port))+"/"+strings.Join(path, "/"), in)
	if err != nil {
		return nil, err
	}
	r.SetBasicAuth(userName, s.password)
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	return r, nil
}

// call makes a request and decodes the answer into out, if there is one.
func (s *server) call(ctx context.Context, method string, path []string, body, out any) error {
	r, err := s.request(ctx, method, path, body)
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, strings.Join(path, "/"), err)
	}
	answer, err := s.client.Do(r)
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, strings.Join(path, "/"), err)
	}
	defer func() { _ = answer.Body.Close() }()
	b, err := io.ReadAll(io.LimitReader(answer.Body, mostBody))
	if err == nil && answer.StatusCode/100 != 2 {
		err = &statusError{answer.StatusCode, clip(string(b))}
	}
	if err == nil && out != nil {
		err = json.Unmarshal(b, out)
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, strings.Join(path, "/"), err)
	}
	return nil
}

func clip(s string) string {
	const most = 400
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}

// events reads the program's events until they end, or ctx does.
func (s *server) events(ctx context.Context, on func([]byte)) error {
	r, err := s.request(ctx, http.MethodGet, []string{"event"}, nil)
	if err != nil {
		return err
	}
	answer, err := s.client.Do(r)
	if err != nil {
		return fmt.Errorf("listen to events: %w", err)
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("listen to events: status %d", answer.StatusCode)
	}
	return readEvents(answer.Body, on)
}

var errTooLong = errors.New("an event is too long")

// readEvents takes a stream of server-sent events apart: the data of each, its lines joined.
func readEvents(in io.Reader, on func([]byte)) error {
	r := bufio.NewReaderSize(in, 64<<10)
	var data, line []byte
	some := false
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		if len(line)+len(data) > mostEvent {
			return errTooLong
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF):
			return nil // half an event means nothing
		case err != nil:
			return err
		}
		line = bytes.TrimRight(line, "\r\n")
		if value, ok := bytes.CutPrefix(line, []byte("data:")); ok {
			if some {
				data = append(data, '\n')
			}
			data, some = append(data, bytes.TrimPrefix(value, []byte(" "))...), true
		} else if len(line) == 0 && some {
			on(data)
			data, some = nil, false
		}
		line = line[:0]
	}
}

// worker does what it is given, one after the other, so that requests arrive in order and nobody waits for them.
type worker struct {
	wake chan struct{}
	mu   sync.Mutex
	jobs []func()
	over bool
}

func newWorker() *worker {
	w := &worker{wake: make(chan struct{}, 1)}
	return w
}

func (w *worker) do(job func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.over {
		w.jobs = append(w.jobs, job)
	}
	w.ring()
}

// stop lets run return after the job at hand.
func (w *worker) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over, w.jobs = true, nil
	w.ring()
}

func (w *worker) ring() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *worker) run() {
	for range w.wake {
		for {
			w.mu.Lock()
			if w.over {
				w.mu.Unlock()
				return
			}
			if len(w.jobs) == 0 {
				w.mu.Unlock()
				break
			}
			job := w.jobs[0]
			w.jobs = w.jobs[1:]
			w.mu.Unlock()
			job()
		}
	}
}
