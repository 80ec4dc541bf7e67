package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"nanoclaw/internal/config"
	"nanoclaw/internal/config/container"
	"nanoclaw/internal/control"
	"nanoclaw/internal/crashpoint"
	"nanoclaw/internal/egress"
	"nanoclaw/internal/id"
	"nanoclaw/internal/instruction"
	"nanoclaw/internal/obs"
	"nanoclaw/internal/sandbox"
	"nanoclaw/internal/session"
	"nanoclaw/internal/store"
	"nanoclaw/internal/vault"
)

// Paths inside a sandbox (design.md section 5).
const (
	insideRoot     = "/workspace"
	insideHome     = "/home/agent"
	insideHostRun  = "/run/nanoclaw-host"
	insidePrograms = "/opt/nanoclaw"
	insidePath     = "/usr/local/bin:/usr/bin:/bin"
)

// launcher turns a session into a sandbox: settings, mounts, egress.
type launcher struct {
	settings config.Settings
	install  string
	runtime  sandbox.Runtime
	store    *store.Store
	vault    *vault.Vault
	egress   *egress.Proxy
	programs *programs
	supply   supply
	shelf    instruction.Shelf
	images   *images
	life     context.Context // of the host: what goes on in the background ends with it
	uid, gid int
	zone     string
	log      *slog.Logger
}

var _ session.Launcher = (*launcher)(nil)

// Start writes container.json, opens egress and starts the sandbox.
func (l *launcher) Start(ctx context.Context, s store.Session, incarnation int64) (sandbox.Handle, func(), error) {
	group, err := l.store.AgentGroup(ctx, s.AgentGroupID)
	if err != nil {
		return nil, nil, err
	}
	dir := session.Dir(l.settings.Home, s)
	groupDir := filepath.Join(l.settings.Home, "groups", group.Folder)
	if err := l.folders(dir, groupDir); err != nil {
		return nil, nil, fmt.Errorf("prepare folders: %w", err)
	}
	image, err := l.images.choose(ctx, l.life, group)
	if err != nil {
		return nil, nil, err
	}
	fit, err := l.outfit(ctx, chain(group), image)
	if err != nil {
		return nil, nil, err
	}
	if len(fit.missing) > 0 {
		l.log.Warn("an agent starts without a provider whose program is missing", obs.KeyGroup, string(group.ID), obs.KeyProvider, strings.Join(fit.missing, ", "))
	}
	settings, err := l.container(ctx, s, group, incarnation, fit)
	if err != nil {
		return nil, nil, err
	}
	if err := writeContainer(filepath.Join(dir, "in"), settings, l.gid); err != nil {
		return nil, nil, err
	}
	folders, err := l.extras(ctx, group)
	if err != nil {
		return nil, nil, err
	}
	told, err := l.instruct(dir, groupDir, group, folders)
	if err != nil {
		return nil, nil, err
	}
	spec, err := l.spec(s, group, dir, groupDir, incarnation, fit, folders, told)
	if err != nil {
		return nil, nil, err
	}
	outlet, err := l.open(ctx, dir, s, fit)
	if err != nil {
		return nil, nil, err
	}
	if image != "" {
		spec.Image = image
	}
	h, err := l.runtime.Start(ctx, spec)
	l.images.started(ctx, group, image, err)
	if err != nil {
		_ = outlet.Close()
		return nil, nil, err
	}
	return h, func() { _ = outlet.Close() }, nil
}

// Adopt opens egress for a sandbox of an earlier host.
func (l *launcher) Adopt(ctx context.Context, s store.Session, _ int64) (func(), error) {
	group, err := l.store.AgentGroup(ctx, s.AgentGroupID)
	if err != nil {
		return nil, err
	}
	var fit outfit
	for _, c := range chain(group) {
		if k, ok := providerKindOf(l.settings, c.Provider); ok {
			fit.kinds = append(fit.kinds, k.with(c.Model))
		}
	}
	outlet, err := l.open(ctx, session.Dir(l.settings.Home, s), s, fit)
	if err != nil {
		return nil, err
	}
	return func() { _ = outlet.Close() }, nil
}

// List finds the running sandboxes of this home.
func (l *launcher) List(ctx context.Context) ([]sandbox.Handle, error) {
	return l.runtime.List(ctx, l.install)
}

func (l *launcher) open(ctx context.Context, dir string, s store.Session, fit outfit) (io.Closer, error) {
	return l.egress.Open(ctx, filepath.Join(dir, "run"), egress.Session{
		ID: s.ID, Group: s.AgentGroupID, Upstreams: l.upstreams(fit), Allow: l.settings.EgressAllow, GID: l.gid,
	}, 0o660)
}

// folders makes what the mailbox does not: the group's folder, the host's record of the sandbox, links for --root.
func (l *launcher) folders(dir, groupDir string) error {
	if err := os.MkdirAll(filepath.Dir(groupDir), 0o711); err != nil {
		return err
	}
	if err := os.MkdirAll(groupDir, 0o700); err != nil {
		return err
	}
	if err := os.MkdirAll(l.stateDir(dir), 0o700); err != nil {
		return err
	}
	if err := ownFolder(filepath.Join(dir, "out", "outbox")); err != nil {
		return err
	}
	if l.runtime.Name() != sandbox.Process {
		return nil
	}
	for name, target := range map[string]string{"agent": groupDir, "inbox": "in/inbox", "outbox": "out/outbox"} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil && !os.IsExist(err) {
			return err
		}
	}
	return nil
}

// ownFolder makes a folder in a place where an agent may have put something else: a link, say, which is removed and not
// followed. No agent of the session runs at that time, and the parent folder is the host's to name.
func ownFolder(path string) error {
	st, err := os.Lstat(path)
	if err == nil && !st.IsDir() {
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	if err := os.Mkdir(path, 0o700); err != nil && !os.IsExist(err) {
		return err
	}
	return nil
}

func (l *launcher) stateDir(dir string) string { return filepath.Join(dir, "sandbox") }

// chain is the providers of an agent, the first one first, without credentials.
func chain(g store.AgentGroup) []container.Choice {
	all := []container.Choice{{Provider: g.Provider, Model: g.Model, Effort: g.Effort}}
	for _, f := range g.Fallbacks {
		all = append(all, container.Choice{Provider: f.Provider, Model: f.Model})
	}
	return all
}

// container is what the runner is told. A credential is a placeholder of the same kind as the key.
func (l *launcher) container(ctx context.Context, s store.Session, g store.AgentGroup, incarnation int64, fit outfit) (container.Config, error) {
	c := container.Config{
		AssistantName: g.AssistantName, GroupName: g.Name, AgentGroupID: string(g.ID), SessionID: string(s.ID),
		Incarnation: incarnation, MaxMessagesPerPrompt: g.MaxMessages,
		MCPServers: map[string]container.MCPServer{}, Programs: map[string]string{}, UploadTrace: l.settings.UploadTrace,
		Wire: l.settings.OpenAIWire, ContextTokens: l.settings.ContextTokens,
		Relay: container.Relay{Listen: container.RelayAddress},
	}
	if l.runtime.Name() == sandbox.Process {
		c.Relay = container.Relay{Listen: "127.0.0.1:0", Token: strings.TrimPrefix(id.New("t"), "t-")}
	}
	for name, from := range fit.programs {
		switch {
		case from.file == "":
			c.Programs[name] = from.command
		case l.runtime.Name() == sandbox.Process:
			c.Programs[name] = from.file
		default:
			c.Programs[name] = insidePrograms + "/" + name
		}
	}
	if command := c.Programs[acpName]; command != "" {
		c.Programs[acpName] = strings.TrimSpace(command + " " + l.settings.ACPArgs)
		c.AgentAPI = l.settings.ACPAPI
	}
	all := chain(g)
	for i := range all {
		if !keyed(fit.kinds[i].api) {
			continue
		}
		entry, err := l.vault.Get(ctx, fit.kinds[i].api)
		if errors.Is(err, vault.ErrNotFound) {
			continue
		}
		if err != nil {
			return c, fmt.Errorf("read key: %w", err)
		}
		all[i].Credential = container.Credential{Kind: string(entry.Kind), Placeholder: egress.Placeholder(string(entry.Kind))}
	}
	c = c.With(all[0])
	c.Fallbacks = all[1:]
	c.Speed, c.FallbackModel, c.ScriptTimeoutSeconds = g.Setup.Speed, g.Setup.FallbackModel, g.Setup.ScriptTimeoutSeconds
	for name, server := range g.Setup.MCPServers {
		server.Instructions = "" // they are in the composed instructions
		c.MCPServers[name] = server
	}
	return c, nil
}

// writeContainer replaces in/container.json by rename.
func writeContainer(in string, c container.Config, gid int) error {
	b, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return fmt.Errorf("write container settings: %w", err)
	}
	if err := replaceFile(filepath.Join(in, containerName), b, gid); err != nil {
		return fmt.Errorf("write container settings: %w", err)
	}
	return nil
}

const containerName = "container.json"

func (l *launcher) spec(s store.Session, g store.AgentGroup, dir, groupDir string, incarnation int64, fit outfit, folders []folder, told []sandbox.Mount) (sandbox.Spec, error) {
	own, err := l.programs.paths(runnerName, clientName)
	if err != nil {
		return sandbox.Spec{}, &sandbox.Failure{Class: sandbox.SpecInvalid, Op: "start sandbox", Err: err}
	}
	runner, client := own[0], own[1]
	spec := sandbox.Spec{
		Labels:  sandbox.Labels{Install: l.install, AgentGroup: string(s.AgentGroupID), Session: string(s.ID), Incarnation: incarnation},
		Image:   l.settings.Image,
		Command: []string{insidePrograms + "/" + runnerName},
		Dir:     insideRoot + "/agent",
		Env:     map[string]string{"HOME": insideHome, "PATH": insidePrograms + ":" + insidePath, "LANG": "C.UTF-8", "TZ": l.zone},
		Limits:  sandbox.Limits{MemoryBytes: l.settings.MemoryBytes, PIDs: l.settings.PIDs, CPUs: l.settings.CPUs, TmpBytes: l.settings.TmpBytes},
		Network: sandbox.NetworkNone, UID: l.uid, GID: l.gid, StateDir: l.stateDir(dir),
		Mounts: []sandbox.Mount{
			{Class: sandbox.ClassHostBox, Source: filepath.Join(dir, "in"), Target: insideRoot + "/in"},
			{Class: sandbox.ClassHostBox, Source: filepath.Join(dir, "in", "inbox"), Target: insideRoot + "/inbox"},
			{Class: sandbox.ClassHostBox, Source: filepath.Join(dir, "run"), Target: insideHostRun},
			{Class: sandbox.ClassAgent, Source: filepath.Join(dir, "out"), Target: insideRoot + "/out", Writable: true},
			{Class: sandbox.ClassAgent, Source: filepath.Join(dir, "out", "outbox"), Target: insideRoot + "/outbox", Writable: true},
			{Class: sandbox.ClassAgent, Source: filepath.Join(dir, "home"), Target: insideHome, Writable: true},
			{Class: sandbox.ClassAgent, Source: groupDir, Target: insideRoot + "/agent", Writable: true},
			{Class: sandbox.ClassConfig, Source: filepath.Join(dir, "in", containerName), Target: insideRoot + "/agent/" + containerName},
			{Class: sandbox.ClassProgram, Source: runner, Target: insidePrograms + "/" + runnerName},
			{Class: sandbox.ClassProgram, Source: client, Target: insidePrograms + "/" + clientName},
		},
	}
	if g.Setup.MemoryMB > 0 {
		spec.Limits.MemoryBytes = g.Setup.MemoryMB << 20
	}
	for _, v := range crashpoint.Environ() {
		name, value, _ := strings.Cut(v, "=")
		spec.Env[name] = value
	}
	extras, err := l.extraMounts(folders)
	if err != nil {
		return sandbox.Spec{}, err
	}
	spec.Mounts = slices.Concat(spec.Mounts, extras, told)
	if l.runtime.Name() == sandbox.Process {
		if err := linkExtras(dir, folders); err != nil {
			return sandbox.Spec{}, err
		}
		spec.Command = []string{runner, "--root", dir, "--config", filepath.Join(dir, "in", containerName)}
		spec.Dir = groupDir
		spec.Env["HOME"] = filepath.Join(dir, "home")
		spec.Env["PATH"] = filepath.Dir(client) + ":" + insidePath
		spec.Env[control.RunnerVariable] = filepath.Join(dir, "run", control.RunnerSocket)
		// The runner binds its own socket beside the host's there, and nothing is mounted: what must be seen is named.
		for i, m := range spec.Mounts {
			if m.Target == insideHostRun {
				spec.Mounts[i].Class, spec.Mounts[i].Writable = sandbox.ClassAgent, true
			}
		}
	}
	for name, from := range fit.programs {
		if from.file != "" {
			spec.Mounts = append(spec.Mounts, sandbox.Mount{Class: sandbox.ClassProgram, Source: from.file, Target: insidePrograms + "/" + name})
		}
	}
	return spec, sandbox.Prepare(spec)
}

// sandboxUser is who runs inside: the host's own user, or the dedicated one when the host is root; never uid 0.
func sandboxUser(s config.Settings) (uid, gid int) {
	if unix.Geteuid() == 0 {
		return s.SandboxUID, s.SandboxUID
	}
	return unix.Geteuid(), unix.Getegid()
}
