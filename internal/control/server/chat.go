package server

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"nanoclaw/internal/control"
	"nanoclaw/internal/id"
)

const defaultHistory = 100

// conversation is the checked platform id of the path.
func (s *Server) conversation(r *http.Request) (string, error) {
	if s.opt.Chat == nil {
		return "", &control.Error{Code: control.CodeUnavailable, Message: "the terminal channel is not running"}
	}
	return control.ConversationID(r.PathValue("conversation"))
}

func (s *Server) say(r *http.Request) (any, error) {
	conv, err := s.conversation(r)
	if err != nil {
		return nil, err
	}
	var in control.Say
	if err := decode(r, &in); err != nil {
		return nil, err
	}
	switch {
	case !id.Safe(in.ID):
		return nil, control.Invalid("id", "must be 1 to 128 of A-Z a-z 0-9 . _ - and start with no dot")
	case strings.TrimSpace(in.Text) == "":
		return nil, control.Invalid("text", "is empty")
	case len(in.Text) > control.MaxText:
		return nil, &control.Error{Code: control.CodeTooLarge, Field: "text", Message: fmt.Sprintf("is larger than %d bytes", control.MaxText)}
	}
	return s.opt.Chat.Say(r.Context(), conv, in)
}

func (s *Server) answerQuestion(r *http.Request) (any, error) {
	conv, err := s.conversation(r)
	if err != nil {
		return nil, err
	}
	var in control.Answer
	if err := decode(r, &in); err != nil {
		return nil, err
	}
	switch {
	case !id.Safe(in.Question):
		return nil, control.Invalid("question", "is not the id of a question")
	case in.Value == "":
		return nil, control.Invalid("value", "is empty")
	}
	return s.opt.Chat.Answer(r.Context(), conv, in)
}

// filePiece is how much of a file goes out under one deadline.
const filePiece = 1 << 20

// file streams the bytes of a file. A client that stops reading is dropped.
func (s *Server) file(w http.ResponseWriter, r *http.Request) {
	conv, err := s.conversation(r)
	if err != nil {
		s.fail(w, err)
		return
	}
	f, size, err := s.opt.Chat.File(r.Context(), conv, r.PathValue("message"), r.PathValue("name"))
	if err != nil {
		s.fail(w, err)
		return
	}
	defer func() { _ = f.Close() }()
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.FormatInt(size, 10))
	w.Header().Set("X-Content-Type-Options", "nosniff")
	rc := http.NewResponseController(w)
	for err == nil && r.Context().Err() == nil {
		if err = rc.SetWriteDeadline(time.Now().Add(writeTime)); err == nil {
			_, err = io.CopyN(w, f, filePiece)
		}
	}
}

func (s *Server) ack(r *http.Request) (any, error) {
	conv, err := s.conversation(r)
	if err != nil {
		return nil, err
	}
	var in control.Ack
	if err := decode(r, &in); err != nil {
		return nil, err
	}
	if in.Seq < 0 {
		return nil, control.Invalid("seq", "must not be negative")
	}
	return control.Empty{}, s.opt.Chat.Ack(r.Context(), conv, in.Seq)
}

func (s *Server) history(r *http.Request) (any, error) {
	conv, err := s.conversation(r)
	if err != nil {
		return nil, err
	}
	before, err := position(r, "before", 0, math.MaxInt64)
	if err != nil {
		return nil, err
	}
	limit, err := position(r, "limit", defaultHistory, control.MaxHistory)
	if err != nil {
		return nil, err
	}
	return s.opt.Chat.History(r.Context(), conv, before, int(limit))
}

// events streams one JSON object per line. The head of the answer goes out with the first event, so that an error before
// it is still a proper error answer.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	conv, err := s.conversation(r)
	if err != nil {
		s.fail(w, err)
		return
	}
	after, err := position(r, "after", control.FromCursor, math.MaxInt64)
	if err != nil {
		s.fail(w, err)
		return
	}
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Time{}) // the request is read; the stream lasts until the client leaves
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	go func() {
		select {
		case <-s.closed:
			cancel()
		case <-ctx.Done():
		}
	}()
	begun := false
	var b bytes.Buffer
	err = s.opt.Chat.Events(ctx, conv, after, func(events []control.Event) error {
		if !begun {
			begun = true
			w.Header().Set("Content-Type", "application/x-ndjson")
			w.Header().Set("Cache-Control", "no-store")
			w.WriteHeader(http.StatusOK)
		}
		b.Reset()
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		for _, e := range events {
			if err := enc.Encode(e); err != nil {
				return fmt.Errorf("encode an event: %w", err)
			}
		}
		if err := rc.SetWriteDeadline(time.Now().Add(writeTime)); err != nil {
			return err
		}
		if _, err := w.Write(b.Bytes()); err != nil {
			return err
		}
		return rc.Flush()
	})
	if !begun && err != nil {
		s.fail(w, err)
	}
}
