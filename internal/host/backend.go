package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"nanoclaw/internal/channel/cli"
	"nanoclaw/internal/control"
	"nanoclaw/internal/control/server"
	"nanoclaw/internal/id"
	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/obs"
	"nanoclaw/internal/store"
	"nanoclaw/internal/vault"
)

var _ server.Backend = (*Host)(nil)

// Names of the first agent.
const (
	firstFolder   = "main"
	terminalName  = "terminal"
	providerReal  = "claude"
	providerMock  = "mock"
	offlineNotice = "This is the built-in offline provider: it answers by echo. Set ANTHROPIC_API_KEY or CLAUDE_CODE_OAUTH_TOKEN and start the chat again to use a model."
)

// unaskedAfter is how long a decision waits before status says that nobody was asked.
const unaskedAfter = 10 * time.Minute

// Status reads counters, and looks whether the programs of providers are there.
func (h *Host) Status(ctx context.Context) (control.Status, error) {
	counts, err := h.store.Counts(ctx)
	if err != nil {
		return control.Status{}, err
	}
	s := control.Status{
		State: control.HostRunning, Version: h.opt.Version, PID: os.Getpid(), Started: control.At(h.began), Home: h.opt.Settings.Home,
		Sandbox:    control.SandboxStatus{Kind: h.runtime.Name(), Reason: h.why, Limits: h.runtime.Limits()},
		Deliveries: control.DeliveryStatus{Queued: int(counts.QueuedLedger), Retry: int(counts.RetryLedger), Unknown: int(counts.UnknownLedger), Dead: int(counts.DeadLedger)},
		Channels:   []control.ChannelStatus{}, Sessions: []control.SessionStatus{}, Warnings: []string{},
	}
	if groups, err := h.store.AgentGroups(ctx); err == nil && len(groups) > 0 {
		s.Provider.Name = groups[0].Provider
		k, ok := providerKindOf(h.opt.Settings, s.Provider.Name)
		k = k.with(groups[0].Model)
		s.Provider.Free = ok && !keyed(k.api) && k.api != ""
		if ok && keyed(k.api) {
			_, keyErr := h.vault.Get(ctx, k.api)
			s.Provider.Key = keyErr == nil
		}
		var lacks []string
		s.Programs, lacks = h.supply.status(ctx, groups)
		s.Warnings = append(s.Warnings, lacks...)
	}
	for _, a := range h.adapters {
		info, st := a.Info(), a.Status()
		if why := h.delivery.Paused(info.Instance); why != "" {
			st.Reason = why
			s.Warnings = append(s.Warnings, "channel "+info.Instance+": "+why)
		}
		s.Channels = append(s.Channels, control.ChannelStatus{Type: info.Type, Instance: info.Instance, State: string(st.State), Since: control.At(st.Since), Reason: st.Reason})
	}
	pending, err := h.store.Pending(ctx)
	if err != nil {
		return control.Status{}, err
	}
	for _, l := range h.sessions.Live() {
		if l.PID != 0 {
			s.Sandbox.Live++
		}
		s.Sessions = append(s.Sessions, control.SessionStatus{
			ID: string(l.Session), AgentGroup: string(l.AgentGroup), Incarnation: l.Incarnation, State: string(l.State), Due: pending[l.Session],
		})
		if l.Problem != "" {
			s.Warnings = append(s.Warnings, fmt.Sprintf("session %s: an agent cannot be started, %d times since %s; next try at %s: %s", l.Session, l.Failures,
				l.Failing.Format(time.TimeOnly), l.Retry.Format(time.TimeOnly), strings.TrimSpace(l.Problem)))
		}
	}
	builds, failed := h.images.progress()
	s.Builds, s.Warnings = builds, append(s.Warnings, failed...)
	s.Sandbox.MaxLive, s.Sandbox.Waiting = h.sessions.Places()
	if n, err := h.store.UnaskedApprovals(ctx, time.Now().Add(-unaskedAfter)); err != nil {
		return control.Status{}, err
	} else if n > 0 {
		s.Warnings = append(s.Warnings, fmt.Sprintf("%d decisions wait and nobody could be asked: ncl approvals list", n))
	}
	if h.runtime.Name() == "process" {
		s.Warnings = append(s.Warnings, "the process sandbox isolates nothing")
	}
	if h.runtime.Limits() == "none" {
		s.Warnings = append(s.Warnings, "nothing enforces limits of memory, processes and processors here")
	}
	if len(s.Warnings) > 0 {
		s.State = control.HostDegraded
	}
	return s, nil
}

// Stop ends Run.
func (h *Host) Stop(_ context.Context, sandboxes bool) error {
	h.ending.Do(func() {
		h.endBoxes = sandboxes
		h.log.Info("asked to stop", obs.KeySandboxes, sandboxes)
		time.AfterFunc(50*time.Millisecond, h.stop)
	})
	return nil
}

// PutSecret keeps a key; the next request uses it.
func (h *Host) PutSecret(ctx context.Context, s control.Secret) error {
	if s.Name != apiAnthropic && s.Name != apiOpenAI && s.Name != control.SecretHuggingFace {
		return control.Invalid("name", "must be "+apiAnthropic+", "+apiOpenAI+" or "+control.SecretHuggingFace)
	}
	if s.Name != apiAnthropic && s.Kind != control.SecretAPIKey {
		return control.Invalid("kind", "must be "+control.SecretAPIKey)
	}
	kind := vault.Kind(s.Kind)
	before, err := h.vault.Get(ctx, s.Name)
	if err == nil && before.Kind == kind && before.Value.Reveal() == s.Value {
		return nil
	}
	if err := h.vault.Put(ctx, s.Name, kind, obs.NewSecret(s.Value)); err != nil {
		return err
	}
	if err != nil || before.Kind != kind {
		h.sessions.Recycle("") // the placeholder inside follows the kind
	}
	detail, err := mailbox.EncodeContent(map[string]string{"kind": s.Kind})
	if err != nil {
		return err
	}
	return h.store.Audit(ctx, store.AuditEntry{Actor: h.terminal.UserID(), Action: "secret.put", Subject: s.Name, Detail: detail})
}

// Bootstrap makes owner, agent and terminal wiring. The provider follows the key: claude with one, else mock.
func (h *Host) Bootstrap(ctx context.Context, r control.BootstrapRequest) (control.Bootstrap, error) {
	conversation, err := control.ConversationID(r.Conversation)
	if err != nil {
		return control.Bootstrap{}, err
	}
	provider := providerMock
	if _, err := h.vault.Get(ctx, apiAnthropic); err == nil {
		provider = providerReal
	} else if !errors.Is(err, vault.ErrNotFound) {
		return control.Bootstrap{}, err
	}
	_, err = h.store.MessagingGroup(ctx, cli.Type, conversation)
	created := errors.Is(err, store.ErrNotFound)
	if err != nil && !created {
		return control.Bootstrap{}, err
	}
	name, err := cli.Decode(conversation)
	if err != nil {
		return control.Bootstrap{}, err
	}
	destination := terminalName
	if conversation != ownerChat {
		destination = terminalName + "-" + name
	}
	_, person := cli.Operator(os.Getuid())
	before, err := h.store.AgentGroups(ctx)
	if err != nil {
		return control.Bootstrap{}, err
	}
	group, err := h.store.Bootstrap(ctx, store.First{
		Owner: id.User(h.terminal.UserID()), OwnerName: person, AgentName: h.opt.Settings.AssistantName, Folder: firstFolder, Provider: provider, Offline: providerMock,
		ChannelType: cli.Type, Instance: cli.Type, PlatformID: conversation, DestinationAs: destination,
	})
	if err != nil {
		return control.Bootstrap{}, err
	}
	agent, err := h.store.AgentGroup(ctx, group)
	if err != nil {
		return control.Bootstrap{}, err
	}
	for _, g := range before {
		if g.ID == group && g.Provider != agent.Provider {
			h.sessions.Recycle(group)
		}
	}
	b := control.Bootstrap{
		Created: created, Conversation: conversation, AgentGroup: string(group), AgentName: agent.Name, Provider: agent.Provider,
		Offline: agent.Provider == providerMock, Sandbox: h.runtime.Name(), SandboxWhy: h.why,
	}
	switch {
	case b.Offline:
		b.Notice = offlineNotice
	default:
		k, ok := providerKindOf(h.opt.Settings, agent.Provider)
		if !ok || k.program == "" {
			break
		}
		if from := h.supply.find(ctx, k.program, ""); from.missing != "" {
			b.Notice = fmt.Sprintf("An agent cannot be started: %s (%s).", from.missing, from.fix)
		}
	}
	return b, nil
}
