package docker

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"
	"golang.org/x/sys/unix"

	"nanoclaw/internal/sandbox"
)

// Labels of our containers. A sandbox is ours only by an exact match of labelInstall, never by its name.
const (
	labelInstall     = "nanoclaw.install"
	labelGroup       = "nanoclaw.agent-group"
	labelSession     = "nanoclaw.session"
	labelIncarnation = "nanoclaw.incarnation"
)

const (
	defaultTmp = 256 << 20
	openFiles  = 16384 // most files a process inside may have open
	logSize    = "256k"
	// userProcesses is a ceiling of the whole user, not of one sandbox; Limits.PIDs is that.
	userProcesses = 16384
	hostname      = "sandbox"
)

// containerName is unique per install and session: the daemon itself then refuses a second one. The session is in it for
// people; the hash keeps installs, and ids cut to fit, apart.
func containerName(l sandbox.Labels) string {
	sum := sha256.Sum256([]byte(l.Install + "\x00" + l.Session))
	readable := strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.' {
			return c
		}
		return '-'
	}, l.Session)
	return fmt.Sprintf("nanoclaw-%.40s-%s", readable, hex.EncodeToString(sum[:6]))
}

func labelsOf(l sandbox.Labels) map[string]string {
	return map[string]string{
		labelInstall:     l.Install,
		labelGroup:       l.AgentGroup,
		labelSession:     l.Session,
		labelIncarnation: strconv.FormatInt(l.Incarnation, 10),
	}
}

// parseLabels is the inverse; ok is false for a container whose labels we did not write.
func parseLabels(m map[string]string) (l sandbox.Labels, ok bool) {
	n, err := strconv.ParseInt(m[labelIncarnation], 10, 64)
	l = sandbox.Labels{Install: m[labelInstall], AgentGroup: m[labelGroup], Session: m[labelSession], Incarnation: n}
	return l, err == nil && l.Install != "" && l.Session != ""
}

// createOptions is the whole container as data.
func createOptions(spec sandbox.Spec, accounts []sandbox.Mount, opt Options, f *facts) (client.ContainerCreateOptions, error) {
	image := spec.Image
	if image == "" {
		image = opt.Image
	}
	no := false
	host := &container.HostConfig{
		NetworkMode:    "none",
		IpcMode:        "private",
		RestartPolicy:  container.RestartPolicy{Name: container.RestartPolicyDisabled},
		CapDrop:        []string{"ALL"},
		SecurityOpt:    []string{"no-new-privileges"},
		ReadonlyRootfs: true,
		Init:           &no, // the runner is pid 1 and reaps
		Runtime:        opt.Runtime,
		LogConfig:      container.LogConfig{Type: "json-file", Config: map[string]string{"max-size": logSize}},
		Resources:      resources(spec.Limits, f),
	}
	tmp := spec.Limits.TmpBytes
	if tmp <= 0 {
		tmp = defaultTmp
	}
	host.ShmSize = tmp
	// owned by the sandbox: runc sets the mode that the folder has in the image, whatever is asked for
	own := fmt.Sprintf("nosuid,nodev,size=%d,uid=%d,gid=%d", tmp, spec.UID, spec.GID)
	if f.podman {
		own = fmt.Sprintf("nosuid,nodev,size=%d,U,notmpcopyup", tmp)
	}
	host.Tmpfs = map[string]string{"/tmp": "rw,exec,mode=1777," + own, "/run": "rw,noexec,mode=0755," + own}
	if f.podman && f.rootless {
		host.UsernsMode = "keep-id"
	}
	if !f.podman {
		host.LogConfig.Config["max-file"] = "1"
	}
	for _, m := range slices.Concat(spec.Mounts, accounts) {
		if err := addMount(host, m, opt.Relabel); err != nil {
			return client.ContainerCreateOptions{}, err
		}
	}
	env := make([]string, 0, len(spec.Env))
	for k, v := range spec.Env {
		env = append(env, k+"="+v)
	}
	sort.Strings(env)
	var health *container.HealthConfig
	if !f.podman { // which would set a timer up to check nothing
		health = &container.HealthConfig{Test: []string{"NONE"}}
	}
	return client.ContainerCreateOptions{
		Name: containerName(spec.Labels),
		Config: &container.Config{
			Hostname:        hostname,
			User:            fmt.Sprintf("%d:%d", spec.UID, spec.GID),
			Image:           image,
			Entrypoint:      spec.Command, // replaces the image's entrypoint and command
			WorkingDir:      spec.Dir,
			Env:             env,
			Labels:          labelsOf(spec.Labels),
			NetworkDisabled: true,
			Healthcheck:     health,
		},
		HostConfig: host,
	}, nil
}

// resources leaves out what the daemon cannot enforce: it would refuse the container. Runtime.Limits says which.
func resources(l sandbox.Limits, f *facts) container.Resources {
	res := container.Resources{Ulimits: []*container.Ulimit{{Name: "core", Soft: 0, Hard: 0}, ceiling("nofile", unix.RLIMIT_NOFILE, openFiles)}}
	if f.podman { // its own default may be above what the machine allows
		res.Ulimits = append(res.Ulimits, ceiling("nproc", unix.RLIMIT_NPROC, userProcesses))
	}
	if l.MemoryBytes > 0 && f.memory {
		res.Memory = l.MemoryBytes
		res.MemorySwap = l.MemoryBytes // no swap on top
	}
	if l.PIDs > 0 && f.pids {
		res.PidsLimit = &l.PIDs
	}
	if l.CPUs > 0 && f.cpu {
		res.NanoCPUs = int64(l.CPUs * 1e9)
	}
	return res
}

// writable inside: only agent and extra mounts may be.
func writable(m sandbox.Mount) bool {
	return m.Writable && (m.Class == sandbox.ClassAgent || m.Class == sandbox.ClassExtra)
}

// addMount uses the API's mounts, which fail for a missing source; only the older binds can carry the SELinux label, and
// they cannot name a path with a colon.
func addMount(host *container.HostConfig, m sandbox.Mount, relabel bool) error {
	if !relabel {
		host.Mounts = append(host.Mounts, mount.Mount{
			Type: mount.TypeBind, Source: m.Source, Target: m.Target, ReadOnly: !writable(m),
		})
		return nil
	}
	if strings.Contains(m.Source, ":") || strings.Contains(m.Target, ":") {
		return &sandbox.Failure{
			Class: sandbox.SpecInvalid, Op: "mount " + m.Source + " at " + m.Target,
			Hint: "with docker.relabel no mounted path may contain a colon", Err: errors.New("a colon in the path"),
		}
	}
	mode := "ro"
	if writable(m) {
		mode = "rw"
	}
	host.Binds = append(host.Binds, m.Source+":"+m.Target+":"+mode+",z")
	return nil
}

// ceiling is an rlimit of at most most, and not above this process's own: raising one needs a capability that the daemon
// may lack.
func ceiling(name string, which int, most int64) *container.Ulimit {
	var own unix.Rlimit
	if err := unix.Getrlimit(which, &own); err == nil && own.Max < uint64(most) {
		most = int64(own.Max)
	}
	return &container.Ulimit{Name: name, Soft: most, Hard: most}
}
