// Package container holds what the agent image is built from, the pins of the programs of providers, and the skills that agents are
// given.
package container

import (
	"embed"
	"io/fs"
	"slices"
	"strings"
)

//go:embed Dockerfile
var dockerfile []byte

//go:embed fetch
var fetch []byte

//go:embed pins
var pins []byte

//go:embed skills
var skills embed.FS

// ProgramsLabel is the label of an agent image that names the programs of providers it has, with spaces between.
const ProgramsLabel = "nanoclaw.programs"

// Skills are the shipped skills: a folder each.
func Skills() (fs.FS, error) { return fs.Sub(skills, "skills") }

// Files is the build context of the agent image, by path in it. ca is a PEM bundle that downloads during the build trust in
// addition; nil for none.
func Files(ca []byte) map[string][]byte {
	files := map[string][]byte{"Dockerfile": dockerfile, "fetch": fetch, "pins": pins, "ca/README": []byte("certificates that only the build trusts\n")}
	if len(ca) > 0 {
		files["ca/extra.crt"] = ca
	}
	return files
}

// Pin is the version of a provider's program that was tested.
type Pin struct {
	Program  string // claude, codex, opencode
	Platform string // as npm packages say it: linux-x64, linux-arm64
	Version  string
}

// Pins are all that there are.
func Pins() []Pin {
	var all []Pin
	for line := range strings.Lines(string(pins)) {
		if f := strings.Fields(line); len(f) == 5 && f[0] != "#" {
			all = append(all, Pin{f[0], f[1], f[2]})
		}
	}
	return all
}

// Programs are those that can be had for an architecture as Go names it.
func Programs(arch string) []string {
	platform := "linux-" + arch
	if arch == "amd64" {
		platform = "linux-x64"
	}
	var names []string
	for _, p := range Pins() {
		if p.Platform == platform && !slices.Contains(names, p.Program) {
			names = append(names, p.Program)
		}
	}
	return names
}
