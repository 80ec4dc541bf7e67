// Command probe is what sandboxtest runs inside a sandbox: it dials the suite's socket, and does and tells what it is asked.
//
//	probe DIR NAME       dial socket NAME in DIR, and serve
//	probe sleep MARK     do nothing until killed; MARK makes the process recognisable
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"nanoclaw/internal/sandbox/sandboxtest/ask"
	"nanoclaw/internal/socket"
)

// codeTerm is the exit code after SIGTERM, codeLost after the suite stayed away.
const (
	codeTerm = 7
	codeLost = 9
)

func main() {
	if len(os.Args) == 3 && os.Args[1] == "sleep" {
		terms := make(chan os.Signal, 1)
		signal.Notify(terms, syscall.SIGTERM)
		for range terms {
		}
	}
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: probe DIR NAME | probe sleep MARK")
		os.Exit(2)
	}
	var stubborn atomic.Bool
	terms := make(chan os.Signal, 1)
	signal.Notify(terms, syscall.SIGTERM)
	go func() {
		for range terms {
			if !stubborn.Load() {
				os.Exit(codeTerm)
			}
		}
	}()
	for {
		c, err := socket.Retry(context.Background(), os.Args[1], os.Args[2], 30*time.Second)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(codeLost)
		}
		serve(c, &stubborn)
		_ = c.Close()
	}
}

func serve(c net.Conn, stubborn *atomic.Bool) {
	in := bufio.NewReader(c)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		var q ask.Question
		var a ask.Answer
		if err := json.Unmarshal(line, &q); err != nil {
			a.Error = err.Error()
		} else if q.Do == ask.Stubborn {
			stubborn.Store(true)
		} else {
			a = do(q)
		}
		b, err := json.Marshal(a)
		if err != nil {
			b, _ = json.Marshal(ask.Answer{Error: err.Error()})
		}
		if _, err := c.Write(append(b, '\n')); err != nil {
			return
		}
	}
}

func do(q ask.Question) (a ask.Answer) {
	var err error
	switch q.Do {
	case ask.Ping:
	case ask.Tell:
		a.Report, err = report()
	case ask.Write:
		err = os.WriteFile(q.Path, []byte("by the probe"), 0o600)
	case ask.Read:
		a.Text, err = read(q.Path)
	case ask.Fill:
		a.N, err = fill(q.Path, q.N)
	case ask.Fork:
		a.N, err = fork(q.N, q.Mark)
	case ask.Family:
		err = family(q.Mark)
	case ask.Hog:
		a.N = hog(q.N)
	case ask.Spin:
		a.N = spin(time.Duration(q.N) * time.Millisecond)
	case ask.Dial:
		var c net.Conn
		if c, err = net.DialTimeout("tcp", q.Path, 2*time.Second); err == nil {
			_ = c.Close()
		}
	case ask.Say:
		_, err = io.WriteString(os.Stderr, q.Mark)
	case ask.Exit:
		os.Exit(int(q.N))
	default:
		a.Error = "unknown question " + q.Do
	}
	if err != nil {
		a.Error = err.Error()
	}
	return a
}
