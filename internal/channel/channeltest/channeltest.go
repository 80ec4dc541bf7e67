// Package channeltest is the conformance suite of channel adapters: an adapter is supported when it passes
// (spec/channels.md section 7). An adapter's test gives a Subject whose Rig plays the humans and the platform; the suite
// plays the host, with a store that survives the adapter and with switches that make it fail.
package channeltest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"nanoclaw/internal/channel"
)

// Subject is an adapter under test.
type Subject struct {
	// Rig starts a platform: a real server, or a fake one on loopback. One per case.
	Rig func(t *testing.T) Rig
	// New makes an adapter for the rig's platform. It is called again where the suite plays a restart of the host: nothing
	// but the store and the platform may carry over.
	New func(t *testing.T, rig Rig) channel.Adapter
	// Profile is what the adapter claims.
	Profile Profile
}

// Profile of an adapter.
type Profile struct {
	// Info must equal the adapter's.
	Info channel.Info
	// Sender is the user id that the rig's human has.
	Sender string
	// Unknown is an address of the adapter's own type at which nobody is; it must be refused as permanent. Zero: none.
	Unknown channel.Address
	// Secrets must appear in no log line and no error.
	Secrets []string
	// Skip maps the id of a case to the reason why the platform cannot do it.
	Skip map[string]string
}

// Rig is the platform and the human in front of it. Its methods may wait; they end with ctx.
type Rig interface {
	// Place is the n-th conversation of the human with the adapter's account.
	Place(n int) channel.Address
	// Say makes the human write text at a place. It returns the platform's id of the event once the platform has it, at
	// the latest when the adapter acknowledged it. A platform that delivers again until it is acknowledged does so.
	Say(ctx context.Context, place channel.Address, text string) (event string, err error)
	// Redeliver makes the platform deliver an event again, as after a lost acknowledgement.
	Redeliver(ctx context.Context, place channel.Address, event, text string) error
	// Seen waits until the human sees at least n messages of the account at a place, and returns all of them, in order.
	Seen(ctx context.Context, place channel.Address, n int) ([]Seen, error)
}

// Presser is a Rig whose human can press the options of questions: needed for an adapter with buttons.
type Presser interface {
	// Press chooses an option of a question by its index. It returns what the platform tells the human: nothing if the answer
	// was taken. It tries again as long as the adapter did not acknowledge it.
	Press(ctx context.Context, place channel.Address, question Seen, option int) (told string, err error)
}

// Seen is one message of the account as a human sees it.
type Seen struct {
	ID        string
	Text      string
	Reactions []string
	Files     []SeenFile
	Options   []string // labels that can be pressed
	Chosen    string   // what an answered question shows
}

// SeenFile is a file as it arrived.
type SeenFile struct{ Name, Content string }

// Bounds of the suite. Nothing waits for a fixed time; these end a test that hangs.
const (
	caseTime = 30 * time.Second
	stopTime = 15 * time.Second // spec/channels.md 2.22
)

// testCase is one case of the suite.
type testCase struct {
	id, title string
	run       func(b *bench)
	needs     func(p Profile) bool // nil: always
}

// Run runs every case that the profile does not rule out.
func Run(t *testing.T, s Subject) {
	t.Helper()
	all := append(append(append([]testCase{}, lifecycleCases()...), inboundCases()...), outboundCases()...)
	all = append(all, attachedCases()...)
	for _, c := range all {
		t.Run(c.id, func(t *testing.T) {
			t.Parallel()
			if reason, ok := s.Profile.Skip[c.id]; ok {
				t.Skipf("%s: %s", c.title, reason)
			}
			if c.needs != nil && !c.needs(s.Profile) {
				t.Skipf("%s: not an ability of this channel", c.title)
			}
			ctx, cancel := context.WithTimeout(t.Context(), caseTime)
			defer cancel()
			rig := s.Rig(t)
			b := &bench{T: t, ctx: ctx, subject: s, rig: rig, host: NewHost()}
			defer b.scanLog()
			defer b.stop()
			c.run(b)
		})
	}
}

// bench is one case in progress.
type bench struct {
	*testing.T
	ctx     context.Context
	subject Subject
	rig     Rig
	host    *Host
	adapter channel.Adapter
	cancel  context.CancelFunc
	ended   chan error
}

// make makes the adapter without running it.
func (b *bench) make() channel.Adapter {
	b.Helper()
	b.adapter = b.subject.New(b.T, b.rig)
	return b.adapter
}

// start makes and runs an adapter and waits until it is connected.
func (b *bench) start() channel.Adapter {
	b.Helper()
	a := b.make()
	b.run(a)
	return a
}

func (b *bench) run(a channel.Adapter) {
	b.Helper()
	ctx, cancel := context.WithCancel(b.ctx)
	b.cancel, b.ended = cancel, make(chan error, 1)
	go func() { b.ended <- a.Run(ctx, b.host) }()
	b.until("connected", func() bool { return a.Status().State == channel.Connected })
}

// stop ends Run and checks that it ends in time and without an error.
func (b *bench) stop() {
	b.Helper()
	if b.cancel == nil {
		return
	}
	b.cancel()
	b.cancel = nil
	select {
	case err := <-b.ended:
		if err != nil {
			b.Errorf("Run returned %v after its context ended, want nil", err)
		}
	case <-time.After(stopTime):
		b.Fatalf("Run did not return within %v", stopTime)
	}
}

// until waits for a condition that an adapter reaches on its own.
func (b *bench) until(what string, done func() bool) {
	b.Helper()
	t := time.NewTicker(time.Millisecond)
	defer t.Stop()
	for !done() {
		select {
		case <-b.ctx.Done():
			b.Fatalf("not %s in time; status %+v", what, b.adapter.Status())
		case <-t.C:
		}
	}
}

func (b *bench) say(place channel.Address, text string) string {
	b.Helper()
	event, err := b.rig.Say(b.ctx, place, text)
	if err != nil {
		b.Fatalf("say %q: %v", text, err)
	}
	return event
}

// deliver carries an operation out, part by part, and returns the ids of all parts.
func (b *bench) deliver(place channel.Address, op channel.Op, key string) channel.Receipt {
	b.Helper()
	var all channel.Receipt
	for {
		r, err := b.adapter.Deliver(b.ctx, place, op, key)
		if err != nil {
			b.Fatalf("deliver %s %q, part %d: %v", op.Kind, key, op.Part, err)
		}
		if len(r.IDs) == 0 {
			b.Fatalf("deliver %s %q, part %d: no id in the receipt", op.Kind, key, op.Part)
		}
		all.IDs = append(all.IDs, r.IDs...)
		if !r.More {
			return all
		}
		op.Part++
		op.Files = nil
		key += "+"
	}
}

// refused checks that an operation ends with an outcome of the kind.
func (b *bench) refused(kind channel.OutcomeKind, place channel.Address, op channel.Op, key string) {
	b.Helper()
	_, err := b.adapter.Deliver(b.ctx, place, op, key)
	o, ok := err.(*channel.Outcome)
	if !ok || o.Kind != kind {
		b.Errorf("deliver %s to %v: %v, want the outcome %s", op.Kind, place, err, kind)
	}
}

func (b *bench) seen(place channel.Address, n int) []Seen {
	b.Helper()
	got, err := b.rig.Seen(b.ctx, place, n)
	if err != nil {
		b.Fatalf("see %d messages at %v: %v", n, place, err)
	}
	return got
}

// scanLog is case F4: no secret and, at info and above, no text of anybody.
func (b *bench) scanLog() {
	b.Helper()
	for _, s := range b.subject.Profile.Secrets {
		if b.host.logged(s, false) {
			b.Errorf("F4: the secret %.4s… appears in the log", s)
		}
	}
	if b.host.logged(marker, true) {
		b.Errorf("F4: message text appears in the log at info or above")
	}
}

// marker stands in every text of the suite.
const marker = "zq7"

func texts(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("%s text %d", marker, i)
	}
	return out
}

func text(s string) channel.Op { return channel.Op{Kind: channel.OpText, Text: s} }
