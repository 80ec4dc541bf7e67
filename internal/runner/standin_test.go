package runner_test

import (
	"testing"
	"time"

	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/provider"
	"nanoclaw/internal/runner"
)

// second is another provider that the test plays.
type second struct{ *fakeProvider }

func (second) Name() string { return "second" }

// withSecond is a rig whose provider has a fallback.
func withSecond(t *testing.T, clock *clock) (*rig, *fakeProvider) {
	other := &fakeProvider{caps: plain, asked: make(chan asking, 64)}
	r := newRig(t, all, func(o *runner.Options) {
		o.Now = clock.now
		o.Fallbacks = []runner.Driver{{Provider: second{other}, Model: "m2"}}
	})
	return r, other
}

// spec/bugs.md PRV-4: on quota, overload or auth the next provider answers the same exchange and says so once; each keeps its own
// conversation; the first one is asked again when its limit has ended.
func TestPRV4Fallback(t *testing.T) {
	t.Parallel()
	for _, class := range []provider.Class{provider.ClassQuota, provider.ClassAuth, provider.ClassOverloaded, provider.ClassRateLimit} {
		t.Run(string(class), func(t *testing.T) {
			t.Parallel()
			clock := newClock()
			r, other := withSecond(t, clock)
			r.start()
			r.put(chat("m1", me, "hi"))
			a := r.prompted("[m1]")
			fail := failed(class, class == provider.ClassOverloaded)
			fail.ResetsAt = clock.now().Add(3 * time.Hour)
			a.query.emit(t, initial("c1"), text(block("me", "half")), fail)
			b := <-other.asked
			if b.Text != "[m1]{sent half}" || b.continuation != "" || !b.first {
				t.Fatalf("%+v", b)
			}
			b.query.emit(t, initial("d1"), text(block("me", "whole")), provider.Event{Kind: provider.Result, Usage: &provider.Usage{InputTokens: 1}})
			r.becomes(mailbox.AckCompleted, "m1")
			r.saidExactly("me:half", "me:second for fake: "+string(class), "me:whole")
			if u, err := r.host.Usage(t.Context(), 0, 9); err != nil || len(u) != 1 || u[0].Provider != "second" || u[0].Model != "m2" {
				t.Errorf("%+v, %v", u, err)
			}
			r.put(chat("m2", me, "more")) // still away: no word about it
			c := <-other.asked
			c.query.emit(t, text(block("me", "two")), result(""))
			r.becomes(mailbox.AckCompleted, "m2")
			clock.add(4 * time.Hour)
			r.put(chat("m3", me, "again"))
			d := r.prompted("[m3]")
			if d.continuation != "" {
				t.Errorf("the first provider was given %q", d.continuation)
			}
			d.query.emit(t, taken(d), initial("c2"), text(block("me", "three")), result(""))
			r.becomes(mailbox.AckCompleted, "m3")
			r.saidExactly("me:half", "me:second for fake: "+string(class), "me:whole", "me:two", "me:three")
			st, err := r.host.State(t.Context())
			if err != nil || st.Session["continuation:fake"] != "c2" || st.Session["continuation:second"] != "d1" {
				t.Errorf("%v, %v", st.Session, err)
			}
		})
	}
}

// A program that is missing does not come into a sandbox that runs: the chat is told once, and nobody asks for it again.
func TestFallbackForAMissingProgram(t *testing.T) {
	t.Parallel()
	clock := newClock()
	r, other := withSecond(t, clock)
	r.prov.refuse = func(int) error { return &provider.QueryError{Op: "start", Class: provider.ClassMissing} }
	r.start()
	for _, id := range []string{"m1", "m2", "m3"} {
		r.put(chat(id, me, "hi"))
		a := <-other.asked
		a.query.emit(t, initial("d1"), text(block("me", "by second "+id)), result(""))
		r.becomes(mailbox.AckCompleted, id)
		clock.add(1000 * time.Hour)
	}
	r.saidExactly("me:second for fake: missing", "me:by second m1", "me:by second m2", "me:by second m3")
}

// Other failures are the exchange's own; when nobody is left the person is told.
func TestNoFallbackForOtherFailures(t *testing.T) {
	t.Parallel()
	clock := newClock()
	r, other := withSecond(t, clock)
	r.start()
	r.put(chat("m1", me, "hi"))
	a := r.prompted("[m1]")
	a.query.emit(t, failed(provider.ClassContext, false))
	r.becomes(mailbox.AckFailed, "m1")
	r.put(chat("m2", me, "hi"))
	b := r.prompted("[m2]")
	b.query.emit(t, taken(b), failed(provider.ClassQuota, false))
	c := <-other.asked
	c.query.emit(t, failed(provider.ClassAuth, false))
	r.becomes(mailbox.AckFailed, "m2")
	r.saidExactly("me:notice context", "me:second for fake: quota", "me:notice auth")
}
