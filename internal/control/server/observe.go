package server

import "net/http"

// observed tells the pattern and the status of each request.
func (s *Server) observed(next http.Handler) http.Handler {
	if s.opt.Observe == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen := &status{ResponseWriter: w}
		defer func() { s.opt.Observe(r.Pattern, seen.code) }()
		next.ServeHTTP(seen, r)
	})
}

// status remembers what an answer began with.
type status struct {
	http.ResponseWriter
	code int
}

func (s *status) WriteHeader(code int) {
	s.code = code
	s.ResponseWriter.WriteHeader(code)
}

func (s *status) Write(b []byte) (int, error) {
	if s.code == 0 {
		s.code = http.StatusOK
	}
	return s.ResponseWriter.Write(b)
}

// Unwrap is for http.ResponseController: streams flush and set deadlines.
func (s *status) Unwrap() http.ResponseWriter { return s.ResponseWriter }
