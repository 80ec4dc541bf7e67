package operate

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"nanoclaw/internal/control"
	"nanoclaw/internal/id"
	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/store"
)

// decisions are those that were asked for; the words of an error stand for one.
type decisions struct {
	got []string
	err error
}

func (d *decisions) Decide(_ context.Context, a id.Approval, choice, by string) (bool, error) {
	d.got = append(d.got, fmt.Sprintf("%s %s %s", a, choice, by))
	return d.err == nil, d.err
}

// APR-9: the list says who is asked, in which chat, with which message; the operator decides without a card, in the name host:<name>.
func TestAPR9Approvals(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	st, err := store.Open(ctx, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	var agents []id.AgentGroup
	for _, folder := range []string{"main", "other"} {
		g, err := st.Bootstrap(ctx, store.First{Owner: "cli:ann", AgentName: folder, Folder: folder, Provider: "mock", ChannelType: "cli", Instance: "cli", PlatformID: "cli:local", DestinationAs: "terminal"})
		if err != nil {
			t.Fatal(err)
		}
		agents = append(agents, g)
	}
	chat, err := st.RegisterChat(ctx, store.MessagingGroup{ChannelType: "web", Instance: "web", PlatformID: "web:team", UnknownSenderPolicy: store.Strict})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	for i, action := range []store.ApprovalAction{store.SendersAdmit, store.ChannelsRegister} {
		a := store.Approval{ID: id.Approval(fmt.Sprint("appr-", i)), Action: action, Chat: chat.ID, Sender: "web:kim", SenderName: "Kim", CreatedAt: now.Add(time.Duration(i) * time.Second)}
		if action == store.SendersAdmit {
			a.Agents = agents
		}
		m := store.HeldMessage{ID: "m1", Event: []byte(`{"text":"the words"}`)}
		if out, err := st.Hold(ctx, a, m, store.HoldLimits{Life: time.Hour, PerHour: 9, Open: 9}); err != nil || out != store.HoldAsk {
			t.Fatal(out, err)
		}
	}
	card := store.ApprovalCard{Approval: "appr-0", N: 1, ID: "led-1", User: "web:ann", Destination: store.Destination{Instance: "web", PlatformID: "web:dm"}, Options: []mailbox.Option{}, AskedAt: now}
	if _, err := st.AddApprovalCard(ctx, card); err != nil {
		t.Fatal(err)
	}
	row := store.Ledger{ID: "led-1", OutboundID: "card", Kind: "notice", Content: []byte("{}"), State: store.Queued, Destination: card.Destination}
	if _, err := st.Ingest(ctx, store.Ingest{Rows: []store.Ledger{row}}); err != nil {
		t.Fatal(err)
	}
	row.State, row.PlatformMessageID = store.Sent, "p7"
	if err := st.UpdateLedger(ctx, row); err != nil {
		t.Fatal(err)
	}

	host := &decisions{}
	d := New(Approvals(st, host, func() string { return "cli:ann" })...)
	got := d.Do(ctx, Caller{}, "r", control.AdminRequest{Command: "approvals-list"})
	var rows []approvalRow
	if err := json.Unmarshal(got.Data, &rows); err != nil || len(rows) != 2 {
		t.Fatalf("%+v %v", got, err)
	}
	if r := rows[1]; r.ID != "appr-0" || r.Sender != "web:kim" || r.SenderName != "Kim" || r.Chat != "web:team" || r.Agents != "main other" || r.Held != 1 || r.Asked != "web:ann" ||
		r.Card != "web:dm p7" || r.Status != "pending" || r.Action != "senders.admit" {
		t.Errorf("%+v", r)
	}
	if strings.Contains(string(got.Data), "the words") {
		t.Error("a list shows what a stranger wrote")
	}
	for _, c := range []struct {
		command, args string
		agent         bool
		err           error
		code          control.Code
		part          string // of the answer
		decided       string
	}{
		{"approvals-list", ``, true, nil, control.CodeForbidden, "", ""},
		{"approvals-approve-appr-0", ``, true, nil, control.CodeForbidden, "", ""},
		{"approvals-list", `{"status":"approved"}`, false, nil, "", "[]", ""},
		{"approvals-list", `{"status":"odd"}`, false, nil, control.CodeInvalid, "", ""},
		{"approvals-get-appr-0", ``, false, nil, "", "the words", ""},
		{"approvals-get-appr-9", ``, false, nil, control.CodeNotFound, "", ""},
		{"approvals-approve-appr-0", ``, false, nil, "", "web:kim is let in", "appr-0 approve host:ann"},
		{"approvals-approve-appr-0", `{"agent":"main"}`, false, nil, control.CodeInvalid, "", ""},
		{"approvals-reject-appr-0", ``, false, nil, "", "web:kim is left out", "appr-0 reject host:ann"},
		{"approvals-reject-appr-0", `{"block":true}`, false, nil, "", "nobody is asked again", "appr-0 block host:ann"},
		{"approvals-approve-appr-1", ``, false, nil, control.CodeInvalid, "", ""},
		{"approvals-approve-appr-1", `{"agent":"other"}`, false, nil, "", "connected to other", "appr-1 connect:" + string(agents[1]) + " host:ann"},
		{"approvals-approve-appr-1", `{"agent":"none"}`, false, nil, control.CodeNotFound, "", ""},
		{"approvals-reject-appr-1", ``, false, nil, "", "the chat is left out", "appr-1 reject host:ann"},
		{"approvals-reject-appr-1", `{"block":true}`, false, nil, control.CodeInvalid, "", ""},
		{"approvals-reject-appr-1", ``, false, &store.ConflictError{Reason: "it is decided already"}, control.CodeConflict, "", "appr-1 reject host:ann"},
		{"approvals-reject", ``, false, nil, control.CodeInvalid, "", ""},
	} {
		host.got, host.err = nil, c.err
		r := control.AdminRequest{Command: c.command}
		if c.args != "" {
			if err := json.Unmarshal([]byte(c.args), &r.Args); err != nil {
				t.Fatal(err)
			}
		}
		caller := Caller{}
		if c.agent {
			caller.Session.ID = "sess-1"
		}
		got := d.Do(ctx, caller, "r", r)
		switch {
		case c.code != "" && (got.OK || got.Error.Code != c.code), c.code == "" && (!got.OK || !strings.Contains(got.Human+string(got.Data), c.part)),
			strings.Join(host.got, ",") != c.decided:
			t.Errorf("%+v: %+v, decided %q", c, got, host.got)
		}
	}
}
