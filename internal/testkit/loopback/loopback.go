// Package loopback runs a test program in a network namespace of its own, where nothing but loopback exists: what passes there reached
// nobody, and a program under test that needs another network fails.
package loopback

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

const inside = "NANOCLAW_TEST_LOOPBACK"

// Main is called at the start of TestMain, before it starts anything. Outside a namespace it runs this program again in one, with the
// same arguments and output, and ends with its exit code; inside it brings loopback up, checks that no other interface exists and
// returns. Where namespaces are not allowed it says so and returns, and with CI=true it ends the program with code 1.
func Main() {
	if os.Getenv(inside) != "" {
		if err := enter(); err != nil {
			fmt.Fprintln(os.Stderr, "loopback:", err)
			os.Exit(1)
		}
		return
	}
	code, err := again()
	if err == nil {
		os.Exit(code)
	}
	fmt.Fprintln(os.Stderr, "loopback: the tests run with this machine's network, since a network namespace is not allowed:", err)
	if os.Getenv("CI") == "true" {
		os.Exit(1)
	}
}

// again runs this program in a new namespace: as root in a network namespace, else in a user namespace that keeps the ids.
func again() (code int, err error) {
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	cmd := exec.Command(self, os.Args[1:]...)
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if uid, gid := os.Getuid(), os.Getgid(); uid != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: gid, HostID: gid, Size: 1}}
		cmd.SysProcAttr.AmbientCaps = []uintptr{unix.CAP_NET_ADMIN}
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); err != nil && !errors.As(err, &exit) {
		return 0, err
	}
	return cmd.ProcessState.ExitCode(), nil
}

func enter() error {
	if err := up(); err != nil {
		return fmt.Errorf("bring loopback up: %w", err)
	}
	all, err := net.Interfaces()
	if err != nil {
		return fmt.Errorf("list interfaces: %w", err)
	}
	var others []string
	for _, i := range all {
		// tunnel devices that a kernel puts into every namespace are down and lead nowhere
		if i.Flags&net.FlagLoopback == 0 && i.Flags&net.FlagUp != 0 {
			others = append(others, i.Name)
		}
	}
	if len(others) > 0 {
		return fmt.Errorf("the namespace has other networks: %s", strings.Join(others, ", "))
	}
	return nil
}

func up() error {
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
