package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"nanoclaw/internal/id"
)

// systemTargets belong to the runtime: nothing is mounted on or below them.
var systemTargets = []string{"/proc", "/sys", "/dev", "/usr", "/etc", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/boot"}

// Validate checks a spec against the rules that hold in every runtime (spec/host.md sections 12.4 and 12.5). It looks at
// the file system (sources must exist) and changes nothing. The error is a *Failure of class spec-invalid that names
// every fault, and never the value of a variable.
func (s Spec) Validate() error {
	faults := slices.Concat(s.labelFaults(), s.commandFaults(), s.mountFaults(), s.envFaults())
	if s.UID <= 0 || s.GID <= 0 {
		faults = append(faults, fmt.Errorf("uid:gid %d:%d: a sandbox never runs as root", s.UID, s.GID))
	}
	if s.Limits.MemoryBytes < 0 || s.Limits.PIDs < 0 || s.Limits.CPUs < 0 || s.Limits.TmpBytes < 0 {
		faults = append(faults, errors.New("limits: a limit is negative"))
	}
	if s.Network != NetworkNone && s.Network != "" {
		faults = append(faults, fmt.Errorf("network %q: the only one there is is %q", s.Network, NetworkNone))
	}
	if len(faults) == 0 {
		return nil
	}
	return &Failure{Class: SpecInvalid, Op: "check sandbox spec", Err: errors.Join(faults...)}
}

func (s Spec) labelFaults() (faults []error) {
	for _, l := range []struct{ name, value string }{
		{"install", s.Labels.Install}, {"agent group", s.Labels.AgentGroup}, {"session", s.Labels.Session},
	} {
		if !id.Safe(l.value) {
			faults = append(faults, fmt.Errorf("label %s %q: not a safe id", l.name, l.value))
		}
	}
	if s.Labels.Incarnation < 0 {
		faults = append(faults, fmt.Errorf("label incarnation %d: negative", s.Labels.Incarnation))
	}
	return faults
}

func (s Spec) commandFaults() (faults []error) {
	if len(s.Command) == 0 || !cleanPath(s.Command[0]) {
		faults = append(faults, errors.New("command: must start with an absolute, clean path"))
	}
	for _, arg := range s.Command {
		if strings.ContainsRune(arg, 0) {
			faults = append(faults, errors.New("command: an argument holds a zero byte"))
		}
		if CredentialValue(arg) {
			faults = append(faults, errors.New("command: an argument looks like a credential"))
		}
	}
	if !cleanPath(s.Dir) {
		faults = append(faults, fmt.Errorf("working directory %q: not an absolute, clean path", s.Dir))
	}
	if !cleanPath(s.StateDir) || s.StateDir == "/" {
		faults = append(faults, fmt.Errorf("state folder %q: not an absolute, clean path", s.StateDir))
	}
	return faults
}

func (s Spec) mountFaults() (faults []error) {
	fault := func(m Mount, why string) {
		faults = append(faults, fmt.Errorf("mount %s (%s) on %s: %s", m.Source, m.Class, m.Target, why))
	}
	targets := map[string]bool{}
	for _, m := range s.Mounts {
		switch {
		case !cleanPath(m.Source) || m.Source == "/":
			fault(m, "the source is not an absolute, clean path below the root")
			continue
		case !cleanPath(m.Target) || m.Target == "/":
			fault(m, "the target is not an absolute, clean path below the root")
			continue
		case targets[m.Target]:
			fault(m, "the target is used twice")
		}
		targets[m.Target] = true
		for _, sys := range systemTargets {
			if Within(sys, m.Target) {
				fault(m, "the target belongs to the system of the sandbox")
			}
		}
		if m.Target == "/run" || m.Target == "/tmp" {
			fault(m, "the target belongs to the system of the sandbox")
		}
		switch m.Class {
		case ClassAgent, ClassExtra:
		case ClassProgram, ClassHostBox, ClassConfig:
			if m.Writable {
				fault(m, "this class is never writable")
			}
		default:
			fault(m, "unknown class")
		}
		if st, err := os.Lstat(m.Source); errors.Is(err, fs.ErrNotExist) {
			fault(m, "the source does not exist")
		} else if err != nil {
			fault(m, "the source cannot be read: "+err.Error())
		} else if !st.IsDir() && !st.Mode().IsRegular() {
			fault(m, "the source is neither a folder nor a file")
		}
		if Within(m.Source, s.StateDir) || m.Writable && Within(s.StateDir, m.Source) {
			fault(m, "the source shares files with the host's state folder")
		}
	}
	return append(faults, s.overlapFaults()...)
}

// overlapFaults finds files that would be read-only at one target and writable at another.
func (s Spec) overlapFaults() (faults []error) {
	for _, w := range s.Mounts {
		if !w.Writable {
			continue
		}
		for _, ro := range s.Mounts {
			protected := ro.Class == ClassProgram || ro.Class == ClassHostBox || ro.Class == ClassConfig
			if protected && (Within(w.Source, ro.Source) || Within(ro.Source, w.Source)) {
				faults = append(faults, fmt.Errorf("mount %s on %s is writable and shares files with %s (%s)", w.Source, w.Target, ro.Source, ro.Class))
			}
		}
	}
	return faults
}

func (s Spec) envFaults() (faults []error) {
	names := make([]string, 0, len(s.Env))
	for name := range s.Env {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		value := s.Env[name]
		switch {
		case name == "" || strings.ContainsAny(name, "=\x00") || strings.ContainsRune(value, 0):
			faults = append(faults, fmt.Errorf("variable %q: not a usable name or value", name))
		case CredentialValue(name):
			faults = append(faults, errors.New("a variable's name looks like a credential"))
		case CredentialName(name):
			faults = append(faults, fmt.Errorf("variable %s: the name says that it holds a credential", name))
		case CredentialValue(value):
			faults = append(faults, fmt.Errorf("variable %s: the value looks like a credential", name))
		case loaderVariable(name):
			faults = append(faults, fmt.Errorf("variable %s: it would change how programs outside the sandbox load", name))
		}
	}
	return faults
}

func cleanPath(p string) bool {
	return filepath.IsAbs(p) && filepath.Clean(p) == p && !strings.ContainsAny(p, "\x00\n")
}

// Within reports whether path is dir or lies below it; both are clean. It looks at the names only.
func Within(dir, path string) bool {
	return dir == path || dir == "/" || strings.HasPrefix(path, dir+"/")
}
