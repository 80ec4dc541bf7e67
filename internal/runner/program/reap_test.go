package program

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"nanoclaw/internal/obs"
)

// The test runs in a process of its own, to which orphans fall as they do to pid 1 of a sandbox.
func TestReapsOrphansAndStealsNothing(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), reaperName+"=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

const reaperName = "NANOCLAW_TEST_REAPER"

// reaper is that process.
func reaper() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	go reap(ctx, obs.Discard())
	var orphans []string
	for i := range 30 {
		// The shell ends and leaves a grandchild that ends a moment later. Its own status must reach us, although we wait late.
		cmd := exec.CommandContext(ctx, "/bin/sh", "-c", fmt.Sprintf("sleep 0.05 >/dev/null 2>&1 & echo $!; exit %d", i%7))
		pipe, err := cmd.StdoutPipe()
		if err != nil {
			return err
		}
		if err := cmd.Start(); err != nil {
			return err
		}
		var orphan string
		if _, err := fmt.Fscan(pipe, &orphan); err != nil {
			return err
		}
		orphans = append(orphans, orphan)
		for !zombie(cmd.Process.Pid) { // it has ended and nobody has waited yet
			if ctx.Err() != nil {
				return ctx.Err()
			}
			time.Sleep(time.Millisecond)
		}
		reapOrphans(obs.Discard())
		err = cmd.Wait()
		if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != i%7 {
			return fmt.Errorf("the status of child %d was stolen: %v", i, err)
		}
	}
	for _, pid := range orphans {
		for {
			if _, err := os.Stat("/proc/" + pid); os.IsNotExist(err) {
				break
			}
			if ctx.Err() != nil {
				return fmt.Errorf("orphan %s is still there", pid)
			}
			time.Sleep(time.Millisecond)
		}
	}
	return nil
}

func zombie(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && strings.Contains(string(stat), ") Z ")
}
