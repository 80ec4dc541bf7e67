package obs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	loggers  = regexp.MustCompile(`(?i)log$|^level$`)
	attrs    = map[string]bool{"String": true, "Int": true, "Int64": true, "Uint64": true, "Float64": true, "Bool": true, "Time": true, "Duration": true, "Any": true, "Group": true}
	logWords = map[string]int{"Debug": 1, "Info": 1, "Warn": 1, "Error": 1, "With": 0, "DebugContext": 2, "InfoContext": 2, "WarnContext": 2, "ErrorContext": 2}
)

// literalKeys are the places in a file where a log attribute's key is a literal.
func literalKeys(file *ast.File) (at []ast.Expr) {
	literal := func(e ast.Expr) bool {
		l, ok := e.(*ast.BasicLit)
		return ok && l.Kind == token.STRING
	}
	ast.Inspect(file, func(n ast.Node) bool {
		c, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		first, name, receiver := -1, "", ""
		switch f := c.Fun.(type) {
		case *ast.Ident: // a method value
			name, first = f.Name, 1
			if !loggers.MatchString(name) {
				return true
			}
		case *ast.SelectorExpr:
			name = f.Sel.Name
			switch x := f.X.(type) {
			case *ast.Ident:
				receiver = x.Name
			case *ast.SelectorExpr:
				receiver = x.Sel.Name
			}
			if receiver == "slog" && attrs[name] {
				if len(c.Args) > 0 && literal(c.Args[0]) {
					at = append(at, c.Args[0])
				}
				return true
			}
			n, ok := logWords[name]
			if !ok || !loggers.MatchString(receiver) {
				return true
			}
			first = n
		default:
			return true
		}
		for i := first; i < len(c.Args); i += 2 {
			if _, ok := c.Args[i].(*ast.CallExpr); ok { // an attribute by itself
				i--
				continue
			}
			if literal(c.Args[i]) {
				at = append(at, c.Args[i])
			}
		}
		return true
	})
	return at
}

// Keys of log attributes are constants of this package, the same everywhere.
func TestKeysAreConstants(t *testing.T) {
	t.Parallel()
	set := token.NewFileSet()
	found := 0
	for _, root := range []string{"../../internal", "../../cmd"} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(set, path, nil, 0)
			if err != nil {
				return err
			}
			found++
			for _, e := range literalKeys(file) {
				t.Errorf("%s: the key %s of a log attribute must be a constant of internal/obs", set.Position(e.Pos()), e.(*ast.BasicLit).Value)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if found < 100 {
		t.Errorf("only %d files were looked at", found)
	}
}

func TestLiteralKeysAreFound(t *testing.T) {
	t.Parallel()
	const source = `package x
func f() {
	log.Info("text", "one", 1, obs.KeyPath, "value", "two", "value")
	s.log.Warn("text", obs.Error(err), "three", 3)
	s.opt.Log.With("four", 4).Debug("text")
	level("text", "five", 5)
	log.Error("text", slog.String("six", "x"), slog.Int(obs.KeyCount, 2))
	log.ErrorContext(ctx, "text", "seven", 7)
	http.Error(w, "text", "no key")
}`
	file, err := parser.ParseFile(token.NewFileSet(), "x.go", source, 0)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range literalKeys(file) {
		got = append(got, strings.Trim(e.(*ast.BasicLit).Value, `"`))
	}
	if want := "one two three four five six seven"; strings.Join(got, " ") != want {
		t.Errorf("found %q, want %s", got, want)
	}
}
