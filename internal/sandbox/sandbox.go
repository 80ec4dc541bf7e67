// Package sandbox is the contract for running an agent away from everything else: a spec goes in, a handle comes out, and
// a sandbox outlives the host that started it. Every runtime passes sandboxtest (design.md section 4).
package sandbox

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Runtime starts and finds sandboxes. Methods may be called from several goroutines; each blocks until the runtime has
// answered or ctx ends.
type Runtime interface {
	// Name is docker, bubblewrap or process.
	Name() string
	// Start runs the spec. At most one sandbox per (install, session) may run: a second Start gets ErrRunning.
	Start(ctx context.Context, spec Spec) (Handle, error)
	// List finds the running sandboxes of this install, also those started by an earlier host.
	List(ctx context.Context, install string) ([]Handle, error)
	// Limits says which means enforces memory, pids and cpu here, for `status` and `doctor`; "none" if nothing does.
	Limits() string
}

// Handle is one sandbox. It stays valid after its end.
type Handle interface {
	Labels() Labels
	// Stop sends SIGTERM, waits for grace, then kills. It returns when nothing of the sandbox runs any more.
	Stop(ctx context.Context, grace time.Duration) error
	// Wait blocks until the sandbox has ended or ctx ends.
	Wait(ctx context.Context) (Exit, error)
	// PID is the runner's process id as the host sees it; 0 if unknown.
	PID() int
}

// Exit says how a sandbox ended.
type Exit struct {
	Code   int    // -1 if unknown or ended by a signal
	Signal string // name of the signal, if any
	OOM    bool
	Stderr string // last lines, redacted by the caller before they are logged
}

// Labels identify a sandbox across restarts of the host.
type Labels struct {
	Install     string // exact id of the home; foreign sandboxes are never touched (spec/bugs.md CON-1)
	AgentGroup  string
	Session     string
	Incarnation int64
}

// Class of a mount, which decides its mode and owner.
type Class string

// Mount classes. Read-only ones are never writable inside.
const (
	ClassProgram Class = "program" // our programs and the provider's: read-only
	ClassHostBox Class = "host"    // in/ and run/: read-only inside, owned by the host, readable to the sandbox's gid
	ClassAgent   Class = "agent"   // out/, home/, group folder: read-write, owned by the sandbox's uid, 0700
	ClassConfig  Class = "config"  // container.json and the like: read-only, nested over an agent mount
	ClassExtra   Class = "extra"   // allowlisted folders of the operator
)

// Mount binds a host file or folder into the sandbox. Both paths are absolute and clean; Source must exist.
type Mount struct {
	Class    Class
	Source   string
	Target   string
	Writable bool // only for agent and extra
}

// Spec is what to run, as data.
type Spec struct {
	Labels  Labels
	Image   string // docker only; "" is the configured default
	Command []string
	Dir     string // working directory inside
	Mounts  []Mount
	Env     map[string]string // refused when a name or value looks like a credential
	Limits  Limits
	Network Network
	// UID and GID the sandbox runs as on the host; never 0.
	UID, GID int
	// StateDir is a private folder of the host for records, logs and exit codes of this session's sandbox.
	StateDir string
}

// Network inside a sandbox.
type Network string

// NetworkNone is the only wall: loopback alone. The process runtime cannot keep it and says so.
const NetworkNone Network = "none"

// Limits of a sandbox; zero is no limit.
type Limits struct {
	MemoryBytes int64
	PIDs        int64
	CPUs        float64
	TmpBytes    int64 // size of /tmp and of /run; zero is 256 MiB
}

// FailureClass says why a sandbox did not start or did not live.
type FailureClass string

// Failure classes (spec/host.md section 24.2).
const (
	SpecInvalid        FailureClass = "spec-invalid"
	Denied             FailureClass = "denied"
	ImageUnavailable   FailureClass = "image-unavailable"
	RuntimeUnavailable FailureClass = "runtime-unavailable"
	ResourcesExhausted FailureClass = "resources-exhausted"
	Died               FailureClass = "died"
)

// Retryable reports whether the same spec may succeed later without anybody acting.
func (c FailureClass) Retryable() bool {
	return c == RuntimeUnavailable || c == ResourcesExhausted || c == Died
}

// Failure is the error of Start and Stop.
type Failure struct {
	Class FailureClass
	Op    string // what was attempted
	Hint  string // what the operator can do
	Err   error
}

func (f *Failure) Error() string {
	s := fmt.Sprintf("%s: %s", f.Op, f.Class)
	if f.Err != nil {
		s += ": " + f.Err.Error()
	}
	if f.Hint != "" {
		s += " (" + f.Hint + ")"
	}
	return s
}

func (f *Failure) Unwrap() error { return f.Err }

// ErrRunning: this session has a sandbox already.
var ErrRunning = errors.New("sandbox already running")
