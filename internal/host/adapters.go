package host

import (
	"os"

	"nanoclaw/internal/channel"
	"nanoclaw/internal/channel/cli"
)

// ownerChat is the conversation in which the owner is told what nobody else can be told.
const ownerChat = "cli:local"

// adapters is the list of channels. Adding one is its folder and a line here.
func adapters() (*cli.Adapter, []channel.Adapter) {
	terminal := cli.New(cli.Operator(os.Getuid()))
	return terminal, []channel.Adapter{terminal}
}
