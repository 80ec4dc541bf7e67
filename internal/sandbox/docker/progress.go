package docker

import (
	"errors"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// stepLine matches the line with which Docker ("Step 2/9 : RUN …") and Podman ("STEP 2/9: RUN …", in stages
// "[1/2] STEP 2/9: RUN …") begin a step.
var stepLine = regexp.MustCompile(`^(?:\[(\d+/\d+)\] )?(?:Step|STEP) (\d{1,4})/(\d{1,4}) ?: (.*)$`)

// escape sequences of programs that think they write to a terminal, and of the builder, which paints standard error red.
var escape = regexp.MustCompile("\x1b\\[[0-9;?]*[A-Za-z]")

// exitStatus is how Docker and Podman say that a step's command failed; before it they repeat the whole command.
var exitStatus = regexp.MustCompile(`(?s)(?:returned a non-zero code: |exit status )(\d{1,3})$`)

// textLimit is the length in bytes of an instruction in a Step; longest line kept of a step's output.
const (
	textLimit = 100
	lineLimit = 1 << 10
)

// progress turns the lines of a builder into steps.
type progress struct {
	now   func() time.Time
	step  func(Step)
	open  Step // the step that runs; N is 0 before the first
	begun time.Time
	rest  string // of a line that has no end yet
	tail  []string
	built bool
}

func (p *progress) write(s string) {
	for s != "" {
		line, after, ended := strings.Cut(s, "\n")
		if len(p.rest)+len(line) <= lineLimit {
			p.rest += line
		} else if len(p.rest) < lineLimit {
			p.rest += line[:lineLimit-len(p.rest)]
		}
		if ended {
			p.flush()
		}
		s = after
	}
}

func (p *progress) flush() {
	line := p.rest
	p.rest = ""
	if i := strings.LastIndexByte(strings.TrimRight(line, "\r"), '\r'); i >= 0 {
		line = line[i+1:] // a line that was drawn over
	}
	line = strings.ToValidUTF8(strings.TrimSpace(escape.ReplaceAllString(line, "")), "\uFFFD")
	if m := stepLine.FindStringSubmatch(line); m != nil {
		p.finish()
		n, _ := strconv.Atoi(m[2]) // at most four digits
		of, _ := strconv.Atoi(m[3])
		p.open = Step{N: n, Of: of, Stage: m[1], Text: short(m[4])}
		p.begun, p.tail = p.now(), nil
		p.step(p.open)
		return
	}
	switch {
	case line == "":
	case strings.HasPrefix(line, "---> Using cache"), strings.HasPrefix(line, "--> Using cache"):
		p.open.Cached = true
	case strings.HasPrefix(line, "---> "), strings.HasPrefix(line, "--> "), strings.HasPrefix(line, "Removing intermediate container"):
	case strings.HasPrefix(line, "Successfully built "):
		p.built = true
	default:
		p.tail = append(p.tail, line)
		if len(p.tail) > errorLines {
			p.tail = p.tail[1:]
		}
	}
}

func (p *progress) finish() {
	if p.open.N == 0 {
		return
	}
	p.open.Done, p.open.Elapsed = true, p.now().Sub(p.begun)
	p.step(p.open)
	p.open = Step{}
}

func (p *progress) fail(err error) error {
	if m := exitStatus.FindStringSubmatch(err.Error()); m != nil {
		err = errors.New("exit code " + m[1])
	}
	return &BuildError{Step: p.open, Lines: p.tail, Err: err}
}

func short(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if len(s) <= textLimit {
		return s
	}
	return strings.ToValidUTF8(s[:textLimit], "") + " …"
}
