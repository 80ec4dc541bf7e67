package docker

import (
	"context"
	"fmt"
	"strings"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"nanoclaw/internal/obs"
	"nanoclaw/internal/sandbox"
)

const listTries = 5

// List finds the running sandboxes of an install by the exact label and removes its dead ones that no handle of this process
// is waiting for. It must not be called while another process of the same install starts sandboxes: the lock of the home
// sees to that.
func (r *Runtime) List(ctx context.Context, install string) ([]sandbox.Handle, error) {
	const op = "list sandboxes"
	if install == "" {
		return nil, &sandbox.Failure{Class: sandbox.SpecInvalid, Op: op, Err: fmt.Errorf("the install has no id")}
	}
	all, err := r.containers(ctx, install)
	if err != nil {
		return nil, r.failure(op, err)
	}
	var found []sandbox.Handle
	for _, c := range all {
		if c.Labels[labelInstall] != install {
			continue
		}
		labels, ok := parseLabels(c.Labels)
		if !ok {
			r.log.Warn("a container carries this install's label but is no sandbox", obs.KeyContainer, c.ID, obs.KeyNames, strings.Join(c.Names, " "))
			continue
		}
		name := containerName(labels)
		switch c.State {
		case container.StateRunning, container.StatePaused, container.StateRestarting:
			found = append(found, r.adopt(name, c.ID, labels))
		default:
			if r.busy(name, c.ID) {
				continue
			}
			if err := r.remove(ctx, c.ID); err != nil {
				return nil, r.failure("remove a dead sandbox", err)
			}
			r.log.Info("removed a dead sandbox", obs.KeySession, labels.Session, obs.KeyIncarnation, labels.Incarnation, obs.KeyReason, c.Status)
		}
	}
	return found, nil
}

// containers of an install in whatever state. Podman fails the whole list when one of them goes away meanwhile.
func (r *Runtime) containers(ctx context.Context, install string) ([]container.Summary, error) {
	var err error
	for range listTries {
		var res client.ContainerListResult
		res, err = r.api.ContainerList(ctx, client.ContainerListOptions{
			All: true, Filters: client.Filters{}.Add("label", labelInstall+"="+install),
		})
		if err == nil {
			return res.Items, nil
		}
		if !gone(err) {
			return nil, err
		}
	}
	return nil, err
}

// busy: this process is starting the container, or holds a handle that will collect it.
func (r *Runtime) busy(name, containerID string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.live[name]
	return r.starting[name] || h != nil && h.id == containerID
}
