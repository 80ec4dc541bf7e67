package command

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"nanoclaw/internal/control"
)

// versionInfo is what version --json prints.
type versionInfo struct {
	Version  string `json:"version"`
	Protocol int    `json:"protocol"` // of the control socket
	Go       string `json:"go"`
	OS       string `json:"os"`
	Arch     string `json:"arch"`
}

func (a *app) versionCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  noArgs,
		RunE: func(*cobra.Command, []string) error {
			v := versionInfo{control.Version(), control.Protocol, runtime.Version(), runtime.GOOS, runtime.GOARCH}
			if asJSON {
				a.printJSON(a.out, v)
				return nil
			}
			_, err := fmt.Fprintf(a.out, "nanoclaw %s (%s, %s/%s)\n", v.Version, v.Go, v.OS, v.Arch)
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
