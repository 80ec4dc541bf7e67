// Package sandboxtest is the conformance suite of sandbox.Runtime: what holds inside a sandbox, how it lives and ends, and
// that it outlives its host. A runtime is supported when it passes.
//
// The test binary must call Main, which lets the suite start a second host in a process of its own and kill it.
package sandboxtest

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"nanoclaw/internal/id"
	"nanoclaw/internal/sandbox"
)

// Subject is the runtime under test.
type Subject struct {
	// Open returns a new runtime value over a folder of records, as a new host would.
	Open func(records string) (sandbox.Runtime, error)
	// Isolated is false for a runtime that shows the machine as it is: the parts of the suite about the inside are left out.
	Isolated bool
	// Limited requires that memory, processes and cpu are bounded.
	Limited bool
	// Image names the image of the specs, where there are images; it must hold /bin/sh.
	Image string
	// UID and GID of the sandbox; zero is the test's own, or a dedicated one when the test runs as root.
	UID, GID int
}

// dedicated is the uid and gid of sandboxes when the suite runs as root.
const dedicated = 62019

// patience bounds every step of the suite.
const patience = 60 * time.Second

// Variables by which the suite speaks to processes it starts from the test binary.
const (
	hostVariable  = "NANOCLAW_SANDBOXTEST_HOST"
	probeVariable = "NANOCLAW_SANDBOXTEST_PROBE"
)

// Run runs the suite.
func Run(t *testing.T, s Subject) {
	if s.UID == 0 {
		s.UID, s.GID = os.Getuid(), os.Getgid()
		if s.UID == 0 {
			s.UID, s.GID = dedicated, dedicated
		}
	}
	probe := buildProbe(t)
	for _, part := range []struct {
		name string
		skip bool
		run  func(*testing.T, *bench)
	}{
		{"Inside", !s.Isolated, testInside},
		{"Ownership", false, testOwnership},
		{"Environment", false, testEnvironment},
		{"CredentialRefused", false, testCredentialRefused},
		{"Descriptors", false, testDescriptors},
		{"TmpSize", !s.Isolated, testTmpSize},
		{"ForkBomb", !s.Limited, testForkBomb},
		{"MemoryHog", !s.Limited, testMemoryHog},
		{"CPU", !s.Limited, testCPU},
		{"ExitCode", false, testExitCode},
		{"Stop", false, testStop},
		{"StopByForce", false, testStopByForce},
		{"StopTakesAll", false, testStopTakesAll},
		{"EndTakesAll", false, testEndTakesAll},
		{"Duplicate", false, testDuplicate},
		{"Waiters", false, testWaiters},
		{"BadCommand", false, testBadCommand},
		{"Foreign", false, testForeign},
		{"HostKilled", false, testHostKilled},
	} {
		t.Run(part.name, func(t *testing.T) {
			if part.skip {
				t.Skip("not promised by this runtime here")
			}
			t.Parallel()
			part.run(t, newBench(t, s, probe))
		})
	}
}

// Main runs the tests of a package that uses the suite: TestMain calls it with the Subject's Open and exits with its result.
func Main(m *testing.M, open func(records string) (sandbox.Runtime, error)) int {
	plan := os.Getenv(hostVariable)
	if plan == "" {
		return m.Run()
	}
	if err := beHost(plan, open); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// hostPlan is what a second host is to do.
type hostPlan struct {
	Records string
	Spec    sandbox.Spec
}

// beHost starts the sandbox of the plan, says so on stdout, and waits to be killed.
func beHost(plan string, open func(string) (sandbox.Runtime, error)) error {
	b, err := os.ReadFile(plan)
	if err != nil {
		return err
	}
	var p hostPlan
	if err := json.Unmarshal(b, &p); err != nil {
		return err
	}
	r, err := open(p.Records)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	h, err := r.Start(ctx, p.Spec)
	if err != nil {
		return err
	}
	fmt.Println("started", h.PID())
	var forever chan struct{}
	<-forever
	return nil
}

// buildProbe makes the static program that runs inside, or takes the one a parent test has made.
func buildProbe(t *testing.T) string {
	t.Helper()
	if p := os.Getenv(probeVariable); p != "" {
		return p
	}
	path := filepath.Join(t.TempDir(), "probe")
	build := exec.Command("go", "build", "-o", path, "nanoclaw/internal/sandbox/sandboxtest/probe")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the probe: %v\n%s", err, out)
	}
	if err := os.Chmod(path, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// RunAs runs a test of this binary once more as another user, who has a home folder of his own. It needs root, and the
// test's own name must not match run.
func RunAs(t *testing.T, uid int, run string) {
	t.Helper()
	home, err := os.MkdirTemp("", "other-user")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(home) })
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	self := filepath.Join(home, "tests")
	probe := filepath.Join(home, "probe")
	for from, to := range map[string]string{executable: self, buildProbe(t): probe} {
		// Not by this process: a child forked meanwhile would hold the file open for writing, and it could not be run.
		if out, err := exec.Command("cp", "-L", "--", from, to).CombinedOutput(); err != nil {
			t.Fatalf("copy %s: %v\n%s", from, err, out)
		}
	}
	if err := os.Chmod(home, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(home, uid, uid); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run", run, "-test.v", "-test.timeout", "5m")
	cmd.Dir = home
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "TMPDIR=" + home, probeVariable + "=" + probe, "CI=" + os.Getenv("CI")}
	cmd.SysProcAttr = as(uid)
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: ") || strings.Contains(string(out), "--- SKIP: "+strings.Trim(run, "^$")+" ") {
		t.Errorf("as user %d: %v\n%s", uid, err, out)
	}
}

func install() string { return id.New("inst") }
