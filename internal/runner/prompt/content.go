package prompt

import (
	"bytes"
	"encoding/json"
	"strings"
)

// object is the content of a row, field by field: one field of a wrong type costs only that field.
type object map[string]json.RawMessage

func decode(raw []byte) (object, bool) {
	var o object
	if err := json.Unmarshal(raw, &o); err != nil || o == nil {
		return nil, false
	}
	return o, true
}

// text is a field as text: a string as it is, another scalar or a list as its JSON, nothing for null and absent ones.
func (o object) text(key string) string { return scalar(o[key]) }

// plain is a field that must be a string or a number to count.
func (o object) plain(key string) string {
	raw := o[key]
	if len(raw) == 0 || (raw[0] != '"' && raw[0] != '-' && (raw[0] < '0' || raw[0] > '9')) {
		return ""
	}
	return scalar(raw)
}

func (o object) object(key string) object {
	sub, _ := decode(o[key])
	return sub
}

// list is a field as a list; another type is empty.
func (o object) list(key string) []json.RawMessage {
	var l []json.RawMessage
	if raw := o[key]; len(raw) == 0 || json.Unmarshal(raw, &l) != nil {
		return nil
	}
	return l
}

// first is the first of the fields that is not empty.
func (o object) first(keys ...string) string {
	for _, key := range keys {
		if v := o.plain(key); strings.TrimSpace(v) != "" {
			return v
		}
	}
	return ""
}

// fallback is the text of content that is no object: of a JSON string its value, of anything else what is there.
func fallback(raw []byte) string { return scalar(bytes.TrimSpace(raw)) }

func scalar(raw json.RawMessage) string {
	if len(raw) == 0 || isNull(raw) {
		return ""
	}
	var s string
	if raw[0] == '"' && json.Unmarshal(raw, &s) == nil {
		return s
	}
	return string(raw)
}

func isNull(raw json.RawMessage) bool { return string(raw) == "null" }

// pretty is JSON with two spaces of indentation, or the bytes themselves if they are no JSON.
func pretty(raw json.RawMessage) string {
	if len(raw) == 0 {
		return "null"
	}
	var b bytes.Buffer
	if err := json.Indent(&b, raw, "", "  "); err != nil {
		return string(raw)
	}
	return b.String()
}
