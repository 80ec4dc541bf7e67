package tool

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// shape is a JSON Schema, as far as the tools need it: what is advertised and what is enforced are the same value. It takes
// the JSON type in kind; none takes every value.
type shape struct {
	kind        string // object, array, string, integer
	about       string
	fields      []field // of an object; others are refused unless open
	open        bool    // an object may have fields that are not named
	each        *shape  // value of such a field
	items       *shape  // of an array; nil takes any
	least, most int     // items of an array; most 0 is no limit
	pattern     string  // a string must match it
	oneOf       []string
	any         []shape // the value has one of these shapes; with it nothing else is set but about
}

// field of an object.
type field struct {
	name     string
	required bool
	shape
}

func need(name string, s shape) field { return field{name: name, required: true, shape: s} }
func may(name string, s shape) field  { return field{name: name, shape: s} }

func text(about string) shape { return shape{kind: "string", about: about} }

func list(about string, items shape, least, most int) shape {
	return shape{kind: "array", about: about, items: &items, least: least, most: most}
}

func object(fields ...field) shape { return shape{kind: "object", fields: fields} }

// dictionary is an object from free names to texts.
func dictionary(about string) shape {
	return shape{kind: "object", about: about, open: true, each: &shape{kind: "string"}}
}

func (s shape) saying(about string) shape {
	s.about = about
	return s
}

// MarshalJSON renders the shape as JSON Schema, fields in the order of their declaration.
func (s shape) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	var err error
	add := func(key string, v any) {
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		e, bad := json.Marshal(v)
		err = errors.Join(err, bad)
		fmt.Fprintf(&b, "%q:%s", key, e)
	}
	if s.kind != "" {
		add("type", s.kind)
	}
	if s.about != "" {
		add("description", s.about)
	}
	if s.kind == "object" {
		if !s.open {
			add("properties", properties(s.fields))
			if required := s.required(); len(required) > 0 {
				add("required", required)
			}
			add("additionalProperties", false)
		} else if s.each != nil {
			add("additionalProperties", s.each)
		}
	}
	if s.items != nil {
		add("items", s.items)
	}
	if s.least > 0 {
		add("minItems", s.least)
	}
	if s.most > 0 {
		add("maxItems", s.most)
	}
	if s.pattern != "" {
		add("pattern", s.pattern)
	}
	if len(s.oneOf) > 0 {
		add("enum", s.oneOf)
	}
	if len(s.any) > 0 {
		add("anyOf", s.any)
	}
	return slices.Concat([]byte{'{'}, b.Bytes(), []byte{'}'}), err
}

type properties []field

func (p properties) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	for i, f := range p {
		if i > 0 {
			b.WriteByte(',')
		}
		v, err := json.Marshal(f.shape)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&b, "%q:%s", f.name, v)
	}
	return slices.Concat([]byte{'{'}, b.Bytes(), []byte{'}'}), nil
}

func (s shape) required() (names []string) {
	for _, f := range s.fields {
		if f.required {
			names = append(names, f.name)
		}
	}
	return names
}

func (s shape) names() string {
	var all []string
	for _, f := range s.fields {
		all = append(all, f.name)
	}
	if len(all) == 0 {
		return "none"
	}
	return strings.Join(all, ", ")
}

// decode checks arguments against the shape and reads them into into, a pointer to a struct. Absent arguments are those of a
// call without any.
func (s shape) decode(args json.RawMessage, into any) error {
	if t := bytes.TrimSpace(args); len(t) == 0 || string(t) == "null" {
		args = json.RawMessage("{}")
	}
	d := json.NewDecoder(bytes.NewReader(args))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return fmt.Errorf("the arguments are not JSON: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("the arguments are not JSON: something follows the object")
	}
	if err := s.check("", v); err != nil {
		return err
	}
	if err := json.Unmarshal(args, into); err != nil {
		return fmt.Errorf("the arguments cannot be used: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	return nil
}

func called(path string) string {
	if path == "" {
		return "the arguments"
	}
	return "`" + path + "`"
}

func (s shape) check(path string, v any) error {
	if len(s.any) > 0 {
		for _, one := range s.any {
			if kindFits(one.kind, v) {
				return one.check(path, v)
			}
		}
		return fmt.Errorf("%s must be %s", called(path), s.wanted())
	}
	if !kindFits(s.kind, v) {
		return fmt.Errorf("%s must be %s", called(path), s.wanted())
	}
	switch v := v.(type) {
	case map[string]any:
		return s.checkObject(path, v)
	case []any:
		if len(v) < s.least || s.most > 0 && len(v) > s.most {
			return fmt.Errorf("%s has %d items; %d to %d are allowed", called(path), len(v), s.least, s.most)
		}
		for i, item := range v {
			if s.items == nil {
				break
			}
			if err := s.items.check(path+"["+strconv.Itoa(i)+"]", item); err != nil {
				return err
			}
		}
	case string:
		if len(s.oneOf) > 0 && !slices.Contains(s.oneOf, v) {
			return fmt.Errorf("%s must be one of: %s", called(path), strings.Join(s.oneOf, ", "))
		}
		if s.pattern != "" && !regexp.MustCompile(s.pattern).MatchString(v) {
			return fmt.Errorf("%s must match %s", called(path), s.pattern)
		}
	}
	return nil
}

func (s shape) checkObject(path string, v map[string]any) error {
	below := func(name string) string {
		if path == "" {
			return name
		}
		return path + "." + name
	}
	if s.open {
		for name, item := range v {
			if s.each == nil {
				break
			}
			if err := s.each.check(below(name), item); err != nil {
				return err
			}
		}
		return nil
	}
	if s.kind == "" {
		return nil
	}
	for _, f := range s.fields {
		item, ok := v[f.name]
		switch {
		case ok:
			if err := f.check(below(f.name), item); err != nil {
				return err
			}
		case f.required && f.about != "":
			return fmt.Errorf("%s is required: %s", called(below(f.name)), f.about)
		case f.required:
			return fmt.Errorf("%s is required", called(below(f.name)))
		}
	}
	for name := range v {
		if !slices.ContainsFunc(s.fields, func(f field) bool { return f.name == name }) {
			return fmt.Errorf("unknown field %q in %s; known: %s", shorten(name), called(path), s.names())
		}
	}
	return nil
}

func (s shape) wanted() string {
	kinds := []string{}
	for _, one := range append([]shape{s}, s.any...) {
		switch one.kind {
		case "":
		case "string":
			kinds = append(kinds, "a string")
		default:
			kinds = append(kinds, "an "+one.kind)
		}
	}
	return strings.Join(kinds, " or ")
}

// kindFits reports whether v has the JSON type kind. An integer is a number without a fraction, as in JSON Schema.
func kindFits(kind string, v any) bool {
	switch v := v.(type) {
	case map[string]any:
		return kind == "" || kind == "object"
	case []any:
		return kind == "" || kind == "array"
	case string:
		return kind == "" || kind == "string"
	case json.Number:
		f, err := v.Float64()
		return kind == "" || kind == "integer" && err == nil && f == math.Trunc(f)
	}
	return kind == ""
}

// shorten keeps what a model wrote from filling an error.
func shorten(s string) string {
	const most = 60
	if len(s) <= most {
		return s
	}
	cut := most
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}
