package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"sync"

	"nanoclaw/internal/channel"
	"nanoclaw/internal/control"
)

// Kinds of the index: each entry has an id, and an id is appended once.
const (
	indexUser    = "u/" // by the client's message id
	indexAgent   = "a/" // by the id derived from the delivery key
	indexSettled = "s/" // by the id of the message that ended
)

// Retention: acknowledged entries older than the newest keepEntries are deleted, looked at once per pruneEvery appends.
// Entries nobody acknowledged are kept.
const (
	keepEntries = 1000
	pruneEvery  = 100
	pruneBatch  = 500
)

// The newest entries are served from memory, so that a client that keeps up costs no reads: this many, of this many
// bytes of text together.
const (
	recentEntries = 64
	recentBytes   = 1 << 20
)

// readBatch is how many entries are read at once. Texts come from a sandbox and may all be of the largest size.
const readBatch = 16

// conversation is the log of one conversation. In the store: c/<name>/e/<seq> the entries, c/<name>/i/<index id> their
// seqs, c/<name>/last and c/<name>/cursor. The seqs are dense from 1 and zero-padded.
type conversation struct {
	name  string
	host  channel.Host
	files string // folder of all received files
	users int    // of this value; guarded by the adapter's mu

	sayMu sync.Mutex // one message of the operator at a time: their order is the agent's order

	mu      sync.Mutex
	saying  chan struct{} // closed when the message in progress is in the log; nil: none
	loaded  bool
	last    int64
	recent  []control.Event // the newest entries, dense; or none
	bytes   int             // that they take up, roughly
	work    control.Work
	workN   int64         // counts changes of work
	changed chan struct{} // closed and replaced at every change
}

func newConversation(name string, h channel.Host, files string) *conversation {
	return &conversation{name: name, host: h, files: files, changed: make(chan struct{})}
}

func (c *conversation) key(rest string) string { return "c/" + c.name + "/" + rest }
func (c *conversation) entryKey(seq int64) string {
	return c.key(fmt.Sprintf("e/%s", pad(seq)))
}
func pad(seq int64) string { return fmt.Sprintf("%020d", seq) }

// busy reports whether forgetting this value would lose something live.
func (c *conversation) busy() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.work.Working
}

// number reads a stored position; a missing one is 0.
func (c *conversation) number(ctx context.Context, key string) (int64, bool, error) {
	v, ok, err := c.host.Store().Get(ctx, c.key(key))
	if err != nil || !ok {
		return 0, false, err
	}
	var n int64
	if _, err := fmt.Sscanf(v, "%d", &n); err != nil {
		return 0, false, fmt.Errorf("read %s of conversation %s: not a number", key, c.name)
	}
	return n, true, nil
}

// load reads the newest position once. The caller holds mu.
func (c *conversation) load(ctx context.Context) error {
	if c.loaded {
		return nil
	}
	last, _, err := c.number(ctx, "last")
	if err != nil {
		return fmt.Errorf("open conversation %s: %w", c.name, err)
	}
	if last != c.last {
		c.wake()
	}
	c.last, c.loaded, c.recent, c.bytes = last, true, nil, 0
	return nil
}

// append adds e under an index id. If that id is there already it changes nothing and returns the old seq and true.
func (c *conversation) append(ctx context.Context, index string, e control.Event) (seq int64, duplicate bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.load(ctx); err != nil {
		return 0, false, err
	}
	e.Seq, e.At = c.last+1, control.At(c.host.Now())
	b, err := json.Marshal(e)
	if err != nil {
		return 0, false, fmt.Errorf("append to conversation %s: %w", c.name, err)
	}
	err = c.host.Store().Update(ctx,
		channel.Pair{Key: c.key("i/" + index), Value: pad(e.Seq), IfAbsent: true},
		channel.Pair{Key: c.entryKey(e.Seq), Value: string(b), IfAbsent: true},
		channel.Pair{Key: c.key("last"), Value: pad(e.Seq)})
	if err != nil {
		c.loaded = false // whether it is written is unknown; the store knows
		if errors.Is(err, channel.ErrExists) {
			n, ok, err := c.number(ctx, "i/"+index)
			if err == nil && !ok {
				err = fmt.Errorf("position %d is taken", e.Seq)
			}
			if err == nil {
				return n, true, nil
			}
		}
		return 0, false, fmt.Errorf("append to conversation %s: %w", c.name, err)
	}
	c.last = e.Seq
	c.remember(e)
	c.wake()
	if e.Seq%pruneEvery == 0 {
		if err := c.prune(ctx); err != nil {
			c.host.Log().Warn("prune a terminal conversation", "error", err)
		}
	}
	return e.Seq, false, nil
}

// remember keeps an appended entry in memory. The caller holds mu.
func (c *conversation) remember(e control.Event) {
	c.recent = append(c.recent, e)
	c.bytes += weight(e)
	if len(c.recent) <= recentEntries && c.bytes <= recentBytes {
		return
	}
	half := len(c.recent)/2 + 1
	for _, old := range c.recent[:half] {
		c.bytes -= weight(old)
	}
	c.recent = append([]control.Event(nil), c.recent[half:]...)
}

// weight of an entry in memory: a question or card has its text twice.
func weight(e control.Event) int {
	if e.Question != nil || e.Card != nil {
		return 2 * len(e.Text)
	}
	return len(e.Text)
}

// prune deletes acknowledged entries that are old. The caller holds mu.
func (c *conversation) prune(ctx context.Context) error {
	cursor, _, err := c.number(ctx, "cursor")
	if err != nil {
		return err
	}
	end := min(cursor, c.last-keepEntries) + 1
	if end <= 1 {
		return nil
	}
	old, err := c.host.Store().List(ctx, c.entryKey(0), c.entryKey(end), pruneBatch)
	if err != nil || len(old) == 0 {
		return err
	}
	var gone []channel.Pair
	for _, p := range old {
		gone = append(gone, channel.Pair{Key: p.Key, Delete: true})
		if e, err := decodeEntry(p.Value); err == nil {
			if len(e.Files) > 0 {
				if err := c.dropFiles(e.ID); err != nil {
					return err
				}
			}
			gone = append(gone, channel.Pair{Key: c.key("i/" + indexOf(e)), Delete: true})
		}
	}
	return c.host.Store().Update(ctx, gone...)
}

// indexOf is the index id under which an entry was appended.
func indexOf(e control.Event) string {
	switch {
	case e.Kind == control.EventSettled:
		return indexSettled + e.Target
	case e.Author == control.AuthorUser:
		return indexUser + e.ID
	}
	return indexAgent + e.ID
}

func decodeEntry(s string) (control.Event, error) {
	var e control.Event
	if err := json.Unmarshal([]byte(s), &e); err != nil {
		return e, fmt.Errorf("read a terminal entry: %w", err)
	}
	return e, nil
}

// knows reports whether a message id is one that was sent here; own restricts it to the agent's.
func (c *conversation) knows(ctx context.Context, own bool, messageID string) (bool, error) {
	kinds := []string{indexAgent, indexUser}
	if own {
		kinds = kinds[:1]
	}
	for _, k := range kinds {
		if _, ok, err := c.number(ctx, "i/"+k+messageID); ok || err != nil {
			return ok, err
		}
	}
	return false, nil
}

// following returns entries after a position, oldest first: some, or none if there are none.
func (c *conversation) following(ctx context.Context, after int64) ([]control.Event, error) {
	c.mu.Lock()
	if n := len(c.recent); n > 0 && c.recent[0].Seq <= after+1 && after < c.last {
		out := append([]control.Event(nil), c.recent[after+1-c.recent[0].Seq:]...)
		c.mu.Unlock()
		return out, nil
	}
	c.mu.Unlock()
	entries, _, err := c.read(ctx, after+1, math.MaxInt64, readBatch)
	return entries, err
}

// read returns entries from a position to before another one, and the bytes they take up.
func (c *conversation) read(ctx context.Context, from, before int64, limit int) (entries []control.Event, sizes []int, err error) {
	pairs, err := c.host.Store().List(ctx, c.entryKey(from), c.entryKey(before), limit)
	if err != nil {
		return nil, nil, fmt.Errorf("read conversation %s: %w", c.name, err)
	}
	for _, p := range pairs {
		e, err := decodeEntry(p.Value)
		if err != nil {
			return nil, nil, err
		}
		entries, sizes = append(entries, e), append(sizes, len(p.Value))
	}
	return entries, sizes, nil
}

// preceding returns the newest entries before a position, oldest first: at most limit, and as many as fit one answer.
func (c *conversation) preceding(ctx context.Context, before int64, limit int) ([]control.Event, error) {
	out := []control.Event{}
	const most = 4 << 20
	total := 0
	for len(out) < limit && before > 1 {
		from := max(before-int64(min(readBatch, limit-len(out))), 1)
		entries, sizes, err := c.read(ctx, from, before, readBatch)
		if err != nil || len(entries) == 0 {
			return out, err
		}
		keep := len(entries)
		for keep > 0 && (total+sizes[keep-1] <= most || len(out) == 0 && keep == len(entries)) {
			keep--
			total += sizes[keep]
		}
		out = append(entries[keep:], out...)
		if keep > 0 {
			return out, nil
		}
		before = from
	}
	return out, nil
}

// wake tells every stream to look again. The caller holds mu.
func (c *conversation) wake() {
	close(c.changed)
	c.changed = make(chan struct{})
}

func (c *conversation) setWork(w control.Work) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if w == c.work {
		return
	}
	c.work = w
	c.workN++
	c.wake()
}

// settledSay waits until the operator's message that is just being stored is in the log, so that no answer stands before
// its question.
func (c *conversation) settledSay(ctx context.Context) error {
	c.mu.Lock()
	saying := c.saying
	c.mu.Unlock()
	if saying == nil {
		return nil
	}
	select {
	case <-saying:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
