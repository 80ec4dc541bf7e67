// Package control is how the programs on this machine talk to a running host: HTTP and JSON over the Unix socket
// <home>/run/control.sock (mode 0600; the host accepts its own user and root only). It holds the wire types and the
// client; control/server holds the handlers. Whoever opens the socket is the operator.
//
//	GET  /v1/status                                  Status
//	POST /v1/stop?sandboxes=true                     Stopping
//	PUT  /v1/secrets/{name}                          Secret in, Empty out
//	POST /v1/bootstrap                               BootstrapRequest in, Bootstrap out
//	POST /v1/admin                                   AdminRequest in, Frame out
//	POST /v1/chat/{conversation}/messages            Say in, Accepted out
//	GET  /v1/chat/{conversation}/events?after=N      Event lines until the client leaves
//	POST /v1/chat/{conversation}/answers             Answer in, Answered out
//	GET  /v1/chat/{conversation}/files/{message}/{name}     the bytes of a file
//	POST /v1/chat/{conversation}/ack                 Ack in, Empty out
//	GET  /v1/chat/{conversation}/history?before=N&limit=M   History
//
// Every answer that is not 2xx carries {"error":{"code","message","hint","field"}}, an *Error on this side.
package control

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"time"
)

// The protocol both sides speak. A client names its version in HeaderProtocol; the host refuses another one and names
// both. A request without the header is served: for people who debug with any HTTP client.
const (
	Protocol       = 1
	HeaderProtocol = "Nanoclaw-Protocol"
	HeaderVersion  = "Nanoclaw-Version" // of the answering program, for people
)

// Limits of the wire.
const (
	MaxBody    = 1 << 20   // bytes of a request
	MaxText    = 256 << 10 // bytes of one chat message
	MaxHistory = 1000      // entries of one history answer
	MaxEntry   = 1 << 20   // bytes of the text of one event
	maxLine    = 8 << 20   // bytes of one event line or answer, as the client reads it: an event with every byte escaped fits
)

// SocketName is the socket's file name in SocketDir.
const SocketName = "control.sock"

// SocketDir is the folder of the socket in a home.
func SocketDir(home string) string { return filepath.Join(home, "run") }

// timeLayout is UTC RFC 3339 with milliseconds.
const timeLayout = "2006-01-02T15:04:05.000Z"

// Time is a moment on the wire: UTC RFC 3339 with milliseconds; the zero time is the empty string or absent.
type Time struct{ time.Time }

// At is t as it goes over the wire.
func At(t time.Time) Time { return Time{t} }

// MarshalJSON renders the time, or "" for the zero time.
func (t Time) MarshalJSON() ([]byte, error) {
	if t.IsZero() {
		return []byte(`""`), nil
	}
	return []byte(`"` + t.UTC().Format(timeLayout) + `"`), nil
}

// UnmarshalJSON reads RFC 3339 with any offset and fraction, "" and null.
func (t *Time) UnmarshalJSON(b []byte) error {
	if s := string(b); s == `""` || s == "null" {
		t.Time = time.Time{}
		return nil
	}
	v, err := time.Parse(`"`+time.RFC3339Nano+`"`, string(bytes.TrimSpace(b)))
	if err != nil {
		return fmt.Errorf("time %s is not RFC 3339, for example %s", strings.TrimSpace(string(b)), timeLayout)
	}
	t.Time = v.UTC()
	return nil
}
