package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"nanoclaw/internal/control"
	"nanoclaw/internal/obs"
	"nanoclaw/internal/operate"
	"nanoclaw/internal/sandbox"
	"nanoclaw/internal/sandbox/extra"
	"nanoclaw/internal/store"
)

const insideExtra = insideRoot + "/extra"

// folder is a mount that an agent asked for, and what became of it.
type folder struct {
	store.Mount
	grant   extra.Grant
	problem error // it is not mounted
}

// extras decides the mounts of an agent. A refused one is left out and said: to the log here, to the agent by its instructions.
func (l *launcher) extras(ctx context.Context, g store.AgentGroup) ([]folder, error) {
	if len(g.Setup.Mounts) == 0 {
		return nil, nil
	}
	all, err := l.store.AgentGroups(ctx)
	if err != nil {
		return nil, err
	}
	folders := decideMounts(l.settings.Home, g.Setup.Mounts, all)
	for _, f := range folders {
		if f.problem != nil {
			l.log.Warn("a mount of an agent is left out", obs.KeyGroup, string(g.ID), obs.Error(f.problem))
		}
	}
	return folders, nil
}

// decideMounts decides requests by the home's allow list. What lies inside a folder that an agent may write is refused: a link
// planted there between the look and the start would lead anywhere.
func decideMounts(home string, wanted []store.Mount, all []store.AgentGroup) []folder {
	list, listErr := extra.Load(home)
	var written []string
	for _, g := range all {
		for _, m := range g.Setup.Mounts {
			if grant, err := list.Check(extra.Request{Path: m.Path, Name: m.Name, Writable: m.Writable}); err == nil && grant.Writable {
				written = append(written, grant.Source)
			}
		}
	}
	var out []folder
	for _, m := range wanted {
		f := folder{Mount: m, problem: listErr}
		if listErr == nil {
			f.grant, f.problem = list.Check(extra.Request{Path: m.Path, Name: m.Name, Writable: m.Writable})
		}
		if f.problem == nil {
			for _, w := range written {
				if w != f.grant.Source && sandbox.Within(w, f.grant.Source) {
					f.problem = &extra.Refusal{Path: m.Path, Why: "lies in " + w + ", which an agent may write", Hint: "mount that folder itself"}
				}
			}
		}
		out = append(out, f)
	}
	return out
}

// extraMounts are the mounts of the granted folders, and something empty over what is never shown in them.
func (l *launcher) extraMounts(folders []folder) (mounts []sandbox.Mount, err error) {
	empty := filepath.Join(l.settings.Home, "run", "empty")
	for _, f := range folders {
		if f.problem != nil {
			continue
		}
		target := insideExtra + "/" + f.grant.Name
		mounts = append(mounts, sandbox.Mount{Class: sandbox.ClassExtra, Source: f.grant.Source, Target: target, Writable: f.grant.Writable})
		for _, m := range f.grant.Masked {
			source := filepath.Join(empty, "file")
			if m.Folder {
				source = filepath.Join(empty, "folder")
			}
			mounts = append(mounts, sandbox.Mount{Class: sandbox.ClassConfig, Source: source, Target: target + "/" + m.Path})
		}
	}
	if len(mounts) == 0 {
		return nil, nil
	}
	if err := os.MkdirAll(filepath.Join(empty, "folder"), 0o750); err != nil {
		return nil, fmt.Errorf("prepare mounts: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(empty, "file"), os.O_CREATE|os.O_WRONLY, 0o640)
	if err != nil {
		return nil, fmt.Errorf("prepare mounts: %w", err)
	}
	return mounts, f.Close()
}

// linkExtras shows the granted folders to an agent of the process runtime, which mounts nothing and hides nothing.
func linkExtras(dir string, folders []folder) error {
	at := filepath.Join(dir, "extra")
	if err := os.RemoveAll(at); err != nil {
		return err
	}
	for _, f := range folders {
		if f.problem != nil {
			continue
		}
		if err := os.MkdirAll(at, 0o700); err != nil {
			return err
		}
		if err := os.Symlink(f.grant.Source, filepath.Join(at, f.grant.Name)); err != nil {
			return err
		}
	}
	return nil
}

var _ operate.MountJudge = (*Host)(nil)

// JudgeMount implements operate.MountJudge.
func (h *Host) JudgeMount(ctx context.Context, m store.Mount) (operate.MountVerdict, error) {
	all, err := h.store.AgentGroups(ctx)
	if err != nil {
		return operate.MountVerdict{}, err
	}
	f := decideMounts(h.opt.Settings.Home, []store.Mount{m}, all)[0]
	var refusal *extra.Refusal
	switch {
	case errors.As(f.problem, &refusal):
		e := control.Invalid("path", refusal.Path+" "+refusal.Why)
		e.Hint = refusal.Hint
		return operate.MountVerdict{}, e
	case f.problem != nil:
		return operate.MountVerdict{}, control.Invalid("path", f.problem.Error())
	}
	v := operate.MountVerdict{Path: f.grant.Source, Name: f.grant.Name, Writable: f.grant.Writable, Inside: insideExtra + "/" + f.grant.Name, Notes: slices.Clone(f.grant.Notes)}
	for _, mask := range f.grant.Masked {
		v.Hidden = append(v.Hidden, mask.Path)
	}
	if h.runtime.Name() == sandbox.Process {
		v.Notes = append(v.Notes, "the process sandbox isolates nothing: it hides and protects no file")
	}
	return v, nil
}
