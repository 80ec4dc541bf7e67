package tool

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// shortNames of common emojis, one line each: the character, then its names.
const shortNames = `👍 thumbs_up thumbsup +1 like yes
👎 thumbs_down thumbsdown -1 dislike no
👏 clap clapping
🙏 pray folded_hands thanks
👌 ok_hand ok
✌️ v victory
🤝 handshake
👋 wave
💪 muscle flexed_biceps
🤞 crossed_fingers fingers_crossed
🫡 saluting_face salute
🙌 raised_hands
👀 eyes
🧠 brain
❤️ heart red_heart
🧡 orange_heart
💛 yellow_heart
💚 green_heart
💙 blue_heart
💜 purple_heart
🖤 black_heart
💔 broken_heart
😀 grinning grinning_face
😃 smiley
😄 smile
😁 grin
😂 joy
🤣 rofl
😅 sweat_smile
😉 wink
😊 blush
😍 heart_eyes
😘 kissing_heart
😎 sunglasses
🤔 thinking thinking_face
🤷 shrug
🤦 facepalm
😐 neutral_face
🙄 roll_eyes rolling_eyes
😬 grimacing
😴 sleeping
😢 cry
😭 sob
😡 rage angry
😱 scream
😮 open_mouth wow
😕 confused
🙁 slightly_frowning_face sad
🙂 slightly_smiling_face
🙃 upside_down_face
🤯 exploding_head mind_blown
🥳 partying_face
🤖 robot robot_face
👻 ghost
💀 skull
💩 poop
🎉 tada party_popper party
🎊 confetti_ball
🎂 birthday
🎁 gift
🏆 trophy
🥇 first_place
🔥 fire
✨ sparkles
⭐ star
🌟 star2
💯 100
💥 boom
💡 bulb idea
⚡ zap
🚀 rocket
🎯 dart
✅ white_check_mark check_mark_button check done
✔️ heavy_check_mark check_mark
❌ x cross_mark
❎ negative_squared_cross_mark
⚠️ warning
🚨 rotating_light
🛑 stop_sign octagonal_sign
⛔ no_entry
❓ question
❗ exclamation heavy_exclamation_mark
⏳ hourglass_flowing_sand
⌛ hourglass
⏰ alarm_clock
🕐 clock1
📅 date calendar
📌 pushpin
📎 paperclip
📝 memo
📦 package
📈 chart_with_upwards_trend
📉 chart_with_downwards_trend
📊 bar_chart
🔍 mag
🔒 lock
🔓 unlock
🔑 key
🔔 bell
🔧 wrench
🔨 hammer
🛠️ hammer_and_wrench tools
⚙️ gear
🐛 bug
💻 computer
📞 telephone_receiver
✉️ envelope
💬 speech_balloon
💤 zzz
☕ coffee
🍕 pizza
🍺 beer
☀️ sunny sun
🌈 rainbow
🌍 earth_africa
➕ heavy_plus_sign
➖ heavy_minus_sign
🔁 repeat
🔄 arrows_counterclockwise
👉 point_right
👈 point_left
👆 point_up_2
👇 point_down`

// maxEmoji is the longest reaction, in bytes: a family of four with skin tones has 41.
const maxEmoji = 64

// parseEmoji reads a reaction: an emoji as it is, or a known short name with or without colons.
func parseEmoji(s string) (string, error) {
	s = strings.TrimSpace(s)
	switch {
	case s == "":
		return "", errors.New("`emoji` is required: one emoji character, for example 👍")
	case len(s) > maxEmoji:
		return "", fmt.Errorf("`emoji` has %d bytes, at most %d are allowed: give one emoji character", len(s), maxEmoji)
	case isEmoji(s):
		return s, nil
	}
	name := strings.ToLower(strings.TrimPrefix(strings.TrimSuffix(s, ":"), ":"))
	for line := range strings.Lines(shortNames) {
		if words := strings.Fields(line); name != "" && slices.Contains(words[1:], name) {
			return words[0], nil
		}
	}
	return "", fmt.Errorf("`emoji` is %q, which is neither an emoji character nor a known short name: give the character itself, for example 👍", shorten(s))
}

// isEmoji reports whether s has at least one symbol and nothing that belongs to text. What a platform makes of it is the
// platform's business.
func isEmoji(s string) bool {
	symbol, keycap := false, strings.ContainsRune(s, '\u20e3')
	for _, r := range s {
		switch {
		case r == utf8.RuneError, r == '\ufffc':
			return false
		case r < utf8.RuneSelf:
			if !keycap || !(r == '#' || r == '*' || r >= '0' && r <= '9') {
				return false
			}
		case r == '\u20e3', r == '\u203c', r == '\u2049', r == '\u3030', r == '\u303d', unicode.IsSymbol(r):
			symbol = true
		case r == '\u200d', r >= 0xfe00 && r <= 0xfe0f, r >= 0xe0020 && r <= 0xe007f: // joiner, variation, parts of a flag
		default:
			return false
		}
	}
	return symbol
}
