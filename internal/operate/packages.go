package operate

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"nanoclaw/internal/control"
	"nanoclaw/internal/store"
)

// maxPackages of one kind and agent.
const maxPackages = 20

var (
	aptName = regexp.MustCompile(`^[a-z0-9][a-z0-9+.-]{1,99}(=[0-9A-Za-z][0-9A-Za-z.+:~-]{0,99})?$`)
	npmName = regexp.MustCompile(`^(@[a-z0-9][a-z0-9._-]{0,99}/)?[a-z0-9][a-z0-9._-]{0,99}(@[0-9A-Za-z][0-9A-Za-z.+-]{0,99})?$`)
)

// Packages is the commands about programs in an agent's image. refuse says why this sandbox has no images; "" if it has.
func Packages(st GroupStore, a Runtime, refuse string) []Command {
	s := configShelf{st, a}
	return []Command{
		{Name: "packages set", Short: "Choose the Debian and npm packages of an agent's image, names with commas between; none takes all away",
			Target: "id, name or folder of the agent", Flags: []string{"id", "apt", "npm"}, Run: func(ctx context.Context, _ Caller, a Args) (Result, error) {
				return s.packages(ctx, a, refuse)
			}},
	}
}

func (s configShelf) packages(ctx context.Context, a Args, refuse string) (Result, error) {
	g, err := s.group(ctx, a)
	if err != nil {
		return Result{}, err
	}
	next, given := g.Setup, false
	for _, k := range []struct {
		flag string
		form *regexp.Regexp
		into *[]string
	}{{"apt", aptName, &next.Packages.Apt}, {"npm", npmName, &next.Packages.NPM}} {
		text, err := a.Text(k.flag)
		if err != nil {
			return Result{}, err
		}
		if text == "" {
			continue
		}
		given = true
		if *k.into, err = packageList(k.flag, text, k.form); err != nil {
			return Result{}, err
		}
	}
	if !given {
		return Result{}, control.Invalid("", "nothing to change: give --apt, --npm or both")
	}
	if refuse != "" && !next.Packages.None() {
		e := control.Invalid("", refuse)
		e.Hint = "install the programs on this machine, or use the docker sandbox"
		return Result{}, e
	}
	return s.put(ctx, g, next, packageWords(g.Name, next.Packages))
}

func packageList(flag, text string, form *regexp.Regexp) ([]string, error) {
	var list []string
	if text == "none" {
		return nil, nil
	}
	for name := range strings.SplitSeq(text, ",") {
		name = strings.TrimSpace(name)
		switch {
		case name == "" || slices.Contains(list, name):
		case !form.MatchString(name):
			return nil, control.Invalid(flag, fmt.Sprintf("%.80q is not the name of a package", name))
		default:
			list = append(list, name)
		}
	}
	if len(list) > maxPackages {
		return nil, control.Invalid(flag, fmt.Sprintf("at most %d packages", maxPackages))
	}
	slices.Sort(list)
	return list, nil
}

func packageWords(agent string, p store.Packages) string {
	if p.None() {
		return agent + " uses the image that all agents share"
	}
	return fmt.Sprintf("%s gets an image with %s; it is built when the agent starts next, which goes on with what it has until then (`nanoclaw status` shows how far it is)",
		agent, strings.Join(append(slices.Clone(p.Apt), p.NPM...), ", "))
}
