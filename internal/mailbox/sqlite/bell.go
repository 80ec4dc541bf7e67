package sqlite

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/obs"
	"nanoclaw/internal/socket"
)

const (
	bellFile = "bell.sock"
	// helloPatience is how long a connection may take to say who it is.
	helloPatience = 2 * time.Second
	firstRedial   = 10 * time.Millisecond
	lastRedial    = time.Second
	// steady is how long a connection must last for the next dial to start anew with short pauses.
	steady = 5 * time.Second
	// maxRings per second are heard; a runner that rings more often is only heard later.
	maxRings = 2000
)

// Bell carries "look again" both ways between the two halves, beside the files (design.md section 5). It is a hint and may be
// lost: whoever misses it finds the rows at the next look. Idle it costs two goroutines that sleep and nothing else.
type Bell struct {
	log         *slog.Logger
	incarnation int64
	listener    *socket.Listener // of the host's side
	rung        chan struct{}
	changed     chan struct{}
	stop        context.CancelFunc
	done        sync.WaitGroup

	mu     sync.Mutex
	conn   *net.UnixConn
	closed bool
}

func newBell(incarnation int64, log *slog.Logger) (*Bell, context.Context) {
	if log == nil {
		log = obs.Discard()
	}
	ctx, stop := context.WithCancel(context.Background())
	return &Bell{
		log: log, incarnation: incarnation, stop: stop, rung: make(chan struct{}, 1), changed: make(chan struct{}, 1),
	}, ctx
}

// ListenBell is the host's side: it listens on bell.sock in runDir and lets exactly one connection in that says
// `hello <incarnation>`; a second one, and one of another incarnation, is closed. Close ends it and removes the socket. The
// socket gets the group of runDir, so that a runner of another user reaches it whenever a host binds it, also when it
// adopts a sandbox.
func ListenBell(runDir string, incarnation int64, mode os.FileMode, log *slog.Logger) (*Bell, error) {
	l, err := socket.Listen(runDir, bellFile, mode)
	if err != nil {
		return nil, fmt.Errorf("listen for bell: %w", err)
	}
	if err := likeFolder(l, runDir); err != nil {
		return nil, errors.Join(fmt.Errorf("listen for bell: %w", err), l.Close())
	}
	b, _ := newBell(incarnation, log)
	b.listener = l
	b.done.Go(b.accept)
	return b, nil
}

func likeFolder(l *socket.Listener, dir string) error {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return err
	}
	if int(st.Gid) == os.Getegid() {
		return nil
	}
	return l.Chown(-1, int(st.Gid))
}

// DialBell is the runner's side: it connects to the host's bell and does so again, for as long as ctx lives, whenever the
// connection is lost. It returns at once.
func DialBell(ctx context.Context, runDir string, incarnation int64, log *slog.Logger) *Bell {
	b, own := newBell(incarnation, log)
	ctx, cancel := context.WithCancel(ctx)
	context.AfterFunc(own, cancel)
	b.done.Go(func() { b.redial(ctx, runDir) })
	return b
}

// Ring tells the other side to look again. It never blocks; without a connection, or with a peer that does not read, the ring
// is dropped. Call it after the commit.
func (b *Bell) Ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.conn == nil {
		return
	}
	raw, err := b.conn.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Write(func(fd uintptr) bool {
		_, _ = unix.Write(int(fd), []byte{'\n'})
		return true
	})
}

// Rung receives after the other side rang, and after every connect since a ring may have been lost before it. Any number of
// rings that nobody took are one.
func (b *Bell) Rung() <-chan struct{} { return b.rung }

// Connected reports whether rings can arrive now; while not, poll.
func (b *Bell) Connected() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.conn != nil
}

// Changed receives after Connected changed; several changes that nobody took are one.
func (b *Bell) Changed() <-chan struct{} { return b.changed }

// Chown gives the socket to uid and gid, -1 leaves one as it is: connecting needs the right to write. For the host's side.
func (b *Bell) Chown(uid, gid int) error {
	if b.listener == nil {
		return fmt.Errorf("chown bell: %w: not the listening side", mailbox.ErrInvalid)
	}
	if err := b.listener.Chown(uid, gid); err != nil {
		return fmt.Errorf("chown bell: %w", err)
	}
	return nil
}

// Close ends the connection and waits for all that the bell started. It may be called twice.
func (b *Bell) Close() error {
	b.stop()
	var err error
	if b.listener != nil {
		if err = b.listener.Close(); errors.Is(err, net.ErrClosed) {
			err = nil
		}
	}
	b.mu.Lock()
	b.closed = true
	if b.conn != nil {
		_ = b.conn.Close()
	}
	b.mu.Unlock()
	b.done.Wait()
	return err
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// attach makes c the connection unless there is one.
func (b *Bell) attach(c *net.UnixConn) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.conn != nil || b.closed {
		return false
	}
	b.conn = c
	signal(b.changed)
	signal(b.rung)
	return true
}

func (b *Bell) detach() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.conn = nil
	signal(b.changed)
}

// hear reads rings until the connection ends.
func (b *Bell) hear(c io.Reader) {
	buffer := make([]byte, 256)
	count, since := 0, time.Now()
	for {
		if _, err := c.Read(buffer); err != nil {
			return
		}
		signal(b.rung)
		if count++; count > maxRings {
			if rest := time.Second - time.Since(since); rest > 0 {
				time.Sleep(rest)
			}
			count, since = 0, time.Now()
		} else if time.Since(since) > time.Second {
			count, since = 0, time.Now()
		}
	}
}

func (b *Bell) accept() {
	for {
		c, err := b.listener.AcceptUnix()
		if err != nil {
			return
		}
		if err := b.welcome(c); err != nil {
			b.log.Warn("bell connection refused", slog.Int64(obs.KeyIncarnation, b.incarnation), obs.Error(err))
			_ = c.Close()
		}
	}
}

// welcome checks who is calling; connections are looked at one after the other.
func (b *Bell) welcome(c *net.UnixConn) error {
	if err := c.SetReadDeadline(time.Now().Add(helloPatience)); err != nil {
		return err
	}
	// Exactly the hello line is consumed: what follows it are rings.
	line := make([]byte, 0, 64)
	for one := make([]byte, 1); ; {
		if _, err := io.ReadFull(c, one); err != nil {
			return fmt.Errorf("no hello: %w", err)
		}
		if one[0] == '\n' {
			break
		}
		if line = append(line, one[0]); len(line) == cap(line) {
			return fmt.Errorf("hello too long")
		}
	}
	if want := fmt.Sprintf("hello %d", b.incarnation); string(line) != want {
		return fmt.Errorf("said %q, want %q", line, want)
	}
	if err := c.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	if !b.attach(c) {
		return fmt.Errorf("there is a connection already")
	}
	b.Ring() // the runner takes the first byte for "welcome"
	b.done.Go(func() {
		b.hear(c)
		b.detach()
		_ = c.Close()
	})
	return nil
}

func (b *Bell) redial(ctx context.Context, runDir string) {
	for pause := firstRedial; ; pause = min(2*pause, lastRedial) {
		began := time.Now()
		if err := b.call(ctx, runDir); err != nil {
			b.log.Debug("bell not connected", obs.Error(err))
		}
		if time.Since(began) > steady {
			pause = firstRedial
		}
		t := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-t.C:
		}
	}
}

// call is one connection from dial to its end.
func (b *Bell) call(ctx context.Context, runDir string) error {
	dialled, err := socket.Dial(ctx, runDir, bellFile)
	if err != nil {
		return err
	}
	c, ok := dialled.(*net.UnixConn)
	if !ok {
		return fmt.Errorf("dial bell: not a unix socket")
	}
	defer func() { _ = c.Close() }()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	if _, err := fmt.Fprintf(c, "hello %d\n", b.incarnation); err != nil {
		return fmt.Errorf("say hello: %w", err)
	}
	r := bufio.NewReaderSize(c, 256)
	if _, err := r.ReadByte(); err != nil {
		return fmt.Errorf("not let in: %w", err)
	}
	if !b.attach(c) {
		return nil // closed meanwhile
	}
	defer b.detach()
	b.hear(r)
	return nil
}
