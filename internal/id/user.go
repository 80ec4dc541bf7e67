package id

import (
	"errors"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxUser is the longest user id, in bytes.
const maxUser = 512

// ErrUser: a text is not a user id.
var ErrUser = errors.New("a user id is <channel type>:<handle>, with a colon in the handle written %3A and a percent sign %25")

// NewUser makes the id of a handle of a channel type. Every handle has one id: a colon in it is escaped, so that no handle can
// pose as one of another channel (spec/host.md W42).
func NewUser(channelType, handle string) User {
	return User(channelType + ":" + strings.NewReplacer("%", "%25", ":", "%3A").Replace(handle))
}

// ParseUser checks a user id that came from outside and returns its two parts, the handle as the platform writes it. The error
// matches ErrUser.
func ParseUser(s string) (channelType, handle string, err error) {
	channelType, escaped, ok := strings.Cut(s, ":")
	if !ok || !Safe(channelType) || escaped == "" || len(s) > maxUser || !utf8.ValidString(s) || strings.Contains(escaped, ":") ||
		strings.ContainsFunc(escaped, func(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) }) {
		return "", "", ErrUser
	}
	handle = strings.NewReplacer("%3A", ":", "%25", "%").Replace(escaped)
	if string(NewUser(channelType, handle)) != s {
		return "", "", ErrUser
	}
	return channelType, handle, nil
}
