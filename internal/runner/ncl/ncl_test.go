package ncl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"nanoclaw/internal/control"
	"nanoclaw/internal/runner/door"
	"nanoclaw/internal/socket"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 20 * time.Second

func open(t *testing.T, admin Admin) string {
	t.Helper()
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	d, err := door.Listen(ctx, dir, nil, Handler(admin))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		d.Wait()
	})
	return dir
}

// dial says hello and sends text.
func dial(t *testing.T, dir, text string) io.ReadWriteCloser {
	t.Helper()
	c, err := socket.Dial(t.Context(), dir, control.RunnerSocket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	_, _ = io.WriteString(c, control.HelloAdmin+"\n"+text)
	return c
}

// The client of package control and this side understand each other; the frame is passed on as it is.
func TestRequestAndAnswer(t *testing.T) {
	t.Parallel()
	dir := open(t, func(_ context.Context, command string, args map[string]json.RawMessage) (control.Frame, error) {
		if command == "nope" {
			return control.Frame{ID: "r2", Error: &control.Error{Code: control.CodeNotFound, Message: "unknown", Hint: "known: <b>"}}, nil
		}
		return control.Frame{ID: "r1", OK: true, Data: json.RawMessage(`{"n":` + string(args["n"]) + `}`), Human: "a <b> & c\nd"}, nil
	})
	client := control.NewRunner(filepath.Join(dir, control.RunnerSocket))
	f, err := client.Admin(t.Context(), control.AdminRequest{Command: "groups-list", Args: map[string]json.RawMessage{"n": json.RawMessage("7")}})
	if err != nil || !f.OK || f.ID != "r1" || string(f.Data) != `{"n":7}` || f.Human != "a <b> & c\nd" {
		t.Errorf("%+v, %v", f, err)
	}
	f, err = client.Admin(t.Context(), control.AdminRequest{Command: "nope"})
	if err != nil || f.OK || f.Error == nil || f.Error.Code != control.CodeNotFound || f.Error.Hint != "known: <b>" {
		t.Errorf("%+v, %v", f, err)
	}
	if _, err := control.NewRunner(filepath.Join(t.TempDir(), control.RunnerSocket)).Admin(t.Context(), control.AdminRequest{Command: "x"}); !control.IsCode(err, control.CodeUnreachable) {
		t.Errorf("without a runner: %v", err)
	}
}

// Errors of the wait become error frames with the codes of the command line.
func TestFailuresOfTheWait(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		code control.Code
	}{
		{fmt.Errorf("wait: %w", context.DeadlineExceeded), control.CodeTimeout},
		{context.Canceled, control.CodeUnavailable},
		{fmt.Errorf("ask: %w", &control.Error{Code: control.CodeForbidden, Message: "no"}), control.CodeForbidden},
		{errors.New("the disk is full"), control.CodeFailed},
	} {
		dir := open(t, func(context.Context, string, map[string]json.RawMessage) (control.Frame, error) {
			return control.Frame{}, c.err
		})
		f, err := control.NewRunner(filepath.Join(dir, control.RunnerSocket)).Admin(t.Context(), control.AdminRequest{Command: "x"})
		if err != nil || f.OK || f.Error == nil || f.Error.Code != c.code {
			t.Errorf("%v: %+v, %v", c.err, f.Error, err)
		}
	}
}

// What is no request is answered with an error frame and reaches nobody.
func TestBadRequests(t *testing.T) {
	t.Parallel()
	dir := open(t, func(_ context.Context, command string, _ map[string]json.RawMessage) (control.Frame, error) {
		t.Errorf("%q was passed on", command)
		return control.Frame{}, nil
	})
	for _, c := range []struct {
		line string
		code control.Code
	}{
		{"\n", control.CodeInvalid},
		{"nope\n", control.CodeInvalid},
		{"[]\n", control.CodeInvalid},
		{`{"command":7}` + "\n", control.CodeInvalid},
		{`{"command":""}` + "\n", control.CodeInvalid},
		{`{"command":"x","args":[]}` + "\n", control.CodeInvalid},
		{`{"command":"x","caller":"root"}` + "\n", control.CodeInvalid},
		{`{"command":"x"} {}` + "\n", control.CodeInvalid},
		{`{"command":"` + strings.Repeat("x", control.MaxCommand+1) + `"}` + "\n", control.CodeTooLarge},
		{`{"command":"x","args":{"a":"` + strings.Repeat("x", 2*control.MaxAdminLine), control.CodeTooLarge},
	} {
		conn := dial(t, dir, c.line)
		var f control.Frame
		if err := json.NewDecoder(conn).Decode(&f); err != nil || f.OK || f.Error == nil || f.Error.Code != c.code {
			t.Errorf("%.40q: %+v, %v; want %s", c.line, f.Error, err, c.code)
		}
		_ = conn.Close()
	}
}

// A client that leaves ends the wait for the host.
func TestClientLeaves(t *testing.T) {
	t.Parallel()
	begun, ended := make(chan struct{}), make(chan struct{})
	dir := open(t, func(ctx context.Context, _ string, _ map[string]json.RawMessage) (control.Frame, error) {
		close(begun)
		<-ctx.Done()
		close(ended)
		return control.Frame{}, ctx.Err()
	})
	conn := dial(t, dir, `{"command":"x"}`+"\n")
	<-begun
	_ = conn.Close()
	select {
	case <-ended:
	case <-time.After(patience):
		t.Fatal("the wait goes on without the client")
	}
}
