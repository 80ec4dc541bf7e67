package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"nanoclaw/internal/config/container"
	"nanoclaw/internal/mailbox"
	"nanoclaw/internal/mailbox/sqlite"
	"nanoclaw/internal/runner/prompt"
)

// mailboxCommand drives a session folder by hand, for operators who debug and for tests (docs/mailbox.md).
func mailboxCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "mailbox",
		Short: "Look into a session folder, or drive one by hand",
		Long: `Look into a session folder, or drive one by hand, in JSON lines. DIR is laid out as /workspace is inside a sandbox.
Field names are the column names of the tables; content is a JSON value.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(mailboxInit(), mailboxPut(), mailboxPrompt(), mailboxOut(), mailboxState())
	return cmd
}

// oneFolder is the argument of every mailbox command.
func oneFolder(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usagef("%s takes one folder, got %d arguments", cmd.CommandPath(), len(args))
	}
	return nil
}

func mailboxInit() *cobra.Command {
	var channels, agents []string
	var routing string
	cmd := &cobra.Command{
		Use:   "init DIR",
		Short: "Make a session folder, or replace the destinations of one",
		Long: `Make a session folder with provider mock, or replace destinations and routing of one that exists.

A destination is NAME=CHANNEL_TYPE:PLATFORM_ID; the platform id may hold colons. The routing is CHANNEL_TYPE:PLATFORM_ID[:THREAD]:
the platform id of a destination if it begins with one, else up to the next colon.`,
		Args: oneFolder,
		RunE: func(cmd *cobra.Command, args []string) error {
			all, route, err := parseDestinations(channels, agents, routing)
			if err != nil {
				return usage(err)
			}
			return initFolder(cmd.Context(), args[0], all, route)
		},
	}
	cmd.Flags().StringArrayVar(&channels, "destination", nil, "a chat the agent may send to: NAME=CHANNEL_TYPE:PLATFORM_ID (repeat)")
	cmd.Flags().StringArrayVar(&agents, "agent-destination", nil, "an agent it may send to: NAME=GROUP (repeat)")
	cmd.Flags().StringVar(&routing, "routing", "", "where a plain reply goes: CHANNEL_TYPE:PLATFORM_ID[:THREAD]")
	return cmd
}

func parseDestinations(channels, agents []string, routing string) ([]mailbox.Destination, mailbox.Address, error) {
	var all []mailbox.Destination
	for _, s := range channels {
		name, address, _ := strings.Cut(s, "=")
		channel, platform, _ := strings.Cut(address, ":")
		if name == "" || channel == "" || platform == "" {
			return nil, mailbox.Address{}, fmt.Errorf("--destination %q: want NAME=CHANNEL_TYPE:PLATFORM_ID", s)
		}
		all = append(all, mailbox.Destination{Name: name, Type: mailbox.DestinationChannel, ChannelType: channel, PlatformID: platform})
	}
	for _, s := range agents {
		name, group, _ := strings.Cut(s, "=")
		if name == "" || group == "" {
			return nil, mailbox.Address{}, fmt.Errorf("--agent-destination %q: want NAME=GROUP", s)
		}
		all = append(all, mailbox.Destination{Name: name, Type: mailbox.DestinationAgent, AgentGroupID: group})
	}
	if routing == "" {
		return all, mailbox.Address{}, nil
	}
	channel, rest, _ := strings.Cut(routing, ":")
	platform, thread := splitRouting(all, channel, rest)
	if channel == "" || platform == "" {
		return nil, mailbox.Address{}, fmt.Errorf("--routing %q: want CHANNEL_TYPE:PLATFORM_ID[:THREAD]", routing)
	}
	return all, mailbox.Address{ChannelType: channel, PlatformID: platform, ThreadID: thread}, nil
}

// splitRouting tells platform id and thread apart where the platform id may hold colons itself.
func splitRouting(all []mailbox.Destination, channel, rest string) (platform, thread string) {
	for _, d := range all {
		if d.ChannelType == channel && len(d.PlatformID) > len(platform) && (rest == d.PlatformID || strings.HasPrefix(rest, d.PlatformID+":")) {
			platform = d.PlatformID
		}
	}
	if platform != "" {
		return platform, strings.TrimPrefix(strings.TrimPrefix(rest, platform), ":")
	}
	platform, thread, _ = strings.Cut(rest, ":")
	return platform, thread
}

// initFolder makes what a sandbox mounts as /workspace.
func initFolder(ctx context.Context, dir string, all []mailbox.Destination, route mailbox.Address) error {
	h, err := sqlite.Create(ctx, dir, sqlite.HostOptions{OutUID: -1, SandboxGID: -1})
	if err != nil {
		return err
	}
	err = h.SetDestinations(ctx, all)
	if err == nil {
		err = h.SetRouting(ctx, route)
	}
	if err = errors.Join(err, h.Close()); err != nil {
		if errors.Is(err, mailbox.ErrInvalid) {
			return usage(err)
		}
		return err
	}
	agent := filepath.Join(dir, "agent")
	if err := os.MkdirAll(agent, 0o755); err != nil {
		return fmt.Errorf("make agent folder: %w", err)
	}
	settings := filepath.Join(agent, "container.json")
	f, err := os.OpenFile(settings, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err == nil {
		_, err = io.WriteString(f, "{\"provider\": \"mock\", \"incarnation\": 1}\n")
		err = errors.Join(err, f.Close())
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("write container settings: %w", err)
	}
	for name, target := range map[string]string{"inbox": filepath.Join("in", "inbox"), "outbox": filepath.Join("out", "outbox")} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("link %s: %w", name, err)
		}
	}
	return nil
}

func mailboxPut() *cobra.Command {
	return &cobra.Command{
		Use:   "put DIR",
		Short: "Put rows for the agent, one JSON object per line of standard input",
		Long: `Put rows for the agent, one JSON object per line of standard input, and print {"id","seq"} for each.

Fields: id, kind (chat, task, webhook, system; default chat), timestamp, status, process_after, recurrence, series_id, tries,
trigger (default true), channel_type, platform_id, thread_id, content (a JSON object), platform_message_id, source_session_id,
after_incarnation. A chat row without an address gets the routing's. If one line is bad, none is stored.`,
		Args: oneFolder,
		RunE: func(cmd *cobra.Command, args []string) error {
			h, err := openFolder(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			defer func() { _ = h.Close() }()
			route, err := h.Routing(cmd.Context())
			if err != nil {
				return err
			}
			rows, err := readRows(cmd.InOrStdin(), route)
			if err != nil {
				return usage(err)
			}
			results, err := h.Put(cmd.Context(), rows...)
			if err != nil {
				return err
			}
			for _, r := range results {
				if err := printLine(cmd.OutOrStdout(), r); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

func mailboxPrompt() *cobra.Command {
	return &cobra.Command{
		Use:   "prompt DIR",
		Short: "Print the prompt that the runner would send now; claim nothing",
		Args:  oneFolder,
		RunE: func(cmd *cobra.Command, args []string) error {
			settings, err := folderSettings(args[0], cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			r, err := sqlite.OpenReadOnly(cmd.Context(), args[0], sqlite.RunnerOptions{Incarnation: settings.Incarnation}, debugOptions(args[0]))
			if err != nil {
				return hintInit(args[0], err)
			}
			defer func() { _ = r.Close() }()
			batch, err := r.Fetch(cmd.Context(), settings.MaxMessagesPerPrompt)
			if err != nil {
				return err
			}
			for _, b := range batch.Broken {
				fmt.Fprintf(cmd.ErrOrStderr(), "row %s would be failed: %s\n", b.ID, b.Reason)
			}
			if len(batch.Rows) == 0 {
				return nil
			}
			text, err := renderPrompt(cmd.Context(), r, args[0], batch.Rows)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), text)
			return err
		},
	}
}

// renderPrompt does what the runner does with a batch.
func renderPrompt(ctx context.Context, r *sqlite.Runner, dir string, rows []mailbox.InRow) (string, error) {
	root, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("find folder: %w", err)
	}
	if _, err := os.Stat(filepath.Join(root, "inbox")); err != nil { // a host's folder: the attachments are mounted from in/
		root = filepath.Join(root, "in")
	}
	var sent []mailbox.OutRow
	if rows[0].Exchange != "" {
		if sent, err = r.Sent(ctx, rows[0].Exchange); err != nil {
			return "", err
		}
	}
	var failed error
	text := prompt.Render(rows, prompt.Env{
		Zone: prompt.Zone(os.Getenv("TZ")), Now: time.Now(), Root: root, Sent: sent,
		Name: func(a mailbox.Address) (string, bool) {
			d, ok, err := r.DestinationFor(ctx, a)
			failed = errors.Join(failed, err)
			return d.Name, ok
		},
	})
	return text, failed
}

// folderSettings are the settings the runner would read; a folder of a running host has them in in/.
func folderSettings(dir string, warn io.Writer) (container.Config, error) {
	path := filepath.Join(dir, "agent", "container.json")
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		path = filepath.Join(dir, "in", "container.json")
	}
	settings, warnings, err := container.Load(path)
	if errors.Is(err, fs.ErrNotExist) {
		return container.Config{MaxMessagesPerPrompt: container.DefaultMaxMessages}, nil
	}
	for _, w := range warnings {
		fmt.Fprintln(warn, w)
	}
	return settings, err
}

func mailboxOut() *cobra.Command {
	var after int64
	cmd := &cobra.Command{
		Use:   "out DIR",
		Short: "Print the rows that the agent wrote, one JSON object per line",
		Args:  oneFolder,
		RunE: func(cmd *cobra.Command, args []string) error {
			h, err := openFolder(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			defer func() { _ = h.Close() }()
			for {
				rows, err := h.Outbound(cmd.Context(), after, 1000)
				if err != nil || len(rows) == 0 {
					return err
				}
				for _, r := range rows {
					after = r.Row.Seq
					if err := printLine(cmd.OutOrStdout(), outLine(r)); err != nil {
						return err
					}
				}
			}
		},
	}
	cmd.Flags().Int64Var(&after, "after", 0, "only rows with a higher seq")
	return cmd
}

func mailboxState() *cobra.Command {
	return &cobra.Command{
		Use:   "state DIR",
		Short: "Print what the runner says of itself, as one JSON object",
		Args:  oneFolder,
		RunE: func(cmd *cobra.Command, args []string) error {
			h, err := openFolder(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			defer func() { _ = h.Close() }()
			state, err := h.State(cmd.Context())
			if err != nil {
				return err
			}
			return printLine(cmd.OutOrStdout(), stateLine(state))
		},
	}
}

func openFolder(ctx context.Context, dir string) (*sqlite.Host, error) {
	h, err := sqlite.Open(ctx, dir, debugOptions(dir))
	return h, hintInit(dir, err)
}

// debugOptions takes the folder's owner for the sandbox's uid: an operator looks at folders of any sandbox.
func debugOptions(dir string) sqlite.HostOptions {
	opt := sqlite.HostOptions{OutUID: -1, SandboxGID: -1}
	if st, err := os.Lstat(filepath.Join(dir, "out")); err == nil {
		if sys, ok := st.Sys().(*syscall.Stat_t); ok {
			opt.OutUID = int(sys.Uid)
		}
	}
	return opt
}

func hintInit(dir string, err error) error {
	if errors.Is(err, mailbox.ErrNotExist) {
		return fmt.Errorf("%w; make one with: nanoclaw mailbox init %s", err, dir)
	}
	return err
}

// printLine writes v as one line of JSON, `<` left as it is.
func printLine(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}
