package host

import (
	"os"
	"path/filepath"

	"nanoclaw/internal/channel"
	"nanoclaw/internal/channel/cli"
)

// ownerChat is the conversation in which the owner is told what nobody else can be told.
const ownerChat = cli.Main

// adapters is the list of channels. Adding one is its folder and a line here.
func adapters(home string) (*cli.Adapter, []channel.Adapter) {
	handle, name := cli.Operator(os.Getuid())
	terminal := cli.New(handle, name, filepath.Join(home, "files"))
	return terminal, []channel.Adapter{terminal}
}
