package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"nanoclaw/internal/control"
	"nanoclaw/internal/id"
	"nanoclaw/internal/obs"
)

// answer is a handler that returns what to send, or an error.
type answer func(r *http.Request) (any, error)

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	plain := func(pattern string, do answer) { mux.Handle(pattern, s.plain(do)) }
	plain("GET /v1/status", s.status)
	plain("POST /v1/stop", s.stop)
	plain("PUT /v1/secrets/{name}", s.putSecret)
	plain("POST /v1/bootstrap", s.bootstrap)
	plain("POST /v1/admin", s.admin)
	plain("POST /v1/chat/{conversation}/messages", s.say)
	plain("POST /v1/chat/{conversation}/answers", s.answerQuestion)
	plain("POST /v1/chat/{conversation}/ack", s.ack)
	plain("GET /v1/chat/{conversation}/history", s.history)
	mux.HandleFunc("GET /v1/chat/{conversation}/events", s.events)
	mux.HandleFunc("GET /v1/chat/{conversation}/files/{message}/{name}", s.file)
	if s.opt.Metrics != nil {
		mux.Handle("GET /metrics", s.opt.Metrics)
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.fail(w, &control.Error{Code: control.CodeNotFound, Message: fmt.Sprintf("there is no %s %s", r.Method, r.URL.Path)})
	})
	return s.door(s.observed(mux))
}

// door checks who asks and in which protocol, and keeps a broken handler from ending the host.
func (s *Server) door(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		w.Header().Set(control.HeaderProtocol, strconv.Itoa(control.Protocol))
		w.Header().Set(control.HeaderVersion, s.opt.Version)
		defer func() {
			if p := recover(); p != nil {
				s.opt.Log.Error("control request panicked", obs.KeyMethod, r.Method, obs.KeyPath, r.URL.Path, obs.KeyReason, fmt.Sprint(p), obs.KeyStack, string(debug.Stack()))
				panic(http.ErrAbortHandler)
			}
			s.opt.Log.Debug("control request", obs.KeyMethod, r.Method, obs.KeyPath, r.URL.Path, obs.Elapsed(start))
		}()
		if allowed, _ := r.Context().Value(peerKey{}).(bool); !allowed {
			w.Header().Set("Connection", "close")
			s.fail(w, &control.Error{Code: control.CodeForbidden, Message: "this socket answers the host's own user and root only"})
			return
		}
		if v := r.Header.Get(control.HeaderProtocol); v != "" && v != strconv.Itoa(control.Protocol) {
			s.fail(w, &control.Error{Code: control.CodeVersion,
				Message: fmt.Sprintf("the client speaks protocol %.20q, the host %d (program version %s)", v, control.Protocol, s.opt.Version),
				Hint:    "use the programs of one version: nanoclaw stop, then start it again"})
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (s *Server) plain(do answer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, control.MaxBody)
		v, err := do(r)
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTime))
		if err != nil {
			s.fail(w, err)
			return
		}
		s.write(w, http.StatusOK, v)
	})
}

func (s *Server) write(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		s.opt.Log.Error("encode a control answer", obs.Error(err))
		status, b = http.StatusInternalServerError, []byte(`{"error":{"code":"failed","message":"the answer cannot be encoded"}}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(b, '\n'))
}

func (s *Server) fail(w http.ResponseWriter, err error) {
	e := asError(err)
	s.write(w, e.Code.Status(), control.Envelope(e))
}

func asError(err error) *control.Error {
	var e *control.Error
	switch {
	case errors.As(err, &e):
		return e
	case errors.Is(err, context.DeadlineExceeded):
		return &control.Error{Code: control.CodeTimeout, Message: err.Error()}
	case errors.Is(err, context.Canceled):
		return &control.Error{Code: control.CodeUnavailable, Message: "the host is stopping"}
	}
	return &control.Error{Code: control.CodeFailed, Message: err.Error()}
}

// decode reads exactly one JSON object of known fields into v.
func decode(r *http.Request, v any) error {
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	err := d.Decode(v)
	if err == nil {
		if _, err = d.Token(); err == io.EOF {
			return nil
		}
		if err == nil {
			return control.Invalid("body", "has something behind the JSON object")
		}
	}
	var large *http.MaxBytesError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &large):
		return &control.Error{Code: control.CodeTooLarge, Field: "body", Message: fmt.Sprintf("is larger than %d bytes", large.Limit)}
	case errors.As(err, &kind) && kind.Field != "":
		return control.Invalid(kind.Field, "must be a "+kind.Type.String()+", not a "+kind.Value)
	case errors.Is(err, io.EOF):
		return control.Invalid("body", "is empty; it must be a JSON object")
	}
	if field, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		return control.Invalid(strings.Trim(field, `"`), "is not a field of this request")
	}
	return control.Invalid("body", "is not a JSON object: "+strings.TrimPrefix(err.Error(), "json: "))
}

func (s *Server) status(r *http.Request) (any, error) { return s.opt.Backend.Status(r.Context()) }

func (s *Server) stop(r *http.Request) (any, error) {
	sandboxes, err := flag(r, "sandboxes")
	if err != nil {
		return nil, err
	}
	st, err := s.opt.Backend.Status(r.Context())
	if err != nil {
		return nil, err
	}
	if err := s.opt.Backend.Stop(r.Context(), sandboxes); err != nil {
		return nil, err
	}
	return control.Stopping{PID: st.PID, Sandboxes: sandboxes}, nil
}

func (s *Server) putSecret(r *http.Request) (any, error) {
	var in control.Secret
	if err := decode(r, &in); err != nil {
		return nil, err
	}
	name := r.PathValue("name")
	switch {
	case !id.Safe(name):
		return nil, control.Invalid("name", "must be 1 to 128 of A-Z a-z 0-9 . _ - and start with no dot")
	case in.Name != "" && in.Name != name:
		return nil, control.Invalid("name", "differs from the one in the path")
	case in.Kind != control.SecretAPIKey && in.Kind != control.SecretOAuthToken:
		return nil, control.Invalid("kind", "must be "+control.SecretAPIKey+" or "+control.SecretOAuthToken)
	case in.Value == "":
		return nil, control.Invalid("value", "is empty")
	case len(in.Value) > 16<<10:
		return nil, control.Invalid("value", "is larger than 16384 bytes")
	case strings.ContainsFunc(in.Value, func(c rune) bool { return c <= ' ' || c >= 0x7f }):
		return nil, control.Invalid("value", "must be printable ASCII without spaces")
	}
	in.Name = name
	return control.Empty{}, s.opt.Backend.PutSecret(r.Context(), in)
}

func (s *Server) bootstrap(r *http.Request) (any, error) {
	var in control.BootstrapRequest
	if err := decode(r, &in); err != nil {
		return nil, err
	}
	var err error
	if in.Conversation, err = control.ConversationID(in.Conversation); err != nil {
		return nil, err
	}
	return s.opt.Backend.Bootstrap(r.Context(), in)
}

func (s *Server) admin(r *http.Request) (any, error) {
	var in control.AdminRequest
	if err := decode(r, &in); err != nil {
		return nil, err
	}
	if err := in.Check(); err != nil {
		return nil, err
	}
	return s.opt.Backend.Admin(r.Context(), in)
}

// flag is a boolean of the query; absent is false.
func flag(r *http.Request, name string) (bool, error) {
	v := r.URL.Query().Get(name)
	if v == "" {
		return false, nil
	}
	b, err := strconv.ParseBool(v)
	if err != nil {
		return false, control.Invalid(name, "must be true or false")
	}
	return b, nil
}

// position is a number of the query from 0 to most; absent is missing.
func position(r *http.Request, name string, missing, most int64) (int64, error) {
	v := r.URL.Query().Get(name)
	if v == "" {
		return missing, nil
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil || n < 0 || n > most {
		return 0, control.Invalid(name, fmt.Sprintf("must be a whole number from 0 to %d", most))
	}
	return n, nil
}
