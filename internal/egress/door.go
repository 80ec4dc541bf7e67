package egress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"nanoclaw/internal/obs"
	"nanoclaw/internal/socket"
)

// door is the socket of one session.
type door struct {
	p        *Proxy
	session  Session
	allow    allowlist
	granted  map[string]upstream
	log      *slog.Logger
	server   *http.Server
	ctx      context.Context
	cancel   context.CancelFunc
	rate     bucket
	finished chan struct{} // the server has ended

	mu      sync.Mutex
	closed  bool
	running sync.WaitGroup
}

func (p *Proxy) serve(ctx context.Context, l *socket.Listener, s Session, list allowlist, granted map[string]upstream) *door {
	d := &door{p: p, session: s, allow: list, granted: granted, finished: make(chan struct{}),
		log:  p.log.With(obs.KeySession, s.ID, obs.KeyGroup, s.Group),
		rate: bucket{perSecond: 100, size: 500, now: time.Now}}
	d.ctx, d.cancel = context.WithCancel(ctx)
	d.server = &http.Server{
		Handler:                      d,
		ReadHeaderTimeout:            headerTimeout,
		IdleTimeout:                  keepAlive,
		MaxHeaderBytes:               maxHeader,
		DisableGeneralOptionsHandler: true,
		BaseContext:                  func(net.Listener) context.Context { return d.ctx },
		ErrorLog:                     slog.NewLogLogger(d.log.Handler(), slog.LevelDebug),
	}
	go func() {
		defer close(d.finished)
		err := d.server.Serve(&limited{Listener: l, slots: make(chan struct{}, maxConnections)})
		if !errors.Is(err, http.ErrServerClosed) {
			d.log.Error("egress socket ended", obs.Error(err))
		}
	}()
	return d
}

// Close may be called several times.
func (d *door) Close() error {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.cancel()
	err := d.server.Close()
	<-d.finished
	d.running.Wait()
	if err != nil {
		return fmt.Errorf("close egress of session %s: %w", d.session.ID, err)
	}
	return nil
}

func (d *door) enter() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return false
	}
	d.running.Add(1)
	return true
}

// call is one request on its way.
type call struct {
	Call
	door  *door
	start time.Time
	w     *recorder
	body  *meter
}

// ServeHTTP is the one entrance.
func (d *door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !d.enter() {
		panic(http.ErrAbortHandler) // cuts the connection
	}
	defer d.running.Done()
	control := http.NewResponseController(w)
	suppressed, ok := d.rate.take()
	if !ok {
		w.Header().Set("Retry-After", "1")
		http.Error(w, "nanoclaw: too many requests of this sandbox", http.StatusTooManyRequests)
		return
	}
	c := &call{door: d, start: time.Now(), w: &recorder{ResponseWriter: w, control: control}}
	c.Call = Call{At: c.start.UTC(), Session: d.session.ID, Group: d.session.Group, Method: cut(r.Method, 32), Suppressed: suppressed}
	c.body = &meter{ReadCloser: http.MaxBytesReader(w, r.Body, maxBody), before: func() { _ = control.SetReadDeadline(time.Now().Add(stallTimeout)) },
		after: func() { _ = control.SetReadDeadline(time.Time{}) }}
	if r.Body != http.NoBody {
		r.Body = c.body
	}
	// When a copy fails in the middle the proxy panics to cut the connection; the call ends all the same.
	c.Reason = "cut"
	defer c.end()
	c.Reason = d.dispatch(c, r)
	_ = control.SetWriteDeadline(time.Time{})
}

// dispatch answers the request and returns why it was refused, or "".
func (d *door) dispatch(c *call, r *http.Request) (reason string) {
	proxy := !strings.HasPrefix(r.RequestURI, "/")
	switch {
	case r.ProtoMajor != 1 || r.ProtoMinor != 1:
		// The end of an older answer is the end of the connection, so a cut would look complete.
		return c.refuse(http.StatusHTTPVersionNotSupported, "this proxy speaks HTTP/1.1")
	case r.ContentLength > maxBody:
		refuse := c.refuseJSON
		if proxy {
			refuse = c.refuse
		}
		return refuse(http.StatusRequestEntityTooLarge, fmt.Sprintf("a request has at most %d bytes", maxBody))
	case r.Method == http.MethodConnect:
		return d.tunnel(c, r)
	case proxy:
		return d.forward(c, r)
	default:
		return d.provide(c, r)
	}
}

func (c *call) end() {
	c.BytesIn += c.body.n.Load()
	c.BytesOut += c.w.n
	if c.Status == 0 {
		c.Status = c.w.status
	}
	c.Duration = time.Since(c.start)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.door.ctx), 5*time.Second)
	defer cancel()
	if err := c.door.p.opt.Audit.Record(ctx, c.Call); err != nil {
		c.door.log.Error("audit entry lost", obs.Error(err))
	}
	level := slog.LevelDebug
	if c.Status == http.StatusForbidden {
		level = slog.LevelInfo
	}
	c.door.log.Log(ctx, level, "egress call", "method", c.Method, "host", c.Host, obs.KeyPath, c.Path, "status", c.Status, obs.KeyReason, c.Reason, obs.Elapsed(c.start))
}

// refuse answers in plain text, for proxy requests.
func (c *call) refuse(status int, text string) string {
	c.w.Header().Set("X-Content-Type-Options", "nosniff")
	http.Error(c.w, "nanoclaw: "+text, status)
	return text
}

// recorder notes the status, counts the body, drops interim answers and gives up on a sandbox that stops reading.
type recorder struct {
	http.ResponseWriter
	control *http.ResponseController
	status  int
	n       int64
}

func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *recorder) WriteHeader(status int) {
	if status >= 100 && status < 200 {
		return
	}
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *recorder) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	_ = w.control.SetWriteDeadline(time.Now().Add(stallTimeout))
	n, err := w.ResponseWriter.Write(b)
	w.n += int64(n)
	return n, err
}

// limited refuses connections above the number of its slots.
type limited struct {
	*socket.Listener
	slots chan struct{}
}

func (l *limited) Accept() (net.Conn, error) {
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		select {
		case l.slots <- struct{}{}:
			return &slot{UnixConn: c, free: sync.OnceFunc(func() { <-l.slots })}, nil
		default:
			// The answer fits into an empty socket buffer, so this does not block.
			_, _ = io.WriteString(c, "HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\nRetry-After: 1\r\nConnection: close\r\n\r\nnanoclaw: too many connections of this sandbox\n")
			_ = c.Close()
		}
	}
}

type slot struct {
	*net.UnixConn
	free func()
}

func (s *slot) Close() error {
	defer s.free()
	return s.UnixConn.Close()
}

// bucket is a rate limit: size at once, then perSecond.
type bucket struct {
	perSecond, size float64
	now             func() time.Time

	mu         sync.Mutex
	tokens     float64
	at         time.Time
	suppressed int64
}

// take reports whether a call may go on; if so, how many were refused since the last one that could.
func (b *bucket) take() (suppressed int64, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	if b.at.IsZero() {
		b.tokens = b.size
	} else {
		b.tokens = min(b.size, b.tokens+b.perSecond*now.Sub(b.at).Seconds())
	}
	b.at = now
	if b.tokens < 1 {
		b.suppressed++
		return 0, false
	}
	b.tokens--
	suppressed, b.suppressed = b.suppressed, 0
	return suppressed, true
}

func cut(s string, n int) string {
	if len(s) > n {
		return s[:n]
	}
	return s
}
