package limit

import (
	"os"
	"path/filepath"
	"testing"
)

func TestPlaces(t *testing.T) {
	t.Parallel()
	for memory, want := range map[int64]int{0: 2, 1 << 30: 2, 4 << 30: 8, 24 << 30: 48, 1 << 60: 1000} {
		if got := Places(memory); got != want {
			t.Errorf("%d bytes: %d places, want %d", memory, got, want)
		}
	}
}

func TestMachineMemory(t *testing.T) {
	t.Parallel()
	if got := MachineMemory(); got < 64<<20 {
		t.Errorf("this machine has %d bytes of memory", got)
	}
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "memory.max"), []byte("1048576\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := within(8<<20, cgroupLimits(root)); got != 1<<20 {
		t.Errorf("a limit of 1 MiB around 8 MiB gives %d", got)
	}
	if err := os.WriteFile(filepath.Join(root, "memory.max"), []byte("max\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := within(8<<20, cgroupLimits(root)); got != 8<<20 {
		t.Errorf("no limit around 8 MiB gives %d", got)
	}
}
