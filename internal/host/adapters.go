package host

import (
	"context"
	"os"
	"path/filepath"

	"nanoclaw/internal/channel"
	"nanoclaw/internal/channel/cli"
	"nanoclaw/internal/store"
)

// owner is where the owner is told what nobody else can be told.
func owner(context.Context) (store.Destination, bool) {
	return store.Destination{Instance: cli.Type, PlatformID: ownerChat}, true
}

// ownerChat is the conversation in which the owner is told what nobody else can be told.
const ownerChat = cli.Main

// adapters is the list of channels. Adding one is its folder and a line here.
func adapters(home string) (*cli.Adapter, []channel.Adapter) {
	handle, name := cli.Operator(os.Getuid())
	terminal := cli.New(handle, name, filepath.Join(home, "files"))
	return terminal, []channel.Adapter{terminal}
}
