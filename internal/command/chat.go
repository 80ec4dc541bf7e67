package command

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"nanoclaw/internal/chatui"
	"nanoclaw/internal/control"
)

// chatFlags of the chat command.
type chatFlags struct {
	conversation string
	timeout      time.Duration
	json         bool
	noStart      bool
	setup        bool
	save         string // folder; empty: files stay where the host keeps them
}

func (a *app) chatCommand() *cobra.Command {
	var f chatFlags
	cmd := &cobra.Command{
		Use:   "chat [TEXT…]",
		Short: "Talk to an agent",
		Long: `chat talks to an agent. With TEXT it sends that, prints the answer alone on standard output and ends: 0 answered or
silent on purpose, 1 failed, 6 no host, 7 no answer in time. Without TEXT it is a full-screen chat; without a terminal
it takes one message per line and ends after the last answer.

A file that the agent sends is printed as a line with its path; --save copies it to a folder of yours. A question of the
agent is printed with numbered options, on standard error if TEXT was given. Type the number or the text of an option, or
answer from any other chat of the conversation.

A host is started in the background if none runs. ANTHROPIC_API_KEY or CLAUDE_CODE_OAUTH_TOKEN, if set, is handed to
the host, which keeps it; agents never see it.`,
		Example: `  nanoclaw chat
  nanoclaw chat "what is in my notes?"
  echo "summarise the news" | nanoclaw chat
  nanoclaw chat --save . "send me the report as a PDF"`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.chat(cmd.Context(), f, strings.Join(args, " "), len(args) > 0)
		},
	}
	cmd.Flags().StringVar(&f.conversation, "conversation", "", "name of the conversation (default local)")
	cmd.Flags().DurationVar(&f.timeout, "timeout", 10*time.Minute, "give up waiting for an answer after this; 0: never")
	cmd.Flags().BoolVar(&f.json, "json", false, "print JSON instead of text")
	cmd.Flags().BoolVar(&f.noStart, "no-start", false, "do not start a host")
	cmd.Flags().BoolVar(&f.setup, "setup", false, "first install what the sandbox needs, if that is possible")
	cmd.Flags().StringVar(&f.save, "save", "", "copy files that the agent sends to this folder")
	a.settingFlags(cmd)
	return cmd
}

func (a *app) chat(ctx context.Context, f chatFlags, text string, oneShot bool) error {
	conversation, err := control.ConversationID(f.conversation)
	if err != nil {
		return usage(err)
	}
	switch {
	case oneShot && strings.TrimSpace(text) == "":
		return usagef("the message is empty")
	case len(text) > control.MaxText:
		return usagef("the message has %d bytes; the limit is %d", len(text), control.MaxText)
	case f.timeout < 0:
		return usagef("--timeout must not be negative")
	case f.save != "":
		if st, err := os.Stat(f.save); err != nil || !st.IsDir() {
			return usagef("--save: %s is not a folder", f.save)
		}
		if !oneShot && a.Terminal(a.in) && a.Terminal(a.out) {
			return usagef("--save needs TEXT or a pipe; the full-screen chat shows where files are")
		}
	}
	s, err := a.settings()
	if err != nil {
		return err
	}
	keys, err := a.takeKeys()
	if err != nil {
		return err
	}
	c := control.NewClient(s.Home)
	defer c.Close()
	if f.setup {
		if _, err := c.Status(ctx); err != nil {
			if err := a.setup(ctx, s); err != nil {
				return err
			}
		}
	}
	if err := a.ensureHost(ctx, c, s.Home, !f.noStart); err != nil {
		return err
	}
	for _, key := range keys {
		if err := c.PutSecret(ctx, key); err != nil {
			return fmt.Errorf("hand the key to the host: %w", err)
		}
	}
	b, err := c.Bootstrap(ctx, control.BootstrapRequest{Conversation: conversation})
	if err != nil {
		return fmt.Errorf("prepare the conversation: %w", err)
	}
	notice := bootstrapNotice(b)
	if oneShot || !a.Terminal(a.in) || !a.Terminal(a.out) {
		if notice != "" {
			fmt.Fprintln(a.err, notice)
		}
		t := talk{app: a, client: c, conversation: conversation, flags: f}
		if oneShot {
			return t.once(ctx, text)
		}
		return t.lines(ctx)
	}
	return chatui.Run(ctx, chatui.Options{
		Client: c, Conversation: conversation, Agent: b.AgentName, Notice: notice,
		Environ: a.Environ(), In: a.in, Out: a.out,
	})
}

// bootstrapNotice is what a person must know before the first word.
func bootstrapNotice(b control.Bootstrap) string {
	notice := b.Notice
	if b.Offline && notice == "" {
		notice = "This is the built-in offline provider: it asks no model. To give it one, set ANTHROPIC_API_KEY or CLAUDE_CODE_OAUTH_TOKEN and run this again."
	}
	if b.Created && b.SandboxWhy != "" {
		line := "sandbox: " + sandboxLine(b.Sandbox, b.SandboxWhy)
		if notice == "" {
			return line
		}
		return line + "\n" + notice
	}
	return notice
}

// sandboxLine is a runtime and why, once.
func sandboxLine(kind, why string) string {
	why = strings.TrimPrefix(why, kind+": ")
	if why == "" {
		return kind
	}
	return kind + " (" + why + ")"
}
