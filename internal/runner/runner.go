// Package runner is the loop inside the sandbox: it takes due rows from the mailbox, asks the provider, and lets out what the
// model addressed (design.md sections 6 and 7; spec/runner.md sections 3 to 5). One goroutine owns all of its state: provider
// events, rings of the bell and calls of the tools are handled one after the other, in the order in which they came.
package runner

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/mailbox/sqlite"
	"nanoclaw/internal/obs"
	"nanoclaw/internal/provider"
	"nanoclaw/internal/runner/turn"
)

// Inbox is what the loop reads of the session.
type Inbox interface {
	// Fetch returns the next batch and claims nothing.
	Fetch(ctx context.Context, limit int) (sqlite.Batch, error)
	Destinations(ctx context.Context) ([]mailbox.Destination, error)
	Destination(ctx context.Context, name string) (mailbox.Destination, bool, error)
	DestinationFor(ctx context.Context, a mailbox.Address) (mailbox.Destination, bool, error)
	LatestFrom(ctx context.Context, a mailbox.Address) (mailbox.InRow, bool, error)
	Routing(ctx context.Context) (mailbox.Address, error)
	Row(ctx context.Context, id string) (mailbox.InRow, error)
	InBySeq(ctx context.Context, seq int64) (mailbox.InRow, bool, error)
	Delivered(ctx context.Context, messageOutID string) (mailbox.Delivered, bool, error)
}

// Outbox is what the loop writes; each call is durable on return.
type Outbox interface {
	Claim(ctx context.Context, exchange string, ids []string) error
	Release(ctx context.Context, ids []string) error
	Write(ctx context.Context, row mailbox.OutRow) (mailbox.OutRow, error)
	Finish(ctx context.Context, f mailbox.Finish) ([]mailbox.OutRow, error)
	// Sent are the rows that an exchange has written, by whatever incarnation.
	Sent(ctx context.Context, exchange string) ([]mailbox.OutRow, error)
	OutBySeq(ctx context.Context, seq int64) (mailbox.OutRow, bool, error)
	PutOutBlob(ctx context.Context, rowID, name string, src io.Reader, max int64) error
	DropOutBlobs(rowID string) error
}

// Board is what the loop keeps and shows of itself.
type Board interface {
	StateValue(ctx context.Context, key string) (string, bool, error)
	DeleteState(ctx context.Context, key string) error
	SetContainer(ctx context.Context, c mailbox.ContainerState) error
	Usage(ctx context.Context) ([]mailbox.Usage, error)
	Beat() error
}

// Mailbox is the runner's half of a session; *sqlite.Runner is one.
type Mailbox interface {
	Inbox
	Outbox
	Board
}

// Bell says when to look again; *sqlite.Bell is one.
type Bell interface {
	Ring()
	Rung() <-chan struct{}
	Connected() bool
	Changed() <-chan struct{}
}

// Nudge is what the model is told, once in an exchange, when words of it did not leave.
type Nudge struct {
	Lost  []turn.Lost // blocks that did not leave
	Bare  bool        // there was text outside of blocks and nothing has left
	Task  bool        // only tools send; the text is in the run log already
	Known []string    // names of the destinations
}

// Prompt is what the model is given for a batch.
type Prompt struct {
	Text        string
	Attachments []provider.Attachment
}

// Words turns rows and decisions into text for the model and for people.
type Words interface {
	// Prompt shows rows; sent is what an earlier attempt at the same exchange has already sent.
	Prompt(ctx context.Context, rows []mailbox.InRow, sent []mailbox.OutRow) (Prompt, error)
	// Instructions are appended to the provider's own system prompt; they are read anew for each query.
	Instructions(ctx context.Context) (string, error)
	// Moved tells the model, in front of its next prompt, how the destinations have changed since; empty: not so that it matters.
	Moved(before, after []mailbox.Destination) string
	Nudge(n Nudge) string
	// RunLog is the entry that a task's final text makes in its run log; empty: none.
	RunLog(text string) string
	// Notice tells a person in plain words that the agent failed; resetsAt is when a limit ends, if known.
	Notice(class provider.Class, resetsAt time.Time) string
	// StandIn tells a person in one line that another provider answers, and why.
	StandIn(instead, answers string, class provider.Class, resetsAt time.Time) string
}

// Options of a Runner. All but those marked optional are required.
type Options struct {
	Mailbox  Mailbox
	Bell     Bell
	Provider provider.Provider
	Words    Words
	Limit    int      // rows of one prompt
	Cwd      string   // the agent's folder
	Dirs     []string // further folders it may work in
	Model    string   // for the usage log
	// Script runs the script of a task, in any goroutine, until it has ended or ctx has. It says whether the model is to be asked
	// and with what. Optional: without it tasks that have a script are skipped.
	Script func(ctx context.Context, rowID, script string) (wake bool, data json.RawMessage, err error)
	// UploadTrace hands the transcript of a conversation out and says, in words for the person, where it is. The loop waits for it.
	// Optional: switched off.
	UploadTrace func(ctx context.Context, name string, transcript io.Reader) (string, error)
	// MCP are the servers of a query; it is called before each one. Optional.
	MCP func(ctx context.Context) ([]provider.MCPServer, error)
	// Fallbacks stand in for Provider, in this order, when it cannot answer for a reason of its own. Optional.
	Fallbacks []Driver
	// Looked is called once, after the first look at the inbox. Optional.
	Looked func()
	// Ended is called when a query has ended. Optional.
	Ended func()
	// Rested is called when an exchange or a tool's work has ended and nothing else is under way. Optional.
	Rested func()
	// Once: return when nothing due is left and the last exchange has ended.
	Once bool
	// Pauses before each retry of an exchange that failed in a way that may pass; after the last one it is given up. Optional.
	Pauses []time.Duration
	Now    func() time.Time // optional
	Log    *slog.Logger     // optional
}

// Numbers of the loop.
const (
	pollFirst    = 50 * time.Millisecond
	pollLast     = time.Second
	corruptLimit = 10
	// maxWaiting exchanges are with the provider and not yet begun; further rows stay in the mailbox.
	maxWaiting = 16
	// commandScan is how far behind the batch a command is looked for while a turn runs.
	commandScan = 100
	// stopPatience is how long an interrupted turn may take to end before the query is aborted.
	stopPatience = 10 * time.Second
	// abortPatience is how long a provider may take to abort; its own bound is shorter.
	abortPatience = 20 * time.Second
	// closePatience bounds the writes of a shutdown.
	closePatience = 5 * time.Second
)

func pauses() []time.Duration {
	return []time.Duration{time.Second, 5 * time.Second, 20 * time.Second}
}

// Runner is the loop. Make one with New; Run may be called once.
type Runner struct {
	opt Options
	log *slog.Logger

	errands    chan *errand
	scripts    chan scripted
	beside     context.Context // of the scripts
	endScripts context.CancelFunc
	slots      chan struct{} // one for each script that runs
	gone       chan struct{} // closed when Run returns

	// All below belongs to the goroutine of Run.

	drivers []Driver    // the first one, then its fallbacks
	at      int         // which of them answers
	away    []time.Time // until when each one is not asked
	caps    provider.Caps
	q       *query
	ahead   *provider.Event // read from the query and not yet handled
	running *turn.Exchange  // the one the provider works on
	last    *turn.Exchange  // the one whose turn has ended last and that is asked again
	input   string          // id of its prompt
	waiting []asked         // prompts that are with the provider and not yet begun, in their order
	backlog []retry         // claimed exchanges that are to be asked (again) when the provider is idle
	loose   []mailbox.OutRow
	stop    stopping
	task    bool               // the session is one of tasks
	batch   int64              // commands up to this seq wait for the rows before them
	gated   map[string]bool    // tasks whose scripts run; true: an earlier incarnation had asked about them
	waiters map[string]*waiter // by the id of the row they wait for
	spent   []mailbox.Usage    // not yet in the usage log
	notes   notes

	continuation string // what a new query resumes: that of the last completed turn
	stored       string // the same, in session state
	seen         string // of the running query

	look    bool      // the inbox is to be looked at
	looked  bool      // it was, at least once
	blind   bool      // the last look failed and is repeated
	due     time.Time // when another row becomes due
	poll    poll
	corrupt int // failures in a row
	board   board
	side    sync.WaitGroup
}

// asked is an exchange whose prompt the provider has.
type asked struct {
	exchange *turn.Exchange
	input    string
}

// retry is an exchange that is to be asked not before at; text is the prompt if it is not made from the rows.
type retry struct {
	exchange *turn.Exchange
	at       time.Time
	text     string
}

// stopping is a /stop under way.
type stopping struct {
	exchange *turn.Exchange
	deadline time.Time
}

// poll is the adaptive poll that replaces a bell that is not connected.
type poll struct {
	at    time.Time
	pause time.Duration
}

// New makes a loop.
func New(opt Options) *Runner {
	if opt.Pauses == nil {
		opt.Pauses = pauses()
	}
	if opt.Now == nil {
		opt.Now = time.Now
	}
	if opt.Log == nil {
		opt.Log = obs.Discard()
	}
	opt.Mailbox = steady{opt.Mailbox}
	return &Runner{
		opt: opt, log: opt.Log.With(obs.KeyComponent, "runner"),
		drivers: append([]Driver{{opt.Provider, opt.Model, opt.MCP}}, opt.Fallbacks...), away: make([]time.Time, 1+len(opt.Fallbacks)), caps: opt.Provider.Caps(),
		errands: make(chan *errand), scripts: make(chan scripted), slots: make(chan struct{}, maxScripts), gone: make(chan struct{}),
		gated: map[string]bool{}, waiters: map[string]*waiter{}, look: true, poll: poll{pause: pollFirst},
	}
}

// Run loops until ctx ends (it then stops the provider, gives its claims back and returns nil), until nothing is left with
// Once, or until the mailbox fails: an error matching mailbox.ErrCorrupt asks for a fresh process. When it returns
// everything it started has ended.
func (r *Runner) Run(ctx context.Context) error {
	defer close(r.gone)
	if err := r.recall(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	r.beside, r.endScripts = context.WithCancel(ctx)
	defer r.endScripts()
	err := r.loop(ctx)
	if ctx.Err() != nil && !fatal(err) {
		err = nil
	}
	if closing := r.close(ctx, err); err == nil {
		err = closing
	}
	return err
}

// recall reads what the session is and which conversation it goes on with.
func (r *Runner) recall(ctx context.Context) error {
	if err := r.recallConversation(ctx); err != nil {
		return err
	}
	home, err := r.opt.Mailbox.Routing(ctx)
	if err != nil {
		return fmt.Errorf("read routing: %w", err)
	}
	r.task = strings.HasPrefix(home.ThreadID, mailbox.TaskThread)
	return nil
}

// recallConversation reads which conversation the provider goes on with.
func (r *Runner) recallConversation(ctx context.Context) error {
	v, _, err := r.opt.Mailbox.StateValue(ctx, r.stateKey())
	if err != nil {
		return fmt.Errorf("read continuation: %w", err)
	}
	r.continuation, r.stored = v, v
	return nil
}

func (r *Runner) stateKey() string { return "continuation:" + r.driver().Provider.Name() }

// exchange makes the state of an exchange over claimed rows.
func (r *Runner) exchange(id string, rows []mailbox.InRow, sent []mailbox.OutRow) *turn.Exchange {
	ex := turn.New(id, rows, sent)
	if r.task {
		ex.SetTask()
	}
	return ex
}

// idle reports whether nothing is under way with the provider.
func (r *Runner) idle() bool {
	return r.running == nil && len(r.waiting) == 0 && len(r.backlog) == 0
}
