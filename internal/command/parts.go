package command

import "github.com/spf13/cobra"

// otherCommands are the subcommands that need nothing of app.
func (a *app) otherCommands() []*cobra.Command {
	return []*cobra.Command{imageCommand(), mailboxCommand()}
}
