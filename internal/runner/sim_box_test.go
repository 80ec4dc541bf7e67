package runner_test

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"nanoclaw/internal/id"
	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/mailbox/sqlite"
	"nanoclaw/internal/runner"
)

// simBox is a session's mailbox in memory, for the simulation: the rules of spec/runner.md section 3.3 and of the comments of
// package sqlite, written down a second time and as plainly as possible. Its lock guards the whole simulated world.
type simBox struct {
	sync.Mutex
	rows      []mailbox.InRow // by seq; also rows that no host writes
	acks      map[string]mailbox.Ack
	out       []mailbox.OutRow
	outAt     []int // version of the destinations when the row was written
	state     map[string]string
	usage     []mailbox.Usage
	dests     [][]mailbox.Destination // all versions, the last one counts
	routing   mailbox.Address
	delivered map[string]mailbox.Delivered
	blobs     map[string][]string
	live      int64 // the recorded incarnation
	seq       int64

	fault func(h *simHandle, op string) simFault                      // nil: none
	wrote func(h *simHandle, row mailbox.OutRow, held mailbox.Finish) // before the row is stored
	claim func(h *simHandle, exchange string, ids []string)
	ended func(h *simHandle, f mailbox.Finish) // before it is applied
}

// simFault is what goes wrong at one operation.
type simFault int

const (
	faultNone simFault = iota
	faultBusy
	faultCorrupt
	faultCrashBefore // the process is gone, and nothing of the operation is durable
	faultCrashAfter  // the process is gone, and the operation is durable
)

func newSimBox() *simBox {
	return &simBox{
		acks: map[string]mailbox.Ack{}, state: map[string]string{}, delivered: map[string]mailbox.Delivered{}, blobs: map[string][]string{},
		dests: [][]mailbox.Destination{nil},
	}
}

// simHandle is the box as one incarnation of the runner has it.
type simHandle struct {
	*simBox
	mine   int64
	dead   bool // its process is gone
	faults int
}

var _ runner.Mailbox = (*simHandle)(nil)

// open fences all earlier handles.
func (b *simBox) open() *simHandle {
	b.Lock()
	defer b.Unlock()
	b.live++
	return &simHandle{simBox: b, mine: b.live}
}

// write runs an operation that changes something.
func (h *simHandle) write(op string, f func() error) error {
	h.Lock()
	defer h.Unlock()
	if h.dead || h.mine != h.live {
		return fmt.Errorf("%s: %w", op, mailbox.ErrFenced)
	}
	fault := h.strike(op)
	switch fault {
	case faultBusy, faultCorrupt:
		return fmt.Errorf("%s: %w", op, mailbox.ErrBusy)
	case faultCrashBefore:
		h.dead = true
		return fmt.Errorf("%s: %w", op, mailbox.ErrFenced)
	}
	err := f()
	if fault == faultCrashAfter {
		h.dead = true
		return fmt.Errorf("%s: %w", op, mailbox.ErrFenced)
	}
	return err
}

func (h *simHandle) strike(op string) simFault {
	if h.fault == nil {
		return faultNone
	}
	fault := h.fault(h, op)
	if fault != faultNone {
		h.faults++
	}
	return fault
}

// read runs an operation that changes nothing.
func (h *simHandle) read(op string, f func()) error {
	h.Lock()
	defer h.Unlock()
	switch h.strike(op) {
	case faultBusy:
		return fmt.Errorf("%s: %w", op, mailbox.ErrBusy)
	case faultCorrupt:
		return fmt.Errorf("%s: %w", op, mailbox.ErrCorrupt)
	case faultCrashBefore, faultCrashAfter:
		h.dead = true
	}
	f()
	return nil
}

func (b *simBox) ack(id string) mailbox.AckStatus { return b.acks[id].Status }

func (b *simBox) find(id string) (mailbox.InRow, bool) {
	for _, row := range b.rows {
		if row.ID == id {
			return row, true
		}
	}
	return mailbox.InRow{}, false
}

// put is the host's.
func (b *simBox) put(row mailbox.InRow) {
	b.seq += 2 - b.seq%2
	row.Seq, row.Status, row.Timestamp = b.seq, mailbox.StatusPending, time.Now()
	b.rows = append(b.rows, row)
}

// settle is the host's: final acks become states of rows.
func (b *simBox) settle() {
	for i := range b.rows {
		if a := b.acks[b.rows[i].ID]; a.Status.Final() && b.rows[i].Status == mailbox.StatusPending {
			b.rows[i].Status = mailbox.StatusFailed
			if a.Status == mailbox.AckCompleted {
				b.rows[i].Status = mailbox.StatusCompleted
			}
		}
	}
}

// Fetch: claims that are alive and finished rows are out of sight; an exchange that a dead incarnation left is run again by
// itself, the oldest first, once all of it is due; else the oldest that may wake, then the newest context.
func (h *simHandle) Fetch(_ context.Context, limit int) (b sqlite.Batch, err error) {
	err = h.read("fetch", func() { b = h.fetch(limit) })
	return b, err
}

func (h *simHandle) fetch(limit int) sqlite.Batch {
	var b sqlite.Batch
	now := time.Now()
	type again struct {
		rows []mailbox.InRow
		wake bool
		due  time.Time
	}
	exchanges := map[string]*again{}
	held := map[string]bool{}
	var order []string
	for _, row := range h.rows { // by seq: the first row of an exchange is its oldest
		a := h.acks[row.ID]
		if a.Status == mailbox.AckProcessing && a.Incarnation >= h.mine {
			held[row.ID] = true
		}
		if a.Status != mailbox.AckProcessing || a.Incarnation >= h.mine || row.Status != mailbox.StatusPending || row.Kind == mailbox.KindSystem || row.AfterIncarnation >= h.mine {
			continue
		}
		e := exchanges[a.Exchange]
		if e == nil {
			e = &again{}
			exchanges[a.Exchange] = e
			order = append(order, a.Exchange)
		}
		row.Exchange = a.Exchange
		e.rows, e.wake = append(e.rows, row), e.wake || row.Trigger
		if row.ProcessAfter.After(e.due) {
			e.due = row.ProcessAfter
		}
	}
	next := func(at time.Time) {
		if at.After(now) && (b.Next.IsZero() || at.Before(b.Next)) {
			b.Next = at
		}
	}
	var chosen []mailbox.InRow
	for _, name := range order {
		switch e := exchanges[name]; {
		case !e.wake:
		case e.due.After(now):
			for _, row := range e.rows {
				held[row.ID] = true
			}
			next(e.due)
		case chosen == nil:
			chosen = e.rows
		}
	}
	var wake, context []mailbox.InRow
	for _, row := range h.rows {
		if row.Status == mailbox.StatusPending && row.Trigger {
			next(row.ProcessAfter)
		}
		if row.Status != mailbox.StatusPending || held[row.ID] || h.ack(row.ID).Final() {
			continue
		}
		if row.Kind == mailbox.KindSystem {
			b.System = append(b.System, row)
			continue
		}
		if row.ProcessAfter.After(now) || row.AfterIncarnation >= h.mine {
			continue
		}
		if row.Trigger {
			wake = append(wake, row)
		} else {
			context = append(context, row)
		}
	}
	if chosen == nil && len(wake) > 0 {
		chosen = wake[:min(limit, len(wake))]
		room := min(limit-len(chosen), len(context))
		chosen = slices.Concat(chosen, context[len(context)-room:])
		slices.SortFunc(chosen, func(a, b mailbox.InRow) int { return cmp.Compare(a.Seq, b.Seq) })
	}
	for _, row := range chosen {
		if err := row.Validate(); err != nil {
			b.Broken = append(b.Broken, mailbox.Failure{ID: row.ID, Reason: err.Error()})
		} else {
			b.Rows = append(b.Rows, row)
		}
	}
	if !slices.ContainsFunc(b.Rows, func(r mailbox.InRow) bool { return r.Trigger }) {
		b.Rows = nil
	}
	return b
}

func (h *simHandle) Claim(_ context.Context, exchange string, ids []string) error {
	return h.write("claim", func() error {
		for _, id := range ids {
			if h.ack(id).Final() {
				return fmt.Errorf("claim %s: %w", id, mailbox.ErrInvalid)
			}
		}
		h.claim(h, exchange, ids)
		for _, id := range ids {
			h.acks[id] = mailbox.Ack{MessageID: id, Status: mailbox.AckProcessing, Incarnation: h.mine, Exchange: exchange}
		}
		return nil
	})
}

func (h *simHandle) Release(_ context.Context, ids []string) error {
	return h.write("release", func() error { h.release(ids); return nil })
}

func (h *simHandle) release(ids []string) {
	for _, id := range ids {
		if a := h.acks[id]; a.Status == mailbox.AckProcessing && a.Incarnation == h.mine {
			delete(h.acks, id)
		}
	}
}

func (h *simHandle) Write(_ context.Context, row mailbox.OutRow) (out mailbox.OutRow, err error) {
	err = h.write("write", func() error {
		out, err = h.insert(row, mailbox.Finish{})
		return err
	})
	return out, err
}

func (h *simHandle) insert(row mailbox.OutRow, f mailbox.Finish) (mailbox.OutRow, error) {
	if row.ID == "" {
		row.ID = id.New(id.PrefixMessage)
	}
	row.Incarnation, row.Timestamp = h.mine, time.Now()
	if err := row.Validate(); err != nil {
		return row, err
	}
	h.seq += 1 + h.seq%2
	row.Seq = h.seq
	h.wrote(h, row, f)
	h.out, h.outAt = append(h.out, row), append(h.outAt, len(h.dests)-1)
	return row, nil
}

func (h *simHandle) Finish(_ context.Context, f mailbox.Finish) (out []mailbox.OutRow, err error) {
	err = h.write("finish", func() error {
		h.ended(h, f)
		for _, row := range f.Out {
			if row, err = h.insert(row, f); err != nil {
				return err
			}
			out = append(out, row)
		}
		final := func(id string, status mailbox.AckStatus, reason string) {
			if a := h.acks[id]; !a.Status.Final() {
				h.acks[id] = mailbox.Ack{MessageID: id, Status: status, Incarnation: h.mine, Exchange: a.Exchange, Reason: reason}
			}
		}
		for _, id := range f.Completed {
			final(id, mailbox.AckCompleted, "")
		}
		for _, x := range f.Failed {
			final(x.ID, mailbox.AckFailed, x.Reason)
		}
		for _, x := range f.Skipped {
			final(x.ID, mailbox.AckScriptError, x.Reason)
		}
		h.release(f.Release)
		maps.Copy(h.state, f.State)
		for _, key := range f.Forget {
			delete(h.state, key)
		}
		h.usage = append(h.usage, f.Usage...)
		return nil
	})
	return out, err
}

func (h *simHandle) Sent(_ context.Context, exchange string) (out []mailbox.OutRow, err error) {
	err = h.read("sent", func() {
		for _, row := range h.out {
			if row.Exchange == exchange {
				out = append(out, row)
			}
		}
	})
	return out, err
}

func (b *simBox) names() []mailbox.Destination { return b.dests[len(b.dests)-1] }

func named(all []mailbox.Destination, name string) (mailbox.Destination, bool) {
	for _, d := range all {
		if d.Name == name {
			return d, true
		}
	}
	return mailbox.Destination{}, false
}

func (h *simHandle) Destinations(context.Context) (all []mailbox.Destination, err error) {
	err = h.read("destinations", func() { all = slices.Clone(h.names()) })
	return all, err
}

func (h *simHandle) Destination(_ context.Context, name string) (d mailbox.Destination, ok bool, err error) {
	err = h.read("destination", func() { d, ok = named(h.names(), name) })
	return d, ok, err
}

func (h *simHandle) DestinationFor(_ context.Context, a mailbox.Address) (d mailbox.Destination, ok bool, err error) {
	err = h.read("destination for", func() { d, ok = h.nameOf(a) })
	return d, ok, err
}

func (b *simBox) nameOf(a mailbox.Address) (mailbox.Destination, bool) {
	a.ThreadID = ""
	for _, d := range b.names() {
		if d.Address() == a {
			return d, true
		}
	}
	return mailbox.Destination{}, false
}

func (h *simHandle) LatestFrom(_ context.Context, a mailbox.Address) (row mailbox.InRow, ok bool, err error) {
	err = h.read("latest", func() { row, ok = h.latest(a) })
	return row, ok, err
}

func (b *simBox) latest(a mailbox.Address) (row mailbox.InRow, ok bool) {
	for _, in := range b.rows {
		if in.ChannelType == a.ChannelType && in.PlatformID == a.PlatformID {
			row, ok = in, true
		}
	}
	return row, ok
}

func (h *simHandle) Routing(context.Context) (a mailbox.Address, err error) {
	err = h.read("routing", func() { a = h.routing })
	return a, err
}

func (h *simHandle) Row(_ context.Context, id string) (row mailbox.InRow, err error) {
	ok := false
	err = h.read("row", func() { row, ok = h.find(id) })
	if err == nil && !ok {
		err = mailbox.ErrNotExist
	}
	return row, err
}

func (h *simHandle) InBySeq(_ context.Context, seq int64) (row mailbox.InRow, ok bool, err error) {
	err = h.read("in by seq", func() {
		for _, in := range h.rows {
			if in.Seq == seq {
				row, ok = in, true
			}
		}
	})
	return row, ok, err
}

func (h *simHandle) OutBySeq(_ context.Context, seq int64) (row mailbox.OutRow, ok bool, err error) {
	err = h.read("out by seq", func() {
		for _, out := range h.out {
			if out.Seq == seq {
				row, ok = out, true
			}
		}
	})
	return row, ok, err
}

func (h *simHandle) Delivered(_ context.Context, id string) (d mailbox.Delivered, ok bool, err error) {
	err = h.read("delivered", func() { d, ok = h.delivered[id] })
	return d, ok, err
}

func (h *simHandle) PutOutBlob(_ context.Context, rowID, name string, src io.Reader, _ int64) error {
	if _, err := io.Copy(io.Discard, src); err != nil {
		return err
	}
	h.Lock()
	defer h.Unlock()
	h.blobs[rowID] = append(h.blobs[rowID], name)
	return nil
}

func (h *simHandle) DropOutBlobs(rowID string) error {
	h.Lock()
	defer h.Unlock()
	delete(h.blobs, rowID)
	return nil
}

func (h *simHandle) StateValue(_ context.Context, key string) (v string, ok bool, err error) {
	err = h.read("state", func() { v, ok = h.state[key] })
	return v, ok, err
}

func (h *simHandle) DeleteState(_ context.Context, key string) error {
	return h.write("delete state", func() error { delete(h.state, key); return nil })
}

func (h *simHandle) SetContainer(context.Context, mailbox.ContainerState) error {
	return h.write("container", func() error { return nil })
}

func (h *simHandle) Usage(context.Context) (all []mailbox.Usage, err error) {
	err = h.read("usage", func() { all = slices.Clone(h.usage) })
	return all, err
}

func (h *simHandle) Beat() error { return nil }

// rowsOf are the rows that are claimed for an exchange now, by seq.
func (b *simBox) rowsOf(exchange string) (rows []mailbox.InRow) {
	for _, row := range b.rows {
		if a := b.acks[row.ID]; a.Status == mailbox.AckProcessing && a.Exchange == exchange {
			rows = append(rows, row)
		}
	}
	return rows
}

// human: somebody who can be written to waits for an answer to the row.
func human(r mailbox.InRow) bool {
	return r.Trigger && strings.HasPrefix(string(r.Kind), "chat") && r.PlatformID != "" && (r.ChannelType == "cli" || r.ChannelType == "telegram")
}

// taskOnly: nobody waits for an answer to the rows, and only tools may send.
func taskOnly(rows []mailbox.InRow) bool {
	tasks := 0
	for _, r := range rows {
		if r.Kind == mailbox.KindTask {
			tasks++
		} else if r.ChannelType != mailbox.ChannelEcho {
			return false
		}
	}
	return tasks > 0
}
