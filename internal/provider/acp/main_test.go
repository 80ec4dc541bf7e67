package acp_test

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

const isolated = "NANOCLAW_TEST_ISOLATED"

// TestMain runs the tests, as root in a network namespace of their own, where nothing but loopback exists: what passes there reached
// nobody.
func TestMain(m *testing.M) {
	if os.Getenv(isolated) == "" && os.Getuid() == 0 {
		if code, ok := isolate(); ok {
			os.Exit(code)
		}
	}
	if os.Getenv(isolated) != "" {
		if err := loopback(); err != nil {
			fmt.Fprintln(os.Stderr, "no loopback in the namespace:", err)
			os.Exit(1)
		}
	}
	goleak.VerifyTestMain(m)
}

// isolate runs this program again in a new namespace; ok is false where that is not allowed.
func isolate() (code int, ok bool) {
	self, err := os.Executable()
	if err != nil {
		return 0, false
	}
	cmd := exec.Command(self, os.Args[1:]...)
	cmd.Env = append(os.Environ(), isolated+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return 0, false
	}
	_ = cmd.Wait() // the exit code says it
	return cmd.ProcessState.ExitCode(), true
}

func loopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	ifr, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	ifr.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr)
}
