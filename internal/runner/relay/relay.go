// Package relay is the runner's end of the way out: it listens on loopback inside the sandbox and copies bytes to the
// host's egress socket (design.md section 4). It reads nothing of what it carries, but for the token of the process runtime.
package relay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"nanoclaw/internal/obs"
	"nanoclaw/internal/socket"
)

const (
	socketName     = "egress.sock"
	defaultHold    = 60 * time.Second
	maxConnections = 256
	maxHeld        = 64 << 10         // bytes taken from a client while the host is away
	lingering      = 60 * time.Second // a client that stays after the host's end has said all
)

// Options of a Relay.
type Options struct {
	Listen string        // loopback address and port; port 0 takes a free one
	RunDir string        // folder of the host's sockets
	Token  string        // demanded of every connection when it is set, where other programs can reach the port
	Hold   time.Duration // how long a new connection waits for a host that is away; 0: 60 s
	Log    *slog.Logger  // nil: none
}

// Relay holds no connection of its own and no timer while nobody uses it.
type Relay struct {
	opt   Options
	l     *net.TCPListener
	slots chan struct{}
}

// Listen takes the port, so that children can be told the address; connections are served by Run.
func Listen(ctx context.Context, opt Options) (*Relay, error) {
	at, err := netip.ParseAddrPort(opt.Listen)
	if err != nil || !at.Addr().IsLoopback() {
		return nil, fmt.Errorf("listen for egress on %q: not a loopback address with a port", opt.Listen)
	}
	if opt.Token != "" && !plain(opt.Token) {
		return nil, errors.New("listen for egress: a token is of letters, digits, dash and underscore")
	}
	if opt.Hold == 0 {
		opt.Hold = defaultHold
	}
	if opt.Log == nil {
		opt.Log = obs.Discard()
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", opt.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen for egress: %w (is another runner in this sandbox?)", err)
	}
	t, ok := l.(*net.TCPListener)
	if !ok {
		return nil, errors.Join(errors.New("listen for egress: not a TCP listener"), l.Close())
	}
	return &Relay{opt: opt, l: t, slots: make(chan struct{}, maxConnections)}, nil
}

// Addr is host:port.
func (r *Relay) Addr() string { return r.l.Addr().String() }

// Close stops listening; only for a relay whose Run was never called.
func (r *Relay) Close() error { return r.l.Close() }

// Run serves connections until ctx ends, then cuts them and returns nil when all have ended. An error means that
// nothing can be accepted any more.
func (r *Relay) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = r.l.Close() })
	defer func() {
		if stop() {
			_ = r.l.Close()
		}
	}()
	for {
		select {
		case r.slots <- struct{}{}:
		case <-ctx.Done():
			return nil
		}
		c, err := r.l.AcceptTCP()
		if err != nil {
			<-r.slots
			if ctx.Err() != nil {
				return nil
			}
			if !temporary(err) {
				return fmt.Errorf("accept connection for egress: %w", err)
			}
			select {
			case <-time.After(50 * time.Millisecond):
			case <-ctx.Done():
			}
			continue
		}
		running.Go(func() {
			defer func() { <-r.slots }()
			r.serve(ctx, c)
		})
	}
}

// temporary: the process or the machine is short of something for the moment, or a client left before it was accepted.
func temporary(err error) bool {
	for _, e := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

func (r *Relay) serve(ctx context.Context, down *net.TCPConn) {
	defer func() { _ = down.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = down.Close() })
	defer stop()
	var first []byte
	if r.opt.Token != "" {
		var ok bool
		if first, ok = admit(down, r.opt.Token); !ok {
			return
		}
	}
	up, first, err := r.dial(ctx, down, first)
	if err != nil {
		if ctx.Err() == nil {
			r.opt.Log.Warn("egress connection given up", obs.Error(err))
			_ = down.SetLinger(0)
		}
		return
	}
	defer func() { _ = up.Close() }()
	stopUp := context.AfterFunc(ctx, func() { _ = up.Close() })
	defer stopUp()
	if len(first) > 0 {
		if _, err := up.Write(first); err != nil {
			_ = down.SetLinger(0)
			return
		}
	}
	if err := join(down, up); err != nil {
		_ = down.SetLinger(0) // the client sees a reset, never a quiet end
	}
}

// dial reaches the host. While it is away the client is watched: one that leaves takes its request along, so that no
// model is asked on behalf of nobody. It returns what was read from the client so far.
func (r *Relay) dial(ctx context.Context, down *net.TCPConn, first []byte) (*net.UnixConn, []byte, error) {
	c, err := socket.Dial(ctx, r.opt.RunDir, socketName)
	if err != nil {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		watched := make(chan struct{})
		go func() {
			defer close(watched)
			if first, err = hold(down, first); err != nil {
				cancel(err)
			}
		}()
		c2, failed := socket.Retry(ctx, r.opt.RunDir, socketName, r.opt.Hold)
		_ = down.SetReadDeadline(time.Unix(1, 0))
		<-watched
		_ = down.SetReadDeadline(time.Time{})
		if err != nil {
			if failed == nil {
				_ = c2.Close()
			}
			return nil, nil, err
		}
		if failed != nil {
			return nil, nil, failed
		}
		c = c2
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		return nil, nil, errors.Join(errors.New("the host's socket is of another kind"), c.Close())
	}
	return u, first, nil
}

var errLeft = errors.New("the client left while the host was away")

// hold reads from a waiting client until its deadline is set into the past. An error means that the client is gone.
func hold(down *net.TCPConn, first []byte) ([]byte, error) {
	buffer := make([]byte, 4<<10)
	for len(first) < maxHeld {
		n, err := down.Read(buffer)
		first = append(first, buffer[:n]...)
		if err != nil {
			var t net.Error
			if errors.As(err, &t) && t.Timeout() {
				return first, nil
			}
			return first, errLeft
		}
	}
	return first, nil
}

// join copies both ways until both have ended. An error means that one side broke.
func join(down *net.TCPConn, up *net.UnixConn) error {
	upward := make(chan error, 1)
	go func() {
		_, err := io.Copy(up, down)
		if err == nil {
			_ = up.CloseWrite() // fails only if the other side is gone, which the other direction finds out
		} else {
			_ = up.Close()
		}
		upward <- err
	}()
	_, err := io.Copy(down, up)
	if err == nil {
		_ = down.CloseWrite()
		_ = down.SetReadDeadline(time.Now().Add(lingering))
	} else {
		_ = down.SetLinger(0)
		_ = down.Close()
	}
	return errors.Join(err, <-upward)
}
