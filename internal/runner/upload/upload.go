// Package upload hands the transcript of a conversation to a private data set of the operator's account at Hugging Face
// (spec/runner.md section 3.6). The host adds the account's token to each request; nothing here sees it.
package upload

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"nanoclaw/internal/mailbox"
)

// Numbers of an upload.
const (
	// MaxBytes is the largest transcript that is uploaded.
	MaxBytes = 40 << 20
	patience = 2 * time.Minute
	dataset  = "nanoclaw-traces"
	site     = "https://huggingface.co"
)

// ErrNoToken: the host has no token for the account, or the account does not take it.
var ErrNoToken = errors.New("the account's token is missing or not accepted")

// Trace uploads r, at most MaxBytes, as sessions/<name> and returns the page where it can be seen. base is the API behind the
// host's reverse proxy. The data set is made if it is not there.
func Trace(ctx context.Context, base, name string, r io.Reader) (link string, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	content, err := io.ReadAll(io.LimitReader(r, MaxBytes+1))
	if err != nil {
		return "", fmt.Errorf("read transcript: %w", err)
	}
	if len(content) > MaxBytes {
		return "", fmt.Errorf("the transcript is larger than %d bytes", MaxBytes)
	}
	c := client{base}
	var account struct {
		Name string `json:"name"`
	}
	if err := c.call(ctx, http.MethodGet, "/api/whoami-v2", "", nil, &account); err != nil {
		return "", fmt.Errorf("ask whose account it is: %w", err)
	}
	if account.Name == "" {
		return "", errors.New("ask whose account it is: the answer names nobody")
	}
	create, err := mailbox.EncodeContent(struct {
		Name    string `json:"name"`
		Type    string `json:"type"`
		Private bool   `json:"private"`
	}{dataset, "dataset", true})
	if err != nil {
		return "", err
	}
	var refused *statusError
	if err := c.call(ctx, http.MethodPost, "/api/repos/create", "application/json", create, nil); err != nil && (!errors.As(err, &refused) || refused.status != http.StatusConflict) {
		return "", fmt.Errorf("make the data set: %w", err)
	}
	commit, err := lines(name, content)
	if err != nil {
		return "", err
	}
	repo := url.PathEscape(account.Name) + "/" + dataset
	if err := c.call(ctx, http.MethodPost, "/api/datasets/"+repo+"/commit/main", "application/x-ndjson", commit, nil); err != nil {
		return "", fmt.Errorf("upload: %w", err)
	}
	return site + "/datasets/" + repo + "/blob/main/sessions/" + url.PathEscape(name), nil
}

// lines is a commit of one file, as the API takes it.
func lines(name string, content []byte) ([]byte, error) {
	type value struct {
		Summary  string `json:"summary,omitempty"`
		Path     string `json:"path,omitempty"`
		Encoding string `json:"encoding,omitempty"`
		Content  string `json:"content,omitempty"`
	}
	type line struct {
		Key   string `json:"key"`
		Value value  `json:"value"`
	}
	var out []byte
	for _, l := range []line{
		{"header", value{Summary: "Transcript " + name}},
		{"file", value{Path: "sessions/" + name, Encoding: "base64", Content: base64.StdEncoding.EncodeToString(content)}},
	} {
		b, err := mailbox.EncodeContent(l)
		if err != nil {
			return nil, err
		}
		out = append(append(out, b...), '\n')
	}
	return out, nil
}

type client struct{ base string }

// statusError is an answer that is not 2xx.
type statusError struct{ status int }

func (e *statusError) Error() string { return fmt.Sprintf("status %d", e.status) }

// Is makes a refused token match ErrNoToken.
func (e *statusError) Is(target error) bool {
	return target == ErrNoToken && (e.status == http.StatusUnauthorized || e.status == http.StatusForbidden)
}

func (c client) call(ctx context.Context, method, path, kind string, body []byte, into any) error {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	if kind != "" {
		req.Header.Set("Content-Type", kind)
	}
	res, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	switch {
	case err != nil:
		return err
	case res.StatusCode/100 != 2:
		return &statusError{res.StatusCode}
	case into == nil:
		return nil
	}
	return json.Unmarshal(answer, into)
}
