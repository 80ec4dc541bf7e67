// Package instruction puts together what an agent is told at the start of each sandbox, as one flat file without imports: the same
// for every provider (spec/host.md section 19). Names, addresses and memory are not in it: the runner knows those.
package instruction

import (
	"embed"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
)

// MaxBytes of the file. What is over it is left out, the largest part that may go first.
const MaxBytes = 64 << 10

//go:embed base/*.md
var base embed.FS

// Input is what the file is made from.
type Input struct {
	Persona string // of this agent, by its operator; never left out
	Folders []Folder
	Skills  []Skill
	Servers map[string]string // instructions of MCP servers, by name
	Own     []Own
}

// Folder of the machine that the agent asked for.
type Folder struct {
	Inside   string
	Writable bool
	Hidden   bool   // something in it is not shown
	Problem  string // it is not there, because
}

// Skill with instructions of its own for every conversation.
type Skill struct {
	Name, Text string
}

// Own is a file of the agent that the composed one covers.
type Own struct {
	Name, Text string
}

// part of the file.
type part struct {
	name string
	text string
	must bool
}

// Compose returns the file and the names of the parts that were too much for it. The order is fixed, so that equal input gives
// equal bytes.
func Compose(in Input) (text string, dropped []string, err error) {
	parts := []part{{"header", "# Instructions\n", true}}
	add := func(name, title, text string, must bool) {
		if text = strings.TrimSpace(text); text == "" {
			return
		}
		if title != "" {
			text = "## " + title + "\n\n" + text
		}
		parts = append(parts, part{name, text + "\n", must})
	}
	add("persona", "", in.Persona, true)
	files, err := fs.Glob(base, "base/*.md")
	if err != nil {
		return "", nil, err
	}
	for _, f := range files {
		b, err := base.ReadFile(f)
		if err != nil {
			return "", nil, err
		}
		add(f, "", string(b), true)
	}
	add("folders", "Folders of the machine", folders(in.Folders), true)
	skills := slices.Clone(in.Skills)
	slices.SortFunc(skills, func(a, b Skill) int { return strings.Compare(a.Name, b.Name) })
	for _, s := range skills {
		add("skill "+s.Name, "Skill "+s.Name, s.Text, false)
	}
	for _, name := range slices.Sorted(maps.Keys(in.Servers)) {
		add("server "+name, "Tools of "+name, in.Servers[name], false)
	}
	for _, o := range in.Own {
		add(o.Name, "From your own "+o.Name, "It lies in your folder and is read at each start. This file stands over it; new notes belong into `CLAUDE.local.md`.\n\n"+o.Text, false)
	}
	for {
		text := join(parts, dropped)
		if len(text) <= MaxBytes {
			return text, dropped, nil
		}
		largest := -1
		for i, p := range parts {
			if !p.must && (largest < 0 || len(p.text) > len(parts[largest].text)) {
				largest = i
			}
		}
		if largest < 0 {
			return text, dropped, nil // what must be there is there
		}
		dropped = append(dropped, parts[largest].name)
		parts = slices.Delete(parts, largest, largest+1)
	}
}

func join(parts []part, dropped []string) string {
	var b strings.Builder
	for i, p := range parts {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(p.text)
	}
	if len(dropped) > 0 {
		fmt.Fprintf(&b, "\nLeft out, since it is too long: %s. Tell the operator if you miss it.\n", strings.Join(dropped, ", "))
	}
	return b.String()
}

func folders(all []Folder) string {
	var lines []string
	for _, f := range all {
		switch {
		case f.Problem != "":
			lines = append(lines, fmt.Sprintf("- `%s` is not there, though it should be: %s. If you need it, say so.", f.Inside, f.Problem))
		case f.Writable:
			lines = append(lines, fmt.Sprintf("- `%s`: people work here, too. What you change is changed for them.", f.Inside))
		default:
			lines = append(lines, fmt.Sprintf("- `%s`: you can read it, not write.", f.Inside))
		}
		if f.Hidden && f.Problem == "" {
			lines[len(lines)-1] += " Files in it that may hold keys look empty to you."
		}
	}
	return strings.Join(lines, "\n")
}
