package program

import "testing"

func TestMapping(t *testing.T) {
	t.Parallel()
	const file = "/usr/bin/agent-runner"
	for line, want := range map[string][2]uintptr{
		"00400000-00a5c000 r-xp 00000000 fe:00 1234                               /usr/bin/agent-runner\n":  {0x400000, 0xa5c000},
		"00a5c000-0112f000 r--p 0065c000 fe:00 1234                               /usr/bin/agent-runner\n":  {0xa5c000, 0x112f000},
		"0112f000-011a3000 rw-p 00d2f000 fe:00 1234                               /usr/bin/agent-runner\n":  {},
		"00400000-00a5c000 r--p 00000000 fe:00 1234                               /usr/bin/agent-runner2\n": {},
		"7ff8629e0000-7ff862a40000 rw-p 00000000 00:00 0\n":                                                 {},
		"x-y r--p 00000000 fe:00 1234 /usr/bin/agent-runner\n":                                              {},
		"02-01 r--p 00000000 fe:00 1234 /usr/bin/agent-runner\n":                                            {},
	} {
		start, end, ok := mapping([]byte(line), file)
		if start != want[0] || end != want[1] || ok != (want[1] != 0) {
			t.Errorf("%q: %x-%x %v", line, start, end, ok)
		}
	}
}

// A program goes on as if nothing had happened.
func TestUnmapProgram(t *testing.T) {
	t.Parallel()
	for range 100 {
		unmapProgram()
	}
}
