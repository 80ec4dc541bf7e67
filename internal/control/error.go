package control

import (
	"errors"
	"net/http"
)

// Code says what kind of failure an Error is. Codes are part of the wire.
type Code string

// The codes, their exit status (spec/operator.md 20.3) and their HTTP status.
const (
	CodeInvalid     Code = "invalid"     // an argument is wrong; Field names it; exit 2
	CodeNotFound    Code = "not-found"   // exit 4
	CodeForbidden   Code = "forbidden"   // another user, or the host's rules say no; exit 5
	CodeUnreachable Code = "unreachable" // no host answers, or the connection broke; made by the client; exit 6
	CodeUnavailable Code = "unavailable" // the host is starting or stopping: try again; exit 6
	CodeTimeout     Code = "timeout"     // exit 7
	CodeConflict    Code = "conflict"    // exists, in use, changed meanwhile; exit 8
	CodeVersion     Code = "version"     // the two programs speak different protocols; exit 8
	CodeTooLarge    Code = "too-large"   // exit 2
	CodeCancelled   Code = "cancelled"   // exit 10
	CodeFailed      Code = "failed"      // anything else; exit 1
)

// Exit is the exit status of the table in spec/operator.md 20.3.
func (c Code) Exit() int {
	switch c {
	case CodeInvalid, CodeTooLarge:
		return 2
	case CodeNotFound:
		return 4
	case CodeForbidden:
		return 5
	case CodeUnreachable, CodeUnavailable:
		return 6
	case CodeTimeout:
		return 7
	case CodeConflict, CodeVersion:
		return 8
	case CodeCancelled:
		return 10
	}
	return 1
}

// Status is the HTTP status that carries the code.
func (c Code) Status() int {
	switch c {
	case CodeInvalid, CodeVersion:
		return http.StatusBadRequest
	case CodeTooLarge:
		return http.StatusRequestEntityTooLarge
	case CodeNotFound:
		return http.StatusNotFound
	case CodeForbidden:
		return http.StatusForbidden
	case CodeUnavailable, CodeUnreachable, CodeCancelled:
		return http.StatusServiceUnavailable
	case CodeTimeout:
		return http.StatusGatewayTimeout
	case CodeConflict:
		return http.StatusConflict
	}
	return http.StatusInternalServerError
}

// Error is a failure as both sides see it: what happened, what to do, and which input it is about.
type Error struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
	Field   string `json:"field,omitempty"` // of an invalid argument
	Err     error  `json:"-"`               // cause on this side of the wire, if any
}

func (e *Error) Error() string {
	s := e.Message
	if e.Field != "" {
		s = e.Field + ": " + s
	}
	if e.Hint != "" {
		s += " (" + e.Hint + ")"
	}
	return s
}

func (e *Error) Unwrap() error { return e.Err }

// Exit is the exit status of a program that ends with this error.
func (e *Error) Exit() int { return e.Code.Exit() }

// Invalid is the error of a wrong argument.
func Invalid(field, message string) *Error {
	return &Error{Code: CodeInvalid, Field: field, Message: message}
}

// IsCode reports whether err is an *Error with one of the codes.
func IsCode(err error, codes ...Code) bool {
	var e *Error
	if !errors.As(err, &e) {
		return false
	}
	for _, c := range codes {
		if e.Code == c {
			return true
		}
	}
	return false
}

// Temporary reports whether the same request may work in a moment: no host answers, or it is starting or stopping. Every
// request of this package may be repeated: messages carry their own id.
func Temporary(err error) bool { return IsCode(err, CodeUnreachable, CodeUnavailable) }

// failure is the envelope of an error answer.
type failure struct {
	Error *Error `json:"error"`
}

// Envelope is the JSON body of an error answer, also what programs print with --json.
func Envelope(e *Error) any { return failure{e} }
