package program

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"nanoclaw/internal/config/container"
	"nanoclaw/internal/mailbox/sqlite"
	"nanoclaw/internal/obs"
	"nanoclaw/internal/provider"
	"nanoclaw/internal/runner"
	"nanoclaw/internal/runner/door"
	"nanoclaw/internal/runner/memory"
	"nanoclaw/internal/runner/ncl"
	"nanoclaw/internal/runner/prompt"
	"nanoclaw/internal/runner/relay"
	"nanoclaw/internal/runner/script"
	"nanoclaw/internal/runner/tool"
	"nanoclaw/internal/runner/upload"
)

// session is all that one run of the program holds.
type session struct {
	paths
	ctx    context.Context // ends all that stands beside the loop
	config container.Config
	log    *slog.Logger
	box    *sqlite.Runner
	loop   *runner.Runner
	tools  *tool.Server
	side   sync.WaitGroup

	relayOnce sync.Once
	relay     *relay.Relay
	relayErr  error
}

// serve runs the loop until ctx ends or, with once, until nothing is left to do.
func serve(ctx context.Context, p paths, once bool, log *slog.Logger) (err error) {
	c, err := loadConfig(p, log)
	if err != nil {
		return err
	}
	if _, err := choose(c.Provider); err != nil {
		return err
	}
	box, err := sqlite.OpenRunner(ctx, p.root, sqlite.RunnerOptions{Incarnation: c.Incarnation, Log: log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, box.Close()) }()
	side, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s := &session{paths: p, ctx: side, config: c, log: log, box: box}
	defer s.side.Wait()
	defer cancel()
	bell := sqlite.DialBell(side, p.host, c.Incarnation, log)
	defer func() { err = errors.Join(err, bell.Close()) }()
	dirs := p.extraDirs()
	loop := &late{}
	set := tool.New(tool.Options{Session: loop, Cwd: p.agent, Roots: append([]string{filepath.Join(p.files, "inbox"), os.TempDir()}, dirs...)})
	s.tools = tool.NewServer(set, log)
	defer func() { err = errors.Join(err, s.tools.Close()) }()
	defer cancel()

	worked := make(chan struct{}, 1)
	s.side.Go(func() { reap(side, log) })
	s.side.Go(func() { trim(side, worked, box, log) })
	w := words{box: box, name: c.AssistantName, root: p.files, zone: prompt.Zone(os.Getenv("TZ")), dirs: dirs}
	if p.own {
		w.memory = p.agent
		if err := memory.Ensure(p.agent); err != nil {
			log.Warn("the agent's memory could not be set up; it goes on without", obs.Error(err))
		}
	}
	drivers, err := s.drivers(set, func() string { return w.Compaction(side) })
	if err != nil {
		return err
	}
	opt := runner.Options{
		Mailbox: box, Bell: bell, Limit: c.MaxMessagesPerPrompt, Cwd: p.agent, Dirs: dirs, Once: once, Log: log,
		Provider: drivers[0].Provider, Model: drivers[0].Model, MCP: drivers[0].MCP, Fallbacks: drivers[1:],
		Words: w, Looked: s.openDoors, Ended: s.tools.Forget, Script: s.script,
		Rested: func() {
			select {
			case worked <- struct{}{}:
			default:
			}
		},
	}
	if c.UploadTrace {
		opt.UploadTrace = s.uploadTrace
	}
	s.loop = runner.New(opt)
	loop.Session = s.loop
	log.Info("runner started", obs.KeyProvider, c.Provider, obs.KeyIncarnation, c.Incarnation, obs.KeySession, c.SessionID)
	err = s.loop.Run(ctx)
	log.Info("runner ended")
	return err
}

// drivers are the providers of the agent's settings. A fallback that cannot be made is left out, with a warning. A first one whose
// program is missing stays as one that fails, where there is another: the chat is told so.
func (s *session) drivers(set *tool.Set, compaction func() string) ([]runner.Driver, error) {
	var all []runner.Driver
	var gone error
	for i, one := range s.config.Chain() {
		d, err := s.driver(one, set, compaction)
		switch {
		case err == nil:
			all = append(all, d)
		case i == 0 && errors.Is(err, errNoProgram):
			gone = err
			all = append(all, runner.Driver{Provider: absent{one.Provider, err}})
		case i == 0:
			return nil, err
		default:
			s.log.Warn("a fallback cannot be used", obs.KeyProvider, one.Provider, obs.Error(err))
		}
	}
	if gone != nil && len(all) == 1 {
		return nil, gone
	}
	return all, nil
}

func (s *session) driver(one container.Choice, set *tool.Set, compaction func() string) (runner.Driver, error) {
	chosen, err := choose(one.Provider)
	if err != nil {
		return runner.Driver{}, err
	}
	p, err := chosen.make(setting{
		config: s.config.With(one), agent: s.agent, home: os.Getenv("HOME"), env: os.Getenv, call: set.Call, relay: s.wayOut, compaction: compaction, log: s.log,
	})
	if err != nil {
		return runner.Driver{}, err
	}
	d := runner.Driver{Provider: p, Model: one.Model}
	if chosen.tools {
		d.MCP = s.servers
	}
	return d, nil
}

// late is the loop, which is made after the tools and before anything can call them.
type late struct{ tool.Session }

// uploadTrace hands a transcript to the operator's account, by way of the host.
func (s *session) uploadTrace(ctx context.Context, name string, transcript io.Reader) (string, error) {
	out, err := s.wayOut()
	if err != nil {
		return "", err
	}
	link, err := upload.Trace(ctx, out.BaseURL(container.UploadAPI), name, transcript)
	if errors.Is(err, upload.ErrNoToken) {
		s.log.Warn("the transcript was not uploaded", obs.Error(err))
		return "There is no token for the account that transcripts go to, or it is not accepted. The person who runs this system sets NANOCLAW_HF_TOKEN and opens a chat.", nil
	}
	return "The transcript is at " + link, err
}

// script runs the script of a task in the agent's folder.
func (s *session) script(ctx context.Context, rowID, text string) (bool, json.RawMessage, error) {
	o := script.Run(ctx, script.Options{Dir: s.agent, Env: s.scriptEnv(), Timeout: time.Duration(s.config.ScriptTimeoutSeconds) * time.Second}, rowID, text)
	return o.Wake, o.Data, o.Err
}

// scriptEnv is the way out for scripts, where there is one and it needs no token: scripts get no credentials (spec/runner.md W30).
func (s *session) scriptEnv() []string {
	if s.config.Relay.Token != "" {
		return nil
	}
	if _, err := os.Stat(filepath.Join(s.host, "egress.sock")); err != nil {
		return nil
	}
	out, err := s.wayOut()
	if err != nil {
		return nil // told when it was opened
	}
	return out.Environ()
}

// servers are the tool servers of a query: our own first, then those of the agent's settings.
func (s *session) servers(ctx context.Context) ([]provider.MCPServer, error) {
	url, token, err := s.tools.URL(ctx)
	if err != nil {
		return nil, err
	}
	own := provider.MCPServer{
		Name: container.ReservedMCPServer, URL: url, Headers: map[string]string{"Authorization": "Bearer " + token}, AlwaysLoad: true,
	}
	out, err := s.wayOut()
	if err != nil {
		return nil, err
	}
	return append([]provider.MCPServer{own}, servers(s.config, out.Environ())...), nil
}

// openDoors opens what need not be there before the first look at the inbox: the socket for programs of the sandbox, and the
// way out if the host has one. A failure is told and does not stop the agent.
func (s *session) openDoors() {
	if err := os.MkdirAll(s.sockets, 0o700); err != nil {
		s.log.Warn("the runner's socket cannot be opened", obs.Error(err))
	} else if opened, err := door.Listen(s.ctx, s.sockets, s.log, s.tools.Handler(), ncl.Handler(s.loop.Admin)); err != nil {
		s.log.Warn("the runner's socket cannot be opened", obs.Error(err))
	} else {
		s.side.Go(opened.Wait)
	}
	if _, err := os.Stat(filepath.Join(s.host, "egress.sock")); err == nil {
		if _, err := s.wayOut(); err != nil {
			s.log.Warn("there is no way out of the sandbox", obs.Error(err))
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		s.log.Warn("there is no way out of the sandbox", obs.Error(err))
	}
}

// wayOut starts the relay once.
func (s *session) wayOut() (*relay.Relay, error) {
	s.relayOnce.Do(func() {
		listen := s.config.Relay.Listen
		if listen == "" {
			listen = container.RelayAddress
		}
		s.relay, s.relayErr = relay.Listen(s.ctx, relay.Options{Listen: listen, RunDir: s.host, Token: s.config.Relay.Token, Log: s.log})
		if s.relayErr != nil {
			s.relayErr = fmt.Errorf("open the way out: %w", s.relayErr)
			return
		}
		s.side.Go(func() {
			if err := s.relay.Run(s.ctx); err != nil {
				s.log.Error("the way out is closed", obs.Error(err))
			}
		})
	})
	return s.relay, s.relayErr
}
