package tool

import (
	"context"
	_ "embed" // the description
	"errors"
	"fmt"
	"regexp"
	"strings"
)

//go:embed install_packages.md
var installPackagesText string

// The names that the host takes too (spec/runner.md section 7.2): no versions, no options, nothing a shell would read.
const (
	maxPackages = 20
	aptName     = `^[a-z0-9][a-z0-9._+-]*$`
	npmName     = `^(@[a-z0-9][a-z0-9._-]*/)?[a-z0-9][a-z0-9._-]*$`
	maxReason   = 1000 // bytes
	maxPackage  = 214  // bytes of a name, the longest that npm knows
)

type installPackagesArgs struct {
	Apt    []string `json:"apt"`
	Npm    []string `json:"npm"`
	Reason string   `json:"reason"`
}

type installPackagesAction struct {
	Action string   `json:"action"`
	Apt    []string `json:"apt"`
	Npm    []string `json:"npm"`
	Reason string   `json:"reason"`
}

func installPackages(s Session) Tool {
	schema := object(
		may("apt", list("Debian packages: names without versions", text(""), 0, maxPackages)),
		may("npm", list("npm packages, installed globally: names without versions", text(""), 0, maxPackages)),
		may("reason", text("what they are for; the admin reads it")),
	)
	return define("install_packages", installPackagesText, schema, func(ctx context.Context, args installPackagesArgs) (string, error) {
		n := len(args.Apt) + len(args.Npm)
		switch {
		case n == 0:
			return "", errors.New("at least one package is required, in `apt` or `npm`")
		case n > maxPackages:
			return "", fmt.Errorf("these are %d packages; at most %d are allowed at a time", n, maxPackages)
		}
		reason, err := outward("reason", args.Reason)
		if err != nil {
			return "", err
		}
		if len(reason) > maxReason {
			return "", fmt.Errorf("`reason` has %d bytes, at most %d are allowed", len(reason), maxReason)
		}
		if err := checkPackages("apt", aptName, args.Apt); err != nil {
			return "", err
		}
		if err := checkPackages("npm", npmName, args.Npm); err != nil {
			return "", err
		}
		action := installPackagesAction{
			Action: "install_packages", Apt: append([]string{}, args.Apt...), Npm: append([]string{}, args.Npm...), Reason: reason,
		}
		return request(ctx, s, action, "install "+strings.Join(append(action.Apt, action.Npm...), ", "))
	})
}

// checkPackages names the first name that is none.
func checkPackages(kind, pattern string, names []string) error {
	good := regexp.MustCompile(pattern)
	for _, name := range names {
		if len(name) > maxPackage || !good.MatchString(name) {
			return fmt.Errorf("%q is no name of an %s package; give names without versions or options", shorten(name), kind)
		}
	}
	return nil
}
