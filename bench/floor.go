package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	driver "modernc.org/sqlite" // the floors use the same driver
)

// commits makes durable commits as a mailbox makes them (journal DELETE, synchronous FULL, fdatasync).
type commits struct{ db *sql.DB }

func openCommits(path string) (commits, error) {
	if _, err := driver.Fdatasync(true); err != nil {
		return commits{}, err
	}
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=journal_mode(DELETE)&_pragma=synchronous(FULL)&_pragma=busy_timeout(5000)")
	if err != nil {
		return commits{}, err
	}
	db.SetMaxOpenConns(1)
	if _, err := db.Exec("CREATE TABLE IF NOT EXISTS t (id INTEGER PRIMARY KEY, v TEXT)"); err != nil {
		return commits{}, errors.Join(err, db.Close())
	}
	return commits{db}, nil
}

func (c commits) commit(ctx context.Context, value string) error {
	_, err := c.db.ExecContext(ctx, "INSERT INTO t (v) VALUES (?)", value)
	return err
}

// newest is the last value committed.
func (c commits) newest(ctx context.Context) (value string, err error) {
	err = c.db.QueryRowContext(ctx, "SELECT v FROM t ORDER BY id DESC LIMIT 1").Scan(&value)
	return value, err
}

// sample is the time of n commits in a row, in milliseconds.
func (c commits) sample(ctx context.Context, n int) (float64, error) {
	began := time.Now()
	for range n {
		if err := c.commit(ctx, "x"); err != nil {
			return 0, err
		}
	}
	return millis(time.Since(began)), nil
}

// pair is the smallest program pair that could do a mailbox's work: a process of its own that hears a byte, reads, makes two
// durable commits and sends a byte back.
type pair struct {
	in, out commits
	peer    *exec.Cmd
	conn    net.Conn
}

// peerArgument makes this program the other process of a pair; the folder follows.
const peerArgument = "floor-peer"

func (b *bundle) pair(ctx context.Context) (p *pair, err error) {
	dir := filepath.Join(b.work, "floor")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	p = &pair{}
	if p.in, err = openCommits(filepath.Join(dir, "in.db")); err != nil {
		return nil, err
	}
	if p.out, err = openCommits(filepath.Join(dir, "out.db")); err != nil {
		return nil, errors.Join(err, p.in.db.Close())
	}
	l, err := net.Listen("unix", filepath.Join(dir, "bell.sock"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = l.Close() }()
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p.peer = exec.CommandContext(ctx, self, peerArgument, dir)
	p.peer.Stderr = os.Stderr
	if err := p.peer.Start(); err != nil {
		return nil, err
	}
	p.conn, err = l.Accept()
	return p, err
}

func (p *pair) end() {
	_ = p.conn.Close()
	_ = p.peer.Wait()
	_ = p.in.db.Close()
	_ = p.out.db.Close()
}

// sample is the way from one commit here to the answer of the other process read here, in milliseconds.
func (p *pair) sample(ctx context.Context) (float64, error) {
	if err := p.in.commit(ctx, "a question"); err != nil {
		return 0, err
	}
	began := time.Now()
	buf := []byte{1}
	if _, err := p.conn.Write(buf); err != nil {
		return 0, err
	}
	if _, err := p.conn.Read(buf); err != nil {
		return 0, err
	}
	if _, err := p.out.newest(ctx); err != nil {
		return 0, err
	}
	return millis(time.Since(began)), nil
}

// peer is the other process.
func peer(ctx context.Context, dir string) error {
	in, err := openCommits(filepath.Join(dir, "in.db"))
	if err != nil {
		return err
	}
	out, err := openCommits(filepath.Join(dir, "out.db"))
	if err != nil {
		return err
	}
	c, err := net.Dial("unix", filepath.Join(dir, "bell.sock"))
	if err != nil {
		return err
	}
	buf := make([]byte, 1)
	for {
		if _, err := c.Read(buf); err != nil {
			return nil // the pair has ended
		}
		question, err := in.newest(ctx)
		if err != nil {
			return err
		}
		for _, value := range []string{"claimed", "answer to " + question} {
			if err := out.commit(ctx, value); err != nil {
				return fmt.Errorf("answer: %w", err)
			}
		}
		if _, err := c.Write(buf); err != nil {
			return err
		}
	}
}
