package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"nanoclaw/internal/config"
	"nanoclaw/internal/control"
	"nanoclaw/internal/sandbox/limit"
	"nanoclaw/internal/store"
)

// Results of a check.
const (
	checkOK      = "ok"
	checkWarn    = "warn"
	checkFail    = "fail"
	checkSkipped = "skipped"
)

// check is one answer of doctor.
type check struct {
	ID     string `json:"id"`
	Title  string `json:"title"`
	Result string `json:"result"` // ok, warn, fail, skipped
	Detail string `json:"detail"`
	Fix    string `json:"fix,omitempty"`
}

func (a *app) doctorCommand() *cobra.Command {
	var asJSON bool
	var provider, model string
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check this machine and this home",
		Long:  "doctor looks at what the host needs and says what to do about what is wrong. It changes nothing. With --provider it looks for that provider's program and makes one real call to its model instead. Exit code 9 if a check fails.",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var checks []check
			var err error
			switch {
			case provider != "":
				checks, err = a.doctorProvider(cmd.Context(), provider, model)
			case model != "":
				err = usagef("--model goes with --provider")
			default:
				checks, err = a.doctor(cmd.Context())
			}
			if err != nil {
				return err
			}
			if asJSON {
				a.printJSON(a.out, map[string][]check{"checks": checks})
			} else {
				printChecks(a.out, checks)
			}
			for _, c := range checks {
				if c.Result == checkFail {
					return &exitError{code: exitChecks}
				}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().StringVar(&provider, "provider", "", "look at one provider: claude, anthropic, openai, ollama, codex, opencode or acp")
	cmd.Flags().StringVar(&model, "model", "", "the model to ask with --provider; without it the list of models is asked for")
	a.settingFlags(cmd)
	return cmd
}

// doctorProvider is doctor about one provider.
func (a *app) doctorProvider(ctx context.Context, provider, model string) ([]check, error) {
	home, err := a.home()
	if err != nil {
		return nil, err
	}
	s, err := a.load(home)
	if err != nil {
		return nil, err
	}
	c, err := a.checkProvider(ctx, home, s, provider, model)
	if _, has := programSetting(s, provider); !has || err != nil {
		return []check{c}, err
	}
	needed := control.Status{Programs: []control.ProgramStatus{{Name: provider, Agents: []string{"every agent with this provider"}}}}
	return []check{a.checkProgram(ctx, s, a.chooseSandbox(ctx, s), needed, provider), c}, nil
}

func printChecks(w io.Writer, checks []check) {
	for _, c := range checks {
		fmt.Fprintf(w, "%-7s  %s: %s\n", c.Result, c.Title, c.Detail)
		if c.Fix != "" && c.Result != checkOK {
			fmt.Fprintf(w, "         → %s\n", c.Fix)
		}
	}
}

// doctor runs all checks, in an order in which earlier ones explain later ones.
func (a *app) doctor(ctx context.Context) ([]check, error) {
	home, err := a.home()
	if err != nil {
		return nil, err
	}
	s, settingsErr := a.load(home)
	if settingsErr != nil {
		if s, err = config.Defaults(home); err != nil {
			return nil, fmt.Errorf("load default settings: %w", err)
		}
	}
	c := control.NewClient(home)
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	st, hostErr := c.Status(ctx)
	sandbox := a.chooseSandbox(ctx, s)
	checks := []check{
		checkSettings(settingsErr), checkHome(home), checkDisk(home), a.checkClock(s), checkHost(home, st, hostErr),
		checkSandbox(sandbox), a.checkDocker(ctx, s), a.checkBubblewrap(ctx), a.checkLimits(sandbox, st), checkPrograms(),
	}
	return append(append(checks, a.checkProviderPrograms(ctx, s, sandbox, st)...), a.checkKey(home, st, hostErr)), nil
}

func checkSettings(err error) check {
	c := check{ID: "settings", Title: "settings", Result: checkOK, Detail: "valid"}
	if err != nil {
		c.Result, c.Detail, c.Fix = checkFail, strings.ReplaceAll(err.Error(), "\n", "; "), "correct "+config.FileName+", the variable or the flag it names"
	}
	return c
}

func checkHome(home string) check {
	c := check{ID: "home", Title: "home folder", Result: checkOK, Detail: home}
	fi, err := os.Stat(home)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		c.Detail += " does not exist yet; the first start makes it"
	case err != nil:
		c.Result, c.Detail = checkFail, err.Error()
	case !fi.IsDir():
		c.Result, c.Detail, c.Fix = checkFail, home+" is not a folder", "choose another one with --home or NANOCLAW_HOME"
	case fi.Mode().Perm()&0o066 != 0:
		c.Result, c.Detail, c.Fix = checkWarn, fmt.Sprintf("%s has mode %04o; others of this machine can look in", home, fi.Mode().Perm()), "chmod 711 "+home
	case unix.Access(home, unix.W_OK) != nil:
		c.Result, c.Detail, c.Fix = checkFail, home+" cannot be written by this user", "run as its owner, or choose another one with --home"
	}
	return c
}

// Free space in bytes below which doctor warns and fails.
const (
	diskWarn = 2 << 30
	diskFail = 200 << 20
)

func checkDisk(home string) check {
	c := check{ID: "disk", Title: "disk space", Result: checkOK}
	at := home
	var st unix.Statfs_t
	err := unix.Statfs(at, &st)
	for errors.Is(err, unix.ENOENT) && at != filepath.Dir(at) {
		at = filepath.Dir(at)
		err = unix.Statfs(at, &st)
	}
	if err != nil {
		c.Result, c.Detail = checkWarn, "cannot be read: "+err.Error()
		return c
	}
	free := st.Bavail * uint64(st.Bsize)
	c.Detail = fmt.Sprintf("%d MiB free at %s", free>>20, at)
	switch {
	case free < diskFail:
		c.Result, c.Fix = checkFail, "make room: messages are stored before they are acknowledged"
	case free < diskWarn:
		c.Result, c.Fix = checkWarn, "make room soon"
	}
	return c
}

func (a *app) checkClock(s config.Settings) check {
	zone := config.Zone(s.Zone, a.Getenv)
	now := time.Now()
	c := check{ID: "clock", Title: "clock and zone", Result: checkOK, Detail: fmt.Sprintf("%s, zone %s", now.UTC().Format(time.RFC3339), zone)}
	if now.Year() < 2025 {
		c.Result, c.Fix = checkFail, "set the clock: certificates and schedules depend on it"
	}
	return c
}

func checkHost(home string, st control.Status, err error) check {
	c := check{ID: "host", Title: "host", Result: checkOK}
	owner, held := store.LockOwner(home)
	switch {
	case err == nil && st.Version != control.Version():
		c.Result, c.Detail, c.Fix = checkWarn, fmt.Sprintf("runs version %s, this program is %s", st.Version, control.Version()), "restart it: nanoclaw stop, then nanoclaw serve"
	case err == nil && st.State != control.HostRunning:
		c.Result, c.Detail = checkWarn, fmt.Sprintf("process %d is %s: %s", st.PID, st.State, strings.Join(st.Warnings, "; "))
	case err == nil:
		c.Detail = fmt.Sprintf("process %d runs since %s", st.PID, st.Started.Local().Format(time.DateTime))
	case held:
		c.Result, c.Detail = checkFail, fmt.Sprintf("process %d (version %s, since %s) holds the lock of this home but does not answer: %v", owner.PID, owner.Version, owner.Since, err)
		c.Fix = fmt.Sprintf("look at its log; as the last resort end process %d", owner.PID)
	case control.IsCode(err, control.CodeUnreachable):
		c.Result, c.Detail = checkSkipped, "not running; chat starts it"
	default:
		c.Result, c.Detail = checkFail, err.Error()
	}
	return c
}

func checkSandbox(ch choice) check {
	c := check{ID: "sandbox", Title: "sandbox", Result: checkOK, Detail: ch.kind + ": " + ch.why, Fix: ch.fix}
	switch ch.kind {
	case "":
		c.Result, c.Detail = checkFail, ch.why
	case "process":
		c.Result, c.Fix = checkWarn, "agents run without isolation; use docker or bubblewrap for anything but tests"
	}
	return c
}

func (a *app) checkDocker(ctx context.Context, s config.Settings) check {
	c := check{ID: "docker", Title: "docker", Result: checkOK}
	d := a.dockerState(ctx, s)
	c.Detail = d.Detail
	switch {
	case !d.Daemon:
		c.Result = checkSkipped
		if strings.Contains(d.Detail, "permission denied") {
			c.Fix = "to use it, put this user into the group docker, which is as good as root, and log in again"
		}
	case !d.Image:
		c.Result, c.Detail, c.Fix = checkSkipped, d.Detail+"; image "+s.Image+" is not built", "nanoclaw image build"
	}
	return c
}

func (a *app) checkBubblewrap(ctx context.Context) check {
	c := check{ID: "bubblewrap", Title: "bubblewrap", Result: checkOK}
	path, err := a.Machine.LookPath("bwrap")
	if err != nil {
		c.Result, c.Detail, c.Fix = checkSkipped, "not installed", a.bubblewrapAdvice(true)
		return c
	}
	version, err := a.Machine.Run(ctx, path, "--version")
	if err != nil {
		c.Result, c.Detail = checkWarn, firstLine(version, err)
		return c
	}
	c.Detail = path + ", " + version
	return c
}

// checkLimits says what bounds a sandbox: as the running host found it, else as this machine would do it.
func (a *app) checkLimits(ch choice, st control.Status) check {
	c := check{ID: "limits", Title: "limits", Result: checkOK, Detail: st.Sandbox.Limits}
	if c.Detail == "" && ch.kind == "docker" {
		c.Result, c.Detail = checkSkipped, "the daemon bounds sandboxes"
		return c
	}
	if c.Detail == "" {
		c.Detail = a.Machine.Limits()
	}
	switch c.Detail {
	case limit.Prlimit:
		c.Result = checkWarn
		c.Detail += ": the memory of each process and the number of this user's processes are bounded, a sandbox as a whole and its processors are not"
		c.Fix = "give this user a systemd manager of its own (loginctl enable-linger), run the host as root, or use docker"
	case limit.None:
		c.Result, c.Detail = checkWarn, "nothing bounds memory, processes and processors of a sandbox"
	}
	return c
}

func checkPrograms() check {
	c := check{ID: "programs", Title: "companion programs", Result: checkOK}
	dir, err := executableDir()
	if err != nil {
		c.Result, c.Detail = checkFail, err.Error()
		return c
	}
	var missing []string
	for _, name := range []string{"agent-runner", "ncl"} {
		if fi, err := os.Stat(filepath.Join(dir, name)); err != nil || fi.Mode()&0o111 == 0 {
			missing = append(missing, name)
		}
	}
	c.Detail = "agent-runner and ncl are beside nanoclaw in " + dir
	if len(missing) > 0 {
		c.Result, c.Detail, c.Fix = checkFail, strings.Join(missing, " and ")+" missing beside nanoclaw in "+dir, "build them with: make build"
	}
	return c
}

func (a *app) checkKey(home string, st control.Status, hostErr error) check {
	c := check{ID: "key", Title: "model key", Result: checkOK, Detail: "the host holds a key"}
	have := hostErr == nil && st.Provider.Key
	if hostErr != nil {
		entries, err := os.ReadDir(filepath.Join(home, "secrets"))
		have = err == nil && len(entries) > 0
		c.Detail = "a key is stored in this home"
	}
	for _, k := range keyVariables {
		if !have && a.Getenv(k.variable) != "" {
			have, c.Detail = true, k.variable+" is set; chat hands it to the host"
		}
	}
	if !have {
		c.Result, c.Detail, c.Fix = checkWarn, "none; the built-in offline provider answers", "set ANTHROPIC_API_KEY or CLAUDE_CODE_OAUTH_TOKEN and run: nanoclaw chat"
	}
	return c
}
