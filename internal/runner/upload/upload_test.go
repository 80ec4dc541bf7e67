package upload

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// account is a scripted API: status by path, and what was committed.
func account(t *testing.T, status map[string]int, commit *string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		if n := status[r.URL.Path]; n != 0 {
			w.WriteHeader(n)
			return
		}
		switch r.URL.Path {
		case "/api/whoami-v2":
			_, _ = io.WriteString(w, `{"name":"ann"}`)
		case "/api/repos/create":
			if !strings.Contains(string(b), `"private":true`) {
				t.Errorf("the data set is not private: %s", b)
			}
		case "/api/datasets/ann/nanoclaw-traces/commit/main":
			*commit = string(b)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func TestTrace(t *testing.T) {
	t.Parallel()
	for _, exists := range []int{0, http.StatusConflict} {
		var commit string
		base := account(t, map[string]int{"/api/repos/create": exists}, &commit)
		link, err := Trace(t.Context(), base, "c 1.jsonl", strings.NewReader("line <1>\n"))
		if err != nil || link != "https://huggingface.co/datasets/ann/nanoclaw-traces/blob/main/sessions/c%201.jsonl" {
			t.Fatalf("%q, %v", link, err)
		}
		var last struct {
			Key   string
			Value struct{ Path, Encoding, Content string }
		}
		n := 0
		for s := bufio.NewScanner(strings.NewReader(commit)); s.Scan(); n++ {
			if err := json.Unmarshal(s.Bytes(), &last); err != nil {
				t.Fatal(err)
			}
		}
		content, err := base64.StdEncoding.DecodeString(last.Value.Content)
		if n != 2 || last.Key != "file" || last.Value.Path != "sessions/c 1.jsonl" || err != nil || string(content) != "line <1>\n" {
			t.Fatalf("%d lines: %+v, %q", n, last, content)
		}
	}
}

func TestTraceRefused(t *testing.T) {
	t.Parallel()
	var commit string
	for path, status := range map[string]int{"/api/whoami-v2": 401, "/api/repos/create": 403, "/api/datasets/ann/nanoclaw-traces/commit/main": 500} {
		_, err := Trace(t.Context(), account(t, map[string]int{path: status}, &commit), "c.jsonl", strings.NewReader("x"))
		if err == nil || errors.Is(err, ErrNoToken) != (status < 500) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, err := Trace(t.Context(), "http://127.0.0.1:1", "c", io.LimitReader(zeros{}, MaxBytes+1)); err == nil || !strings.Contains(err.Error(), "larger") {
		t.Errorf("too large: %v", err)
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }
