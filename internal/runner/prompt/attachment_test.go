package prompt

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/provider"
)

func TestAttachments(t *testing.T) {
	t.Parallel()
	rows := []mailbox.InRow{
		row(6, mailbox.KindChatSDK, work, `{"attachments":[{"filename":"b.txt","mime":"text/plain","url":"https://b.example/b.txt"}]}`),
		row(4, mailbox.KindChat, family, `{"text":"x","attachments":[
			{"name":"photo.jpg","filename":"../photo.jpg","mimeType":"image/jpeg","mime":"x/y","localPath":"inbox/msg-1/photo.jpg","url":"https://a.example/p"},
			{"localPath":"inbox/msg-1/none"},
			{"name":"only a name"}, {}, "inbox/x", 7, null, ["inbox/x"],
			{"name":"up","localPath":"../../etc/passwd"}, {"name":"abs","localPath":"/etc/passwd"}, {"name":"in","localPath":"inbox/../../x"}, {"name":"dot","localPath":"."},
			{"name":"nul","localPath":"inbox/a\u0000b"},
			{"name":"up with address","localPath":"../x","url":"http://c.example/x"},
			{"name":"file","url":"file:///etc/passwd"}, {"name":"data","url":"data:text/plain,x"}, {"name":"no host","url":"https:///x"}, {"name":"broken","url":"https://%zz"},
			{"name":7,"mimeType":["x"],"localPath":"inbox/n"},
			{"name":"two\nlines","mimeType":" image/png\n","localPath":"inbox/a/../b"}
		]}`),
		row(8, mailbox.KindWebhook, family, `{"attachments":[{"name":"w","url":"https://w.example/"}]}`),
		row(10, mailbox.KindChat, mailbox.Address{ChannelType: mailbox.ChannelEcho}, `{"attachments":[{"name":"copy","localPath":"inbox/copy"}]}`),
		row(12, mailbox.KindChat, family, `broken`),
		row(14, mailbox.KindChat, family, `{"attachments":{"name":"x","localPath":"inbox/x"}}`),
	}
	want := []provider.Attachment{
		{Name: "photo.jpg", MimeType: "image/jpeg", Path: "/data/inbox/msg-1/photo.jpg"},
		{Name: "attachment", Path: "/data/inbox/msg-1/none"},
		{Name: "up with address", URL: "http://c.example/x"},
		{Name: "7", Path: "/data/inbox/n"},
		{Name: "two lines", MimeType: "image/png", Path: "/data/inbox/b"},
		{Name: "b.txt", MimeType: "text/plain", URL: "https://b.example/b.txt"},
	}
	if d := cmp.Diff(want, Attachments(rows, "/data")); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
	if got := Attachments(rows[1:2], ""); got[0].Path != "/workspace/inbox/msg-1/photo.jpg" {
		t.Errorf("without a root: %+v", got[0])
	}
	if got := Attachments(nil, "/data"); len(got) != 0 {
		t.Errorf("%+v", got)
	}
}

// FMT-7: the prompt names a path only if it can be opened in this session: below its root, and not of a row copied from another
// session.
func TestFMT7PathsOpenHere(t *testing.T) {
	t.Parallel()
	const content = `{"text":"x","sender":"A","attachments":[{"type":"image","name":"p.png","localPath":"inbox/msg-1/p.png"}]}`
	got := Render([]mailbox.InRow{row(2, mailbox.KindChat, family, content)}, Env{Root: "/data"})
	if !strings.Contains(got, "\n[image: p.png — saved to /data/inbox/msg-1/p.png]</message>") {
		t.Error(got)
	}
	got = Render([]mailbox.InRow{row(2, mailbox.KindChat, mailbox.Address{ChannelType: mailbox.ChannelEcho}, content)}, Env{Root: "/data"})
	if !strings.Contains(got, "\n[image: p.png]</cross-session-context>") || strings.Contains(got, "saved to") {
		t.Error(got)
	}
	for _, path := range []string{"../x", "/x", "inbox/../../x", "..", ".", ""} {
		got := Render([]mailbox.InRow{row(2, mailbox.KindChat, family, `{"text":"x","attachments":[{"name":"p","localPath":"`+path+`"}]}`)}, Env{Root: "/data"})
		if !strings.Contains(got, "\n[file: p]</message>") {
			t.Errorf("%q: %s", path, got)
		}
	}
}

// FMT-1: there is no element around the whole, and a batch of one has the shape of a batch of many.
func TestFMT1NoWrapper(t *testing.T) {
	t.Parallel()
	header := Render(nil, testEnv())
	var rows []mailbox.InRow
	var single []string
	for i := range 4 {
		r := row(int64(i*2+2), mailbox.KindChat, family, `{"text":"hello","sender":"A"}`)
		one, ok := strings.CutPrefix(Render([]mailbox.InRow{r}, testEnv()), header)
		if !ok || !strings.HasPrefix(one, "<message ") || strings.Contains(one, "messages") {
			t.Fatal(one)
		}
		rows, single = append(rows, r), append(single, one)
		if got := Render(rows, testEnv()); got != header+strings.Join(single, "\n") {
			t.Errorf("%d rows: %s", i+1, got)
		}
	}
}

// FMT-4: the quote that an adapter hands over as mailbox.ChatIn is in the prompt.
func TestFMT4QuoteOfAnAdapter(t *testing.T) {
	t.Parallel()
	content, err := mailbox.EncodeContent(mailbox.ChatIn{Text: "Yes.", Sender: "Ann", ReplyTo: &mailbox.ReplyTo{ID: "m-1", Text: "Dinner at <seven>?", Sender: "Bob"}})
	if err != nil {
		t.Fatal(err)
	}
	got, err := readPrompt(Render([]mailbox.InRow{row(2, mailbox.KindChat, family, string(content))}, testEnv()))
	if err != nil {
		t.Fatal(err)
	}
	m := got[0]
	if m.attrs["reply_to"] != "m-1" || len(m.nodes) != 1 || m.nodes[0].attrs["from"] != "Bob" || m.nodes[0].text != "Dinner at <seven>?" || strings.TrimSpace(m.text) != "Yes." {
		t.Errorf("%+v", m)
	}
}

// FMT-6: an agent's message without a way back has no origin; who sent it is what the host says.
func TestFMT6AgentWithoutAWayBack(t *testing.T) {
	t.Parallel()
	for platform, from := range map[string]string{"ag-2": "worker-1", "ag-9": ""} {
		r := row(2, mailbox.KindChat, mailbox.Address{ChannelType: mailbox.ChannelAgent, PlatformID: platform}, `{"text":"x","sender":"Worker","senderId":"agent:ag-2","from":"family"}`)
		got, err := readPrompt(Render([]mailbox.InRow{r}, testEnv()))
		if err != nil {
			t.Fatal(err)
		}
		a := got[0].attrs
		if _, has := a["from"]; has != (from != "") || a["from"] != from || a["sender"] != "Worker" || a["sender_id"] != "agent:ag-2" {
			t.Errorf("%s: %v", platform, a)
		}
	}
	// Only on rows between agents: elsewhere it would be the word of a platform.
	got := Render([]mailbox.InRow{row(2, mailbox.KindChat, family, `{"text":"x","senderId":"agent:ag-2"}`)}, testEnv())
	if strings.Contains(got, "sender_id") {
		t.Error(got)
	}
}

// W14: one field of a wrong type costs only that field; the rest of the row and the other rows are shown.
func TestW14WrongTypesCostOneField(t *testing.T) {
	t.Parallel()
	good := row(4, mailbox.KindChat, family, `{"text":"fine","sender":"Bob"}`)
	for _, wrong := range []string{`null`, `7`, `true`, `[]`, `{}`, `"x"`, `[[{}]]`} {
		for _, field := range []string{"sender", "replyTo", "attachments", "links", "author", "appContext", "senderId", "echo", "files"} {
			bad := row(2, mailbox.KindChat, family, `{"text":"still here","`+field+`":`+wrong+`}`)
			got, err := readPrompt(Render([]mailbox.InRow{bad, good}, testEnv()))
			if err != nil || len(got) != 2 || !strings.HasPrefix(got[0].text, "still here") || got[1].text != "fine" || got[1].attrs["sender"] != "Bob" {
				t.Errorf("%s %s: %v, %+v", field, wrong, err, got)
			}
		}
		for _, kind := range []mailbox.Kind{mailbox.KindChat, mailbox.KindTask, mailbox.KindWebhook, mailbox.KindSystem} {
			got, err := readPrompt(Render([]mailbox.InRow{row(2, kind, family, wrong), good}, testEnv()))
			if err != nil || len(got) != 2 {
				t.Errorf("%s %s: %v, %+v", kind, wrong, err, got)
			}
		}
	}
}
