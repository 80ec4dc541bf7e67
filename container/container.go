// Package container holds what the agent image is built from, and the skills that agents are given.
package container

import (
	"embed"
	"io/fs"
)

//go:embed Dockerfile
var dockerfile []byte

//go:embed skills
var skills embed.FS

// Skills are the shipped skills: a folder each.
func Skills() (fs.FS, error) { return fs.Sub(skills, "skills") }

// Files is the build context of the agent image, by path in it. ca is a PEM bundle that downloads during the build trust in
// addition; nil for none.
func Files(ca []byte) map[string][]byte {
	files := map[string][]byte{"Dockerfile": dockerfile, "ca/README": []byte("certificates that only the build trusts\n")}
	if len(ca) > 0 {
		files["ca/extra.crt"] = ca
	}
	return files
}
