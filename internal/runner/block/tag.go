package block

// kind of a tag.
type kind uint8

const (
	noTag kind = iota
	openTag
	closeTag
	internalOpen
	internalClose
	internalEmpty // <internal/>
)

// state of the recogniser. Every state says what was read so far.
type state uint8

const (
	idle         state = iota
	less               // <
	slash              // </
	word               // a part of the rest in tag.want
	messageWord        // <message
	messageGap         // <message and white space
	inName             // <message to="…
	nameDone           // <message to="…" and white space
	internalWord       // <internal
	internalAttr       // <internal and more
	internalEnd        // <internal … /
)

// tag recognises one tag, byte by byte. Its text never contains '<' but at the start, so a byte that does not fit can
// be read again as plain text without looking back.
type tag struct {
	state  state
	want   string // rest of the word in state word, lower case
	seen   int    // bytes of want that were read
	fold   bool   // letters of want match in either case
	then   state  // state behind want; idle: the tag is complete
	kind   kind   // of the tag that is complete behind want
	raw    []byte
	name   int // offset of the name in raw
	nameTo int
}

func (t *tag) start() {
	t.state = less
	t.raw = append(t.raw[:0], '<')
}

func (t *tag) destination() string { return string(t.raw[t.name:t.nameTo]) }

// step reads c. ok is false if c does not fit: then c was not read. A kind other than noTag completes the tag.
func (t *tag) step(c byte) (done kind, ok bool) {
	if len(t.raw) >= maxTag {
		return noTag, false
	}
	switch t.state {
	case word:
		if w := t.want[t.seen]; c != w && (!t.fold || lower(c) != w) {
			return noTag, false
		}
		if t.seen++; t.seen == len(t.want) {
			done = t.kind
			t.state = t.then
			t.name = len(t.raw) + 1
		}
	case less:
		switch c {
		case 'm':
			t.expect("essage", false, messageWord, noTag)
		case 'i', 'I':
			t.expect("nternal", true, internalWord, noTag)
		case '/':
			t.state = slash
		default:
			return noTag, false
		}
	case slash:
		switch c {
		case 'm':
			t.expect("essage>", false, idle, closeTag)
		case 'i', 'I':
			t.expect("nternal>", true, idle, internalClose)
		default:
			return noTag, false
		}
	case messageWord:
		if !space(c) {
			return noTag, false
		}
		t.state = messageGap
	case messageGap:
		switch {
		case space(c):
		case c == 't':
			t.expect(`o="`, false, inName, noTag)
		default:
			return noTag, false
		}
	case inName:
		switch c {
		case '"':
			if t.nameTo = len(t.raw); t.nameTo == t.name {
				return noTag, false
			}
			t.state = nameDone
		case '<', '`', '\n':
			return noTag, false
		}
	case nameDone:
		switch {
		case space(c):
		case c == '>':
			done = openTag
		default:
			return noTag, false
		}
	case internalWord, internalAttr, internalEnd:
		switch {
		case c == '>' && t.state == internalEnd:
			done = internalEmpty
		case c == '>':
			done = internalOpen
		case c == '<' || c == '`' || c == '\n':
			return noTag, false
		case c == '/':
			t.state = internalEnd
		case space(c) || t.state != internalWord:
			t.state = internalAttr
		default: // <internals>, <internal-x>: another tag
			return noTag, false
		}
	default:
		return noTag, false
	}
	t.raw = append(t.raw, c)
	if done != noTag {
		t.state = idle
	}
	return done, true
}

func (t *tag) expect(want string, fold bool, then state, k kind) {
	t.state, t.want, t.seen, t.fold, t.then, t.kind = word, want, 0, fold, then, k
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}

func space(c byte) bool { return c == ' ' || '\t' <= c && c <= '\r' }
