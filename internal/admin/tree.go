package admin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// kind of a JSON value.
type kind int

const (
	null kind = iota
	boolean
	number
	text
	array
	object
)

// tree is a JSON value whose objects keep the order of their keys.
type tree struct {
	kind  kind
	text  string // of a text; of other scalars as they are written
	keys  []string
	items []tree
	raw   json.RawMessage // as it was written
}

// scalar reports whether the value holds no others.
func (t tree) scalar() bool { return t.kind != array && t.kind != object }

var errTwice = errors.New("a key is there twice")

// readTree reads exactly one JSON value.
func readTree(b []byte) (tree, error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	t, err := read(d, b)
	if err != nil {
		return tree{}, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return tree{}, errors.New("something stands behind it")
	}
	return t, nil
}

func read(d *json.Decoder, b []byte) (t tree, err error) {
	tok, err := d.Token()
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return t, err
	}
	end := d.InputOffset()
	switch v := tok.(type) {
	case nil:
		return tree{kind: null, text: "null", raw: json.RawMessage("null")}, nil
	case bool:
		s := fmt.Sprint(v)
		return tree{kind: boolean, text: s, raw: json.RawMessage(s)}, nil
	case json.Number:
		return tree{kind: number, text: v.String(), raw: json.RawMessage(v.String())}, nil
	case string:
		raw, err := json.Marshal(v)
		return tree{kind: text, text: v, raw: raw}, err
	case json.Delim:
		t.kind = array
		if v == '{' {
			t.kind = object
		}
	}
	begin := end - 1
	seen := map[string]bool{}
	for d.More() {
		if t.kind == object {
			key, err := d.Token()
			if err != nil {
				return t, err
			}
			name, _ := key.(string)
			if seen[name] {
				return t, fmt.Errorf("%w: %q", errTwice, name)
			}
			seen[name] = true
			t.keys = append(t.keys, name)
		}
		item, err := read(d, b)
		if err != nil {
			return t, err
		}
		t.items = append(t.items, item)
	}
	if _, err := d.Token(); err != nil {
		return t, err
	}
	t.raw = b[begin:d.InputOffset()]
	return t, nil
}
