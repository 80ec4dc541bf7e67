package egress

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"sync/atomic"
	"time"
)

// deny is the answer to a target nobody allowed.
func (c *call) deny(t target) string {
	c.refuse(http.StatusForbidden, fmt.Sprintf("%s is not on the allow list. To allow it, the operator adds \"%s\" to the host's setting egress.allow and starts the host again", t, t))
	return "not on the allow list"
}

// tunnel is CONNECT.
func (d *door) tunnel(c *call, r *http.Request) (reason string) {
	// What follows a refused CONNECT was meant for the tunnel and is no request.
	c.w.Header().Set("Connection", "close")
	t, err := parseTarget(r.RequestURI, 0)
	if err != nil {
		return c.refuse(http.StatusBadRequest, "CONNECT wants "+err.Error())
	}
	c.Host = t.String()
	if r.ContentLength != 0 {
		return c.refuse(http.StatusBadRequest, "CONNECT has no body")
	}
	if !d.allow.allows(t) {
		return c.deny(t)
	}
	up, err := d.p.dialAllowed(r.Context(), "tcp", t.String())
	if err != nil {
		status, text := d.fault(r.Context(), err)
		if status == 0 {
			panic(http.ErrAbortHandler)
		}
		return c.refuse(status, text)
	}
	defer func() { _ = up.Close() }()
	down, buffered, err := c.w.control.Hijack()
	if err != nil {
		return c.refuse(http.StatusInternalServerError, "the connection cannot be a tunnel")
	}
	defer func() { _ = down.Close() }()
	stop := context.AfterFunc(d.ctx, func() {
		_ = up.Close()
		_ = down.Close()
	})
	defer stop()
	c.Status = http.StatusOK
	c.BytesIn, c.BytesOut, err = d.pipe(down, buffered.Reader, up)
	if err != nil {
		return "cut"
	}
	return ""
}

// pipe opens the tunnel and copies both ways until both have ended, one has failed, or neither said anything for a while.
func (d *door) pipe(down net.Conn, first *bufio.Reader, up net.Conn) (in, out int64, err error) {
	_ = down.SetDeadline(time.Time{})
	_ = down.SetWriteDeadline(time.Now().Add(stallTimeout))
	if _, err := io.WriteString(down, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return 0, 0, err
	}
	// Bytes that came along with the request belong to the tunnel.
	early, err := first.Peek(first.Buffered())
	if err == nil && len(early) > 0 {
		_, err = up.Write(early)
	}
	if err != nil {
		return 0, 0, err
	}
	var last atomic.Int64
	last.Store(time.Now().UnixNano())
	upward := make(chan error, 1)
	var sent int64
	go func() {
		var err error
		sent, err = d.copy(up, down, &last)
		if err != nil {
			_ = up.Close()
			_ = down.Close()
		}
		upward <- err
	}()
	out, err = d.copy(down, up, &last)
	if err != nil {
		_ = up.Close()
		_ = down.Close()
	}
	err = errors.Join(err, <-upward)
	return sent + int64(len(early)), out, err
}

type halfCloser interface{ CloseWrite() error }

// copy moves bytes until src ends, then says so to dst.
func (d *door) copy(dst, src net.Conn, last *atomic.Int64) (n int64, err error) {
	buffer := d.p.buffers.Get()
	defer d.p.buffers.Put(buffer)
	for {
		_ = src.SetReadDeadline(time.Now().Add(silenceTimeout))
		got, err := src.Read(buffer)
		if got > 0 {
			last.Store(time.Now().UnixNano())
			_ = dst.SetWriteDeadline(time.Now().Add(stallTimeout))
			put, err := dst.Write(buffer[:got])
			n += int64(put)
			if err != nil {
				return n, err
			}
		}
		switch {
		case err == nil:
		case errors.Is(err, io.EOF):
			if h, ok := dst.(halfCloser); ok {
				_ = h.CloseWrite() // fails only if dst is gone, which its own direction finds out
			}
			return n, nil
		case errors.Is(err, os.ErrDeadlineExceeded) && time.Since(time.Unix(0, last.Load())) < silenceTimeout:
			// The other direction is busy.
		default:
			return n, err
		}
	}
}

// forward is a plain request to a proxy: `GET http://host/path`.
func (d *door) forward(c *call, r *http.Request) (reason string) {
	if r.URL.Scheme != "http" || r.URL.Host == "" || r.URL.User != nil {
		return c.refuse(http.StatusBadRequest, "a proxy request names an http:// URL without user info; https goes through CONNECT")
	}
	t, err := parseTarget(r.URL.Host, 80)
	if err != nil {
		return c.refuse(http.StatusBadRequest, "a proxy request wants "+err.Error())
	}
	c.Host, c.Path = t.String(), cut(r.URL.EscapedPath(), 512)
	if r.Method == http.MethodTrace {
		return c.refuse(http.StatusMethodNotAllowed, "this method is not passed on")
	}
	if !d.allow.allows(t) {
		return c.deny(t)
	}
	ctx, beat, stop := watch(r.Context(), silenceTimeout)
	defer stop()
	d.proxy(c, d.p.toAllowed, func(out *http.Request) {
		out.URL = &url.URL{Scheme: "http", Host: t.String(), Path: r.URL.Path, RawPath: r.URL.RawPath, RawQuery: r.URL.RawQuery}
		out.Host = r.URL.Host
	}, func(http.Header) {}, beat, c.refuse).ServeHTTP(c.w, r.WithContext(ctx))
	return c.Reason
}
