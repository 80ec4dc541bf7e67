// Package block finds the addressed blocks in the text of a model while it streams, and nothing else: it knows no
// destinations, no mailbox and no clock (spec/runner.md section 4, design.md section 6).
//
// # Grammar
//
//	block     <message to="NAME">BODY</message>   exactly this form, case-sensitive; NAME is any text without " < ` or
//	                                              a newline; white space is allowed after `message` and before `>`
//	internal  <internal …>…</internal>            in any case, nested to any depth, removed wherever it stands
//	code      a run of backticks up to the next run of the same length on its line, and fences: tags in it are text
//
// Anything else is bare text. A fence is a line of at least three backticks with an optional info string, at the start
// of a line or right behind a tag; it ends at a line of at least as many, behind which a closing tag may follow.
//
// # Promises
//
//   - How the text is cut into Write calls changes nothing about what comes out; the work per byte is bounded.
//   - A lone block leaves with the byte that closes it, or at the end of its line if a backtick before it on that line
//     is still waiting for its partner.
//   - From an open tag inside an open block on, everything is held until the tags balance: then the inner block is text
//     of the outer one. If they do not balance by End, the blocks that are closed leave under their own names and the
//     ones that are not are reported as Unclosed. At most MaxHeld bytes are held; beyond, the outer block is TooLarge.
//   - A fence that is not closed by End is read again without fences, so it delays blocks but never hides them.
//   - Nothing inside an internal span ever leaves, also when the span is not closed by End: blocks in it may be drafts.
//     They are reported as Withheld so that the model can be asked, and their text is not part of the bare text.
//   - Memory is bounded by the limits below, whatever is written.
package block

// Limits, in bytes. MaxBody is what a mailbox row can carry (mailbox.MaxContent) before encoding.
const (
	MaxBody  = 256 << 10 // body of one block
	MaxHeld  = 256 << 10 // text from a nested open tag on
	MaxBare  = 256 << 10 // bare text kept for End
	maxFence = 256 << 10 // an open fence beyond this is taken as code even if it is never closed
	maxLine  = 64 << 10  // how far behind a run of backticks its partner may stand
	maxTag   = 1 << 10   // a longer tag is text
	maxNames = 32        // names remembered of blocks in an internal span
)

// Fate is what became of a block.
type Fate string

// Fates. Only Deliver may leave.
const (
	Deliver  Fate = "deliver"   // closed; Body is clean and not empty
	Empty    Fate = "empty"     // closed, but nothing is left after clean-up
	Unclosed Fate = "unclosed"  // not closed by the end; Body is what stood in it up to the next open tag
	TooLarge Fate = "too-large" // longer than MaxBody or MaxHeld; Body is empty
	Withheld Fate = "withheld"  // stands in an internal span that was not closed by the end; Body is empty
)

// Item is one block and its fate.
type Item struct {
	Fate    Fate
	To      string // as written, not unescaped
	Body    string // internal spans removed, trimmed, trailing harness tags removed
	Segment int    // segment in which the close tag arrived, for blocks without one the last segment; from 1
}

// Rest is what an exchange leaves behind at its end.
type Rest struct {
	// Items that could only be decided now, in the order of the text.
	Items []Item
	// Bare is the text outside of blocks and internal spans, trimmed; empty if there was none. At most MaxBare bytes.
	Bare string
	// BareCut says that Bare is only the beginning.
	BareCut bool
	// OpenInternal says that an internal span was not closed: everything behind it was withheld.
	OpenInternal bool
}

// Parser reads the text of one exchange. It is not safe for use by several goroutines. Make one with New.
type Parser struct {
	segment int
	items   []Item
	lexer
	blocks
}

// New returns a parser at segment 1.
func New() *Parser {
	p := &Parser{segment: 1}
	p.reset()
	return p
}

// Write reads more text and returns the blocks that were decided by it: with fate Deliver, Empty or TooLarge.
func (p *Parser) Write(text string) []Item {
	if len(text) != 1 || !p.feedByte(text[0]) {
		p.feed(text)
	}
	return p.take()
}

// Segment says that a tool call stands between the text so far and what follows. Text goes on without a separator: a
// block and even a tag may span segments. Only code notices: the line ends here.
func (p *Parser) Segment() []Item {
	p.endLine()
	p.segment++
	return p.take()
}

// End says that the text is complete, and returns what is left. The parser is then as new, but the number of segments
// goes on: text written after End (the answer to a nudge) is one segment further.
func (p *Parser) End() Rest {
	p.endLexer()
	r := p.finish()
	r.Items = p.take()
	p.reset()
	p.segment++
	return r
}

// SegmentNumber is the number of the running segment, from 1.
func (p *Parser) SegmentNumber() int { return p.segment }

func (p *Parser) reset() {
	p.resetLexer()
	p.resetBlocks()
}

func (p *Parser) take() []Item {
	if len(p.items) == 0 {
		return nil
	}
	out := p.items
	p.items = nil
	return out
}
