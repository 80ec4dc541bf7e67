package bubblewrap

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"nanoclaw/internal/sandbox"
	"nanoclaw/internal/sandbox/local"
)

// plumbing is the descriptors between the host and bubblewrap while it builds a sandbox.
type plumbing struct {
	null, log, status        *os.File
	argsIn, argsOut          *os.File
	infoIn, infoOut          *os.File
	passwdIn                 *os.File
	passwd                   *net.UnixConn
	group, hosts, nameSwitch *os.File
	passwdText               string
}

func openPlumbing(spec sandbox.Spec) (p *plumbing, err error) {
	p = &plumbing{}
	defer func() {
		if err != nil {
			p.close()
			p.closeChildEnds()
		}
	}()
	p.passwdText = fmt.Sprintf("root:x:0:0:root:/:/usr/sbin/nologin\nagent:x:%d:%d:agent:%s:/bin/sh\nnobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n",
		spec.UID, spec.GID, homeOf(spec))
	if p.null, err = os.Open(os.DevNull); err != nil {
		return p, err
	}
	if p.log, err = local.OpenLog(spec.StateDir); err != nil {
		return p, err
	}
	if err = os.Remove(statusPath(spec.StateDir)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return p, err
	}
	if p.status, err = os.OpenFile(statusPath(spec.StateDir), os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600); err != nil {
		return p, err
	}
	if p.argsOut, p.argsIn, err = os.Pipe(); err != nil {
		return p, err
	}
	if p.infoOut, p.infoIn, err = os.Pipe(); err != nil {
		return p, err
	}
	if p.passwd, p.passwdIn, err = socketpair(); err != nil {
		return p, err
	}
	for _, data := range []struct {
		f    **os.File
		text string
	}{
		{&p.group, fmt.Sprintf("root:x:0:\nagent:x:%d:\nnogroup:x:65534:\n", spec.GID)},
		{&p.hosts, "127.0.0.1 localhost sandbox\n::1 localhost\n"},
		{&p.nameSwitch, "passwd: files\ngroup: files\nhosts: files\n"},
	} {
		if *data.f, err = filled(data.text); err != nil {
			return p, err
		}
	}
	return p, nil
}

func homeOf(spec sandbox.Spec) string {
	if h := spec.Env["HOME"]; filepath.IsAbs(h) && !strings.ContainsAny(h, ":\n") {
		return h
	}
	return "/"
}

// filled is the reading end of a pipe that holds text, which must fit into a page.
func filled(text string) (*os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	_, err = w.WriteString(text)
	return r, errors.Join(err, w.Close())
}

func socketpair() (*net.UnixConn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "ready"), os.NewFile(uintptr(fds[1]), "passwd")
	defer func() { _ = ours.Close() }()
	c, err := net.FileConn(ours)
	if err != nil {
		_ = theirs.Close()
		return nil, nil, err
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		_ = theirs.Close()
		return nil, nil, errors.New("socket pair is no unix socket")
	}
	return u, theirs, nil
}

// files in the order of the descriptor numbers in args.go.
func (p *plumbing) files() []*os.File {
	return []*os.File{p.null, p.log, p.log, p.argsOut, p.infoIn, p.status, p.group, p.hosts, p.nameSwitch, p.passwdIn}
}

func (p *plumbing) closeChildEnds() {
	for _, f := range []*os.File{p.null, p.log, p.status, p.argsOut, p.infoIn, p.passwdIn, p.group, p.hosts, p.nameSwitch} {
		_ = f.Close() // of nil: an error and no harm
	}
}

func (p *plumbing) close() {
	_ = p.argsIn.Close()
	_ = p.infoOut.Close()
	if p.passwd != nil {
		_ = p.passwd.Close()
	}
}

// expire makes every pending step fail.
func (p *plumbing) expire() {
	now := time.Now()
	_ = p.argsIn.SetDeadline(now)
	_ = p.infoOut.SetDeadline(now)
	_ = p.passwd.SetDeadline(now)
}

func (p *plumbing) feed(args []string) error {
	var b bytes.Buffer
	for _, a := range args {
		b.WriteString(a)
		b.WriteByte(0)
	}
	if _, err := p.argsIn.Write(b.Bytes()); err != nil {
		return fmt.Errorf("hand over its arguments: %w", err)
	}
	return p.argsIn.Close()
}

// childPID reads the runner's process id as the host sees it.
func (p *plumbing) childPID() (int, error) {
	b, err := io.ReadAll(io.LimitReader(p.infoOut, 4096))
	if err != nil {
		return 0, fmt.Errorf("learn its process: %w", err)
	}
	pid, _, _ := parseStatus(b)
	if pid == 0 {
		return 0, errors.New("it started no process")
	}
	return pid, nil
}

// finish hands over the last file, for which the child waits until now, and waits until it has been used. A child that gives up
// before leaves it unread, which resets the connection.
func (p *plumbing) finish() error {
	_, err := io.WriteString(p.passwd, p.passwdText)
	if err == nil {
		err = p.passwd.CloseWrite()
	}
	if err == nil {
		var b [1]byte
		if _, err = p.passwd.Read(b[:]); errors.Is(err, io.EOF) {
			return nil
		}
	}
	return fmt.Errorf("make its mounts: %w", err)
}
