package server

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
)

// GET /metrics is answered on the control socket, and requests are counted by pattern: a path of somebody's choice is none.
func TestMetricsAndRequests(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	var mu sync.Mutex
	var seen []string
	stop := serve(t, home, &fakeHost{}, Options{
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("a_metric 1\n")) }),
		Observe: func(route string, status int) {
			mu.Lock()
			defer mu.Unlock()
			seen = append(seen, fmt.Sprintf("%s %d", route, status))
		}})
	if status, body := raw(t, home, "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"); status != 200 || !strings.Contains(body, "a_metric 1") {
		t.Errorf("%d %s", status, body)
	}
	if status, _ := raw(t, home, "GET /secret/path HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"); status != 404 {
		t.Errorf("%d", status)
	}
	if _, err := client(t, home).History(t.Context(), "cli:local", 0, 1); err != nil {
		t.Error(err)
	}
	stop()
	mu.Lock()
	defer mu.Unlock()
	slices.Sort(seen)
	if got := strings.Join(seen, "|"); got != "/ 404|GET /metrics 200|GET /v1/chat/{conversation}/history 200" {
		t.Error(got)
	}
}
