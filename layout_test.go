// Package nanoclaw_test keeps the shape of the house: which layer may import which (docs/architecture.md), and how large a
// file may grow.
package nanoclaw_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "nanoclaw/"

type pkg struct {
	ImportPath string
	Imports    []string
	Deps       []string
}

func packages(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps=false", "-json=ImportPath,Imports,Deps", "./...")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []pkg
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

// under reports whether path is one of the folders or below one that ends in a slash.
func under(path string, folders ...string) bool {
	for _, f := range folders {
		if path == f || strings.HasSuffix(f, "/") && strings.HasPrefix(path, f) {
			return true
		}
	}
	return false
}

// The rows of the layer table. A package that no row names fails the test: say where it belongs.
var (
	base            = []string{"internal/id", "internal/obs", "internal/obs/metric", "internal/config", "internal/config/container", "internal/crashpoint", "internal/control", "internal/slash", "internal/socket"}
	contracts       = []string{"internal/mailbox", "internal/channel", "internal/sandbox", "internal/provider"}
	implementations = []string{"internal/mailbox/sqlite", "internal/channel/", "internal/sandbox/", "internal/provider/"}
	services        = []string{"internal/route", "internal/approval", "internal/delivery", "internal/session", "internal/sweep", "internal/egress", "internal/vault", "internal/control/server", "internal/operate", "internal/trace", "internal/instruction"}
	runnerSide      = []string{"internal/runner", "internal/runner/", "cmd/agent-runner"}
	tests           = []string{"internal/testkit/", "internal/mailbox/mailboxtest", "internal/channel/channeltest", "internal/sandbox/sandboxtest", "internal/provider/providertest", "e2e", "bench"}
	clients         = []string{"internal/chatui", "internal/admin", "cmd/ncl"}
	top             = []string{"internal/host", "internal/command", "cmd/nanoclaw", "container"}
)

func layer(path string) (name string, may []string) {
	switch {
	case under(path, tests...), strings.Contains(path, "/testdata/"), strings.HasSuffix(path, "test/probe"):
		return "tests", []string{""}
	case under(path, base...):
		return "base", base
	case under(path, contracts...):
		return "contracts", slices.Concat(base, contracts)
	case under(path, services...):
		return "services", slices.Concat(base, contracts, []string{"internal/store", "internal/vault"})
	case under(path, "internal/store"):
		return "store", slices.Concat(base, contracts)
	case under(path, implementations...):
		family := strings.Join(strings.Split(path, "/")[:2], "/")
		own := []string{path + "/"}
		if family == "internal/sandbox" {
			own = append(own, "internal/sandbox/limit", "internal/sandbox/local")
		}
		if family == "internal/provider" {
			own = append(own, "internal/provider/child", "internal/provider/memory", "internal/provider/picture")
		}
		if under(path, "internal/provider/native/") {
			own = append(own, "internal/provider/native/")
		}
		return "implementations", slices.Concat(base, []string{family}, own)
	case under(path, runnerSide...):
		return "runner", slices.Concat(base, contracts, []string{"internal/mailbox/sqlite", "internal/provider/", "internal/runner", "internal/runner/"})
	case under(path, clients...):
		return "client", slices.Concat(base, []string{"internal/admin"})
	case under(path, top...):
		return "top", []string{"internal/", "container"}
	}
	return "", nil
}

func TestLayers(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t) {
		path := strings.TrimPrefix(p.ImportPath, module)
		if path == "nanoclaw" {
			continue
		}
		name, may := layer(path)
		if name == "" {
			t.Errorf("%s stands in no row of the layer table", path)
			continue
		}
		for _, i := range p.Imports {
			inner, ours := strings.CutPrefix(i, module)
			if !ours || name == "tests" {
				continue
			}
			if !under(inner, may...) {
				t.Errorf("%s (%s) must not import %s", path, name, inner)
			}
			if under(inner, tests...) {
				t.Errorf("%s imports the test package %s", path, inner)
			}
			if inner == "internal/host" && path != "internal/command" {
				t.Errorf("%s imports the host; only internal/command may", path)
			}
		}
	}
}

// The runner is a few megabytes and never sees what belongs to the host.
func TestRunnerStaysSmall(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t) {
		if p.ImportPath != module+"cmd/agent-runner" {
			continue
		}
		for _, d := range p.Deps {
			if under(strings.TrimPrefix(d, module), "internal/store", "internal/vault", "internal/egress", "internal/host", "internal/control/server") ||
				strings.HasPrefix(d, module+"internal/channel") || strings.HasPrefix(d, "charm.land/") || strings.HasPrefix(d, "github.com/moby/") || strings.HasPrefix(d, "github.com/prometheus/") {
				t.Errorf("agent-runner contains %s", d)
			}
		}
	}
}

func TestFileSizes(t *testing.T) {
	t.Parallel()
	const most = 800
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (path == ".git" || path == ".cache" || path == "bin") {
			return filepath.SkipDir
		}
		if filepath.Ext(path) != ".go" {
			return nil
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		lines := 0
		for s := bufio.NewScanner(f); s.Scan(); {
			lines++
		}
		if lines > most {
			t.Errorf("%s has %d lines; a file over %d is two files", path, lines, most)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// The tests that docs/testing.md names exist.
func TestNamedTestsExist(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("docs/testing.md")
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile("`(Test[A-Za-z0-9_]+)`").FindAllStringSubmatch(string(doc), -1)
	if len(names) < 50 {
		t.Fatalf("docs/testing.md names %d tests", len(names))
	}
	var source strings.Builder
	err = filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		b, err := os.ReadFile(path)
		source.Write(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		if !strings.Contains(source.String(), "func "+n[1]+"(") {
			t.Errorf("docs/testing.md names %s, which does not exist", n[1])
		}
	}
}
