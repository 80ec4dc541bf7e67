package route

import (
	"fmt"
	"strings"
	"testing"

	"nanoclaw/internal/channel"
	"nanoclaw/internal/id"
	"nanoclaw/internal/slash"
	"nanoclaw/internal/store"
)

// known is a wiring, a sender and an event for which every gate is open.
func known() Facts {
	return Facts{Policy: store.Strict, Scope: store.ScopeAll, Mode: store.EngagePattern, Ignored: store.IgnoredDrop, Session: store.ModeShared,
		Standing: store.AsMember, Text: "hello"}
}

// letters are how the tables below write actions.
var letters = map[Action]byte{Drop: '.', Keep: 'k', Engage: 'E', Hold: 'H', Decline: 'D', Refuse: 'R'}

// cells checks one line of a table: one letter per value, groups apart.
func cells(t *testing.T, name, want string, got []byte) {
	t.Helper()
	if w := strings.ReplaceAll(want, " ", ""); w != string(got) {
		t.Errorf("%s: got %s, want %s", name, got, w)
	}
}

// all checks that a table has a line for every combination and no other.
func all[T any](t *testing.T, table map[string]T, keys ...[]string) []string {
	t.Helper()
	lines := []string{""}
	for _, k := range keys {
		var next []string
		for _, l := range lines {
			for _, v := range k {
				next = append(next, strings.TrimPrefix(l+"/"+v, "/"))
			}
		}
		lines = next
	}
	for _, l := range lines {
		if _, ok := table[l]; !ok {
			t.Errorf("the table has no line %s", l)
		}
	}
	if len(table) != len(lines) {
		t.Errorf("the table has %d lines for %d combinations", len(table), len(lines))
	}
	return lines
}

// Who may, by policy of the chat, scope of the wiring, kind of chat and kind of sender (spec/host.md section 25.1). Columns: owner,
// admin everywhere, admin of this agent, member; known to others only, not known, a standing that nobody knows. Every message
// of the table engages.
func TestAccessTable(t *testing.T) {
	t.Parallel()
	table := map[string]string{
		"strict/all/direct/person":              "EEEE ...",
		"strict/all/direct/program":             "EEEE ...",
		"strict/all/group/person":               "EEEE ...",
		"strict/all/group/program":              "EEEE ...",
		"strict/known/direct/person":            "EEEE ...",
		"strict/known/direct/program":           "EEEE ...",
		"strict/known/group/person":             "EEEE ...",
		"strict/known/group/program":            "EEEE ...",
		"strict/odd/direct/person":              ".... ...",
		"strict/odd/direct/program":             ".... ...",
		"strict/odd/group/person":               ".... ...",
		"strict/odd/group/program":              ".... ...",
		"request_approval/all/direct/person":    "EEEE HHH",
		"request_approval/all/direct/program":   "EEEE ...",
		"request_approval/all/group/person":     "EEEE HHH",
		"request_approval/all/group/program":    "EEEE ...",
		"request_approval/known/direct/person":  "EEEE HHH",
		"request_approval/known/direct/program": "EEEE ...",
		"request_approval/known/group/person":   "EEEE HHH",
		"request_approval/known/group/program":  "EEEE ...",
		"request_approval/odd/direct/person":    ".... ...",
		"request_approval/odd/direct/program":   ".... ...",
		"request_approval/odd/group/person":     ".... ...",
		"request_approval/odd/group/program":    ".... ...",
		"decline_notify/all/direct/person":      "EEEE DDD",
		"decline_notify/all/direct/program":     "EEEE ...",
		"decline_notify/all/group/person":       "EEEE ...",
		"decline_notify/all/group/program":      "EEEE ...",
		"decline_notify/known/direct/person":    "EEEE DDD",
		"decline_notify/known/direct/program":   "EEEE ...",
		"decline_notify/known/group/person":     "EEEE ...",
		"decline_notify/known/group/program":    "EEEE ...",
		"decline_notify/odd/direct/person":      ".... ...",
		"decline_notify/odd/direct/program":     ".... ...",
		"decline_notify/odd/group/person":       ".... ...",
		"decline_notify/odd/group/program":      ".... ...",
		"public/all/direct/person":              "EEEE EEE",
		"public/all/direct/program":             "EEEE ...",
		"public/all/group/person":               "EEEE EEE",
		"public/all/group/program":              "EEEE ...",
		"public/known/direct/person":            "EEEE ...",
		"public/known/direct/program":           "EEEE ...",
		"public/known/group/person":             "EEEE ...",
		"public/known/group/program":            "EEEE ...",
		"public/odd/direct/person":              ".... ...",
		"public/odd/direct/program":             ".... ...",
		"public/odd/group/person":               ".... ...",
		"public/odd/group/program":              ".... ...",
		"odd/all/direct/person":                 ".... ...",
		"odd/all/direct/program":                ".... ...",
		"odd/all/group/person":                  ".... ...",
		"odd/all/group/program":                 ".... ...",
		"odd/known/direct/person":               ".... ...",
		"odd/known/direct/program":              ".... ...",
		"odd/known/group/person":                ".... ...",
		"odd/known/group/program":               ".... ...",
		"odd/odd/direct/person":                 ".... ...",
		"odd/odd/direct/program":                ".... ...",
		"odd/odd/group/person":                  ".... ...",
		"odd/odd/group/program":                 ".... ...",
	}
	standings := []store.Standing{store.AsOwner, store.AsGlobalAdmin, store.AsGroupAdmin, store.AsMember, store.NotMember, store.UnknownUser, "boss"}
	for _, line := range all(t, table, []string{"strict", "request_approval", "decline_notify", "public", "odd"}, []string{"all", "known", "odd"},
		[]string{"direct", "group"}, []string{"person", "program"}) {
		k := strings.Split(line, "/")
		var got []byte
		for _, s := range standings {
			f := known()
			f.Policy, f.Scope, f.Group, f.Bot, f.Standing = store.UnknownSenderPolicy(k[0]), store.SenderScope(k[1]), k[2] == "group", k[3] == "program", s
			d := Decide(f)
			got = append(got, letters[d.Action])
			if d.Reason == "" || d.Code == "" {
				t.Errorf("%s, %s: no reason: %+v", line, s, d)
			}
			// Whatever is not for the agent: a stranger's words are neither kept nor do they lead to anything.
			f.Pattern, f.Ignored = NewPattern("bye", ""), store.IgnoredAccumulate
			if d := Decide(f); d.Action != Drop && d.Action != Keep || d.Action == Keep && letters[Engage] != got[len(got)-1] {
				t.Errorf("%s, %s, not engaged: %+v", line, s, d)
			}
		}
		cells(t, line, table[line], got)
	}
}

// What engages, by mode, pattern and kind of chat. Columns: the platform says mention, no mention, does not say; in each of them:
// no thread in force; not engaged before, engaged before; then in a thread: not engaged before, engaged before.
func TestEngageTable(t *testing.T) {
	t.Parallel()
	table := map[string]string{
		"pattern/every/direct":          "EEEE EEEE EEEE",
		"pattern/every/group":           "EEEE EEEE EEEE",
		"pattern/matches/direct":        "EEEE EEEE EEEE",
		"pattern/matches/group":         "EEEE EEEE EEEE",
		"pattern/fails/direct":          ".... .... ....",
		"pattern/fails/group":           ".... .... ....",
		"pattern/broken/direct":         ".... .... ....",
		"pattern/broken/group":          ".... .... ....",
		"mention/every/direct":          "EEEE EEEE EEEE",
		"mention/every/group":           "EEEE .... ....",
		"mention/matches/direct":        "EEEE EEEE EEEE",
		"mention/matches/group":         "EEEE .... ....",
		"mention/fails/direct":          "EEEE EEEE EEEE",
		"mention/fails/group":           "EEEE .... ....",
		"mention/broken/direct":         "EEEE EEEE EEEE",
		"mention/broken/group":          "EEEE .... ....",
		"mention-sticky/every/direct":   "EEEE EEEE EEEE",
		"mention-sticky/every/group":    "EEEE ...E ...E",
		"mention-sticky/matches/direct": "EEEE EEEE EEEE",
		"mention-sticky/matches/group":  "EEEE ...E ...E",
		"mention-sticky/fails/direct":   "EEEE EEEE EEEE",
		"mention-sticky/fails/group":    "EEEE ...E ...E",
		"mention-sticky/broken/direct":  "EEEE EEEE EEEE",
		"mention-sticky/broken/group":   "EEEE ...E ...E",
		"odd/every/direct":              ".... .... ....",
		"odd/every/group":               ".... .... ....",
		"odd/matches/direct":            ".... .... ....",
		"odd/matches/group":             ".... .... ....",
		"odd/fails/direct":              ".... .... ....",
		"odd/fails/group":               ".... .... ....",
		"odd/broken/direct":             ".... .... ....",
		"odd/broken/group":              ".... .... ....",
	}
	patterns := map[string]string{"every": ".", "matches": "^hi", "fails": "^bye", "broken": "("}
	for _, line := range all(t, table, []string{"pattern", "mention", "mention-sticky", "odd"}, []string{"every", "matches", "fails", "broken"}, []string{"direct", "group"}) {
		k := strings.Split(line, "/")
		var got []byte
		for _, mention := range []channel.Tri{channel.Yes, channel.No, channel.Unknown} {
			for _, thread := range []bool{false, true} {
				for _, before := range []bool{false, true} {
					f := known()
					f.Mode, f.Pattern, f.Group = store.EngageMode(k[0]), NewPattern(patterns[k[1]], "Nano"), k[2] == "group"
					f.Mention, f.Threads, f.Engaged, f.Text = mention, thread, before, "hi there"
					got = append(got, letters[Decide(f).Action])
				}
			}
		}
		cells(t, line, table[line], got)
	}
}

// What happens, by the kind of command, the sender and the policy for strangers. Columns: the message engages, does not
// engage; in each of them: what does not engage is dropped, accumulated, an unknown word.
func TestOutcomeTable(t *testing.T) {
	t.Parallel()
	table := map[string]string{
		"text/admin/strict":                          "EE. .k.",
		"text/admin/request_approval":                "EE. .k.",
		"text/admin/decline_notify":                  "EE. .k.",
		"text/admin/public":                          "EE. .k.",
		"text/member/strict":                         "EE. .k.",
		"text/member/request_approval":               "EE. .k.",
		"text/member/decline_notify":                 "EE. .k.",
		"text/member/public":                         "EE. .k.",
		"text/stranger/strict":                       "... ...",
		"text/stranger/request_approval":             "HH. ...",
		"text/stranger/decline_notify":               "DD. ...",
		"text/stranger/public":                       "EE. .k.",
		"everybody's/admin/strict":                   "EE. ...",
		"everybody's/admin/request_approval":         "EE. ...",
		"everybody's/admin/decline_notify":           "EE. ...",
		"everybody's/admin/public":                   "EE. ...",
		"everybody's/member/strict":                  "EE. ...",
		"everybody's/member/request_approval":        "EE. ...",
		"everybody's/member/decline_notify":          "EE. ...",
		"everybody's/member/public":                  "EE. ...",
		"everybody's/stranger/strict":                "... ...",
		"everybody's/stranger/request_approval":      "HH. ...",
		"everybody's/stranger/decline_notify":        "DD. ...",
		"everybody's/stranger/public":                "EE. ...",
		"admin's/admin/strict":                       "EE. ...",
		"admin's/admin/request_approval":             "EE. ...",
		"admin's/admin/decline_notify":               "EE. ...",
		"admin's/admin/public":                       "EE. ...",
		"admin's/member/strict":                      "RR. ...",
		"admin's/member/request_approval":            "RR. ...",
		"admin's/member/decline_notify":              "RR. ...",
		"admin's/member/public":                      "RR. ...",
		"admin's/stranger/strict":                    "... ...",
		"admin's/stranger/request_approval":          "HH. ...",
		"admin's/stranger/decline_notify":            "DD. ...",
		"admin's/stranger/public":                    "RR. ...",
		"nobody's/admin/strict":                      "... ...",
		"nobody's/admin/request_approval":            "... ...",
		"nobody's/admin/decline_notify":              "... ...",
		"nobody's/admin/public":                      "... ...",
		"nobody's/member/strict":                     "... ...",
		"nobody's/member/request_approval":           "... ...",
		"nobody's/member/decline_notify":             "... ...",
		"nobody's/member/public":                     "... ...",
		"nobody's/stranger/strict":                   "... ...",
		"nobody's/stranger/request_approval":         "... ...",
		"nobody's/stranger/decline_notify":           "... ...",
		"nobody's/stranger/public":                   "... ...",
		"nearly a command/admin/strict":              "EE. .k.",
		"nearly a command/admin/request_approval":    "EE. .k.",
		"nearly a command/admin/decline_notify":      "EE. .k.",
		"nearly a command/admin/public":              "EE. .k.",
		"nearly a command/member/strict":             "EE. .k.",
		"nearly a command/member/request_approval":   "EE. .k.",
		"nearly a command/member/decline_notify":     "EE. .k.",
		"nearly a command/member/public":             "EE. .k.",
		"nearly a command/stranger/strict":           "... ...",
		"nearly a command/stranger/request_approval": "HH. ...",
		"nearly a command/stranger/decline_notify":   "DD. ...",
		"nearly a command/stranger/public":           "EE. .k.",
	}
	texts := map[string]string{"text": "hello", "everybody's": "/stop", "admin's": " /CLEAR ", "nobody's": "/login", "nearly a command": "/clearx"}
	standings := map[string]store.Standing{"admin": store.AsGroupAdmin, "member": store.AsMember, "stranger": store.UnknownUser}
	for _, line := range all(t, table, []string{"text", "everybody's", "admin's", "nobody's", "nearly a command"}, []string{"admin", "member", "stranger"},
		[]string{"strict", "request_approval", "decline_notify", "public"}) {
		k := strings.Split(line, "/")
		var got []byte
		for _, pattern := range []string{".", "no such word"} {
			for _, ignored := range []store.IgnoredPolicy{store.IgnoredDrop, store.IgnoredAccumulate, "odd"} {
				f := known()
				f.Text, f.Standing, f.Policy = texts[k[0]], standings[k[1]], store.UnknownSenderPolicy(k[2])
				f.Pattern, f.Ignored = NewPattern(pattern, "Nano"), ignored
				got = append(got, letters[Decide(f).Action])
			}
		}
		cells(t, line, table[line], got)
	}
	for _, c := range slash.Commands() { // the shared table, every command
		f := known()
		f.Text = c.Word
		want := Engage
		if c.By == slash.ByNobody {
			want = Drop
		} else if c.Admin {
			want = Refuse
		}
		if d := Decide(f); d.Action != want {
			t.Errorf("%s of a member: %+v, want %s", c.Word, d, want)
		}
	}
}

// Which session, by what the channel can, what the wiring says of threads, and the kind of chat. Columns: shared, per-thread,
// agent-shared; in each of them: an event without and with a thread. A is the agent, C agent and chat, T agent, chat and thread.
func TestSessionTable(t *testing.T) {
	t.Parallel()
	table := map[string]string{
		"threads/inherit/direct": "CC CT AA",
		"threads/inherit/group":  "CT CT AA",
		"threads/off/direct":     "CC CC AA",
		"threads/off/group":      "CC CC AA",
		"threads/on/direct":      "CC CT AA",
		"threads/on/group":       "CT CT AA",
		"none/inherit/direct":    "CC CC AA",
		"none/inherit/group":     "CC CC AA",
		"none/off/direct":        "CC CC AA",
		"none/off/group":         "CC CC AA",
		"none/on/direct":         "CC CC AA",
		"none/on/group":          "CC CC AA",
	}
	yes, no := true, false
	r := New(Options{Log: discard()})
	for _, line := range all(t, table, []string{"threads", "none"}, []string{"inherit", "off", "on"}, []string{"direct", "group"}) {
		k := strings.Split(line, "/")
		var got []byte
		for _, mode := range []store.SessionMode{store.ModeShared, store.ModePerThread, store.ModeAgentShared} {
			for _, thread := range []string{"", "t|1"} {
				chat := store.MessagingGroup{ID: "mg-1", IsGroup: k[2] == "group", UnknownSenderPolicy: store.Strict}
				c := store.Candidate{Wiring: store.Wiring{AgentGroupID: "ag-1", SessionMode: mode, Threads: map[string]*bool{"inherit": nil, "off": &no, "on": &yes}[k[1]]}}
				v := r.choose(channel.Info{Caps: channel.Caps{Threads: k[0] == "threads"}}, chat, c, channel.Inbound{Address: channel.Address{ThreadID: thread}})
				letter := map[string]byte{"ag-1": 'A', "ag-1|mg-1": 'C', "ag-1|mg-1|t|1": 'T'}[v.Key]
				want := map[byte]store.Sticky{'A': {}, 'C': {Chat: "mg-1"}, 'T': {Chat: "mg-1", Thread: "t|1"}}[letter]
				if v.session != want {
					t.Errorf("%s: the session of %s is of %+v", line, v.Key, v.session)
				}
				got = append(got, letter)
			}
		}
		cells(t, line, table[line], got)
	}
	keys := map[string]id.AgentGroup{} // never the same for two agents
	for _, agent := range []id.AgentGroup{"ag-1", "ag-2"} {
		for _, mode := range (store.SessionMode("")).Words() {
			key, _ := conversation(store.Wiring{AgentGroupID: agent, SessionMode: mode}, store.MessagingGroup{ID: "mg-1"}, "t")
			if of, ok := keys[key]; ok && of != agent {
				t.Errorf("%s is of two agents", key)
			}
			keys[key] = agent
		}
	}
}

// What becomes of an event by its chat. Columns: not addressed, addressed; in each of them: a person, a program. s silent, r
// record, h hold, n new chat and hold, W its wirings decide.
func TestChatTable(t *testing.T) {
	t.Parallel()
	table := map[string]string{
		"new/unwired/open/asks":       "ss ns",
		"new/unwired/open/strict":     "ss ns",
		"new/unwired/denied/asks":     "ss ss",
		"new/unwired/denied/strict":   "ss ss",
		"new/wired/open/asks":         "WW WW",
		"new/wired/open/strict":       "WW WW",
		"new/wired/denied/asks":       "WW WW",
		"new/wired/denied/strict":     "WW WW",
		"known/unwired/open/asks":     "ss hs",
		"known/unwired/open/strict":   "ss rs",
		"known/unwired/denied/asks":   "ss ss",
		"known/unwired/denied/strict": "ss ss",
		"known/wired/open/asks":       "WW WW",
		"known/wired/open/strict":     "WW WW",
		"known/wired/denied/asks":     "WW WW",
		"known/wired/denied/strict":   "WW WW",
	}
	letter := map[chatAction]byte{chatSilent: 's', chatRecord: 'r', chatHold: 'h', chatRegister: 'n', chatRoute: 'W'}
	for _, line := range all(t, table, []string{"new", "known"}, []string{"unwired", "wired"}, []string{"open", "denied"}, []string{"asks", "strict"}) {
		k := strings.Split(line, "/")
		var got []byte
		for _, addressed := range []bool{false, true} {
			for _, bot := range []bool{false, true} {
				got = append(got, letter[decideChat(chatFacts{Known: k[0] == "known", Wired: k[1] == "wired", Denied: k[2] == "denied", Strict: k[3] == "strict",
					Addressed: addressed, Bot: bot})])
			}
		}
		cells(t, line, table[line], got)
	}
}

// A value that no rule is written for shuts the door, whatever else stands there and whoever asks.
func TestUnknownWordsShutTheWiring(t *testing.T) {
	t.Parallel()
	for _, word := range []string{"", "odd", "PUBLIC", "all "} {
		for field, change := range map[string]func(*Facts){
			"unknown_sender_policy": func(f *Facts) { f.Policy = store.UnknownSenderPolicy(word) }, "sender_scope": func(f *Facts) { f.Scope = store.SenderScope(word) },
			"engage_mode": func(f *Facts) { f.Mode = store.EngageMode(word) }, "ignored_message_policy": func(f *Facts) { f.Ignored = store.IgnoredPolicy(word) },
			"session_mode": func(f *Facts) { f.Session = store.SessionMode(word) },
		} {
			f := known()
			f.Standing = store.AsOwner
			change(&f)
			if d := Decide(f); d.Action != Drop || d.Code != CodeSetting || !strings.Contains(d.Reason, field) {
				t.Errorf("%s %q: %+v", field, word, d)
			}
		}
	}
}

// RTE-3: decided and written down (docs/decisions.md): a pattern wiring follows its pattern alone.
func TestRTE3AMentionDoesNotEngageAPattern(t *testing.T) {
	t.Parallel()
	f := known()
	f.Pattern, f.Group, f.Mention, f.Text = NewPattern("^deploy", "Nano"), true, channel.Yes, "@Nano how are you?"
	if d := Decide(f); d.Action != Drop {
		t.Errorf("%+v", d)
	}
	f.Pattern = NewPattern("^deploy|@{name}", "Nano") // the way to have both
	if d := Decide(f); d.Action != Engage {
		t.Errorf("%+v", d)
	}
}

// RTE-4: the agent's name in a pattern, anywhere in the text and as a whole word.
func TestRTE4Names(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, text string
		want       Action
	}{
		{"C++ (bot)", "ask @C++ (bot)", Engage}, {"C++ (bot)", "ask @CCC bot", Drop}, {"Andy", "@someone @Andy what now?", Engage}, {"Andy", "@Andyman", Drop},
	} {
		f := known()
		f.Pattern, f.Text, f.Group = NewPattern("@{name}", c.name), c.text, true
		if d := Decide(f); d.Action != c.want {
			t.Errorf("%s: %q: %+v", c.name, c.text, d)
		}
	}
}

func FuzzSafeName(f *testing.F) {
	for _, s := range []string{"", "a.pdf", "../../etc/passwd", `..\..\x`, ".", "..", ".bashrc", "a\x00b", "re\u202efdp.exe", strings.Repeat("x", 300) + ".jpeg",
		strings.Repeat("é", 200), "CON.txt", "nul", "a\nb", "\xff\xfe", "a/", "  . a .  ", "日本語.txt"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		names := fileNames([]channel.Attachment{{Name: s}, {Name: s}, {Name: strings.ToUpper(s)}})
		seen := map[string]bool{}
		for _, n := range names {
			if n == "" || n[0] == '.' || len(n) > 255 || strings.ContainsAny(n, "/\\\x00\n\r\u202e") || strings.ToValidUTF8(n, "") != n || seen[strings.ToLower(n)] {
				t.Errorf("%q became %q", s, names)
			}
			seen[strings.ToLower(n)] = true
		}
	})
}

func TestFileNames(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a    channel.Attachment
		want string
	}{
		{channel.Attachment{Name: "report 2026 (final).pdf"}, "report 2026 (final).pdf"}, {channel.Attachment{Name: "日本語.txt"}, "日本語.txt"},
		{channel.Attachment{Name: "../../etc/passwd"}, "passwd"}, {channel.Attachment{Name: `C:\tmp\x.doc`}, "x.doc"}, {channel.Attachment{Name: ".bashrc"}, "bashrc"},
		{channel.Attachment{Name: "..", MimeType: "image/png"}, "attachment-1.png"}, {channel.Attachment{MimeType: "IMAGE/JPEG; q=1"}, "attachment-1.jpg"},
		{channel.Attachment{Kind: "voice"}, "attachment-1.ogg"}, {channel.Attachment{Kind: "file"}, "attachment-1"}, {channel.Attachment{Name: "re\u202efdp.exe"}, "refdp.exe"},
		{channel.Attachment{Name: "nul.txt"}, "_nul.txt"}, {channel.Attachment{Name: `a"b?.txt`}, "a_b_.txt"},
		{channel.Attachment{Name: strings.Repeat("x", 300) + ".jpeg"}, strings.Repeat("x", maxNameBytes-5) + ".jpeg"},
	} {
		if got := fileNames([]channel.Attachment{c.a}); got[0] != c.want {
			t.Errorf("%+v: %q, want %q", c.a, got[0], c.want)
		}
	}
	got := fileNames([]channel.Attachment{{Name: "a.txt"}, {Name: "A.txt"}, {Name: "a.txt"}, {Name: "a-2.txt"}})
	if fmt.Sprint(got) != "[a.txt A-2.txt a-3.txt a-2-2.txt]" {
		t.Errorf("%q", got)
	}
}
