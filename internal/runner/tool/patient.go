package tool

import (
	"context"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// patient is a transport on which the end of the input waits for the answers to what was asked before it: a client may write
// its requests, close its side and read.
type patient struct{ mcp.Transport }

func (p patient) Connect(ctx context.Context) (mcp.Connection, error) {
	c, err := p.Transport.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &patientConnection{Connection: c, idle: make(chan struct{}, 1), closed: make(chan struct{})}, nil
}

type patientConnection struct {
	mcp.Connection
	idle   chan struct{} // capacity 1: every request is answered
	closed chan struct{}
	once   sync.Once

	mu   sync.Mutex
	open int // requests without an answer
}

func (c *patientConnection) add(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open += n
	if c.open == 0 && n < 0 {
		select {
		case c.idle <- struct{}{}:
		default:
		}
	}
	return c.open
}

func (c *patientConnection) Read(ctx context.Context) (jsonrpc.Message, error) {
	m, err := c.Connection.Read(ctx)
	if r, ok := m.(*jsonrpc.Request); ok && err == nil && r.IsCall() {
		c.add(1)
	}
	for err != nil && c.add(0) > 0 {
		select {
		case <-c.idle:
		case <-c.closed:
			return m, err
		case <-ctx.Done():
			return m, err
		}
	}
	return m, err
}

func (c *patientConnection) Write(ctx context.Context, m jsonrpc.Message) error {
	err := c.Connection.Write(ctx, m)
	if _, ok := m.(*jsonrpc.Response); ok {
		c.add(-1)
	}
	if err != nil {
		c.once.Do(func() { close(c.closed) })
	}
	return err
}

func (c *patientConnection) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Connection.Close()
}
